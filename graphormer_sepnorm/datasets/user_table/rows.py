"""One pass over a table: molecules with labels, and rows that cannot be used, with the reason."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphormer_sepnorm.datasets.user_table.columns import (
    TableColumns,
    find_columns,
)
from graphormer_sepnorm.datasets.user_table.options import TableOptions
from graphormer_sepnorm.datasets.user_table.row_reader import (
    RowReader,
    Unusable,
    ValidRow,
)
from graphormer_sepnorm.formatting import listed
from graphormer_sepnorm.process import is_first_process
from graphormer_sepnorm.tables.columns import is_empty, smiles_choice
from graphormer_sepnorm.tables.opening import open_table
from graphormer_sepnorm.tables.progress import TableProgress
from graphormer_sepnorm.tables.reader import Row

if TYPE_CHECKING:
    from pathlib import Path

_SAMPLE = 1000  # rows that are looked at, at least, to tell columns of numbers


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
        id: What the table calls it; may be empty.
        column: Of a row that is used for its other labels, that of the label which cannot be used.
    """

    file: str
    row: int
    line: int
    smiles: str
    reason: str
    kind: str
    id: str = ""
    column: str = ""

    @property
    def place(self) -> str:
        """Row and line, for messages."""
        return f"row {self.row}" + (f", line {self.line}" if self.line else "")


@dataclass(frozen=True)
class TableContents:
    """All rows of one file.

    Attributes:
        columns: Which columns were used.
        format: ``csv``, ``tsv``, ``sdf`` or ``parquet``.
        valid: The rows that can be used.
        invalid: Those that cannot.
        cells: Labels that cannot be used, of rows that can.
        words: Of the targets whose labels are written in words, these words.
        classes: Of ``multiclass`` the classes, by the numbers that stand in the rows.
        id_name: Name of the column that names the rows; empty if there is none.
        unread: Names of the columns that are not read.
        notes: How the file is read, where that was not the only way, one line each.
        unsettled: How many molecules have more tautomers than RDKit goes through.
    """

    columns: TableColumns
    format: str
    valid: list[ValidRow]
    invalid: list[InvalidRow]
    cells: list[InvalidRow]
    words: dict[str, set[str]]
    classes: tuple[str, ...] = ()
    id_name: str = ""
    unread: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unsettled: int = 0

    @property
    def from_records(self) -> bool:
        """Whether molecules come from SDF records and not from a column of SMILES."""
        return self.columns.smiles is None


def read_rows(
    path: Path,
    options: TableOptions,
    targets: tuple[str, ...],
    max_scaffolds: int | None,
    missing_weight: float | None,
) -> TableContents:
    """Read a table.

    Args:
        path: The file.
        options: What the user says about it.
        targets: Names of the targets; empty: the only column of numbers.
        max_scaffolds: How many molecules' scaffolds are computed; None: those of all.
        missing_weight: The weight of a row that says none; None: such a row cannot be used.

    Raises:
        DataError: The file cannot be read or its columns are not as they should be.
    """
    valid: list[ValidRow] = []
    invalid: list[InvalidRow] = []
    cells: list[InvalidRow] = []
    with open_table(path, layout=options.layout) as reader:
        rows = iter(reader)
        ahead, sample, total = _read_ahead(rows, reader.columns, targets)
        columns = find_columns(reader, sample, options, targets)
        choice = "" if options.smiles_column else smiles_choice(reader.columns, columns.smiles)
        read = RowReader(columns, sample, options, missing_weight)
        # Of several training processes only the first one speaks.
        progress = TableProgress(reader, "read", quiet=not is_first_process(), total=total)
        for row in itertools.chain(_drained(ahead), rows):
            progress.show(row.number)
            try:
                scaffold = max_scaffolds is None or len(valid) < max_scaffolds
                valid.append(read(row, scaffold))
            except Unusable as unusable:
                invalid.append(InvalidRow(str(path), *read.said(row, unusable)))
                continue
            for name, unusable in read.bad.items():
                cells.append(InvalidRow(str(path), *read.said(row, unusable), name))
        progress.finish()
        notes = [*reader.notes, choice]
        if read.standardised:
            steps = listed(options.standardise)
            notes.append(f"{read.standardised:,} molecules: their parent structure, by {steps}")
        return TableContents(
            columns,
            reader.format,
            valid,
            invalid,
            cells,
            read.words,
            read.classes,
            "" if columns.id is None else reader.columns[columns.id],
            columns.unread(reader.columns),
            tuple(filter(None, notes)),
            read.unsettled,
        )


def _read_ahead(
    rows: Iterator[Row], columns: Sequence[str], targets: tuple[str, ...]
) -> tuple[deque[Row], list[Row], int | None]:
    """Take rows until columns can be told: some first ones, and as long as a column is empty.

    Of tables that are sorted by assay many a column is empty for long.

    Args:
        rows: Of the table, in their order.
        columns: Its columns.
        targets: See `read_rows`.

    Returns:
        The rows that were taken; of them the first ones, with those that have the first value of a
        column; and how many there are, if these are all.
    """
    ahead = deque(itertools.islice(rows, _SAMPLE))
    sample = list(ahead)
    names = {name.lower() for name in targets}
    named = {at for at, name in enumerate(columns) if name.lower() in names}
    empty = named or set(range(len(columns)))
    for row in sample:
        empty -= _filled(empty, row)
    while empty and (row := next(rows, None)) is not None:
        ahead.append(row)
        if found := _filled(empty, row):
            sample.append(row)
            empty -= found
    return ahead, sample, len(ahead) if empty else None


def _filled(columns: set[int], row: Row) -> set[int]:
    if row.problem:
        return set()
    return {at for at in columns if not is_empty(row.cells[at])}


def _drained(rows: deque[Row]) -> Iterator[Row]:
    """Give rows, each of which is forgotten."""
    while rows:
        yield rows.popleft()
