"""What the tests of tables share: whole tables in one call, and errors of one line."""

import contextlib
import gzip
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.tables.opening import open_table
from graphormer_sepnorm.tables.reader import Row
from graphormer_sepnorm.tables.writer import create_table


def read(source: str | Path, **options: Any) -> tuple[tuple[str, ...], list[Row]]:
    """Return the columns and the rows of a table."""
    with open_table(source, **options) as table:
        return table.columns, list(table)


def read_cells(source: str | Path, **options: Any) -> list[tuple[Any, ...]]:
    return [row.cells for row in read(source, **options)[1]]


def write(path: Path, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Path:
    writer = create_table(path, columns)
    writer.write(rows)
    writer.commit()
    return path


def saved(path: Path, content: str | bytes) -> Path:
    """Save a file, gzipped if its name says so."""
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@contextlib.contextmanager
def refused(*parts: str) -> Iterator[None]:
    """Expect a `DataError` of one line that contains the parts."""
    with pytest.raises(DataError) as caught:
        yield
    message = str(caught.value)
    assert "\n" not in message
    assert "\r" not in message
    for part in parts:
        assert part in message


def standard_stream(data: bytes = b"") -> Any:
    """A stand-in for sys.stdin or sys.stdout."""
    return SimpleNamespace(buffer=io.BytesIO(data))
