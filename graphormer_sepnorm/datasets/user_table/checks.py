"""What is looked for in a table: labels, duplicates, and what splits have in common."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from graphormer_sepnorm.chem.molecules import MAX_ATOMS
from graphormer_sepnorm.datasets.user_table.row_reader import ValidRow
from graphormer_sepnorm.metrics import Kind

_EXAMPLES = 10
_SAME = 1e-6  # relative difference up to which two labels are the same
# A label is far from the others if it is so many times the range of their middle half away from
# their median. The penalised logP of ZINC, which has a long tail, comes to 25.
_FAR = 50
_MOST_FAR = 0.01  # more of them are no slips but a distribution, unless all are one number
_FEW = 20  # labels of which nothing is said


@dataclass(frozen=True)
class LabelSummary:
    """The labels of one target in one split; the statistics are None where there is no label.

    Attributes:
        labels: How many there are.
        missing: Molecules without one.
        mean: Their mean; for 0 and 1 the share of 1.
        std: Standard deviation (of the labels as a population).
        min: The smallest.
        max: The largest.
        positives: How many are 1, in binary classification; else None.
    """

    labels: int
    missing: int
    mean: float | None
    std: float | None
    min: float | None
    max: float | None
    positives: int | None


@dataclass(frozen=True)
class TargetReport:
    """The labels of one target.

    Attributes:
        name: Its name.
        unit: Its unit; may be empty.
        splits: By split.
    """

    name: str
    unit: str
    splits: dict[str, LabelSummary]


@dataclass(frozen=True)
class SameMolecule:
    """Rows that hold the same molecule.

    Attributes:
        smiles: Canonical SMILES.
        rows: Split and row of each.
        labels: Labels of each, one per target; None = missing.
    """

    smiles: str
    rows: tuple[tuple[str, int], ...]
    labels: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True)
class Duplicates:
    """Molecules in more than one row.

    Attributes:
        molecules: How many there are.
        rows: Rows they stand in.
        conflicting: Those of them whose labels differ.
        examples: Some of them, conflicting ones first.
    """

    molecules: int
    rows: int
    conflicting: int
    examples: tuple[SameMolecule, ...]


@dataclass(frozen=True)
class Leakage:
    """What two splits have in common.

    Attributes:
        splits: Their names.
        molecules: Molecules that stand in both.
        scaffolds: Scaffolds, of molecules with rings, that stand in both; None where scaffolds
            were not computed.
        examples: Some of the molecules.
    """

    splits: tuple[str, str]
    molecules: int
    scaffolds: int | None
    examples: tuple[str, ...]


def report_target(
    name: str, unit: str, labels: Mapping[str, np.ndarray], kind: Kind
) -> TargetReport:
    """Summarise the labels of a target, which are given by split, ``[n]``; nan = missing."""
    return TargetReport(
        name, unit, {split: _summary(values, kind) for split, values in labels.items()}
    )


def _summary(values: np.ndarray, kind: str) -> LabelSummary:
    present = values[~np.isnan(values)]
    if not len(present):
        positives = 0 if kind == "binary" else None
        return LabelSummary(0, len(values), None, None, None, None, positives)
    return LabelSummary(
        labels=len(present),
        missing=len(values) - len(present),
        mean=float(present.mean()),
        std=float(present.std()),
        min=float(present.min()),
        max=float(present.max()),
        positives=int(present.sum()) if kind == "binary" else None,
    )


def find_duplicates(parts: Mapping[str, Sequence[ValidRow]], kind: Kind) -> Duplicates:
    """Find molecules that stand in more than one row, and those whose labels contradict."""
    places: dict[str, list[tuple[str, ValidRow]]] = defaultdict(list)
    for split, rows in parts.items():
        for row in rows:
            places[row.canonical].append((split, row))
    repeated = {molecule: found for molecule, found in places.items() if len(found) > 1}
    tolerance = _SAME if kind == "regression" else 0.0
    conflicting, agreeing = [], []
    for molecule, found in repeated.items():
        differ = _differ([row for _, row in found], tolerance)
        (conflicting if differ else agreeing).append(molecule)
    examples = tuple(
        SameMolecule(
            molecule,
            tuple((split, row.number) for split, row in repeated[molecule]),
            tuple(
                tuple(None if math.isnan(label) else label for label in row.labels)
                for _, row in repeated[molecule]
            ),
        )
        for molecule in (conflicting + agreeing)[:_EXAMPLES]
    )
    rows_taken = sum(map(len, repeated.values()))
    return Duplicates(len(repeated), rows_taken, len(conflicting), examples)


def _differ(rows: Sequence[ValidRow], tolerance: float) -> bool:
    """Whether no value of a target can be what all rows of a molecule say, labels and bounds."""
    labels = np.array([row.labels for row in rows])
    unknown = (math.nan,) * (2 * labels.shape[1])
    low, high = np.hsplit(np.array([row.bounds or unknown for row in rows]), 2)
    least, most = np.fmax.reduce([*labels, *low]), np.fmin.reduce([*labels, *high])
    return bool(np.any(least - most > tolerance * np.maximum(np.abs(least), np.abs(most))))


def find_leakage(parts: Mapping[str, Sequence[ValidRow]]) -> tuple[Leakage, ...]:
    """Find what each pair of splits has in common."""
    molecules = {split: {row.canonical for row in rows} for split, rows in parts.items()}
    scaffolds = {split: {row.scaffold for row in rows} for split, rows in parts.items()}
    found = []
    for pair in itertools.combinations(parts, 2):
        both = sorted(set.intersection(*(molecules[split] for split in pair)))
        ours, theirs = (scaffolds[split] for split in pair)
        # Without a ring there is no scaffold to share.
        shared = None if None in ours | theirs else len((ours & theirs) - {""})
        found.append(Leakage(pair, len(both), shared, tuple(both[:_EXAMPLES])))
    return tuple(found)


def find_warnings(
    targets: Sequence[TargetReport],
    labels: Mapping[str, np.ndarray],
    kind: Kind,
    places: Sequence[str],
    atoms: Sequence[int],
) -> tuple[str, ...]:
    """Say which labels look like slips, and what cannot be evaluated.

    Args:
        targets: Summaries of the targets.
        labels: Of each split, ``[n, targets]``; nan = missing.
        kind: What they are learned as.
        places: Where each row of all splits, one after the other, stands.
        atoms: Of each molecule, in the same order.
    """
    warnings = []
    large = [place for place, size in zip(places, atoms, strict=True) if size > MAX_ATOMS]
    if large:
        others = f" and {len(large) - 1:,} other{'s'[: len(large) > 2]}" if len(large) > 1 else ""
        warnings.append(
            f"{large[0]}{others}: more than {MAX_ATOMS} atoms, which are trained on, but predicted "
            "only with predict.py --max_atoms"
        )
    everything = np.concatenate(list(labels.values()))
    for target, values in zip(targets, everything.T, strict=True):
        if kind == "regression" and (warning := _doubt(target, values, places)):
            warnings.append(warning)
    for target in targets:
        for split in ("validation", "test"):
            summary = target.splits[split]
            if not summary.labels:
                warnings.append(f"{target.name} has no label in the {split} split")
            elif kind == "binary" and summary.positives in (0, summary.labels):
                only = 1 if summary.positives else 0
                warnings.append(
                    f"{target.name} is {only} throughout the {split} split: AUROC is undefined"
                )
    return tuple(warnings)


def _doubt(target: TargetReport, values: np.ndarray, places: Sequence[str]) -> str | None:
    """Return what is doubtful about the labels of a regression, ``[n]``, or None."""
    known = values[~np.isnan(values)]
    train = target.splits["train"]
    if train.labels > 1 and train.min == train.max:
        return (
            f"all {train.labels:,} training labels of {target.name} are {train.min:.6g}: nothing "
            "can be learned from them"
        )
    if len(known) < _FEW:
        return None
    low, middle, high = np.percentile(known, (25, 50, 75)).tolist()
    far = np.flatnonzero(np.abs(values - middle) > _FAR * (high - low))
    slips = len(far) <= max(1, _MOST_FAR * len(known)) or len(set(values[far].tolist())) == 1
    if not (low < high and len(far) and slips):
        return None
    worst = int(far[np.argmax(np.abs(values[far] - middle))])
    more = f"; {len(far) - 1:,} more labels are far away too" if len(far) > 1 else ""
    return (
        f"{target.name} is {values[worst]:.6g} in {places[worst]}, and half of the labels are "
        f"{low:.4g} to {high:.4g}{more}: if it stands for a missing value, empty the cell"
    )
