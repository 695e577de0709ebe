"""Evaluating a checkpoint on the validation or the test split."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer

from graphormer_sepnorm.config import DataConfig, FitConfig, ModelConfig
from graphormer_sepnorm.datasets.catalogue import DATASETS, PRETRAINING, TABLE
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.errors import CheckpointError, ConfigError
from graphormer_sepnorm.files import cannot_be_written, write_columns
from graphormer_sepnorm.formatting import aligned, in_a_line
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.inference.checkpoint import KEY, find_checkpoint, read_checkpoint
from graphormer_sepnorm.pipeline.blend import final_predictions
from graphormer_sepnorm.pipeline.report import prediction_columns, without_new_elements
from graphormer_sepnorm.tables.columns import means
from graphormer_sepnorm.training.endings import explaining, interruptible, restorable
from graphormer_sepnorm.training.fit import make_evaluator
from graphormer_sepnorm.training.module import GraphormerModule

_ANOTHER_TABLE = (
    "This is not the table and split that the model was trained on: it was split anew, and "
    "molecules that the model has learned from may be among these. To evaluate all rows of a "
    "table: predict.py MODEL -i FILE --evaluate COLUMN."
)
_MEMBERS = (
    "Each network of the ensemble was trained on most of these molecules: metrics out of fold are "
    "in summary.json of the run (best_validation_...)."
)


def data_options(model: str, named: bool) -> dict[str, Any]:
    """Return the options that load what a checkpoint was trained on, as ``data.table``.

    Args:
        model: File, run directory or bundled name.
        named: Whether other data are named.

    Raises:
        ConfigError: The data have no name by which they can be loaded, and no others are named.
        CheckpointError: It cannot be used.
    """
    facts = read_checkpoint(find_checkpoint(model))[KEY]
    for name in Task.from_plain(facts["task"]).ones:
        # An estimator's classes are in alphabetical order: of active and inactive it is inactive.
        if name and not means(name, 1):
            raise CheckpointError(
                f"class 1 of the model is {in_a_line(name)}, which is not 1 in the labels of a "
                "data set: predict.py --evaluate takes its words"
            )
    table = facts.get("data_options")
    if table is not None:
        if unknown := table.keys() - {*DataConfig.names()}:
            raise CheckpointError(
                f"{model} was made with --data.{min(unknown)}, which is no option of this version"
            )
        return {f"data.{name}": value for name, value in table.items()} | {"data.dataset": TABLE}
    if facts["dataset"] in (*DATASETS, PRETRAINING):
        return {"data.dataset": facts["dataset"]}
    if named:
        return {}
    raise ConfigError(
        f"the checkpoint was trained on {facts['dataset']}, which is not among "
        f"{', '.join(DATASETS)}: name what to evaluate it on, with --data.table FILE or "
        "--data.dataset NAME"
    )


def evaluate_checkpoint(config: FitConfig, model: str, split: str, predictions: str | None) -> str:
    """Evaluate a checkpoint; return its metrics as text.

    Args:
        config: Data and trainer; the network is the checkpoint's.
        model: File, run directory or bundled name.
        split: ``validation`` or ``test``.
        predictions: File that gets the prediction of each molecule.

    Returns:
        Nothing in all processes but the first.

    Raises:
        GraphormerError: Checkpoint, data and options do not fit each other.
    """
    file = find_checkpoint(model)
    checkpoint = read_checkpoint(file)
    kept = checkpoint.get("hyper_parameters", {})
    own = {name: kept[name] for name in ModelConfig.names() if name in kept}
    seed = config.seed_everything
    module = GraphormerModule(ModelConfig(**own), seed=seed)
    length = checkpoint[KEY]["model"]["max_path_length"]
    data = MoleculeDataModule(config.data, seed=seed, max_path_length=length)
    with explaining():
        trainer = make_evaluator(config.trainer)
        output = _predictions_file(predictions, trainer, split)
        with interruptible(trainer, lambda: "interrupted"), restorable(file):
            return _evaluated(trainer, module, data, split, str(file), output)


def _evaluated(
    trainer: Trainer,
    module: GraphormerModule,
    data: MoleculeDataModule,
    split: str,
    checkpoint: str,
    file: Path | None,
) -> str:
    run = trainer.validate if split == "validation" else trainer.test
    values = run(module, datamodule=data, ckpt_path=checkpoint, verbose=False, weights_only=True)[0]
    if not trainer.is_global_zero:
        return ""
    predictions = module.evaluated(split)
    final, note = final_predictions(module, data, split, checkpoint, predictions)
    rows = {name: _digits(value) for name, value in values.items()}
    if final is not None:
        predictions = final
        found = module.task.evaluate(data.labels(data.indices(split)), final)
        own = {f"{split}_{name}": value for name, value in found.items()}
        values = {**values, **own}
        rows |= {
            name: f"{_digits(value)}  (network alone {rows[name]})" for name, value in own.items()
        }
    main = values[f"{split}_{module.task.metric}"]
    new_elements, line = without_new_elements(module, data, split, predictions, main)
    of_members = split == "validation" and module.facts.get("member_folds")
    same = data.splits.fingerprint == module.facts.get("dataset_fingerprint")
    another = data.table_options is not None and not same
    if file is not None:
        with _explained(file):
            write_columns(file, prediction_columns(data, split, predictions, new_elements))
    text = [
        f"checkpoint  {checkpoint}",
        f"{split:<10}  {len(data.indices(split)):,} molecules of {data.splits.name}",
        aligned([*rows.items()]),
        note,
        _MEMBERS if of_members else "",
        line,
        _ANOTHER_TABLE if another else "",
        "" if file is None else f"{'predicted':<10}  {file}",
    ]
    return "\n".join(filter(None, text))


def _predictions_file(name: str | None, trainer: Trainer, split: str) -> Path | None:
    """The file of ``--predictions``, in a folder that is there now; None if none is wanted."""
    if name is None:
        return None
    limit = "limit_val_batches" if split == "validation" else "limit_test_batches"
    part = getattr(trainer, limit)
    if isinstance(part, int) or part < 1:
        raise ConfigError(f"--predictions is for a whole split: leave --trainer.{limit} out")
    file = Path(name).expanduser()
    if not file.name or file.is_dir():
        raise ConfigError(f"--predictions {name}: it is a folder, name a file")
    with _explained(file):
        file.parent.mkdir(parents=True, exist_ok=True)
    return file


@contextmanager
def _explained(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(f"--predictions: {cannot_be_written(file, error)}") from error


def _digits(value: float) -> str:
    return "undefined" if math.isnan(value) else f"{value:.6g}"
