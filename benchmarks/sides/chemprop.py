"""chemprop 2.3.1, a message-passing network without paths; run in its own environment."""
# pyright: reportMissingImports=false

from __future__ import annotations

import sys
from pathlib import Path

from chemprop.data import MoleculeDatapoint, MoleculeDataset
from chemprop.data.collate import collate_batch, collate_cuik_batch
from chemprop.data.datapoints import LazyMoleculeDatapoint
from chemprop.data.datasets import CuikmolmakerDataset
from chemprop.models import MPNN
from chemprop.models.utils import save_model
from chemprop.nn import BondMessagePassing, NormAggregation, RegressionFFN

from benchmarks.sides.protocol import Options, Work, read_smiles, serve, to_batches


def smiles_to_batches(options: Options) -> Work:
    """Text to batches by the default featurizer, or by its C++ one (``cuik``)."""

    def default(texts: list[str]) -> object:
        data = MoleculeDataset([MoleculeDatapoint.from_smi(text) for text in texts])
        return collate_batch([data[place] for place in range(len(data))])

    def compiled(texts: list[str]) -> object:
        data = CuikmolmakerDataset([LazyMoleculeDatapoint(text) for text in texts])
        return collate_cuik_batch(data.__getitems__(list(range(len(data)))))

    return to_batches(options, compiled if options["cuik"] else default)


def predict(options: Options) -> Work:
    """``chemprop predict`` with an untrained model of default size: CSV in, CSV out."""
    scratch = Path(options["scratch"])
    model = MPNN(BondMessagePassing(), NormAggregation(), RegressionFFN())
    save_model(scratch / "chemprop.pt", model, ["property"])
    places = ["-i", options["table"], "-o", str(scratch / "chemprop.csv")]
    command = [str(Path(sys.executable).with_name("chemprop")), "predict", *places]
    command += ["--model-paths", str(scratch / "chemprop.pt"), "--accelerator", "cpu"]
    if options["cuik"]:
        command.append("--use-cuikmolmaker-featurization")
    parameters = sum(parameter.numel() for parameter in model.parameters())
    facts = {"molecules": len(read_smiles(options)), "parameters": parameters}
    return Work(command=command, facts=facts)


if __name__ == "__main__":
    serve(smiles_to_batches, predict)
