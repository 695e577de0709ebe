"""Opening a table of any format as one stream of rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphormer_sepnorm.errors import DataError, did_you_mean

STANDARD_INPUT = "-"
FORMATS = ("csv", "tsv", "smi", "sdf", "parquet")
_SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".smi": "smi",
    ".smiles": "smi",
    ".ism": "smi",
    ".txt": "smi",
    ".sdf": "sdf",
    ".sd": "sdf",
    ".parquet": "parquet",
    ".pq": "parquet",
}

_ANYTHING = (".txt", ".txt.gz")  # such a file is what its first line says


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table.

    Attributes:
        number: From 1; the header is not counted.
        line: Line of the file where it starts, from 1; 0 where there are no lines (Parquet).
        cells: One per column: text; in Parquet the value in its own type, None where missing.
        problem: Why the row itself is malformed; empty where it is not.
        record: SDF: the text of the record, without its last line ``$$$$``; empty elsewhere.
    """

    number: int
    line: int
    cells: tuple[Any, ...]
    problem: str = ""
    record: str = ""


class TableReader(ABC):
    """A table that is read once from its first to its last row, in little memory.

    Attributes:
        name: What the table is called in messages.
        format: One of `FORMATS`.
        columns: Names of the columns; a name may occur twice.
    """

    name: str
    format: str
    columns: tuple[str, ...]

    @abstractmethod
    def __iter__(self) -> Iterator[Row]:
        """Go through the rows.

        Raises:
            DataError: The file cannot be read any further; it names the last row that could.
        """

    @abstractmethod
    def fraction(self) -> float | None:
        """Share of the table that has been read, 0 to 1; None where that cannot be known."""

    @abstractmethod
    def close(self) -> None:
        """Close the file."""

    def __enter__(self) -> TableReader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def open_table(source: str | Path, format: str | None = None) -> TableReader:
    """Open a table.

    Args:
        source: A file, also gzipped (but Parquet); ``-`` is standard input.
        format: One of `FORMATS`; None goes by the name, for standard input and .txt files by the
            first line.

    Raises:
        DataError: The file is not there, is not of this format, or has no header.
    """
    said = format is not None
    if format is not None:
        require_format(format)
    elif str(source) != STANDARD_INPUT and not str(source).lower().endswith(_ANYTHING):
        format = format_of(source)
    if format == "parquet":
        from graphormer_sepnorm.tables.parquet import ParquetReader

        return ParquetReader(source)
    if format == "sdf":
        from graphormer_sepnorm.tables.sdf import SDFReader

        return SDFReader(source)
    from graphormer_sepnorm.tables.delimited import DelimitedReader, SmilesReader
    from graphormer_sepnorm.tables.text import TextSource

    text = TextSource(source)
    try:
        announced = "" if said else text.announced_format()
        if announced == "sdf" or (announced == "csv" and format == "smi"):
            raise DataError(
                f"{text.name} looks like {announced.upper()}: say this format, or rename it"
            )
        if format is None:
            format = text.guess_format()
        if format == "smi":
            return SmilesReader(text)
        return DelimitedReader(text, format)
    except BaseException:
        text.close()
        raise


def require_format(format: str) -> None:
    """Refuse what is not one of `FORMATS`.

    Raises:
        DataError: It is none of them.
    """
    if format not in FORMATS:
        raise DataError(
            f"unknown format {format!r}{did_you_mean(format, FORMATS)}: there are "
            f"{', '.join(FORMATS)}"
        )


def format_of(path: str | Path) -> str:
    """Return the format that the name of a file says.

    Raises:
        DataError: It says none.
    """
    path = Path(path)
    suffixes = [suffix.lower() for suffix in path.suffixes]
    gzipped = suffixes[-1:] == [".gz"]
    if gzipped:
        suffixes.pop()
    format = _SUFFIXES.get(suffixes[-1]) if suffixes else None
    if format is None or (gzipped and format == "parquet"):
        raise DataError(
            f"{path}: what format is this? Names end in {', '.join(_SUFFIXES)}, all but Parquet "
            "also with .gz after it; or say the format"
        )
    return format
