"""The embeddings of [CLS] and of a sample of the atoms after each layer of a model, measured.

G graphs · M sampled atoms · B graphs and A atoms of one batch · n embeddings · C channels
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from graphormer_sepnorm.compare import geometry
from graphormer_sepnorm.graphs.loading import in_order, make_loader
from graphormer_sepnorm.graphs.store import GraphStore
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary
from graphormer_sepnorm.model.graphormer import Graphormer

OUTPUT = "output"
GRAPH_TOKEN, ATOMS = "graph token", "atoms"
# Uniformity holds the distances of all pairs, and there are two dozen clouds in a model.
_UNIFORMITY_OF = 2000
_SINGULAR_VALUES = 100


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
        histogram: ``edges`` and ``counts`` of each feature, where they were asked for.
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
        counts, edges = geometry.feature_histograms(cloud)
        counted = {"edges": edges.tolist(), "counts": counts.tolist()}
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
