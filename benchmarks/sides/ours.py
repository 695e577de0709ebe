"""This package, through the public names that `Predictor` and `train.py` are made of."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from benchmarks.sides.networks import timed
from benchmarks.sides.protocol import Options, Work, in_batches, read_smiles, serve, to_batches
from benchmarks.sides.simple_graphs import simple_graph
from graphormer_sepnorm import Predictor
from graphormer_sepnorm.chem.features import get_featurizer
from graphormer_sepnorm.chem.molecules import parse_smiles
from graphormer_sepnorm.config import ModelConfig
from graphormer_sepnorm.graphs.batch import Collator, GraphBatch
from graphormer_sepnorm.graphs.packed_graphs import MolecularGraph
from graphormer_sepnorm.graphs.store import GraphStore
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary, Vocabulary
from graphormer_sepnorm.inference.checkpoint import FORMAT_VERSION, KEY
from graphormer_sepnorm.kernels.library import switched_off
from graphormer_sepnorm.model.config import GraphormerConfig
from graphormer_sepnorm.model.graphormer import Graphormer
from graphormer_sepnorm.resources import config_path
from graphormer_sepnorm.training.module import GraphormerModule
from graphormer_sepnorm.training.optimizer import make_optimizer

FEATURIZER = "molecule-1"
RECIPE = yaml.safe_load(config_path("zinc_subset_best").read_text())["model"]
ATTENTION_BLOCKS = 4  # as configs/zinc.yaml
PREDICT = [sys.executable, str(Path(__file__).resolve().parents[2] / "predict.py")]

Maker = Callable[[Options, GraphVocabulary, int], Graphormer]


def slim(
    options: Options, vocabulary: GraphVocabulary, table_rows: int | None = None
) -> Graphormer:
    """Return the slim model, with the norm that the other Graphormers have."""
    dropout = options.get("dropout", 0.0)
    config = GraphormerConfig(
        norm="shared-ln",
        max_path_length=options["max_path_length"],
        dropout=dropout,
        attention_dropout=dropout,
        input_dropout=dropout,
        atom_rows=table_rows,
        bond_rows=table_rows,
    )
    return Graphormer(config.for_vocabulary(vocabulary))


def slim_checkpoint(options: Options) -> dict:
    """Return an untrained slim model that knows the atoms and bonds of the row's molecules."""
    featurize = get_featurizer(FEATURIZER).featurize
    molecules = [parse_smiles(text).molecule for text in set(read_smiles(options))]
    graphs = [featurize(molecule) for molecule in molecules if molecule is not None]
    vocabulary = GraphVocabulary(
        Vocabulary.fit(np.concatenate([graph.atom_codes for graph in graphs])),
        Vocabulary.fit(np.concatenate([graph.bond_codes for graph in graphs])),
    )
    model = slim(options, vocabulary)
    facts = {
        "format_version": FORMAT_VERSION,
        "model": dataclasses.asdict(model.config),
        "task": Task("regression", ("property",), ("",), "mae").to_plain(),
        "target_mean": [0.0],
        "target_std": [1.0],
        "vocabulary": vocabulary.to_plain(),
        "featurizer": FEATURIZER,
        "feature_version": FEATURIZER,
        "dataset": "benchmark",
        "dataset_fingerprint": "none",
    }
    weights = {f"model.{name}": value for name, value in model.state_dict().items()}
    return {KEY: facts, "state_dict": weights}


def smiles_to_batches(options: Options) -> Work:
    """Text to batches that the model takes, all structure in them."""
    predictor = Predictor(slim_checkpoint(options), device="cpu")

    def batch_of(texts: list[str]) -> GraphBatch:
        graphs, _, errors, _ = predictor.reader.featurize([parse_smiles(text) for text in texts])
        assert graphs is not None
        assert not any(errors), errors
        store = GraphStore.from_graphs([graphs], options["max_path_length"])
        return Collator(store, predictor.vocabulary)(range(len(graphs)))

    return to_batches(options, batch_of)


def recipe(options: Options, vocabulary: GraphVocabulary, table_rows: int) -> Graphormer:
    """Return the network of a configuration, with the sizes of tables that the others have."""
    given = GraphormerModule(**RECIPE).architecture
    config = dataclasses.replace(given, atom_rows=table_rows, bond_rows=table_rows)
    return Graphormer(config.for_vocabulary(vocabulary))


def _network(options: Options, make: Maker) -> tuple[Graphormer, list[GraphBatch], int]:
    graphs = [MolecularGraph(*simple_graph(text)) for text in read_smiles(options)]
    store = GraphStore.from_graphs(graphs, options["max_path_length"])
    vocabulary = GraphVocabulary.fit(store, np.arange(len(graphs)))
    collate = Collator(store, vocabulary, ATTENTION_BLOCKS)
    batches = in_batches(list(range(len(graphs))), options["batch_size"])
    model = make(options, vocabulary, 64)
    return model, [collate(batch) for batch in batches], len(graphs)


def train(options: Options, make: Maker = slim, **of_optimizer: Any) -> Work:
    """Training steps on random batches, by AdamW unless another optimizer is given."""
    model, batches, molecules = _network(options, make)
    usual = {"learning_rate": 2e-4, "weight_decay": 0.01, "betas": (0.9, 0.999), "eps": 1e-8}
    optimizer = make_optimizer(model, ModelConfig(**(usual | of_optimizer)))
    with switched_off():  # operations are counted: those of the compiled functions nobody sees
        return timed(model, model, batches, molecules, optimizer)


def train_recipe(options: Options) -> Work:
    """The same with the network and the optimizer of a configuration."""
    chosen = {name: RECIPE[name] for name in ("learning_rate", "weight_decay", "eps", "optimizer")}
    return train(options, recipe, **chosen, betas=tuple(RECIPE["betas"]))


def forward(options: Options, make: Maker = slim) -> Work:
    """Forward passes over the same batches."""
    model, batches, molecules = _network(options, make)
    with switched_off():
        return timed(model, model, batches, molecules)


def forward_recipe(options: Options) -> Work:
    """The same with the network of a configuration."""
    return forward(options, recipe)


def predict(options: Options) -> Work:
    """``predict.py``: CSV in, CSV out; with an untrained slim model unless one is named."""
    output = Path(options["scratch"]) / "ours.csv"
    model = options.get("model")
    if model is None:
        model = str(Path(options["scratch"]) / "slim.ckpt")
        torch.save(slim_checkpoint(options), model)
    command = [*PREDICT, model, "-i", options["table"], "-o", str(output), "--overwrite", "--quiet"]
    return Work(command=command, facts={"molecules": len(read_smiles(options))})


def show_help(options: Options) -> Work:
    """``predict.py --help``."""
    return Work(command=[*PREDICT, "--help"])


def missing_table(options: Options) -> Work:
    """``train.py fit`` with a table that is not there: refused."""
    code = "from graphormer_sepnorm.cli.train import main\n"
    code += "assert main(['fit', '-c', 'table', '--data.table', 'missing.csv']) == 2"
    return Work(command=[sys.executable, "-c", code])


def first_prediction(options: Options) -> Work:
    """``predict.py`` for one molecule, with the model of the package."""
    return Work(command=[*PREDICT, "esol", "CCO"])


if __name__ == "__main__":
    networks = (train, train_recipe, forward, forward_recipe)
    serve(smiles_to_batches, *networks, predict, show_help, missing_table, first_prediction)
