"""Sequences of graphs that are made, many at once, when they are asked for.

They are needed once, when the graph store is built; later starts find the store and make none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from graphormer_sepnorm.graphs.packed_graphs import PackedGraphs

AT_ONCE = 512  # graphs made together


class MadeGraphs(ABC):
    """A sequence of PyG ``Data`` objects."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def make(self, some: slice) -> PackedGraphs:
        """Make some of the graphs; at least one."""

    def __getitem__(self, index: int, /) -> Data:
        at = range(len(self))[index]
        block = self.make(slice(at, at + 1))
        graph = block[0]
        return Data(
            x=torch.from_numpy(graph.atom_codes),
            edge_index=torch.from_numpy(graph.edge_index),
            edge_attr=torch.from_numpy(graph.bond_codes),
            y=torch.from_numpy(block.targets[0]),
            weight=torch.from_numpy(block.weights),
        )

    def __iter__(self) -> Iterator[Data]:
        return map(self.__getitem__, range(len(self)))

    def packed(self) -> Iterator[PackedGraphs]:
        """Give all graphs in order, many at once: for the graph store."""
        for start in range(0, len(self), AT_ONCE):
            yield self.make(slice(start, start + AT_ONCE))


class RawGraphs(MadeGraphs):
    """The graphs of some indices, in this order, of the raw files of a published data set."""

    def __init__(
        self, read: Callable[[], PackedGraphs], indices: Sequence[int] | np.ndarray
    ) -> None:
        self._read, self._indices = read, np.asarray(indices, np.int64)

    def __len__(self) -> int:
        return len(self._indices)

    def make(self, some: slice) -> PackedGraphs:
        """Read some of the graphs."""
        return self._read().take(self._indices[some])


class SmilesOfGraphs(Sequence[str]):
    """The SMILES of each graph, as far as its codes allow, written when it is asked for.

    The featurizer of the codes knows the way back. A SMILES is empty where codes make no molecule.
    """

    def __init__(self, graphs: MadeGraphs, featurizer: str) -> None:
        self._graphs, self._featurizer = graphs, featurizer
        self._written = cache(self._write)

    def __len__(self) -> int:
        return len(self._graphs)

    def __getitem__(self, index: Any, /) -> Any:
        at = range(len(self))[index]
        return self._written(at) if isinstance(at, int) else [self._written(one) for one in at]

    def _write(self, at: int) -> str:
        from graphormer_sepnorm.chem.features import get_featurizer  # RDKit is for those who ask

        graph = self._graphs.make(slice(at, at + 1))[0]
        return get_featurizer(self._featurizer).smiles_of(graph)
