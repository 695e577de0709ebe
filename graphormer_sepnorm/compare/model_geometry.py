"""The geometry of a model's embeddings, layer by layer, as plain numbers for reports and files.

G graphs · n embeddings · d their width
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from graphormer_sepnorm.compare import geometry
from graphormer_sepnorm.compare.embeddings import OUTPUT, LayerEmbeddings, ModelEmbeddings
from graphormer_sepnorm.graphs.store import GraphStore

GRAPH_TOKEN, ATOMS = "graph token", "atoms"
# Uniformity takes a second for 10,000 embeddings, and there are two dozen clouds in a model.
_UNIFORMITY_OF = 2000
_SINGULAR_VALUES = 100


def geometry_per_layer(
    embeddings: ModelEmbeddings,
    properties: Mapping[str, np.ndarray],
    *,
    learn: np.ndarray,
    check: np.ndarray,
    clouds: np.ndarray | None = None,
    histograms: bool = False,
) -> list[dict[str, Any]]:
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
        Two entries per place: what `cloud_geometry` gives, with its ``layer`` and ``what`` it
        holds; for the graph token also ``cosine_to_atoms`` (mean) and ``probes`` (R² each).
    """
    clouds = np.ones(len(embeddings.graph_ids), dtype=bool) if clouds is None else clouds
    entries = []
    for layer in embeddings.layers:
        with_histogram = histograms and layer.name == OUTPUT
        token = cloud_geometry(layer.graph_token[clouds], with_histogram)
        token["cosine_to_atoms"] = _measured(_mean_cosine, layer, clouds)
        token["probes"] = {
            name: _measured(_probe, layer.graph_token, values.astype(np.float64), learn, check)
            for name, values in properties.items()
        }
        atoms = cloud_geometry(layer.atoms[clouds[layer.graph_of_atom]], with_histogram)
        atoms |= {"cosine_to_atoms": None, "probes": None}
        entries += [
            {"layer": layer.name, "what": what, **values}
            for what, values in ((GRAPH_TOKEN, token), (ATOMS, atoms))
        ]
    return entries


def cloud_geometry(cloud: np.ndarray, histogram: bool = False) -> dict[str, Any]:
    """Return the geometry of embeddings ``[n, d]`` as plain numbers.

    Uniformity is that of at most 2,000 embeddings drawn at random, with a fixed seed; the spectrum
    is not centred, as in the paper, but the effective rank is given both ways. What a cloud has not
    (a collapsed one directions, a single embedding pairs, one with numbers that are not finite
    anything) is nan.
    """
    result: dict[str, Any] = {
        "embeddings": len(cloud),
        "uniformity": _measured(geometry.uniformity, _draw(cloud, _UNIFORMITY_OF)),
        "uniformity_floor": geometry.uniformity_floor(cloud.shape[1]),
        "effective_rank": math.nan,
        "effective_rank_centred": math.nan,
        "log_singular_values": [],
        "histogram": None,
    }
    if not len(cloud) or not np.isfinite(cloud).all():
        return result
    spectrum = geometry.singular_values(cloud)
    centred = geometry.singular_values(cloud, centred=True)
    result["effective_rank"] = geometry.effective_rank(spectrum)
    result["effective_rank_centred"] = geometry.effective_rank(centred)
    with np.errstate(divide="ignore"):
        logarithms = np.log(spectrum[:_SINGULAR_VALUES])
    result["log_singular_values"] = np.round(logarithms, 6).tolist()
    if histogram:
        counts, edges = geometry.feature_histograms(cloud)
        result["histogram"] = {"edges": edges.tolist(), "counts": counts.tolist()}
    return result


def _draw(cloud: np.ndarray, most: int) -> np.ndarray:
    if len(cloud) <= most:
        return cloud
    return cloud[np.random.default_rng(0).choice(len(cloud), most, replace=False)]


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
    cosines = geometry.cosine_to(layer.graph_token, layer.atoms, layer.graph_of_atom)[clouds]
    known = cosines[~np.isnan(cosines)]  # a graph of which no atom was sampled has none
    return float(known.mean()) if len(known) else math.nan


def _measured(measure: Callable[..., float], *arguments: Any) -> float:
    """Return what is measured, nan where the cloud does not have it."""
    try:
        return measure(*arguments)
    except ValueError:
        return math.nan
