"""Parquet tables, through pyarrow, a few thousand rows at a time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from graphormer_sepnorm.tables.reader import Row, TableReader, closed_on_error
from graphormer_sepnorm.tables.text import open_binary
from graphormer_sepnorm.tables.writer import WholeFileWriter

_BATCH_ROWS = 4096


class ParquetReader(TableReader):
    """A Parquet file; cells are values of Python's types."""

    format = "parquet"
    _kind = "Parquet"

    def __init__(self, source: str | Path) -> None:
        self.name = str(source)
        self._raw = open_binary(Path(source))
        with closed_on_error(self._raw.close), self._explained():
            self._file = pq.ParquetFile(self._raw)
        self.schema = self._file.schema_arrow
        self.columns = tuple(self.schema.names)

    def __iter__(self) -> Iterator[Row]:
        batches = self._file.iter_batches(batch_size=_BATCH_ROWS)
        while True:
            with self._explained():
                batch = next(batches, None)
                columns = () if batch is None else [one.to_pylist() for one in batch.columns]
            if batch is None:
                return
            for cells in zip(*columns, strict=True):
                yield self._row(0, cells)

    def fraction(self) -> float | None:
        """Share of the rows that have been read."""
        rows = self.count()
        return self.rows_read / rows if rows else None

    def count(self) -> int:
        """Return the number of rows, which the file says."""
        return self._file.metadata.num_rows

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        self._raw.close()


class ParquetWriter(WholeFileWriter):
    """Writes a Parquet file; each call of `write` becomes a row group.

    Columns hold the `types` of Arrow, others text; those of a Parquet file that it is `like` come
    first and keep their types.
    """

    def __init__(
        self, path: Path, columns: Sequence[str], types: Mapping[str, str], like: TableReader | None
    ) -> None:
        given = list(like.schema) if isinstance(like, ParquetReader) else []
        added = [
            pa.field(_utf8(name), getattr(pa, types.get(name, "string"))())
            for name in columns[len(given) :]
        ]
        self._schema, self._given = pa.schema([*given, *added]), len(given)
        super().__init__(path)
        with closed_on_error(self.close), self._explained():
            self._writer = pq.ParquetWriter(self._file, self._schema)

    def write(self, rows: Iterable[Sequence[object]], records: Sequence[str] | None = None) -> None:
        """Write a row group."""
        columns = list(zip(*rows, strict=True)) or [()] * len(self._schema)
        arrays = [
            pa.array(
                [_value(cell, str(field.type), ours=at >= self._given) for cell in column],
                type=field.type,
            )
            for at, (column, field) in enumerate(zip(columns, self._schema, strict=True))
        ]
        with self._explained():
            self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))

    def _finish(self) -> None:
        self._writer.close()

    _stop = _finish


def _value(cell: object, kind: str, ours: bool) -> object:
    """Return a cell for a column of this kind; of `ours` nan is missing, others' stays."""
    if cell is None or (ours and isinstance(cell, float) and math.isnan(cell)):
        return None
    return _utf8(str(cell)) if kind in ("string", "large_string") else cell


def _utf8(text: str) -> str:
    # Bytes that are not UTF-8 (lone surrogates) cannot stand in Parquet's text.
    return text.encode("utf-8", "replace").decode()
