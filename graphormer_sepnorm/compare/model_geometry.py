"""The embeddings of [CLS] and of a sample of the atoms after each layer of a model, measured.

`geometry_of` keeps what it measures in the directory of a run.

G graphs · M sampled atoms · B graphs and A atoms of one batch · n embeddings · C channels
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from graphormer_sepnorm.compare import geometry
from graphormer_sepnorm.errors import CheckpointError
from graphormer_sepnorm.files import read_json, typed, write_json
from graphormer_sepnorm.graphs.loading import in_order, make_loader
from graphormer_sepnorm.graphs.store import GraphStore
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary
from graphormer_sepnorm.inference.checkpoint import (
    KEY,
    build_network,
    model_weights,
    read_checkpoint,
)
from graphormer_sepnorm.model.graphormer import Graphormer
from graphormer_sepnorm.runs.directory import RunDirectory

if TYPE_CHECKING:
    from graphormer_sepnorm.datasets.data_module import MoleculeDataModule

OUTPUT = "output"
GRAPH_TOKEN, ATOMS = "graph token", "atoms"
# Uniformity holds the distances of all pairs, and there are two dozen clouds in a model.
_UNIFORMITY_OF = 2000
_SINGULAR_VALUES = 100
_FEATURES, _BINS = 50, 60  # the first features, of which histograms are taken (paper, Fig. 2)
# Of a run at most so many test molecules, whose embeddings are measured, and training molecules,
# from which probes learn; and the atoms of both, so that some 10,000 are left of the former.
_TEST_MOLECULES, _TRAINING_MOLECULES, _ATOMS = 10_000, 2000, 30_000
_SEED = 0
_VERSION = 2  # of what is kept in the directory of a run


class LayerEmbeddings(NamedTuple):
    """[CLS] ``[G, C]`` and the sampled atoms ``[M, C]`` at ``layer 1`` and so on, or ``output``."""

    name: str
    graph_token: np.ndarray
    atoms: np.ndarray


class ModelEmbeddings(NamedTuple):
    """The embeddings of some graphs throughout a model.

    Attributes:
        layers: One per encoder layer, in order, then the output. With ``norm_position: pre`` a
            layer gives the residual stream, which no norm has touched yet; the output is what the
            last norm made of it. With ``post`` the output is the last layer again.
        graph_of_atom: int64 ``[M]``, row of the graph that each sampled atom belongs to.
        num_atoms: int64 ``[G]``, atoms of each graph, sampled or not.
    """

    layers: tuple[LayerEmbeddings, ...]
    graph_of_atom: np.ndarray
    num_atoms: np.ndarray


@dataclass(frozen=True)
class CloudGeometry:
    """The geometry of n embeddings at one place of a model; nan is what they do not have.

    Attributes:
        layer: ``layer 1`` and so on, or ``output``.
        what: ``graph token`` or ``atoms``.
        embeddings: n.
        uniformity: Of at most 2,000 of them, drawn at random with a fixed seed.
        uniformity_floor: Of this width.
        effective_rank: Of their spectrum as it is, like the paper's.
        effective_rank_centred: With the mean taken away.
        log_singular_values: The first 100, not centred; -inf (null in a file) of a zero.
        histogram: Of the first 50 features, where it was asked for: 61 ``edges`` that all of them
            share, and the ``counts`` of each.
        cosine_to_atoms: Mean over the molecules, of the graph token.
        probes: R² of each quantity that is read from the graph token.
    """

    layer: str
    what: str
    embeddings: int = 0
    uniformity: float = math.nan
    uniformity_floor: float = math.nan
    effective_rank: float = math.nan
    effective_rank_centred: float = math.nan
    log_singular_values: tuple[float, ...] = ()
    histogram: dict[str, Any] | None = None
    cosine_to_atoms: float = math.nan
    probes: dict[str, float] | None = None


def collect_embeddings(
    model: Graphormer,
    store: GraphStore,
    vocabulary: GraphVocabulary,
    numbers: np.ndarray,
    *,
    batch_size: int = 64,
    max_atoms: int = 10_000,
    seed: int = 0,
) -> ModelEmbeddings:
    """Run a model in evaluation mode and keep its embeddings.

    Which atoms are sampled depends on `seed`, `max_atoms` and the set of graphs alone, not on the
    model, so that arms are compared on the same atoms.

    Args:
        model: The network (`GraphormerModule.model`), on any device; set to evaluation mode.
        store: The graphs.
        vocabulary: What the model knows of them.
        numbers: int64 ``[G]``, which of them, at least one. [CLS] is kept for all: (layers + 1) *
            G * C numbers.
        batch_size: Graphs that are computed at once.
        max_atoms: Largest M. All atoms are kept if there are no more.
        seed: Of the sample.

    Returns:
        Rows in the order of `numbers`, in the floating type of the model (float32 at least).
    """
    num_atoms = store.num_atoms(numbers)
    chosen = _sample(numbers, num_atoms, max_atoms, seed)
    kept: list[list[tuple[np.ndarray, ...]]] = [[] for _ in (*model.layers, OUTPUT)]
    after_layers: list[Tensor] = []  # packed rows [B + A, C]

    def record(layer: nn.Module, given: Any, made: tuple[Tensor, Tensor | None]) -> None:
        after_layers.append(made[0])

    hooks = [layer.register_forward_hook(record) for layer in model.layers]
    device = next(model.parameters()).device
    model.eval()
    first = 0
    try:
        with torch.no_grad():
            for batch in make_loader(store, vocabulary, in_order(store, numbers, batch_size)):
                after_layers.clear()
                outputs = torch.cat(model.encode(batch.to(device)))
                end = first + len(batch.graph_of_atom)
                atoms = torch.from_numpy(np.flatnonzero(chosen[first:end])).to(device)
                first = end
                for place, rows in zip(kept, [*after_layers, outputs], strict=True):
                    parts = rows[: batch.num_graphs], rows[batch.num_graphs + atoms]
                    place.append(tuple(map(_to_numpy, parts)))
    finally:
        for hook in hooks:
            hook.remove()
    names = [*(f"layer {place}" for place in range(1, len(kept))), OUTPUT]
    layers = tuple(
        LayerEmbeddings(name, *map(np.concatenate, zip(*place, strict=True)))
        for name, place in zip(names, kept, strict=True)
    )
    graph_of_atom = np.repeat(np.arange(len(numbers)), num_atoms)[chosen]
    return ModelEmbeddings(layers, graph_of_atom, num_atoms)


def _sample(numbers: np.ndarray, num_atoms: np.ndarray, most: int, seed: int) -> np.ndarray:
    """Choose the atoms with the smallest of random numbers: bool, one per atom of the graphs.

    They are drawn from (seed, number of the graph, place in the graph).
    """
    keys = np.concatenate(
        [
            np.random.default_rng([seed, number]).random(count)
            for number, count in zip(numbers.tolist(), num_atoms.tolist(), strict=True)
        ]
    )
    chosen = np.zeros(len(keys), dtype=bool)
    chosen[np.argsort(keys, kind="stable")[:most]] = True
    return chosen


def _to_numpy(rows: Tensor) -> np.ndarray:
    wide = rows if rows.dtype == torch.float64 else rows.float()
    # A copy: what is kept of a batch must not keep all of it alive.
    return wide.cpu().numpy().copy()


def geometry_per_layer(
    embeddings: ModelEmbeddings,
    properties: Mapping[str, np.ndarray],
    *,
    check: np.ndarray,
    clouds: np.ndarray | None = None,
    histograms: bool = False,
) -> tuple[CloudGeometry, ...]:
    """Measure the clouds of [CLS] and of the atoms after each layer and at the output.

    Args:
        embeddings: Of G molecules.
        properties: What linear probes are asked to read from [CLS]: numbers ``[G]``, nan where
            they are not known.
        check: bool ``[G]``: the molecules that probes are tested on; they are fitted to the others.
        clouds: bool ``[G]``: the molecules whose embeddings are measured; None: all.
        histograms: Whether the features at the output have histograms.

    Returns:
        Two per place, that of the graph token first.
    """
    if clouds is None:
        clouds = np.ones(len(embeddings.num_atoms), dtype=bool)
    graphs = embeddings.graph_of_atom
    entries = []
    for layer in embeddings.layers:
        histogram = histograms and layer.name == OUTPUT
        token = cloud_geometry(layer.name, GRAPH_TOKEN, layer.graph_token[clouds], histogram)
        probes = {
            name: _probe(layer.graph_token, values.astype(np.float64), check)
            for name, values in properties.items()
        }
        cosines = geometry.cosine_to(layer.graph_token, layer.atoms, graphs)
        cosines = cosines[clouds] if len(cosines) else cosines
        known = cosines[~np.isnan(cosines)]  # a graph of which no atom was sampled has none
        cosine = float(known.mean()) if len(known) else math.nan
        atoms = cloud_geometry(layer.name, ATOMS, layer.atoms[clouds[graphs]], histogram)
        entries += [replace(token, cosine_to_atoms=cosine, probes=probes), atoms]
    return tuple(entries)


def cloud_geometry(
    layer: str, what: str, cloud: np.ndarray, histogram: bool = False
) -> CloudGeometry:
    """Measure what embeddings ``[n, C]`` have by themselves."""
    floor = geometry.uniformity_floor(cloud.shape[1])
    result = CloudGeometry(layer, what, len(cloud), uniformity_floor=floor)
    if not len(cloud) or not np.isfinite(cloud).all():
        return result
    drawn = cloud
    if len(cloud) > _UNIFORMITY_OF:
        drawn = cloud[np.random.default_rng(0).choice(len(cloud), _UNIFORMITY_OF, replace=False)]
    spectrum = geometry.singular_values(cloud)
    with np.errstate(divide="ignore"):
        logarithms = np.log(spectrum[:_SINGULAR_VALUES])
    counted = None
    if histogram:
        values = cloud[:, :_FEATURES].astype(np.float64)
        edges = np.histogram_bin_edges(values, _BINS)
        counts = [np.histogram(column, edges)[0].tolist() for column in values.T]
        counted = {"edges": edges.tolist(), "counts": counts}
    return replace(
        result,
        uniformity=geometry.uniformity(drawn),
        effective_rank=geometry.effective_rank(spectrum),
        effective_rank_centred=geometry.effective_rank(
            geometry.singular_values(cloud, centred=True)
        ),
        log_singular_values=tuple(np.round(logarithms, 6).tolist()),
        histogram=counted,
    )


def _probe(cloud: np.ndarray, values: np.ndarray, check: np.ndarray) -> float:
    known = ~np.isnan(values)
    learn, check = known & ~check, known & check
    return geometry.linear_probe(cloud[learn], values[learn], cloud[check], values[check])


def ring_counts(store: GraphStore, numbers: np.ndarray) -> np.ndarray:
    """Number of independent rings of graphs ``[G]``, int64: bonds - atoms + fragments."""
    counts = np.empty(len(numbers), dtype=np.int64)
    for place, number in enumerate(np.asarray(numbers).tolist()):
        atoms = slice(store.first_atom[number], store.first_atom[number + 1])
        pairs = store.pair_type[store.first_pair[number] : store.first_pair[number + 1]]
        size = int(atoms.stop - atoms.start)
        reachable = store.type_distance[pairs].reshape(size, size) >= 0
        fragments = (1 / reachable.sum(axis=1)).sum()
        bonds = np.asarray(store.in_degree[atoms], dtype=np.int64).sum() // 2
        counts[place] = round(float(bonds - size + fragments))
    return counts


def geometry_of(
    run: RunDirectory,
    data: MoleculeDataModule,
    *,
    histograms: bool,
    accelerator: str | None = "cpu",
) -> tuple[CloudGeometry, ...]:
    """Measure the embeddings of the tested checkpoint of a run, see `geometry_per_layer`.

    The result is kept in the directory of the run and taken from there the next time, also where
    the checkpoint was deleted meanwhile. No other checkpoint is measured in its place.

    Args:
        run: Its directory.
        data: What it was trained on.
        histograms: Whether histograms of the features at the output are wanted.
        accelerator: That of its trainer: one that may be a GPU is one here if there is one.

    Raises:
        CheckpointError: The checkpoint cannot be read, or it is gone and nothing was kept.
    """
    named = (run.summary() or {}).get("checkpoint")
    file = run.checkpoints / Path(named).name if named else run.tested or run.best
    wanted = {"version": _VERSION, "dataset_fingerprint": data.splits.fingerprint}
    if file.is_file():
        wanted |= {"histograms": histograms, "checkpoint": f"{file.name} {file.stat().st_mtime_ns}"}
    kept = read_json(run.geometry_file) or {}
    of_this = str(kept.get("checkpoint")).startswith(f"{file.name} ")
    if of_this and wanted.items() <= kept.items():
        return typed(tuple[CloudGeometry, ...], kept["clouds"])
    if not file.is_file():
        raise CheckpointError(
            f"{file} is gone, and what the report needs of it was not kept: put it back, or remove "
            f"{run.path} and start the comparison again to train this run anew"
        )
    on_gpu = accelerator in (None, "auto", "gpu", "cuda") and torch.cuda.is_available()
    device = "cuda" if on_gpu else "cpu"
    checkpoint = read_checkpoint(file, device)
    model = build_network(checkpoint[KEY]["model"], model_weights(checkpoint))
    vocabulary = GraphVocabulary.from_plain(checkpoint[KEY]["vocabulary"])
    clouds = _measure(model.to(device), data, vocabulary, histograms)
    plain = [asdict(cloud) for cloud in clouds]
    write_json(run.geometry_file, {**wanted, "clouds": plain}, indent=None)
    return clouds


def _measure(
    model: Graphormer, data: MoleculeDataModule, vocabulary: GraphVocabulary, histograms: bool
) -> tuple[CloudGeometry, ...]:
    test = _some(data.indices("test"), _TEST_MOLECULES)
    numbers = np.concatenate([_some(data.indices("train"), _TRAINING_MOLECULES), test])
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
