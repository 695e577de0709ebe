"""Which labels a data set has, in one word.

The fingerprint of a data set that is somebody else's says which graphs these are, if its author
thought of all that they depend on; labels that are wrong would be seen by nobody.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor
from torch_geometric.data import InMemoryDataset

from graphormer_sepnorm.datasets.inmemory import QuickGraphs
from graphormer_sepnorm.datasets.lazy_graphs import LazyGraphs
from graphormer_sepnorm.datasets.splits import DatasetSplits
from graphormer_sepnorm.graphs.packed_graphs import labels_and_weight, ranges


def labels_digest(splits: DatasetSplits) -> str:
    """Hash labels and weights of all graphs, in their order.

    Graphs are looked at one by one, at 7 microseconds each if they are there already, unless their
    labels lie in one array.

    Raises:
        DataError: A weight cannot be.
    """
    digests = hashlib.sha256(), hashlib.sha256()
    for name, part in splits.parts.items():
        for arrays in _labels_and_weights(part, f"{splits.name}, {name}"):
            for digest, values in zip(digests, arrays, strict=True):
                digest.update(np.asarray(values, np.float32).tobytes())
    return "".join(digest.hexdigest() for digest in digests)


def _labels_and_weights(part: Any, where: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    if isinstance(part, LazyGraphs):
        weights = np.ones(len(part)) if part.weights is None else part.weights.numpy()
        yield part.y.numpy(), weights
    elif isinstance(part, InMemoryDataset) and _lies_in_arrays(part):
        weighed = "weight" in (part.slices or ())
        yield _joined(part, "y"), _joined(part, "weight") if weighed else np.ones(len(part))
    else:
        for number, graph in enumerate(part):
            labels, weight = labels_and_weight(graph, f"{where}: graph {number}")
            yield labels, np.array([weight])


def _lies_in_arrays(graphs: InMemoryDataset) -> bool:
    """Whether the labels that are given are those of PyG's joint array, and not made on the way."""
    y, slices = getattr(graphs._data, "y", None), graphs.slices or {}
    kept = getattr(graphs, "_data_list", None) or ()  # graphs that were given once are given again
    return (
        type(graphs).get in (InMemoryDataset.get, QuickGraphs.get)
        and type(graphs).__getitem__ is InMemoryDataset.__getitem__
        and graphs.transform is None
        and isinstance(y, Tensor)
        and "y" in slices
        and len(y) == slices["y"][-1]
        and all(graph is None for graph in kept)
    )


def _joined(graphs: Any, key: str) -> np.ndarray:
    numbers = np.asarray(graphs.indices())
    starts = np.asarray(graphs.slices[key])
    rows = ranges(starts[numbers], starts[numbers + 1] - starts[numbers])
    return np.asarray(getattr(graphs._data, key))[rows]
