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
from graphormer_sepnorm.datasets.user_table.rows import InvalidCell, InvalidRow
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import replacing
from graphormer_sepnorm.metrics import Kind


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
        decimal_comma: A label with a decimal comma, as it is written; empty if none has.
        cells: Labels that cannot be used, of rows that are used for their other labels.
        no_value: Of the targets with words for no value beside the usual ones how many cells hold
            them, and the first.
        percent: The same of labels that are given in per cent.
        not_taken: Of ``all`` targets why the other columns are none; None: targets were named.
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
    decimal_comma: str = ""
    cells: tuple[InvalidCell, ...] = ()
    no_value: dict[str, tuple[int, str]] = field(default_factory=dict)
    percent: dict[str, tuple[int, str]] = field(default_factory=dict)
    not_taken: dict[str, str] | None = None
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
        """Write the rows that cannot be used as CSV: file, row, line, smiles, reason.

        Among them, in the order of the files, are the rows of which only a label cannot be used.

        Raises:
            DataError: The file cannot be written.
        """
        kept = "; the other labels of the row are used"
        rows = [(row, row.reason) for row in self.invalid]
        rows += [(cell, f"{cell.reason}{kept}") for cell in self.cells]
        rows.sort(key=lambda one: (self.files.index(one[0].file), one[0].row))
        _write_csv(
            Path(path),
            ("file", "row", "line", "smiles", "reason"),
            ((row.file, row.row, row.line or "", row.smiles, reason) for row, reason in rows),
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
