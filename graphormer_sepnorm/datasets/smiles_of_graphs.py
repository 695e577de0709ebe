"""SMILES of molecules whose data set has none: written from a graph when they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from graphormer_sepnorm.datasets.splits import Graphs
from graphormer_sepnorm.graphs.packed_graphs import checked_graph


class SmilesOfGraphs(Sequence[str]):
    """The SMILES of each graph of a split, as far as its codes allow.

    Args:
        graphs: The split.
        featuriser: Name of that of the codes, which knows the way back. The SMILES is empty where
            codes make no molecule.
    """

    def __init__(self, graphs: Graphs, featuriser: str) -> None:
        self._graphs = graphs
        self._featuriser = featuriser
        self._written: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._graphs)

    @overload
    def __getitem__(self, place: int, /) -> str: ...
    @overload
    def __getitem__(self, place: slice, /) -> list[str]: ...
    def __getitem__(self, place: int | slice, /) -> str | list[str]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        place = range(len(self))[place]
        if place not in self._written:
            self._written[place] = self._write(place)
        return self._written[place]

    def _write(self, place: int) -> str:
        # RDKit is for those who ask.
        from graphormer_sepnorm.chem.features import get_featuriser

        way_back = get_featuriser(self._featuriser).smiles_of
        assert way_back is not None
        return way_back(checked_graph(self._graphs[place], f"graph {place}")[0])
