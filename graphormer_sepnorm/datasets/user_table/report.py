"""What is in a table before anything is trained on it, and the files that say so."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from graphormer_sepnorm.chem.molecules import MAX_ATOMS
from graphormer_sepnorm.datasets.user_table.rows import InvalidRow, ValidRow
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import replacing
from graphormer_sepnorm.metrics import Kind
from graphormer_sepnorm.tables.columns import free_name

_COLUMNS = ("number", "row", "split", "smiles", "file", "line", "reason", "new_elements")
_EXAMPLES = 10
_SAME = 1e-6  # relative difference up to which two labels are the same
# A label is far from the others if it is so many times the range of their middle half away from
# their median. The penalised logP of ZINC, which has a long tail, comes to 25.
_FAR = 50
_MOST_FAR = 0.01  # more of them are no slips but a distribution, unless all are one number
_FEW = 20  # labels of which nothing is said
_MANY_BOUNDS = 0.05  # share of labels from which on it is said that they are bounds
# What it means that a split is empty.
_CONSEQUENCES = {
    "validation": "but for folds of an ensemble, the end of training is taken, uncalibrated",
    "test": "nothing is tested",
}


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


@dataclass(frozen=True)
class SplitRows:
    """Which rows of the files are in a split: numbers, molecules and identifiers as given."""

    rows: Sequence[int]
    smiles: Sequence[str]
    ids: Sequence[str]

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class DataReport:
    """What is in a data set.

    Attributes:
        name: The data set's name.
        files: Paths of its files.
        sha256: Of the contents of each of them.
        kind: ``regression`` or ``binary``.
        split: How it was split, in words.
        splits: The rows of each split.
        invalid: Rows that cannot be used.
        targets: The labels.
        duplicates: Molecules in more than one row.
        leakage: What each pair of splits has in common.
        atoms: Smallest, mean and largest number of atoms of a molecule.
        warnings: What may spoil training or its evaluation, one line each.
        words: Of the targets whose classes are written in words, these words.
        bounds: Of the targets that have bounds in place of labels, how many of them say at least
            (``>``), and how many at most (``<``).
        one_of: See `Task`.
        cells: Labels that cannot be used, of rows that are used for their other labels.
        id_name: The column that names the rows; empty if there is none.
        unread: Columns that are not read.
        notes: How the files are read, where that was not the only way, one line each.
    """

    name: str
    files: tuple[str, ...]
    sha256: tuple[str, ...]
    kind: Kind
    split: str
    splits: dict[str, SplitRows]
    invalid: tuple[InvalidRow, ...]
    targets: tuple[TargetReport, ...]
    duplicates: Duplicates
    leakage: tuple[Leakage, ...]
    atoms: tuple[int, float, int]
    warnings: tuple[str, ...]
    words: dict[str, tuple[str, ...]] = field(default_factory=dict)
    bounds: dict[str, tuple[int, int]] = field(default_factory=dict)
    one_of: str = ""
    cells: tuple[InvalidRow, ...] = ()
    id_name: str = ""
    unread: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def valid(self) -> int:
        """Number of rows that can be used."""
        return sum(len(part) for part in self.splits.values())

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.valid + len(self.invalid)

    @property
    def reasons(self) -> dict[str, int]:
        """How many rows cannot be used for each kind of reason, most frequent first."""
        return dict(Counter(row.kind for row in self.invalid).most_common())

    @property
    def _id_column(self) -> tuple[str, ...]:
        return (free_name(self.id_name, _COLUMNS),) if self.id_name else ()

    def ids(self, split: str) -> dict[str, list[str]]:
        """Return the column of identifiers of a split under its name; nothing if there is none."""
        return {name: list(self.splits[split].ids) for name in self._id_column}

    def to_plain(self) -> dict[str, Any]:
        """Return the report as dicts, tuples, numbers and strings, for JSON.

        Splits have their sizes here; `write_splits` has their rows.
        """
        plain = dataclasses.asdict(dataclasses.replace(self, splits={}))
        return plain | {
            "rows": self.rows,
            "valid": self.valid,
            "reasons": self.reasons,
            "splits": {name: len(part) for name, part in self.splits.items()},
        }

    def write_invalid(self, path: str | Path) -> None:
        """Write the rows that cannot be used, or of which only a label cannot, as CSV.

        Raises:
            DataError: The file cannot be written.
        """
        rows = sorted(
            [*self.invalid, *self.cells], key=lambda one: (self.files.index(one.file), one.row)
        )
        kept = "; the other labels of the row are used"
        named = bool(self.id_name)
        values = (
            [one.file, one.row, one.line or "", one.smiles, one.reason + kept * bool(one.column)]
            + [one.id] * named
            for one in rows
        )
        header = ("file", "row", "line", "smiles", "reason", *self._id_column)
        _write_csv(Path(path), header, values)

    def write_splits(self, path: str | Path) -> None:
        """Write the rows that are used as CSV: row, split, smiles and identifiers.

        They stand in the order of the file; of separate files one after the other.

        Raises:
            DataError: The file cannot be written.
        """
        rows = [
            (row, name, smiles, *own * bool(self.id_name))
            for name, part in self.splits.items()
            for row, smiles, *own in zip(part.rows, part.smiles, part.ids, strict=True)
        ]
        if len(self.files) == 1:
            rows.sort()
        _write_csv(Path(path), ("row", "split", "smiles", *self._id_column), rows)


def _write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    try:
        # Bytes of the table that are no UTF-8 go back as they were.
        with (
            replacing(path) as partial,
            partial.open("w", encoding="utf-8", errors="surrogateescape", newline="") as handle,
        ):
            writer = csv.writer(handle, lineterminator="\n")
            writer.writerow(header)
            writer.writerows(rows)
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error.strerror or error})") from error


def summarise(values: np.ndarray, kind: Kind) -> LabelSummary:
    """Summarise the labels of a target in a split, ``[n]``; nan = missing."""
    present = values[~np.isnan(values)]
    spread = (present.mean(), present.std(), present.min(), present.max()) if len(present) else ()
    mean, std, low, high = map(float, spread) if spread else (None,) * 4
    positives = int(present.sum()) if kind == "binary" else None
    missing = len(values) - len(present)
    return LabelSummary(len(present), missing, mean, std, low, high, positives)


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
    bounds: Mapping[str, np.ndarray],
    kind: Kind,
    places: Sequence[str],
    atoms: Sequence[int],
) -> tuple[str, ...]:
    """Say which labels look like slips, and what cannot be evaluated.

    Args:
        targets: Summaries of the targets.
        labels: Of each split, ``[n, targets]``; nan = missing.
        bounds: Of the missing ones, ``[n, 2 targets]`` or ``[n, 0]``.
        kind: What they are learned as.
        places: Where each row of all splits, one after the other, stands.
        atoms: Of each molecule, in the same order.
    """
    warnings = [
        f"no {split} split: {then}"
        for split, then in _CONSEQUENCES.items()
        if not len(labels[split])
    ]
    large = [place for place, size in zip(places, atoms, strict=True) if size > MAX_ATOMS]
    if large:
        others = f" and {len(large) - 1:,} more" if len(large) > 1 else ""
        warnings.append(
            f"{large[0]}{others}: more than {MAX_ATOMS} atoms, which are trained on, but predicted "
            "only with predict.py --max_atoms"
        )
    everything = np.concatenate(list(labels.values()))
    for target, values in zip(targets, everything.T, strict=True):
        if kind == "regression" and (warning := _doubt(target, values, places)):
            warnings.append(warning)
    sides = ~np.isnan(np.concatenate(list(bounds.values())))
    for at, target in enumerate(targets):
        count = int(np.count_nonzero(sides[:, at :: len(targets)]))
        of_all = count + int(np.count_nonzero(~np.isnan(everything[:, at])))
        if count > _MANY_BOUNDS * of_all:
            warnings.append(
                f"{target.name}: {count:,} of {of_all:,} labels are bounds "
                f"({count / of_all:.0%}): metrics are of the others, and an interval that reaches "
                "the limit of the assay has no end beyond it"
            )
    for target, split in itertools.product(targets, _CONSEQUENCES):
        summary = target.splits[split]
        if not len(labels[split]):
            continue
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
