"""Graphs that are made when they are asked for, many at once: of text, and of raw files.

They are needed once, when the graph store is built; later starts find the store and make none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch

from graphormer_sepnorm.chem.features import get_featurizer
from graphormer_sepnorm.chem.featurizer import Featurizer
from graphormer_sepnorm.chem.molecules import (
    RDKIT_VERSION,
    canonical_smiles,
    parse_smiles,
    parse_text,
)
from graphormer_sepnorm.chem.standardize import standardized
from graphormer_sepnorm.datasets.splits import SPLITS, DatasetSplits
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.graphs.packed_graphs import PackedGraphs
from graphormer_sepnorm.graphs.task import Task

_VERSION = 3  # changes whenever the same texts come to other graphs than before
AT_ONCE = 512  # graphs made together


class MadeGraphs(Sequence[Any]):
    """A sequence of PyG ``Data`` objects."""

    def make(self, some: slice) -> PackedGraphs:
        """Make some of the graphs; at least one."""
        raise NotImplementedError

    def __getitem__(self, index: Any, /) -> Any:
        from torch_geometric.data import Data  # whose import takes seconds, and a store needs none

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
        self._graphs, smiles_of = graphs, get_featurizer(featurizer).smiles_of
        self._written = cache(lambda at: smiles_of(graphs.make(slice(at, at + 1))[0]))

    def __len__(self) -> int:
        return len(self._graphs)

    def __getitem__(self, index: Any, /) -> Any:
        at = range(len(self))[index]
        return self._written(at) if isinstance(at, int) else [self._written(one) for one in at]


class LazyGraphs(MadeGraphs):
    """Graphs of molecules, made again whenever they are asked for.

    Attributes:
        texts: The molecules, one text each, see `parse_text`.
        y: float32 ``[n, targets]``; nan = missing.
        weights: float32 ``[n]``, of each graph in the training loss; 1 where none are given.

    Args:
        columns: Extra inputs, ``[n, C]``; nan = missing.
        bounds: As `PackedGraphs.bounds`.
    """

    def __init__(
        self,
        texts: Sequence[str],
        targets: np.ndarray,
        featurizer: Featurizer,
        weights: np.ndarray | None = None,
        columns: np.ndarray | None = None,
        bounds: np.ndarray | None = None,
    ) -> None:
        self.texts, self._featurizer = texts, featurizer
        self.y = np.asarray(targets, np.float32)
        none = np.empty((len(texts), 0))
        given = np.ones(len(texts)) if weights is None else weights
        given = given, none if columns is None else columns, none if bounds is None else bounds
        self.weights, self._columns, self._bounds = (np.asarray(of, np.float32) for of in given)

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def sides(self) -> list[np.ndarray]:
        """What missing labels are at least, and at most, ``[n, T]`` each; none: there are none."""
        return np.split(self._bounds, 2, axis=1) if self._bounds.shape[1] else []

    def make(self, some: slice) -> PackedGraphs:
        """Make some of the graphs.

        Raises:
            DataError: A text is no molecule, though it was one when the data set was loaded.
        """
        parsed = [parse_text(text) for text in self.texts[some]]
        molecules = [one.molecule for one in parsed if one.molecule is not None]
        graphs, reasons = self._featurizer.featurize_many(molecules)
        if len(molecules) < len(parsed):
            reasons = [one.reason for one in parsed]
        for index, reason in enumerate(reasons, start=some.start):
            if reason:
                raise DataError(f"graph {index}: {reason}")
        return replace(
            graphs,
            targets=self.y[some],
            weights=self.weights[some],
            extra=self._columns[some],
            bounds=self._bounds[some],
        )

    def digest(self) -> str:
        """Hash all that the graphs, and what belongs to each, are made of."""
        # Once descriptors could be asked for: the list, empty, keeps known data sets known.
        digest = hashlib.sha256(json.dumps([_VERSION, RDKIT_VERSION, []]).encode())
        digest.update("\0".join(self.texts).encode("utf-8", "surrogateescape"))
        for array in (self.y, self.weights, self._columns, self._bounds):
            digest.update(f"{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


def fingerprint_of(parts: Sequence[LazyGraphs], feature_version: str, task: Task) -> str:
    """Return what the graphs of three splits, and their labels, are known by."""
    known = [feature_version, task.kind, task.targets, *(part.digest() for part in parts)]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()


def load_arrays(
    smiles: Sequence[str],
    canonical: Sequence[str],
    labels: np.ndarray,
    task: Task,
    weights: np.ndarray | None,
    split: Sequence[np.ndarray],
    featurizer: str,
    feature_version: str,
    steps: Sequence[str],
) -> DatasetSplits:
    """Make a data set of arrays; of a `split` the rows to train on and to validate on.

    Its test split is empty.

    There are n `smiles`, those of `read_texts` after the same `steps`, and as many `canonical`
    ones, `labels` ``[n, targets]`` (nan = missing) and `weights` in the training loss.
    """
    make = get_featurizer(featurizer)
    indices: list[list[int]] = [*(part.tolist() for part in split), []]
    rows = dict(zip(SPLITS, indices, strict=True))
    texts = {name: [smiles[row] for row in chosen] for name, chosen in rows.items()}
    parts = [
        LazyGraphs(texts[name], labels[chosen], make, None if weights is None else weights[chosen])
        for name, chosen in rows.items()
    ]
    return DatasetSplits(
        "arrays",
        *parts,
        smiles=dict(texts),
        # Folds of an ensemble are by chance, but a molecule stays in one.
        groups={name: [("", canonical[row]) for row in chosen] for name, chosen in rows.items()},
        task=task,
        fingerprint=fingerprint_of(parts, feature_version, task),
        feature_version=feature_version,
        featurizer=featurizer,
        standardize=tuple(steps),
    )


def read_texts(
    smiles: Sequence[Any], featurizer: str, steps: Sequence[str]
) -> tuple[list[str], list[str], list[tuple[int, str]]]:
    """Return the SMILES that graphs are made of, after some `steps` of `standardized`.

    And the canonical ones, and the rows of which no graph can be made, each with the reason.
    """
    prepare = get_featurizer(featurizer).prepare
    texts: list[str] = []
    canonical: list[str] = []
    bad: list[tuple[int, str]] = []
    for row, text in enumerate(smiles):
        parsed = standardized(parse_smiles(text), steps)
        texts.append(parsed.standard or text)
        canonical.append("" if parsed.molecule is None else canonical_smiles(parsed.molecule))
        try:
            if parsed.molecule is None:
                raise DataError(parsed.reason)
            prepare(parsed.molecule)
        except DataError as error:
            bad.append((row, str(error)))
    return texts, canonical, bad
