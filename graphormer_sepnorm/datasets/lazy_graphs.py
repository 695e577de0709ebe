"""Graphs that are made from text when they are asked for.

Of a data set of SMILES the graphs are needed once, when the graph store is built; later starts find
the store and make none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch_geometric.data import Data

from graphormer_sepnorm.chem.featuriser import Featuriser
from graphormer_sepnorm.chem.molecules import ParsedMolecule, parse_smiles
from graphormer_sepnorm.errors import DataError


class LazyGraphs:
    """A sequence of PyG ``Data`` objects, each made anew whenever it is asked for.

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
        self._featurise = featuriser.featurise
        self._parse = parse

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int, /) -> Data:
        """Make one graph.

        Raises:
            DataError: Its text is no molecule, though it was one when the data set was loaded.
        """
        parsed = self._parse(self.texts[index])
        if parsed.molecule is None:
            raise DataError(f"graph {index}: {parsed.reason}")
        graph = self._featurise(parsed.molecule)
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
