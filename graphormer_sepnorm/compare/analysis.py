"""What a trained model of a comparison predicts, and the geometry of its embeddings.

Both are computed once per run and kept in its directory, so that a report can be made again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from graphormer_sepnorm.compare.model_geometry import (
    CloudGeometry,
    collect_embeddings,
    geometry_per_layer,
    ring_counts,
)
from graphormer_sepnorm.compare.results_file import typed
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.errors import CheckpointError
from graphormer_sepnorm.files import read_json, replacing, write_json
from graphormer_sepnorm.graphs.loading import in_order, make_loader
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary
from graphormer_sepnorm.inference.checkpoint import KEY, model_weights, read_checkpoint
from graphormer_sepnorm.inference.network import build_network
from graphormer_sepnorm.model.graphormer import Graphormer
from graphormer_sepnorm.runs.directory import RunDirectory

VERSION = 2
# At most so many test molecules, whose embeddings are measured, and training molecules, from which
# probes learn.
TEST_MOLECULES = 10_000
TRAINING_MOLECULES = 2000
# Of both, so that some 10,000 are left of the former.
_ATOMS = 30_000
_SEED = 0


class RunAnalysis(NamedTuple):
    """What a run predicts of the test split, float64 ``[G, T]``; and its `geometry_per_layer`.

    Predictions are in real units, or probabilities.
    """

    predictions: np.ndarray
    geometry: tuple[CloudGeometry, ...]


def device_of(accelerator: str | None, devices: int | str | list[int] | None) -> str:
    """Return where a run is analysed: on a GPU that its trainer was told to take, or on the CPU.

    As the trainer reads them: ``auto`` takes a GPU if there is one, and devices are how many, or a
    list of which, as ``[1]`` or ``"1,"``.
    """
    if accelerator not in (None, "auto", "gpu", "cuda") or not torch.cuda.is_available():
        return "cpu"
    if isinstance(devices, str) and "," in devices:
        devices = [int(number) for number in devices.split(",") if number.strip()]
    first = devices[0] if isinstance(devices, list) and devices else 0
    # It may have been another machine, with more of them.
    return f"cuda:{first}" if first < torch.cuda.device_count() else "cuda"


def analyse(
    run: RunDirectory, data: MoleculeDataModule, *, histograms: bool, device: str = "cpu"
) -> RunAnalysis:
    """Measure the embeddings of the tested checkpoint of a run, and find what it predicts.

    What ``fit`` has written of the test split is taken if it is whole.

    The result is kept in the directory of the run and taken from there the next time, also where
    the checkpoint was deleted meanwhile. No other checkpoint is measured in its place.

    Args:
        run: Its directory.
        data: What it was trained on.
        histograms: Whether histograms of the features at the output are wanted.
        device: Where the model is computed.

    Raises:
        CheckpointError: The checkpoint cannot be read, or it is gone and what is needed of it was
            not kept.
    """
    kept, table = run.geometry_file, run.computed_predictions_file
    file = _tested(run)
    wanted = {"version": VERSION, "dataset_fingerprint": data.splits.fingerprint}
    if file.is_file():
        wanted |= {"histograms": histograms, "checkpoint": f"{file.name} {file.stat().st_mtime_ns}"}
    written = run.test_predictions(data.splits.task.targets) or ()
    whole = len(written) == len(data.indices("test"))
    predictions = np.array(written) if whole else None
    earlier = read_json(kept)
    if earlier is not None and wanted.items() <= earlier.items() and _is_of(file, earlier):
        if predictions is None and table.is_file():
            predictions = np.load(table)
        if predictions is not None:
            return RunAnalysis(predictions, typed(tuple[CloudGeometry, ...], earlier["clouds"]))
    if not file.is_file():
        raise CheckpointError(
            f"{file} is gone, and what the report needs of it was not kept: put it back, or remove "
            f"{run.path} and start the comparison again to train this run anew"
        )
    checkpoint = read_checkpoint(file, device)
    model = build_network(checkpoint[KEY]["model"], model_weights(checkpoint))
    model.to(device).eval()
    vocabulary = GraphVocabulary.from_plain(checkpoint[KEY]["vocabulary"])
    if predictions is None:
        predictions = _predict(model, checkpoint[KEY], data, vocabulary)
        with replacing(table) as partial, partial.open("wb") as stream:
            np.save(stream, predictions)
    clouds = _measure(model, data, vocabulary, histograms)
    write_json(kept, {**wanted, "clouds": [asdict(cloud) for cloud in clouds]}, indent=None)
    return RunAnalysis(predictions, clouds)


def _tested(run: RunDirectory) -> Path:
    """The checkpoint that a finished run was tested with, whether it is still there or not."""
    named = (run.summary() or {}).get("checkpoint")
    return run.checkpoints / Path(named).name if named else run.tested or run.best


def _is_of(file: Path, kept: Mapping[str, Any]) -> bool:
    """Whether what was kept was computed from a checkpoint of this name."""
    return str(kept.get("checkpoint")).startswith(f"{file.name} ")


def _predict(
    model: Graphormer, facts: dict[str, Any], data: MoleculeDataModule, vocabulary: GraphVocabulary
) -> np.ndarray:
    task = Task.from_plain(facts["task"])
    mean, std = np.array(facts["target_mean"]), np.array(facts["target_std"])
    device = next(model.parameters()).device
    batches = in_order(data.store, data.indices("test"), data.eval_batch_size)
    with torch.no_grad():
        rows = [
            task.values_of(model(batch.to(device)), mean, std)
            for batch in make_loader(data.store, vocabulary, batches)
        ]
    return np.concatenate(rows)


def _measure(
    model: Graphormer, data: MoleculeDataModule, vocabulary: GraphVocabulary, histograms: bool
) -> tuple[CloudGeometry, ...]:
    test = _some(data.indices("test"), TEST_MOLECULES)
    numbers = np.concatenate([_some(data.indices("train"), TRAINING_MOLECULES), test])
    embeddings = collect_embeddings(
        model,
        data.store,
        vocabulary,
        numbers,
        batch_size=data.eval_batch_size,
        max_atoms=_ATOMS,
        seed=_SEED,
    )
    properties = {
        "atoms": embeddings.num_atoms,
        "rings": ring_counts(data.store, numbers),
        "target": data.store.targets[numbers, 0],
    }
    tested = np.isin(numbers, test)
    return geometry_per_layer(
        embeddings, properties, check=tested, clouds=tested, histograms=histograms
    )


def _some(indices: np.ndarray, most: int) -> np.ndarray:
    """At most so many of them, the same for every arm, in their order."""
    chosen = np.random.default_rng(_SEED).permutation(indices)[:most]
    return np.sort(chosen)
