"""A library: many files with the same columns, Parquet or CSV, that are too much for one machine.

They are read by pyarrow, through an engine that divides them, so CSV follows pyarrow's rules: each
row has as many cells as the header, and the cells are separated by what the header is.
"""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.formatting import in_a_line
from graphormer_sepnorm.tables.formats import format_of
from graphormer_sepnorm.tables.opening import open_table

LIBRARY_FORMATS = ("parquet", "csv", "tsv")
_AT_ONCE = 16  # files that are looked at side by side, for file systems that take their time


@dataclass(frozen=True)
class Library:
    """The files of a library.

    Attributes:
        format: One of `LIBRARY_FORMATS`.
        columns: Names of the columns, the same in all files.
        files: Those that can be read and have rows, by their absolute names, sorted.
        rows: Of each of these.
        unreadable: Those that cannot be read, and why.
    """

    format: str
    columns: tuple[str, ...]
    files: tuple[str, ...]
    rows: tuple[int, ...]
    unreadable: dict[str, str]


def find_library(source: str) -> Library:
    """Look at the files that a folder, a pattern or a name means.

    Of a folder these are all Parquet and CSV files in it and below it but those whose names begin
    with ``.`` or ``_``. Of Parquet the end of each file is read, CSV is read through once.

    Raises:
        DataError: There are none, none that can be read, or some of several formats.
    """
    names = _names(source)
    formats = sorted({format_of(name) for name in names})
    if len(formats) != 1 or formats[0] not in LIBRARY_FORMATS:
        found = ", ".join(formats) if formats else "nothing that is a table"
        raise DataError(
            f"{source} is {found}: a library is of Parquet or CSV files, of one of them only; name "
            "them by a pattern in quotes, such as 'DIR/*.parquet'"
        )
    rows: dict[str, int] = {}
    unreadable: dict[str, str] = {}
    first: tuple[str, Any] | None = None
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for name, (count, schema, reason) in zip(names, pool.map(_look, names), strict=True):
            if not reason and first and not schema.equals(first[1]):
                reason = f"its columns or their types are not those of {first[0]}"
            if reason:
                unreadable[name] = reason
            else:
                first = first or (name, schema)
                rows[name] = count
    if first is None:
        name, reason = next(iter(unreadable.items()))
        raise DataError(f"{source}: no file can be read; {name}: {reason}")
    columns = tuple(first[1].names)
    if repeated := [name for name, times in Counter(columns).items() if times > 1]:
        raise DataError(
            f"{first[0]}: several columns are called {repeated[0]!r}: rename all but one"
        )
    if formats[0] != "parquet":
        with open_table(first[0]) as reader:
            if reader.columns != columns:
                raise DataError(
                    f"{first[0]}: the columns are {', '.join(map(repr, columns))}: in a library "
                    "the cells of .csv are separated by commas, those of .tsv by tabs, and each "
                    "column has a name"
                )
    files = tuple(name for name in rows if rows[name])
    if not files:
        raise DataError(f"{source} has no rows")
    return Library(formats[0], columns, files, tuple(rows[name] for name in files), unreadable)


def _names(source: str) -> list[str]:
    place = Path(source)
    if place.is_dir():
        paths: Iterable[Path] = (path for path in place.rglob("*") if path.is_file())
        paths = [path for path in paths if not _hidden(path.relative_to(place)) and _is_table(path)]
    elif place.is_file():
        paths = [place]
    else:
        paths = [Path(name) for name in glob.glob(source, recursive=True)]
    if not paths:
        raise DataError(f"there is no Parquet or CSV file {source}")
    return sorted(str(path.absolute()) for path in paths)


def _hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def _is_table(path: Path) -> bool:
    try:
        return format_of(path) in LIBRARY_FORMATS
    except DataError:
        return False


def _look(name: str) -> tuple[int, Any, str]:
    """Return rows and columns of a file, or why it cannot be read."""
    return _explained(name, _look_at_parquet if format_of(name) == "parquet" else _read_csv)


def damage(name: str) -> str:
    """Return why a file cannot be read to its end; empty where it can."""
    return _explained(name, _read_parquet if format_of(name) == "parquet" else _read_csv)[2]


def _explained(name: str, read: Callable[[str], tuple[int, Any]]) -> tuple[int, Any, str]:
    import pyarrow

    try:
        return *read(name), ""
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        return 0, None, in_a_line(str(error)) or type(error).__name__


def _look_at_parquet(name: str) -> tuple[int, Any]:
    from pyarrow import parquet

    with parquet.ParquetFile(name) as file:
        return file.metadata.num_rows, file.schema_arrow.remove_metadata()


def _read_parquet(name: str) -> tuple[int, Any]:
    from pyarrow import parquet

    with parquet.ParquetFile(name) as file:
        return sum(batch.num_rows for batch in file.iter_batches()), file.schema_arrow


def _read_csv(name: str) -> tuple[int, Any]:
    import pyarrow
    from pyarrow import csv

    with pyarrow.input_stream(name, compression="detect") as raw:
        header = csv.open_csv(raw, **_csv_options(name, ())).schema.names
    with pyarrow.input_stream(name, compression="detect") as raw:
        reader = csv.open_csv(raw, **_csv_options(name, header))
        return sum(batch.num_rows for batch in reader), reader.schema


def csv_options(library: Library) -> dict[str, Any]:
    """Return the arguments of pyarrow's CSV reader: cells are text, as they are written."""
    return _csv_options(library.files[0], library.columns)


def _csv_options(name: str, columns: Iterable[str]) -> dict[str, Any]:
    import pyarrow
    from pyarrow import csv

    delimiter = "\t" if format_of(name) == "tsv" else ","
    return {
        "read_options": csv.ReadOptions(use_threads=False),
        "parse_options": csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        "convert_options": csv.ConvertOptions(
            column_types=dict.fromkeys(columns, pyarrow.string()), strings_can_be_null=False
        ),
    }


def rows_of_parts(parts: Iterable[Path]) -> int:
    """Return how many rows whole Parquet files hold; those that are being written hold none."""
    return sum(_look(str(part))[0] for part in parts)


def values_of_parts(parts: Iterable[Path], column: str) -> Counter[str]:
    """Count what stands in a column of text of Parquet files."""
    counts: Counter[str] = Counter()

    def count(part: Path) -> Iterator[tuple[str, int]]:
        from pyarrow import parquet

        for pair in parquet.read_table(part, columns=[column])[column].value_counts():
            yield pair["values"].as_py() or "", pair["counts"].as_py()

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for pairs in pool.map(lambda part: dict(count(part)), parts):
            counts.update(pairs)
    return counts
