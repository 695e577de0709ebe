"""What is in a data set before anything is trained on it, in numbers and in words."""

from __future__ import annotations

import csv
import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import replacing


@dataclass(frozen=True, slots=True)
class InvalidRow:
    """A row that cannot be used.

    Attributes:
        file: The file's path.
        row: Row of the file, from 1, the header not counted.
        line: Line where it starts, from 1; 0 where a file has no lines.
        smiles: The SMILES as given; may be empty.
        reason: Why, one line.
        kind: What sort of reason, for counting.
    """

    file: str
    row: int
    line: int
    smiles: str
    reason: str
    kind: str

    @property
    def place(self) -> str:
        """Row and line, for messages."""
        return f"row {self.row}" + (f", line {self.line}" if self.line else "")


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
        edges: Edges of the histogram's bins over all splits, one more than bins.
        counts: Labels in each bin.
    """

    name: str
    unit: str
    splits: dict[str, LabelSummary]
    edges: tuple[float, ...]
    counts: tuple[int, ...]


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
    """Which rows of the files are in a split.

    Attributes:
        rows: Row numbers.
        smiles: The molecules, as given.
    """

    rows: Sequence[int]
    smiles: Sequence[str]

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class DataReport:
    """What is in a data set.

    Attributes:
        name: The data set's name.
        files: Paths of its files.
        kind: ``regression`` or ``binary``.
        split: How it was split, in words.
        splits: The rows of each split.
        invalid: Rows that cannot be used.
        targets: The labels.
        duplicates: Molecules in more than one row.
        leakage: What each pair of splits has in common.
        atoms: Smallest, mean and largest number of atoms of a molecule.
        warnings: What may spoil training or its evaluation, one line each.
    """

    name: str
    files: tuple[str, ...]
    kind: Literal["regression", "binary"]
    split: str
    splits: dict[str, SplitRows]
    invalid: tuple[InvalidRow, ...]
    targets: tuple[TargetReport, ...]
    duplicates: Duplicates
    leakage: tuple[Leakage, ...]
    atoms: tuple[int, float, int]
    warnings: tuple[str, ...]

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

    def text(self, unicode: bool = True) -> str:
        """Return the report for people: at most about 30 lines of 80 columns.

        Args:
            unicode: Whether bars are drawn with block characters; else with ``#``.
        """
        from graphormer_sepnorm.datasets.user_table.report_text import report_text

        return report_text(self, unicode)

    def to_plain(self) -> dict[str, Any]:
        """Return the report as dicts, lists, numbers and strings, for JSON.

        Splits have their sizes here; `write_splits` has their rows.
        """
        plain = {
            field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(self)
        }
        return plain | {
            "rows": self.rows,
            "valid": self.valid,
            "reasons": self.reasons,
            "splits": {name: len(part) for name, part in self.splits.items()},
        }

    def write_invalid(self, path: str | Path) -> None:
        """Write the rows that cannot be used as CSV: file, row, line, smiles, reason.

        Raises:
            DataError: The file cannot be written.
        """
        _write_csv(
            Path(path),
            ("file", "row", "line", "smiles", "reason"),
            ((row.file, row.row, row.line or "", row.smiles, row.reason) for row in self.invalid),
        )

    def write_splits(self, path: str | Path) -> None:
        """Write the rows that are used as CSV: row, split, smiles.

        They stand in the order of the file; of separate files one after the other.

        Raises:
            DataError: The file cannot be written.
        """
        rows = [
            (row, name, smiles)
            for name, part in self.splits.items()
            for row, smiles in zip(part.rows, part.smiles, strict=True)
        ]
        if len(self.files) == 1:
            rows.sort()
        _write_csv(Path(path), ("row", "split", "smiles"), rows)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


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
