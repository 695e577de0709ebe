"""What a reader of tables is, whatever the format: a stream of rows."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from graphormer_sepnorm.errors import DataError

STANDARD_INPUT = "-"


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table.

    Attributes:
        number: From 1; the header is not counted.
        line: Line of the file where it starts, from 1; 0 where there are no lines (Parquet).
        cells: One per column: text; in Parquet and Excel the value in its own type, None where
            missing.
        problem: Why the row itself is malformed; empty where it is not.
        record: SDF: the text of the record, without its last line ``$$$$``; empty elsewhere.
    """

    number: int
    line: int
    cells: tuple[Any, ...]
    problem: str = ""
    record: str = ""


@dataclass(frozen=True)
class Layout:
    """Which part of a file is the table, as far as the user says it.

    Attributes:
        sheet: Excel: its name, or its number from 1; None: the only one that is not hidden.
        header_row: Excel, CSV and TSV: the row (line) that names the columns, from 1; None: the
            first.
        smiles_column: The name of that column; None: known by its name.
        options: How these options begin, for messages.
    """

    sheet: str | None = None
    header_row: int | None = None
    smiles_column: str | None = None
    options: str = "--"


@contextlib.contextmanager
def explained(name: str, kind: str, place: Callable[[], str]) -> Iterator[None]:
    """Turn what fails while a file is read into a DataError that names it, and how far it is read.

    Args:
        name: The file.
        kind: What it should be.
        place: Says how far it has been read: ``after row 7``.
    """
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # what is no such file can fail in nearly any way
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:120]
        message = f"{name} is cut off, damaged or not {kind} {place()} ({reason})"
        raise DataError(message) from error


@contextlib.contextmanager
def closed_on_error(close: Callable[[], None]) -> Iterator[None]:
    """Close what was opened if what follows fails."""
    try:
        yield
    except BaseException:
        close()
        raise


def names_of(header: Iterable[Any]) -> tuple[str, ...]:
    """Return the names of columns; one without a name is called ``column_3`` by its index."""
    shown = ("" if name is None else str(name).strip() for name in header)
    return tuple(name or f"column_{at}" for at, name in enumerate(shown, start=1))


class TableReader(ABC):
    """A table that is read once from its first to its last row, in little memory.

    Attributes:
        name: What the table is called in messages.
        format: One of `opening.FORMATS`.
        columns: Names of the columns; a name may occur twice.
        delimiter: What separates the cells of text; a comma where nothing does.
        marked: Whether text begins with a byte-order mark, without which Excel takes it for
            another encoding.
        decimal_comma: Whether numbers are written with a decimal comma.
        rows_read: How many rows have been read.
    """

    name: str
    format: str
    columns: tuple[str, ...]
    delimiter: str = ","
    marked: bool = False
    decimal_comma: bool = False
    _unit, _kind = "row", "a table"
    _blank: Any = ""  # a cell in which nothing stands
    rows_read = 0

    def __iter__(self) -> Iterator[Row]:
        """Go through the rows.

        Raises:
            DataError: The file cannot be read any further; it names the last row that could.
        """
        return self._counted(self._parsed())

    def _parsed(self) -> Iterator[tuple[int, Sequence[Any]]]:
        """Give line and cells of each row, see `_counted`."""
        raise NotImplementedError

    def fraction(self) -> float | None:
        """Share of the table that has been read, 0 to 1; None where that is not known."""
        return None

    def count(self) -> int:
        """Return the number of rows; where the format does not say it, by reading them all.

        Raises:
            DataError: As from going through the rows.
        """
        return sum(1 for _ in self)

    def _place(self) -> str:
        """How far the table has been read, for messages."""
        return f"after {self._unit} {self.rows_read}" if self.rows_read else "at its beginning"

    def _explained(self) -> contextlib.AbstractContextManager[None]:
        return explained(self.name, self._kind, self._place)

    def _row(self, line: int, cells: tuple[Any, ...], problem: str = "") -> Row:
        """Count a row and return it."""
        self.rows_read += 1
        return Row(self.rows_read, line, cells, problem)

    def _counted(self, rows: Iterator[tuple[int, Sequence[Any]]]) -> Iterator[Row]:
        """Give rows of line and cells, as wide as the header.

        Those without cells are empty rows, or none at the end.
        """
        width = len(self.columns)
        blank: list[int] = []
        for line, cells in rows:
            if not cells:
                blank.append(line)
                continue
            for earlier in blank:
                yield self._row(earlier, (self._blank,) * width)
            blank.clear()
            more = any(cell not in (None, "") for cell in cells[width:])
            problem = f"the row has {len(cells)} cells, the header names {width}" if more else ""
            missing = [self._blank] * (width - len(cells))
            yield self._row(line, (*cells[:width], *missing), problem)

    @abstractmethod
    def close(self) -> None:
        """Close the file."""

    def __enter__(self) -> TableReader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
