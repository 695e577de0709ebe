"""What is in a table before anything is trained on it, and the files that say so."""

from __future__ import annotations

import csv
import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphormer_sepnorm.datasets.user_table.checks import Duplicates, Leakage, TargetReport
from graphormer_sepnorm.datasets.user_table.rows import InvalidRow
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import replacing
from graphormer_sepnorm.metrics import Kind
from graphormer_sepnorm.tables.columns import free_name

_COLUMNS = ("number", "row", "split", "smiles", "file", "line", "reason", "new_elements")


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
