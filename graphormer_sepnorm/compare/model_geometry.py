"""The geometry of a model's embeddings, layer by layer.

G graphs · n embeddings · d their width
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphormer_sepnorm.compare import geometry
from graphormer_sepnorm.compare.embeddings import OUTPUT, LayerEmbeddings, ModelEmbeddings
from graphormer_sepnorm.graphs.store import GraphStore

GRAPH_TOKEN, ATOMS = "graph token", "atoms"
# Uniformity holds the distances of all pairs, and there are two dozen clouds in a model.
_UNIFORMITY_OF = 2000
_SINGULAR_VALUES = 100


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


def geometry_per_layer(
    embeddings: ModelEmbeddings,
    properties: Mapping[str, np.ndarray],
    *,
    learn: np.ndarray,
    check: np.ndarray,
    clouds: np.ndarray | None = None,
    histograms: bool = False,
) -> list[CloudGeometry]:
    """Measure the clouds of [CLS] and of the atoms after each layer and at the output.

    Args:
        embeddings: Of G molecules.
        properties: What linear probes are asked to read from [CLS]: numbers ``[G]``, nan where
            they are not known.
        learn: bool ``[G]``: the molecules that probes are fitted to.
        check: bool ``[G]``: those that they are tested on.
        clouds: bool ``[G]``: the molecules whose embeddings are measured; None: all.
        histograms: Whether the features at the output have histograms.

    Returns:
        Two per place, that of the graph token first.
    """
    clouds = np.ones(len(embeddings.graph_ids), dtype=bool) if clouds is None else clouds
    entries = []
    for layer in embeddings.layers:
        histogram = histograms and layer.name == OUTPUT
        probes = {
            name: _probe(layer.graph_token, values.astype(np.float64), learn, check)
            for name, values in properties.items()
        }
        cosine = _mean_cosine(layer, clouds)
        token, atoms = layer.graph_token[clouds], layer.atoms[clouds[layer.graph_of_atom]]
        entries += [
            CloudGeometry(
                layer.name,
                GRAPH_TOKEN,
                **cloud_geometry(token, histogram),
                cosine_to_atoms=cosine,
                probes=probes,
            ),
            CloudGeometry(layer.name, ATOMS, **cloud_geometry(atoms, histogram)),
        ]
    return entries


def cloud_geometry(cloud: np.ndarray, histogram: bool = False) -> dict[str, Any]:
    """Return the fields of a `CloudGeometry` that embeddings ``[n, d]`` have by themselves."""
    drawn = cloud
    if len(cloud) > _UNIFORMITY_OF:
        drawn = cloud[np.random.default_rng(0).choice(len(cloud), _UNIFORMITY_OF, replace=False)]
    result: dict[str, Any] = {
        "embeddings": len(cloud),
        "uniformity_floor": geometry.uniformity_floor(cloud.shape[1]),
    }
    if not len(cloud) or not np.isfinite(cloud).all():
        return result
    spectrum = geometry.singular_values(cloud)
    centred = geometry.singular_values(cloud, centred=True)
    with np.errstate(divide="ignore"):
        logarithms = np.log(spectrum[:_SINGULAR_VALUES])
    result |= {
        "uniformity": geometry.uniformity(drawn),
        "effective_rank": geometry.effective_rank(spectrum),
        "effective_rank_centred": geometry.effective_rank(centred),
        "log_singular_values": tuple(np.round(logarithms, 6).tolist()),
    }
    if histogram:
        counts, edges = geometry.feature_histograms(cloud)
        result["histogram"] = {"edges": edges.tolist(), "counts": counts.tolist()}
    return result


def ring_counts(store: GraphStore, numbers: np.ndarray) -> np.ndarray:
    """Number of independent rings of graphs: bonds - atoms + fragments.

    Args:
        store: The graphs, their bonds in both directions.
        numbers: Which of them, ``[G]``.

    Returns:
        int64 ``[G]``.
    """
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


def _probe(cloud: np.ndarray, values: np.ndarray, learn: np.ndarray, check: np.ndarray) -> float:
    known = ~np.isnan(values)
    learn, check = known & learn, known & check
    return geometry.linear_probe(cloud[learn], values[learn], cloud[check], values[check])


def _mean_cosine(layer: LayerEmbeddings, clouds: np.ndarray) -> float:
    cosines = geometry.cosine_to(layer.graph_token, layer.atoms, layer.graph_of_atom)
    if not len(cosines):
        return math.nan
    cosines = cosines[clouds]
    known = cosines[~np.isnan(cosines)]  # a graph of which no atom was sampled has none
    return float(known.mean()) if len(known) else math.nan
