"""Graphs that are made from text when they are asked for.

Of a data set of SMILES the graphs are needed once, when the graph store is built; later starts find
the store and make none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from graphormer_sepnorm.chem.featuriser import Featuriser
from graphormer_sepnorm.chem.molecules import ParsedMolecule, parse_smiles
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.graphs.packed_graphs import PackedGraphs

_PACKED = 512  # graphs made at once


class LazyGraphs:
    """A sequence of PyG ``Data`` objects, made anew whenever they are asked for.

    Attributes:
        texts: The molecules, one text each: SMILES, or what else `parse` reads.
        y: float32 ``[n, targets]``; nan = missing.
        weights: float32 ``[n]`` or None; the weight of each graph in the training loss.
    """

    def __init__(
        self,
        texts: Sequence[str],
        targets: np.ndarray,
        featuriser: Featuriser,
        weights: np.ndarray | None = None,
        parse: Callable[[str], ParsedMolecule] = parse_smiles,
    ) -> None:
        self.texts = texts
        self.y = torch.from_numpy(np.asarray(targets, dtype=np.float32)).reshape(len(texts), -1)
        self.weights = None if weights is None else torch.from_numpy(np.float32(weights))
        self._featuriser = featuriser
        self._parse = parse

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int, /) -> Data:
        """Make one graph.

        Raises:
            DataError: Its text is no molecule, though it was one when the data set was loaded.
        """
        graph = self._featuriser.featurise(self._molecule(index))
        data = Data(
            x=torch.from_numpy(graph.atom_codes),
            edge_index=torch.from_numpy(graph.edge_index),
            edge_attr=torch.from_numpy(graph.bond_codes),
            y=self.y[index],
        )
        if self.weights is not None:
            data.weight = self.weights[index].reshape(1)
        return data

    def __iter__(self) -> Iterator[Data]:
        return map(self.__getitem__, range(len(self)))

    def packed(self) -> Iterator[PackedGraphs]:
        """Make all graphs in order, many at once: for the graph store.

        Raises:
            DataError: As for one graph.
        """
        for start in range(0, len(self), _PACKED):
            chosen = slice(start, start + _PACKED)
            molecules = [self._molecule(index) for index in range(len(self))[chosen]]
            graphs, reasons = self._featuriser.featurise_many(molecules)
            for index, reason in enumerate(reasons, start):
                if reason:
                    raise DataError(f"graph {index}: {reason}")
            assert graphs is not None  # there is a molecule, and each has a graph
            weights = graphs.weights if self.weights is None else self.weights[chosen].numpy()
            yield replace(graphs, targets=self.y[chosen].numpy(), weights=weights)

    def _molecule(self, index: int) -> Any:
        parsed = self._parse(self.texts[index])
        if parsed.molecule is None:
            raise DataError(f"graph {index}: {parsed.reason}")
        return parsed.molecule
