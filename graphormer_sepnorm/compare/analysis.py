"""What a trained model of a comparison predicts, and the geometry of its embeddings.

Both are computed once per run and kept in its directory, so that a report can be made again.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphormer_sepnorm.compare.embeddings import collect_embeddings
from graphormer_sepnorm.compare.model_geometry import geometry_per_layer, ring_counts
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.graphs.loading import in_order, make_loader
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary
from graphormer_sepnorm.inference.checkpoint import BEST, KEY, model_weights, read_checkpoint
from graphormer_sepnorm.model.graphormer import Graphormer, GraphormerConfig
from graphormer_sepnorm.training.report import read_json, write_json

VERSION = 1
# Molecules of the training and of the test split that are looked at, at most so many of each:
# probes learn from the former and are tested on the latter.
MOLECULES = 2000
_SEED = 0


@dataclass(frozen=True)
class RunAnalysis:
    """What was computed of one run.

    Attributes:
        predictions: float64 ``[G, T]`` of the test split: real units, or probabilities.
        geometry: One entry per layer and kind of token, see `geometry_per_layer`.
    """

    predictions: np.ndarray
    geometry: list[dict[str, Any]]


def analyse(run: Path, data: MoleculeDataModule, *, histograms: bool) -> RunAnalysis:
    """Predict the test split with the best checkpoint of a run and measure its embeddings.

    Args:
        run: The run directory. The result is kept in it and taken from there the next time.
        data: What the run was trained on.
        histograms: Whether the features' histograms of the last places are wanted.

    Raises:
        CheckpointError: The run has no readable checkpoint.
    """
    kept, table = run / "geometry.json", run / "test_predictions.npy"
    earlier = read_json(kept)
    wanted = {"version": VERSION, "histograms": histograms}
    if earlier is not None and wanted.items() <= earlier.items() and table.is_file():
        return RunAnalysis(np.load(table), earlier["clouds"])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    checkpoint = read_checkpoint(run / "checkpoints" / BEST, device)
    model = Graphormer(GraphormerConfig(**checkpoint[KEY]["model"]))
    model.load_state_dict(model_weights(checkpoint))
    model.to(device).eval()
    vocabulary = GraphVocabulary.from_plain(checkpoint[KEY]["vocabulary"])
    predictions = _predict(model, checkpoint[KEY], data, vocabulary)
    clouds = _measure(model, data, vocabulary, histograms)
    partial = table.with_name(".test_predictions.partial.npy")
    np.save(partial, predictions)
    os.replace(partial, table)
    write_json(kept, {**wanted, "clouds": clouds}, indent=None)
    return RunAnalysis(predictions, clouds)


def _predict(
    model: Graphormer,
    facts: dict[str, Any],
    data: MoleculeDataModule,
    vocabulary: GraphVocabulary,
) -> np.ndarray:
    device = next(model.parameters()).device
    rows = []
    with torch.no_grad():
        for batch in make_loader(
            data.store, vocabulary, in_order(data.indices("test"), data.eval_batch_size)
        ):
            rows.append(model(batch.to(device)).double().cpu().numpy())
    outputs = np.concatenate(rows)
    if facts["task"]["kind"] == "binary":
        return 1 / (1 + np.exp(-outputs))
    return outputs * np.array(facts["target_std"]) + np.array(facts["target_mean"])


def _measure(
    model: Graphormer, data: MoleculeDataModule, vocabulary: GraphVocabulary, histograms: bool
) -> list[dict[str, Any]]:
    train, test = (_some(data.indices(split)) for split in ("train", "test"))
    numbers = np.concatenate([train, test])
    loader = make_loader(data.store, vocabulary, in_order(numbers, data.eval_batch_size))
    embeddings = collect_embeddings(model, loader, seed=_SEED)
    properties = {
        "atoms": embeddings.num_atoms,
        "rings": ring_counts(data.store, embeddings.graph_ids),
        "target": data.store.targets[embeddings.graph_ids, 0],
    }
    held_out = np.isin(embeddings.graph_ids, test)
    return geometry_per_layer(embeddings, properties, held_out, histograms=histograms)


def _some(indices: np.ndarray) -> np.ndarray:
    """At most `MOLECULES` of them, the same for every arm, in their order."""
    chosen = np.random.default_rng(_SEED).permutation(indices)[:MOLECULES]
    return np.sort(chosen)
