"""Excel workbooks (.xlsx), through openpyxl, row by row."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.formatting import listed
from graphormer_sepnorm.tables.reader import Layout, TableReader, closed_on_error, names_of
from graphormer_sepnorm.tables.text import open_binary
from graphormer_sepnorm.tables.writer import WholeFileWriter

try:
    import openpyxl
    from openpyxl.cell import WriteOnlyCell
except ImportError:
    raise DataError("Excel files need openpyxl: pip install openpyxl, or use CSV") from None

_MOST_ROWS = 1_048_576  # of a sheet
_FIRST_YEAR = 1900
_LARGEST_INTEGER = 10**15  # of larger ones Excel makes the digits after the fifteenth zeros
_OF_EXCEL = (bool, int, float, Decimal, date, time, timedelta)
# Control characters, which cannot stand in a cell.
_ILLEGAL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


class ExcelReader(TableReader):
    """A sheet of a workbook; its first row that holds something names the columns.

    Unless `layout` says it, the sheet is the only one that is not hidden. The cells are values of
    Python's types, of formulas the values that were saved with them. Empty rows below the last one
    that holds something, which spreadsheets may keep, are left out.

    Raises:
        DataError: It is no workbook, or which sheet is meant cannot be told.
    """

    format = "xlsx"
    _kind, _blank = "a workbook", None

    def __init__(self, source: str | Path, layout: Layout) -> None:
        self.name = str(source)
        self._raw = open_binary(Path(source))
        with closed_on_error(self._raw.close):
            # It warns of styles that it does not know.
            with self._explained(), warnings.catch_warnings(action="ignore"):
                self._book = openpyxl.load_workbook(self._raw, read_only=True, data_only=True)
            header = self._find_sheet(layout)
        last = max(at for at, cell in enumerate(header) if _there(cell))
        self.columns = names_of(header[: last + 1])

    def _find_sheet(self, layout: Layout) -> Sequence[Any]:
        """Find the sheet whose rows are read; return its header."""
        sheets = self._book.worksheets
        chosen = [one for one in sheets if one.title == layout.sheet]
        chosen = chosen or [one for at, one in enumerate(sheets, 1) if layout.sheet == str(at)]
        if layout.sheet is None:
            chosen = [sheet for sheet in sheets if sheet.sheet_state == "visible"]
        if len(chosen) != 1:
            wrong = "which sheet is meant" if layout.sheet is None else f"no sheet {layout.sheet!r}"
            names = listed([sheet.title for sheet in chosen or sheets])
            raise DataError(f"{self.name}: {wrong}; name one of {names} with {layout.options}sheet")
        self.name += f" (sheet {chosen[0].title!r})" if len(sheets) > 1 else ""
        with self._explained():
            # By what the sheet says of its size rows would be left out where that is wrong.
            chosen[0].reset_dimensions()
            self._rows = enumerate(chosen[0].iter_rows(values_only=True), start=1)
            for line, cells in self._rows:
                if layout.header_row in (None, line) and any(map(_there, cells)):
                    return cells
        raise DataError(
            f"{self.name} has no header: name its row with {layout.options}header_row, or another "
            f"sheet with {layout.options}sheet"
        )

    def _parsed(self) -> Iterator[tuple[int, Sequence[Any]]]:
        while True:
            with self._explained():
                line, cells = next(self._rows, (0, None))
            if cells is None:
                return
            yield line, cells if any(map(_there, cells)) else ()

    def close(self) -> None:
        """Close the file."""
        self._book.close()
        self._raw.close()


def _there(cell: object) -> bool:
    return cell is not None and cell != ""


class ExcelWriter(WholeFileWriter):
    """Writes a workbook of one sheet; text stays text, also where it looks like a formula.

    What Excel has no cells for, such as lists, times with a zone, days before 1900, infinities and
    integers of 16 digits, is written as text. openpyxl cuts a text that is too long for a cell.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        super().__init__(path)
        self._book = openpyxl.Workbook(write_only=True)
        self._sheet = self._book.create_sheet("predictions")
        self._written = 0
        self.write([columns])

    def write(self, rows: Iterable[Sequence[object]], records: Sequence[str] | None = None) -> None:
        """Add rows.

        Raises:
            DataError: A sheet cannot have so many.
        """
        for cells in rows:
            self._written += 1
            if self._written > _MOST_ROWS:
                raise DataError(
                    f"a sheet of Excel has {_MOST_ROWS:,} rows, and this table has more: name a "
                    ".csv or .parquet file"
                )
            with self._explained():
                self._sheet.append(list(map(self._made, cells)))

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
        cell = WriteOnlyCell(self._sheet, value=_ILLEGAL.sub("\ufffd", str(value)))
        cell.data_type = "s"
        return cell

    def _finish(self) -> None:
        self._book.save(self._file)

    def _stop(self) -> None:
        self._sheet.close()
