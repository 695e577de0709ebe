"""Graphs that are made from text when they are asked for, and data sets of molecules in memory."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch

from graphormer_sepnorm.chem.descriptors import compute_descriptors
from graphormer_sepnorm.chem.features import get_featurizer
from graphormer_sepnorm.chem.featurizer import Featurizer
from graphormer_sepnorm.chem.molecules import (
    RDKIT_VERSION,
    ParsedMolecule,
    canonical_smiles,
    parse_smiles,
)
from graphormer_sepnorm.chem.standardize import standardized
from graphormer_sepnorm.datasets import raw_graphs
from graphormer_sepnorm.datasets.splits import SPLITS, DatasetSplits
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.formatting import StatusLine
from graphormer_sepnorm.graphs.packed_graphs import PackedGraphs, no_numbers
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.process import cores, in_processes

_VERSION = 3  # changes whenever the same texts come to other graphs than before
_MANY = 2000  # molecules whose descriptors are worth several processes
Made = TypeVar("Made")


class LazyGraphs(raw_graphs.MadeGraphs):
    """Graphs of molecules, made anew whenever they are asked for.

    Attributes:
        texts: The molecules, one text each: SMILES, or what else `parse` reads.
        y: float32 ``[n, targets]``; nan = missing.
        weights: float32 ``[n]``, of each graph in the training loss; 1 where none are given.

    Args:
        descriptors: Names of RDKit's descriptors that `packed` computes of each molecule.
        columns: Further extra inputs, ``[n, C]``; nan = missing.
        bounds: As `PackedGraphs.bounds`.
    """

    def __init__(
        self,
        texts: Sequence[str],
        targets: np.ndarray,
        featurizer: Featurizer,
        weights: np.ndarray | None = None,
        parse: Callable[[str], ParsedMolecule] = parse_smiles,
        descriptors: Sequence[str] = (),
        columns: np.ndarray | None = None,
        bounds: np.ndarray | None = None,
    ) -> None:
        self.texts = texts
        targets = np.asarray(targets, np.float32)
        self.y = torch.from_numpy(targets if targets.ndim == 2 else targets[:, None])
        self.weights = torch.ones(len(texts)) if weights is None else torch.tensor(weights).float()
        self._featurizer, self._parse, self._descriptors = featurizer, parse, tuple(descriptors)
        none = no_numbers(len(texts))
        self._columns = none if columns is None else np.asarray(columns, np.float32)
        self._bounds = none if bounds is None else np.asarray(bounds, np.float32)

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def labels(self) -> np.ndarray:
        """Labels, float32 ``[n, T]``; nan = missing."""
        return self.y.numpy()

    @property
    def sides(self) -> list[np.ndarray]:
        """What missing labels are at least, and at most, ``[n, T]`` each; none: there are none."""
        return np.split(self._bounds, 2, axis=1) if self._bounds.shape[1] else []

    def relabeled(self, change: Callable[[np.ndarray], np.ndarray]) -> LazyGraphs:
        """Return them with other labels, and bounds of labels, by a function of ``[n, T]``."""
        changed = copy.copy(self)
        changed.y = torch.from_numpy(np.asarray(change(self.labels), np.float32))
        if self.sides:
            changed._bounds = np.hstack([change(side) for side in self.sides]).astype(np.float32)
        return changed

    def packed(self) -> Iterator[PackedGraphs]:
        """Make all graphs in order, with their extra inputs, many at once: for the store."""
        if not self._descriptors:
            yield from super().packed()
            return
        size = raw_graphs.AT_ONCE
        chunks = [self.texts[start : start + size] for start in range(0, len(self), size)]
        compute = partial(_descriptors_of, parse=self._parse, names=self._descriptors)
        with closing(in_chunks(compute, chunks)) as computed:
            for block, descriptors in zip(super().packed(), computed, strict=True):
                yield replace(block, extra=np.hstack([descriptors, block.extra]))

    def make(self, some: slice) -> PackedGraphs:
        """Make some of the graphs, without descriptors.

        Raises:
            DataError: A text is no molecule, though it was one when the data set was loaded.
        """
        parsed = [self._parse(text) for text in self.texts[some]]
        molecules = [one.molecule for one in parsed if one.molecule is not None]
        graphs, reasons = None, [one.reason * (one.molecule is None) for one in parsed]
        if len(molecules) == len(parsed):
            graphs, reasons = self._featurizer.featurize_many(molecules)
        for index, reason in enumerate(reasons, start=some.start):
            if reason:
                raise DataError(f"graph {index}: {reason}")
        assert graphs is not None  # there is a molecule, and each has a graph
        return replace(
            graphs,
            targets=self.y[some].numpy(),
            weights=self.weights[some].numpy(),
            extra=self._columns[some],
            bounds=self._bounds[some],
        )

    def digest(self) -> str:
        """Hash all that the graphs, and what stands beside each, are made of."""
        digest = hashlib.sha256(json.dumps([_VERSION, RDKIT_VERSION, self._descriptors]).encode())
        digest.update("\0".join(self.texts).encode("utf-8", "surrogateescape"))
        for array in (self.y.numpy(), self.weights.numpy(), self._columns, self._bounds):
            digest.update(f"{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


def _descriptors_of(
    texts: Sequence[str], parse: Callable[[str], ParsedMolecule], names: Sequence[str]
) -> np.ndarray:
    """Return the descriptors of some molecules; runs in any process."""
    return compute_descriptors([parse(text).molecule for text in texts], names)


def in_chunks(
    function: Callable[[Sequence[str]], Made],
    chunks: Sequence[Sequence[str]],
    done: int = 0,
    total: int | None = None,
) -> Generator[Made, None, None]:
    """Give what a function makes of each chunk of molecules, showing how far that is.

    All cores compute where there are many; so it is one of a module. The chunks are a part of
    `total` molecules, of which others are `done`; None: they are all.
    """
    total, line = total or sum(map(len, chunks)), StatusLine()
    try:
        with in_processes(function, chunks, cores() if total >= _MANY else 1) as computed:
            for chunk, made in zip(chunks, computed, strict=True):
                done += len(chunk)
                if line.is_due():
                    line.show(f"descriptors: {done:,} of {total:,} molecules")
                yield made
    finally:
        line.clear()


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
    validation: np.ndarray,
    featurizer: str,
    feature_version: str,
    steps: Sequence[str],
) -> DatasetSplits:
    """Make a data set of arrays, of which `validation`, bool ``[n]``, are validated on.

    Its test split is empty.

    There are n `smiles`, those of `read_texts` after the same `steps`, and as many `canonical`
    ones, `labels` ``[n, targets]`` (nan = missing) and `weights` in the training loss.
    """
    chosen_by = ~validation, validation, np.zeros_like(validation)
    rows = {name: np.flatnonzero(one) for name, one in zip(SPLITS, chosen_by, strict=True)}
    texts: dict[str, Sequence[str]] = {
        name: [smiles[int(row)] for row in chosen] for name, chosen in rows.items()
    }
    make = get_featurizer(featurizer)
    parts = [
        LazyGraphs(texts[name], labels[chosen], make, None if weights is None else weights[chosen])
        for name, chosen in rows.items()
    ]
    return DatasetSplits(
        "arrays",
        *parts,
        smiles=texts,
        # Folds of an ensemble are by chance, but a molecule stays in one.
        groups={
            name: [("", canonical[int(row)]) for row in chosen] for name, chosen in rows.items()
        },
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
