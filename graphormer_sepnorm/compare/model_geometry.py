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
    held_out: np.ndarray,
    *,
    histograms: bool = False,
) -> list[dict[str, Any]]:
    """Measure the clouds of [CLS] and of the atoms after each layer and at the output.

    Args:
        embeddings: Of some molecules.
        properties: What linear probes are asked to read from [CLS]: numbers ``[G]``, nan where
            they are not known.
        held_out: bool ``[G]``: probes learn from the other molecules and are tested on these.
        histograms: Whether the last layer and the output have histograms of their features.

    Returns:
        Two entries per place: what `cloud_geometry` gives, with its ``layer`` and ``what`` it
        holds; for the graph token also ``cosine_to_atoms`` (mean) and ``probes`` (R² each).
    """
    last = (embeddings.layers[-2].name, OUTPUT) if histograms else ()
    clouds = []
    for layer in embeddings.layers:
        token = cloud_geometry(layer.graph_token, layer.name in last)
        token["cosine_to_atoms"] = _measured(_mean_cosine, layer)
        token["probes"] = {
            name: _measured(_probe, layer.graph_token, values.astype(np.float64), held_out)
            for name, values in properties.items()
        }
        atoms = cloud_geometry(layer.atoms, layer.name in last)
        atoms |= {"cosine_to_atoms": None, "probes": None}
        clouds += [
            {"layer": layer.name, "what": what, **values}
            for what, values in ((GRAPH_TOKEN, token), (ATOMS, atoms))
        ]
    return clouds


def cloud_geometry(cloud: np.ndarray, histogram: bool = False) -> dict[str, Any]:
    """Return the geometry of embeddings ``[n, d]`` as plain numbers.

    Uniformity is that of the first 2,000; the spectrum is not centred, as in the paper, but the
    effective rank is given both ways. What a cloud has not (a collapsed one no spread, a single
    embedding no pairs) is nan or -inf.
    """
    if not np.isfinite(cloud).all():
        cloud = np.zeros_like(cloud)  # of a model that diverged: nothing can be said
    spectrum = geometry.singular_values(cloud)
    with np.errstate(divide="ignore"):
        logarithms = np.log(spectrum[:_SINGULAR_VALUES])
    result = {
        "embeddings": len(cloud),
        "uniformity": _measured(geometry.uniformity, cloud[:_UNIFORMITY_OF]),
        "uniformity_floor": geometry.uniformity_floor(cloud.shape[1]),
        "effective_rank": geometry.effective_rank(spectrum),
        "effective_rank_centred": geometry.effective_rank(
            geometry.singular_values(cloud, centred=True)
        ),
        "log_singular_values": np.round(logarithms, 6).tolist(),
        "histogram": None,
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


def _probe(cloud: np.ndarray, values: np.ndarray, held_out: np.ndarray) -> float:
    known = ~np.isnan(values)
    learn, check = known & ~held_out, known & held_out
    return geometry.linear_probe(cloud[learn], values[learn], cloud[check], values[check])


def _mean_cosine(layer: LayerEmbeddings) -> float:
    cosines = geometry.cosine_to(layer.graph_token, layer.atoms, layer.graph_of_atom)
    known = cosines[~np.isnan(cosines)]  # a graph of which no atom was sampled has none
    return float(known.mean()) if len(known) else math.nan


def _measured(measure: Callable[..., float], *arguments: Any) -> float:
    """Return what is measured, nan where the cloud does not have it."""
    try:
        return measure(*arguments)
    except ValueError:
        return math.nan
