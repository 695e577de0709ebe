"""Excel workbooks (.xlsx), through openpyxl, row by row."""

from __future__ import annotations

import contextlib
import functools
import math
import re
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.formatting import listed
from graphormer_sepnorm.tables.columns import header_rank
from graphormer_sepnorm.tables.reader import Layout, Row, TableReader
from graphormer_sepnorm.tables.text import open_binary
from graphormer_sepnorm.tables.writer import WholeFileWriter

# A sheet has no more; and a file of some kilobytes can be packed so that it unpacks to more.
_MOST_ROWS, _LARGEST_BYTES = 1_048_576, 2_000_000_000
_LONGEST_CELL = 32_767  # characters
_FIRST_YEAR = 1900
_LARGEST_INTEGER = 10**15  # of larger ones Excel makes the digits after the fifteenth zeros
# Rows in which the header is looked for, and how the worst one of `header_rank` is called.
_LOOKED_AT, _NO_RANK = 30, 9
_PART_BYTES = 1 << 20
# A cell with a formula and no value in the XML of a sheet, whose names may have a prefix.
_TAG = rb"<(?:\w+:)?"
_WITHOUT_VALUE = re.compile(
    _TAG + rb"c\b([^>]*)>\s*" + _TAG + rb"f\b(?:[^>]*/>|[^>]*>[^<]*</(?:\w+:)?f>)\s*"
    rb"(?:<(?:\w+:)?v\s*/>|<(?:\w+:)?v>\s*</(?:\w+:)?v>)?\s*</(?:\w+:)?c>"
)
_CELL_NAME = re.compile(rb'\br="([A-Z]+)(\d+)"')
_OF_EXCEL = (bool, int, float, Decimal, date, time, timedelta)
# Control characters, which cannot stand in a cell.
_ILLEGAL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def _openpyxl() -> Any:
    try:
        import openpyxl
        import openpyxl.cell
    except ImportError:
        raise DataError("Excel files need openpyxl: pip install openpyxl, or use CSV") from None
    return openpyxl


class ExcelReader(TableReader):
    """A sheet of a workbook; one of its first rows names the columns.

    Unless `layout` says them, the sheet is the only one with a column of SMILES among those that
    are not hidden, or the only one that is not empty, and the header is the row with the name of
    that column, or the first. The cells are values of Python's types, of formulas the values that
    were saved with them. Empty rows below the last one that holds something, which spreadsheets may
    keep, are left out.

    Raises:
        DataError: It is no workbook, or which sheet or row is meant cannot be told.
    """

    format = "xlsx"

    def __init__(self, source: str | Path, layout: Layout) -> None:
        self.name = str(source)
        library = _openpyxl()
        self._raw = open_binary(Path(source))
        try:
            with self._explained():
                with zipfile.ZipFile(self._raw) as archive:
                    size = sum(member.file_size for member in archive.infolist())
                if size > _LARGEST_BYTES:
                    raise ValueError(f"it says to hold {size:,} bytes")
                self._raw.seek(0)
                with warnings.catch_warnings(action="ignore"):  # of styles that it does not know
                    self._book = library.load_workbook(self._raw, read_only=True, data_only=True)
            sheet, top = self._table(layout)
            with self._explained():
                found = _without_values(sheet, top.line)
                # By what the sheet says of its size rows would be left out where that is wrong.
                self._rows = enumerate(sheet.iter_rows(values_only=True), start=1)
                header = next(row for line, row in self._rows if line == top.line)
        except BaseException:
            self._raw.close()
            raise
        last = max(place for place, cell in enumerate(header) if _there(cell))
        self.columns = tuple(
            ("" if cell is None else str(cell).strip()) or f"column_{place}"
            for place, cell in enumerate(header[: last + 1], start=1)
        )
        self.uncalculated = {
            place: f"cells of column {self.columns[place]!r} ({len(cells):,}, the first {cells[0]})"
            for place, cells in found.items()
            if place <= last
        }
        for cells in self.uncalculated.values():
            self.notes += (
                f"{cells} are formulas without values: the workbook was never calculated",
            )

    def _table(self, layout: Layout) -> tuple[Any, _Top]:
        """Return the sheet, and where its header stands."""
        sheets = self._book.worksheets
        if layout.sheet is None:
            chosen = [sheet for sheet in sheets if sheet.sheet_state == "visible"]
        else:
            chosen = [sheet for sheet in sheets if sheet.title == layout.sheet]
            if not chosen and layout.sheet.isdecimal():
                chosen = [one for n, one in enumerate(sheets, 1) if n == int(layout.sheet)]
            if not chosen:
                raise DataError(
                    f"{self.name}: there is no sheet {layout.sheet!r}; the sheets are "
                    f"{listed([sheet.title for sheet in sheets])}"
                )
        tops = []
        for sheet in chosen:
            with self._explained():
                said_rows = sheet.max_row
                sheet.reset_dimensions()
                found = _top(sheet, layout)
            if found:
                tops.append((sheet, found, said_rows))
        if not tops:
            self._say_empty(layout, chosen)
        ranks = [top.rank for _, top, _ in tops]
        named = [one for one in tops if one[1].rank == min(ranks)]
        if len(named) > 1:
            have = "could hold the molecules" if min(ranks) < _NO_RANK else "have no SMILES column"
            raise DataError(
                f"{self.name}: sheets {listed([sheet.title for sheet, _, _ in named])} {have}: "
                f"name one with {layout.options}sheet"
            )
        sheet, top, self._said_rows = named[0]
        if len(sheets) > 1:
            self.name += f" (sheet {sheet.title!r})"
        if top.wider:
            raise DataError(
                f"{self.name}: row {top.line} has one cell and row {top.wider} has more, and no "
                f"row names a column of SMILES: say with {layout.options}header_row N which row "
                "names the columns"
            )
        if layout.sheet is None and len(sheets) > 1:
            self.notes += (f"of {len(sheets)} sheets {sheet.title!r} is read",)
        if top.below and layout.header_row is None:
            self.notes += (f"row {top.line} is taken for the header; what is above it is not read",)
        return sheet, top

    def _say_empty(self, layout: Layout, sheets: Sequence[Any]) -> None:
        titles = listed([repr(sheet.title) for sheet in sheets])
        what = "sheet" if len(sheets) == 1 else "sheets"
        if layout.header_row is None:
            raise DataError(f"{self.name}: {what} {titles} hold{'s' * (len(sheets) == 1)} nothing")
        raise DataError(
            f"{self.name}: row {layout.header_row} of {what} {titles} is empty: name the row of "
            f"the header with {layout.options}header_row"
        )

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # XML that is no workbook can fail in nearly any way
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:120]
            raise DataError(
                f"{self.name} is cut off, damaged or not a workbook {self._place()} ({reason})"
            ) from error

    def __iter__(self) -> Iterator[Row]:
        width = len(self.columns)
        empty = 0
        while True:
            with self._explained():
                line, cells = next(self._rows, (0, None))
            if cells is None:
                return
            if not any(map(_there, cells)):
                empty += 1
                continue
            for above in range(empty, 0, -1):
                self._done += 1
                yield Row(self._done, line - above, (None,) * width)
            empty = 0
            self._done += 1
            known, more = cells[:width], [cell for cell in cells[width:] if _there(cell)]
            known = (*known, *repeat(None, width - len(known)))
            problem = f"{width + len(more)} cells for {width} columns" if more else ""
            yield Row(self._done, line, known, problem)

    def fraction(self) -> float | None:
        """Share of the rows that have been read."""
        return min(1.0, (self._done + 1) / self._said_rows) if self._said_rows else None

    def close(self) -> None:
        """Close the file."""
        self._book.close()
        self._raw.close()


def _there(cell: object) -> bool:
    return cell is not None and cell != ""


class _Top(NamedTuple):
    """Where the header of a sheet stands.

    Attributes:
        line: Its row.
        rank: As of `header_rank`; `_NO_RANK`: no row has the name of a column of SMILES.
        below: Whether something stands above it.
        wider: Where nothing is like a header, and the first row may be a title: the next row.
    """

    line: int
    rank: int
    below: bool
    wider: int


def _top(sheet: Any, layout: Layout) -> _Top | None:
    """Find the header of a sheet; None: nothing stands there."""
    looked_at = max(_LOOKED_AT, layout.header_row or 0)
    rows = [
        (line, filled)
        for line, cells in enumerate(sheet.iter_rows(max_row=looked_at, values_only=True), start=1)
        if (filled := [cell for cell in cells if _there(cell)])
    ]
    if not rows:
        return None
    found, widest = [], 0
    for line, cells in rows:
        rank = header_rank(cells, layout.smiles_column)
        # A title has fewer cells than the header below it; what has as many is a row of the table.
        if rank is not None and (len(cells) > widest or (rank == 0 and widest == 1)):
            found.append((rank, -len(cells), line))
        widest = max(widest, len(cells))
    first = rows[0][0]
    if layout.header_row is not None:
        if layout.header_row not in dict(rows):
            return None
        rank = header_rank(dict(rows)[layout.header_row], layout.smiles_column)
        return _Top(layout.header_row, _NO_RANK if rank is None else rank, True, 0)
    if found:
        rank, _, line = min(found)
        return _Top(line, rank, line > first, 0)
    wider = next((line for line, cells in rows if len(cells) > 1), 0)
    return _Top(first, _NO_RANK, False, wider if len(rows[0][1]) == 1 else 0)


def _without_values(sheet: Any, header: int) -> dict[int, list[str]]:
    """Return the cells below the header whose formula has no saved value, by column, from 0."""
    found: dict[int, list[str]] = {}
    rest = b""
    with sheet._get_source() as stream:  # openpyxl gives None for them, as for empty cells
        while part := stream.read(_PART_BYTES):
            rest += part
            end = rest.rfind(b"row>") + 1  # whole rows
            for match in _WITHOUT_VALUE.finditer(rest, 0, end):
                place = _CELL_NAME.search(match[1])
                # The value of a formula of text may be an empty one.
                if place is None or b't="str"' in match[1] or int(place[2]) <= header:
                    continue
                column = functools.reduce(lambda n, letter: 26 * n + letter - 64, place[1], 0)
                found.setdefault(column - 1, []).append((place[1] + place[2]).decode())
            rest = rest[end:]
    return found


class ExcelWriter(WholeFileWriter):
    """Writes a workbook of one sheet; text stays text, also where it looks like a formula.

    What Excel has no cells for, such as lists, times with a zone, days before 1900, infinities and
    integers of 16 digits, is written as text. Of a text that is longer than a cell can be the end
    is cut, which three dots say.
    """

    format = "xlsx"

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        library = _openpyxl()
        super().__init__(path)
        self._cell = library.cell.WriteOnlyCell
        self._book = library.Workbook(write_only=True)
        self._sheet = self._book.create_sheet("predictions")
        self._written = 0
        self._append(columns)

    def write(self, rows: Iterable[Sequence[object]], records: Sequence[str] | None = None) -> None:
        """Add rows.

        Raises:
            DataError: A sheet has not so many.
        """
        for cells in rows:
            self._append(cells)

    def _append(self, cells: Sequence[object]) -> None:
        self._written += 1
        if self._written > _MOST_ROWS:
            raise DataError(
                f"a sheet of Excel has {_MOST_ROWS:,} rows, and this table has more: name a .csv "
                "or .parquet file"
            )
        with self._explained():
            self._sheet.append([self._made(cell) for cell in cells])

    def _made(self, value: object) -> object:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return None
        none_for_it = (
            getattr(value, "tzinfo", None) is not None
            or (isinstance(value, date) and value.year < _FIRST_YEAR)
            or (isinstance(value, float) and math.isinf(value))
            or (isinstance(value, int) and abs(value) > _LARGEST_INTEGER)
        )
        if isinstance(value, _OF_EXCEL) and not none_for_it:
            return value
        value = str(value)
        if len(value) > _LONGEST_CELL:
            value = f"{value[: _LONGEST_CELL - 3]}..."
        cell = self._cell(self._sheet, value=_ILLEGAL.sub("\ufffd", value))
        cell.data_type = "s"
        return cell

    def _finish(self) -> Any:
        self._book.save(self._file)
        return self._file

    def _stop(self) -> None:
        self._sheet.close()
