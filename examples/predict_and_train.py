"""Predict with a bundled model, train on a table, predict with what was trained: all from Python.

    python examples/predict_and_train.py [TABLE.csv]

Without a table the bundled sample is taken: 7,000 molecules, half a minute on one core.
"""

import sys

from lightning import Trainer, seed_everything

from graphormer_sepnorm import Predictor
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.resources import sample_path
from graphormer_sepnorm.training.module import GraphormerModule

SMILES = ["CCO", "CC(=O)Oc1ccccc1C(=O)O", "C1CC"]  # the last is none


def show(predictor: Predictor) -> None:
    """Print what a model says of some molecules."""
    said = predictor.predict(SMILES)
    for smiles, (value,), error in zip(said.smiles, said.values, said.errors, strict=True):
        print(f"  {smiles:<24}", error or f"{predictor.task.targets[0]} {value:.2f}")


def main(table: str, epochs: int = 5) -> None:
    """Do both; the table has a column of SMILES and one of numbers."""
    print("esol, a bundled model:")
    show(Predictor.load("esol"))

    seed_everything(0, verbose=False)
    data = MoleculeDataModule(table=table, batch_size=64, max_path_length=5)
    model = GraphormerModule(norm="sepnorm", layers=3, width=48, heads=4, ffn_width=48,
                             max_path_length=5, learning_rate=1e-3)  # fmt: skip
    trainer = Trainer(max_epochs=epochs, logger=False, enable_checkpointing=False,
                      enable_progress_bar=False, enable_model_summary=False)  # fmt: skip
    trainer.fit(model, data)
    (values,) = trainer.test(model, data, verbose=False)
    print(f"test_mae {values['test_mae']:.2f}")

    trainer.save_checkpoint("model.ckpt", weights_only=True)
    print("model.ckpt, which predict.py takes too:")
    show(Predictor.load("model.ckpt"))


if __name__ == "__main__":
    main(sys.argv[1] if sys.argv[1:] else str(sample_path()))
