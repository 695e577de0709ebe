"""The checks of a data report: labels, duplicates, and what splits have in common."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from graphormer_sepnorm.datasets.user_table.report import (
    Duplicates,
    LabelSummary,
    Leakage,
    SameMolecule,
    TargetReport,
)
from graphormer_sepnorm.graphs.task import Task

_BINS = 12
_EXAMPLES = 10
_SAME = 1e-6  # relative difference up to which two labels are the same


@dataclass(frozen=True)
class CheckedSplit:
    """What the checks need of a split.

    Attributes:
        rows: Row of each molecule in its file.
        molecules: Canonical SMILES of each.
        scaffolds: Murcko scaffold of each, or None where they were not computed.
        labels: float64 ``[n, targets]``; nan = missing.
    """

    rows: Sequence[int]
    molecules: Sequence[str]
    scaffolds: Sequence[str] | None
    labels: np.ndarray


def report_target(
    name: str, unit: str, labels: Mapping[str, np.ndarray], kind: Literal["regression", "binary"]
) -> TargetReport:
    """Summarise the labels of a target.

    Args:
        name: Its name.
        unit: Its unit.
        labels: By split, ``[n]``; nan = missing.
        kind: Whether labels are real numbers or 0 and 1.
    """
    everything = np.concatenate(list(labels.values()))
    present = everything[~np.isnan(everything)]
    edges = np.array([0.0, 0.5, 1.0]) if kind == "binary" else _round_edges(present)
    counts, _ = np.histogram(present, edges)
    splits = {split: _summary(values, kind) for split, values in labels.items()}
    return TargetReport(name, unit, splits, tuple(edges.tolist()), tuple(counts.tolist()))


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


def _round_edges(values: np.ndarray) -> np.ndarray:
    """Return edges of at most about `_BINS` bins at round numbers that cover `values`."""
    if not len(values):
        return np.array([0.0, 1.0])
    low, high = float(values.min()), float(values.max())
    width = (high - low) / _BINS
    if width <= max(abs(low), abs(high)) * 1e-12:  # one value
        return np.array([low, math.nextafter(high, math.inf)])
    power = 10.0 ** math.floor(math.log10(width))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= width)
    first, last = math.floor(low / step), math.ceil(high / step)
    edges = np.arange(first, last + 1) * step
    # Rounding may leave the extreme values just outside.
    edges[0], edges[-1] = min(edges[0], low), max(edges[-1], high)
    return edges


def find_duplicates(
    splits: Mapping[str, CheckedSplit], kind: Literal["regression", "binary"]
) -> Duplicates:
    """Find molecules that stand in more than one row, and those whose labels contradict."""
    places: dict[str, list[tuple[str, int]]] = defaultdict(list)  # split, position in it
    for name, split in splits.items():
        for position, molecule in enumerate(split.molecules):
            places[molecule].append((name, position))
    repeated = {molecule: found for molecule, found in places.items() if len(found) > 1}

    tolerance = _SAME if kind == "regression" else 0.0
    conflicting, agreeing = [], []
    for molecule, found in repeated.items():
        labels = np.array([splits[name].labels[position] for name, position in found])
        (conflicting if _differ(labels, tolerance) else agreeing).append(molecule)
    examples = []
    for molecule in (conflicting + agreeing)[:_EXAMPLES]:
        found = repeated[molecule]
        rows = tuple((name, int(splits[name].rows[position])) for name, position in found)
        labels = tuple(
            tuple(None if math.isnan(v) else float(v) for v in splits[name].labels[position])
            for name, position in found
        )
        examples.append(SameMolecule(molecule, rows, labels))
    rows_taken = sum(len(found) for found in repeated.values())
    return Duplicates(len(repeated), rows_taken, len(conflicting), tuple(examples))


def _differ(labels: np.ndarray, tolerance: float) -> bool:
    """Whether labels ``[rows, targets]`` of one molecule differ in a target; nan = missing."""
    low, high = np.fmin.reduce(labels), np.fmax.reduce(labels)
    return bool(np.any(high - low > tolerance * np.maximum(np.abs(low), np.abs(high))))


def find_leakage(splits: Mapping[str, CheckedSplit]) -> tuple[Leakage, ...]:
    """Find what each pair of splits has in common."""
    molecules = {name: set(split.molecules) for name, split in splits.items()}
    scaffolds = {
        name: None if split.scaffolds is None else set(split.scaffolds) - {""}
        for name, split in splits.items()
    }
    found = []
    for first, second in itertools.combinations(splits, 2):
        both = sorted(molecules[first] & molecules[second])
        ours, theirs = scaffolds[first], scaffolds[second]
        shared = None if ours is None or theirs is None else len(ours & theirs)
        found.append(Leakage((first, second), len(both), shared, tuple(both[:_EXAMPLES])))
    return tuple(found)


def find_classes(labels: Mapping[str, np.ndarray], task: Task) -> list[str]:
    """Say which targets of a regression look like two classes.

    Args:
        labels: By split, ``[n, targets]``; nan = missing.
        task: What they are.
    """
    everything = np.concatenate(list(labels.values()))
    warnings = []
    for name, values in zip(task.targets, everything.T, strict=True):
        different = set(values[~np.isnan(values)].tolist())
        if task.kind == "regression" and different == {0.0, 1.0}:
            warnings.append(
                f"{name} has no labels but 0 and 1, which are learned as numbers here; as two "
                "classes: -c table_classification, or --data.task binary"
            )
    return warnings


def find_warnings(
    targets: Sequence[TargetReport], kind: Literal["regression", "binary"]
) -> list[str]:
    """Say what will make the evaluation of a target meaningless."""
    warnings = []
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
    return warnings
