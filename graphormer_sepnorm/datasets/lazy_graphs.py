"""Graphs that are made from text when they are asked for.

Of a data set of SMILES the graphs are needed once, when the graph store is built; later starts find
the store and make none.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from graphormer_sepnorm.chem.descriptors import compute_descriptors
from graphormer_sepnorm.chem.featuriser import Featuriser
from graphormer_sepnorm.chem.molecules import ParsedMolecule, parse_smiles
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.formatting import StatusLine
from graphormer_sepnorm.graphs.packed_graphs import PackedGraphs, no_numbers
from graphormer_sepnorm.process import cores, in_processes

_PACKED = 512  # graphs made at once
_MANY = 2000  # molecules whose descriptors are worth several processes


class LazyGraphs:
    """A sequence of PyG ``Data`` objects, made anew whenever they are asked for.

    Attributes:
        texts: The molecules, one text each: SMILES, or what else `parse` reads.
        y: float32 ``[n, targets]``; nan = missing.
        weights: float32 ``[n]`` or None; the weight of each graph in the training loss.

    Args:
        texts: See above.
        targets: ``[n, targets]``.
        featuriser: Makes the graphs.
        weights: See above.
        parse: Reads a text.
        descriptors: Names of RDKit's descriptors that `packed` computes of each molecule.
        columns: Further numbers beside each graph, ``[n, C]``; nan = missing.
        bounds: As `PackedGraphs.bounds`.
    """

    def __init__(
        self,
        texts: Sequence[str],
        targets: np.ndarray,
        featuriser: Featuriser,
        weights: np.ndarray | None = None,
        parse: Callable[[str], ParsedMolecule] = parse_smiles,
        descriptors: Sequence[str] = (),
        columns: np.ndarray | None = None,
        bounds: np.ndarray | None = None,
    ) -> None:
        self.texts = texts
        labels = np.asarray(targets, np.float32)
        self.y = torch.from_numpy(labels if labels.ndim == 2 else labels[:, None])
        self.weights = None if weights is None else torch.from_numpy(np.float32(weights))
        self._featuriser = featuriser
        self._parse = parse
        self._descriptors = tuple(descriptors)
        beside = (
            no_numbers(len(texts)) if numbers is None else np.asarray(numbers, np.float32)
            for numbers in (columns, bounds)
        )
        self._columns, self._bounds = beside

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
        """Make all graphs in order, with the numbers beside them, many at once: for the store.

        Raises:
            DataError: As for one graph.
        """
        starts = range(0, len(self), _PACKED)
        with closing(self._computed_descriptors()) as computed:
            for start, descriptors in zip(starts, computed, strict=True):
                yield self._block(start, descriptors)

    def _block(self, start: int, descriptors: np.ndarray) -> PackedGraphs:
        chosen = slice(start, start + _PACKED)
        molecules = [self._molecule(index) for index in range(len(self))[chosen]]
        graphs, reasons = self._featuriser.featurise_many(molecules)
        for index, reason in enumerate(reasons, start):
            if reason:
                raise DataError(f"graph {index}: {reason}")
        assert graphs is not None  # there is a molecule, and each has a graph
        weights = graphs.weights if self.weights is None else self.weights[chosen].numpy()
        extra = np.hstack([descriptors, self._columns[chosen]])
        targets, bounds = self.y[chosen].numpy(), self._bounds[chosen]
        return replace(graphs, targets=targets, weights=weights, extra=extra, bounds=bounds)

    def _computed_descriptors(self) -> Generator[np.ndarray, None, None]:
        """Give the descriptors of each block, ``[n, K]``, with a line that says how far that is."""
        blocks = [self.texts[start : start + _PACKED] for start in range(0, len(self), _PACKED)]
        if not self._descriptors:
            yield from map(no_numbers, map(len, blocks))
            return
        given = [(block, self._parse, self._descriptors) for block in blocks]
        processes = cores() if len(self) >= _MANY else 1
        line, done = StatusLine(), 0
        try:
            with in_processes(_descriptors_of, given, processes) as computed:
                for values in computed:
                    done += len(values)
                    if line.is_due():
                        line.show(f"descriptors: {done:,} of {len(self):,} molecules")
                    yield values
        finally:
            line.clear()

    def _molecule(self, index: int) -> Any:
        parsed = self._parse(self.texts[index])
        if parsed.molecule is None:
            raise DataError(f"graph {index}: {parsed.reason}")
        return parsed.molecule


def _descriptors_of(
    given: tuple[Sequence[str], Callable[[str], ParsedMolecule], Sequence[str]],
) -> np.ndarray:
    """Return the descriptors of some molecules; runs in any process."""
    texts, parse, names = given
    return compute_descriptors([parse(text).molecule for text in texts], names)
