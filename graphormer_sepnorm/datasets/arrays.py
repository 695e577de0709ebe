"""Molecules and labels that are in memory, as a data set."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphormer_sepnorm.chem.features import get_featuriser
from graphormer_sepnorm.chem.molecules import canonical_smiles, parse_smiles
from graphormer_sepnorm.chem.standardise import standardised
from graphormer_sepnorm.datasets.lazy_graphs import LazyGraphs
from graphormer_sepnorm.datasets.splits import DatasetSplits
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.graphs.task import Task


def load_arrays(
    smiles: Sequence[str],
    canonical: Sequence[str],
    labels: np.ndarray,
    task: Task,
    weights: np.ndarray | None,
    validation: np.ndarray,
    featuriser: str,
    feature_version: str,
    steps: Sequence[str],
) -> DatasetSplits:
    """Make a data set of arrays; its test split is empty.

    Args:
        smiles: ``[n]``, those of `read_texts`.
        canonical: ``[n]``, the same for the same molecule.
        labels: ``[n, targets]``; nan = missing.
        task: What they are.
        weights: ``[n]`` in the training loss, or None.
        validation: bool ``[n]``, which rows are validated on; the others are trained on.
        featuriser: What makes graphs of the molecules.
        feature_version: What its codes mean.
        steps: See `standardised`.
    """
    digest = hashlib.sha256("\n".join([feature_version, *smiles]).encode())
    for array in (labels, validation, weights):
        digest.update(b"" if array is None else np.ascontiguousarray(array).tobytes())

    def part(rows: np.ndarray) -> LazyGraphs | list:
        if not len(rows):
            return []
        own = None if weights is None else weights[rows]
        texts = [smiles[int(row)] for row in rows]
        return LazyGraphs(texts, labels[rows], get_featuriser(featuriser), own)

    rows = {
        "train": np.flatnonzero(~validation),
        "validation": np.flatnonzero(validation),
        "test": np.empty(0, np.int64),
    }
    return DatasetSplits(
        "arrays",
        *map(part, rows.values()),
        smiles={name: [smiles[int(row)] for row in chosen] for name, chosen in rows.items()},
        # Folds of an ensemble are by chance, but a molecule stays in one.
        groups={
            name: [("", canonical[int(row)]) for row in chosen] for name, chosen in rows.items()
        },
        task=task,
        fingerprint=digest.hexdigest(),
        feature_version=feature_version,
        featuriser=featuriser,
        standardise=tuple(steps),
    )


def read_texts(
    smiles: Sequence[Any], featuriser: str, steps: Sequence[str]
) -> tuple[list[str], list[str], list[tuple[int, str]]]:
    """Return the SMILES that graphs are made of, after some `steps` of `standardised`.

    And the canonical ones, and the rows of which no graph can be made, each with the reason.
    """
    prepare = get_featuriser(featuriser).prepare
    texts: list[str] = []
    canonical: list[str] = []
    bad: list[tuple[int, str]] = []
    for row, text in enumerate(smiles):
        parsed = standardised(parse_smiles(text), steps)
        texts.append(parsed.standard or text)
        try:
            canonical.append("")
            if parsed.molecule is None:
                raise DataError(parsed.reason)
            canonical[-1] = canonical_smiles(parsed.molecule)
            prepare(parsed.molecule)
        except DataError as error:
            bad.append((row, str(error)))
    return texts, canonical, bad


def unusable(rows: Sequence[tuple[int, str]]) -> DataError:
    """Return the error that says which rows of X cannot be used, and why the first cannot."""
    row, reason = rows[0]
    more = f"; {len(rows) - 1:,} more cannot be used either" if len(rows) > 1 else ""
    return DataError(f"X[{row}]: {reason}{more}: mend or leave them out")
