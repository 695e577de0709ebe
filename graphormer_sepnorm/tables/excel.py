"""Excel workbooks (.xlsx), through openpyxl, row by row."""

from __future__ import annotations

import contextlib
import math
import re
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from itertools import repeat
from pathlib import Path
from typing import Any

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.tables.reader import Row, TableReader
from graphormer_sepnorm.tables.text import open_binary
from graphormer_sepnorm.tables.writer import WholeFileWriter

# A sheet has no more; and a file of some kilobytes can be packed so that it unpacks to more.
_MOST_ROWS, _LARGEST_BYTES = 1_048_576, 2_000_000_000
_LONGEST_CELL = 32_767  # characters
_FIRST_YEAR = 1900
_LARGEST_INTEGER = 10**15  # of larger ones Excel makes the digits after the fifteenth zeros
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
    """The first sheet of a workbook; its first row names the columns.

    The cells are values of Python's types, of formulas the values that were saved with them. Empty
    rows below the last one that holds something, which spreadsheets may keep, are left out.
    """

    format = "xlsx"

    def __init__(self, source: str | Path) -> None:
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
                self._sheet, *others = self._book.worksheets
                if others:  # what is not found may stand in one of those
                    self.name += f" (sheet {self._sheet.title!r}, the first of {len(others) + 1})"
                # By what the sheet says of its size rows would be left out where that is wrong.
                self._said_rows = self._sheet.max_row
                self._sheet.reset_dimensions()
                self._rows = enumerate(self._sheet.iter_rows(values_only=True), start=1)
                header = next((row for _, row in self._rows if any(map(_there, row))), None)
            if header is None:
                raise DataError(f"{self.name}: its first sheet is empty")
        except BaseException:
            self._raw.close()
            raise
        last = max(place for place, cell in enumerate(header) if _there(cell))
        self.columns = tuple(
            ("" if cell is None else str(cell).strip()) or f"column_{place}"
            for place, cell in enumerate(header[: last + 1], start=1)
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
