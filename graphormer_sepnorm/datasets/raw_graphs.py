"""Graphs of a published data set, read from its raw files when they are asked for.

They are needed once, when the graph store is built; later starts find the store and read none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from graphormer_sepnorm.graphs.packed_graphs import PackedGraphs

_PACKED = 512  # graphs given at once


class RawGraphs:
    """Some graphs of raw files, as PyG ``Data`` objects in a sequence.

    Args:
        read: Gives the graphs of the files; where that takes long it remembers them.
        indices: Which of them, in this order.
    """

    def __init__(
        self, read: Callable[[], PackedGraphs], indices: Sequence[int] | np.ndarray
    ) -> None:
        self._read = read
        self._indices = np.asarray(indices, np.int64)

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int, /) -> Data:
        """Return one graph."""
        return next(_graphs_of(self.of(index)))

    def __iter__(self) -> Iterator[Data]:
        for block in self.packed():
            yield from _graphs_of(block)

    def of(self, index: int) -> PackedGraphs:
        """Return one graph alone."""
        return self._read().take([self._indices[index]])

    def packed(self) -> Iterator[PackedGraphs]:
        """Give all graphs in order, many at once: for the graph store."""
        for start in range(0, len(self), _PACKED):
            yield self._read().take(self._indices[start : start + _PACKED])


def _graphs_of(block: PackedGraphs) -> Iterator[Data]:
    for number, targets in enumerate(block.targets):
        graph = block[number]
        yield Data(
            x=torch.from_numpy(graph.atom_codes),
            edge_index=torch.from_numpy(graph.edge_index),
            edge_attr=torch.from_numpy(graph.bond_codes),
            y=torch.from_numpy(targets),
        )


class SmilesOfGraphs(Sequence[str]):
    """The SMILES of each graph, as far as its codes allow, written when it is asked for.

    Args:
        graphs: The graphs.
        featuriser: Name of that of the codes, which knows the way back. The SMILES is empty where
            codes make no molecule.
    """

    def __init__(self, graphs: RawGraphs, featuriser: str) -> None:
        self._graphs, self._featuriser = graphs, featuriser
        self._written: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._graphs)

    def __getitem__(self, index: Any, /) -> Any:
        from graphormer_sepnorm.chem.features import get_featuriser  # RDKit is for those who ask

        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        if index not in self._written:
            way_back = get_featuriser(self._featuriser).smiles_of
            assert way_back is not None
            self._written[index] = way_back(self._graphs.of(index)[0])
        return self._written[index]
