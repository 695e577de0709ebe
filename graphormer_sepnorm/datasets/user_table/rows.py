"""One pass over a table: molecules with labels, and rows that cannot be used, with the reason."""

from __future__ import annotations

import itertools
import math
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from graphormer_sepnorm.datasets.user_table.columns import (
    TableColumns,
    find_columns,
    not_taken,
    refuse_words,
)
from graphormer_sepnorm.datasets.user_table.options import ALL, TableOptions
from graphormer_sepnorm.datasets.user_table.row_reader import (
    CellCounts,
    RowReader,
    Unusable,
    ValidRow,
)
from graphormer_sepnorm.datasets.user_table.unread import UnreadColumns
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


@dataclass(frozen=True, slots=True)
class InvalidCell(InvalidRow):
    """A label that cannot be used, of a row that is used for its other labels.

    Attributes:
        column: Its column.
    """

    column: str


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
        relations: Columns that are not read and say which labels are bounds.
        split_columns: Columns that are not read and say how the rows may be split.
        decimal_comma: The first label with a decimal comma, as it is written; empty if none has.
        grouped: The first one with a point where others may have one between thousands.
        no_value: Labels' cells with words that are no value, such as ``n.d.``.
        percent: Labels that are given in per cent.
        units: Columns that are not read and name units, and how many used rows have which.
        not_taken: Of ``all`` targets why the other columns are none; None: targets were named.
        notes: How the file is read, where that was not the only way, one line each.
    """

    columns: TableColumns
    format: str
    valid: list[ValidRow]
    invalid: list[InvalidRow]
    cells: list[InvalidCell]
    words: dict[str, set[str]]
    classes: tuple[str, ...] = ()
    relations: tuple[str, ...] = ()
    split_columns: tuple[str, ...] = ()
    decimal_comma: str = ""
    grouped: str = ""
    no_value: CellCounts = field(default_factory=CellCounts)
    percent: CellCounts = field(default_factory=CellCounts)
    units: dict[str, Counter[str]] = field(default_factory=dict)
    not_taken: dict[str, str] | None = None
    notes: tuple[str, ...] = ()

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
    cells: list[InvalidCell] = []
    with open_table(path, layout=options.layout) as reader:
        rows = iter(reader)
        ahead, sample, total = _read_ahead(rows, reader.columns, targets)
        columns = find_columns(reader, sample, options, targets)
        choice = "" if options.smiles_column else smiles_choice(reader.columns, columns.smiles)
        read = RowReader(columns, sample, options, missing_weight)
        unread = UnreadColumns(reader.columns, columns)
        # Of several training processes only the first one speaks.
        progress = TableProgress(reader, "read", quiet=not is_first_process(), total=total)
        for row in itertools.chain(_drained(ahead), rows):
            progress.show(row.number)
            unread.see(row)
            try:
                scaffold = max_scaffolds is None or len(valid) < max_scaffolds
                valid.append(read(row, scaffold))
            except Unusable as unusable:
                invalid.append(InvalidRow(str(path), *read.said(row, unusable)))
                continue
            unread.use(row)
            for name, unusable in read.bad.items():
                cells.append(InvalidCell(str(path), *read.said(row, unusable), name))
        progress.finish()
        if options.task != "multiclass":
            without = _without_labels(columns, valid)
            refuse_words(reader.name, reader.columns, sample, without)
        takes_all = targets == (ALL,) and columns.names != targets
        return TableContents(
            columns,
            reader.format,
            valid,
            invalid,
            cells,
            read.words,
            read.classes,
            unread.relations,
            unread.splits,
            read.decimal_comma,
            read.grouped,
            read.no_value,
            read.percent,
            unread.units,
            not_taken(reader.columns, sample, columns) if takes_all else None,
            tuple(filter(None, (*reader.notes, choice))),
        )


def _without_labels(columns: TableColumns, rows: Sequence[ValidRow]) -> list[int]:
    """Return the positions of the targets of which no row has a label or a bound."""
    empty = dict(enumerate(columns.targets))
    for row in rows:
        for at in [*empty]:
            known = (row.labels[at], *row.bounds[at :: len(columns.targets)])
            if not all(map(math.isnan, known)):
                del empty[at]
        if not empty:
            break
    return [*empty.values()]


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
