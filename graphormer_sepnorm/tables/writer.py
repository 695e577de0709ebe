"""Writing a table: under a temporary name until it is complete, continued if it is not."""

from __future__ import annotations

import contextlib
import gzip
import math
import os
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import starmap
from pathlib import Path
from types import MappingProxyType
from typing import Any

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import (
    STANDARD_OUTPUTS,
    behind_link,
    beside,
    cannot_be_written,
    is_stream,
)
from graphormer_sepnorm.formatting import in_a_line
from graphormer_sepnorm.tables.columns import DecimalComma, with_decimal_comma
from graphormer_sepnorm.tables.opening import WHOLE_FILES, format_to_write
from graphormer_sepnorm.tables.reader import TableReader, closed_on_error

_WITH_POINT = re.compile(r"-?\d+\.\d+(e[-+]?\d+)?")
# Cells that need quotes; a header of one column with another delimiter in it would be split at it.
_QUOTED = re.compile(r'[,;\t"\r\n]|^\s|\s$')


def create_table(
    destination: str | Path,
    columns: Sequence[str],
    *,
    format: str | None = None,
    like: TableReader | None = None,
    types: Mapping[str, str] = MappingProxyType({}),
    resume: int | None = None,
) -> TableWriter:
    """Begin a table, or continue one.

    A file is written beside its place, as ``NAME.partial``, and has its own name when it is
    complete and safe on disk (`TableWriter.commit`). The part that was written before a
    `TableWriter.mark` can be continued after whatever happened; the result is the same file, byte
    by byte. A device or a
    pipe is written to at once.

    Args:
        destination: The file, CSV and TSV and SDF also with ``.gz``; ``-`` is standard output.
        columns: Names of the columns.
        format: ``csv``, ``tsv``, ``sdf``, ``parquet`` or ``xlsx``; None goes by the name; CSV where
            that has no ending, of ``-``, a device or a pipe.
        like: The table that the rows come from. Its columns must be the first ones. SDF can only be
            written from SDF; Parquet takes over the types of Parquet, CSV the delimiter and decimal
            sign of CSV.
        types: What columns hold, for Parquet: ``float64``, ``int64``, ...; others are text.
        resume: The mark where a text file is continued; None starts over.

    Raises:
        DataError: The format is not one of these, or the file cannot be made.
    """
    standard, stream = str(destination) in STANDARD_OUTPUTS, is_stream(destination)
    format = format or format_to_write(destination)
    name = "standard output" if standard else str(destination)
    if format == "sdf" and (like is None or like.format != "sdf"):
        raise DataError("SDF can only be written if SDF was read: name a .csv, .tsv or .parquet")
    if format == "smi":
        raise DataError("a SMILES file has no columns to write to: name a .csv, .tsv or .parquet")
    if format in WHOLE_FILES and stream:
        raise DataError(f"{WHOLE_FILES[format]} cannot be written to {name}: name another file")
    path = None if standard else behind_link(Path(destination))
    if path is not None and path.is_dir():
        raise DataError(f"{path} is a directory: name a file, or - for standard output")
    if path is not None and format == "parquet":
        from graphormer_sepnorm.tables.parquet import ParquetWriter

        return ParquetWriter(path, columns, types, like)
    if path is not None and format == "xlsx":
        from graphormer_sepnorm.tables.excel import ExcelWriter

        return ExcelWriter(path, columns)
    return _TextWriter(path, columns, format, like, resume)


class TableWriter(ABC):
    """A table that is written row by row.

    All raise a `DataError` where there is no room, or the file cannot be written.

    Attributes:
        partial: The file that is written to until it is complete; None for standard output, a
            device or a pipe.
    """

    partial: Path | None
    _file: Any

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.partial = None if path is None or is_stream(path) else beside(path, ".partial")

    @abstractmethod
    def write(self, rows: Iterable[Sequence[object]], records: Sequence[str] | None = None) -> None:
        """Write rows.

        Args:
            rows: One cell per column. None and nan are empty cells; numbers are written so that
                they can be read again exactly.
            records: For SDF: the records that the columns are added to.
        """

    def mark(self) -> int:
        """Make sure that what has been written is on disk, and return how many bytes it takes.

        Raises:
            DataError: The format (Parquet, Excel) or the place cannot be continued.
        """
        raise DataError(f"{self._path or 'standard output'} cannot be continued: name a .csv file")

    def _finish(self) -> None:  # noqa: B027, of text nothing is left
        """Write what is left."""

    @abstractmethod
    def close(self) -> None:
        """Stop; what has been written stays under the temporary name."""

    def commit(self) -> None:
        """Give the complete file its name."""
        with self._explained():
            self._finish()
            self._file.flush()
            if self._path is None:
                return
            if self.partial is not None:
                os.fsync(self._file.fileno())
            self._file.close()
            if self.partial is not None:
                os.replace(self.partial, self._path)

    def discard(self) -> None:
        """Stop and remove what has been written."""
        self.close()
        if self.partial is not None:
            self.partial.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise  # whoever read our output has gone: no mistake of the user's
        except OSError as error:
            name = "standard output" if self._path is None else str(self._path)
            raise DataError(cannot_be_written(name, error)) from error


class WholeFileWriter(TableWriter):
    """A format that is written at its end, so that it cannot be continued."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        assert self.partial is not None
        with self._explained():
            self._file = self.partial.open("wb")

    @abstractmethod
    def _stop(self) -> None: ...

    def close(self) -> None:
        """Close without finishing."""
        with contextlib.suppress(Exception):  # the file is incomplete anyway
            self._stop()
        with contextlib.suppress(OSError):
            self._file.close()


class _TextWriter(TableWriter):
    """CSV, TSV and SDF, gzipped if the name ends so.

    A gzipped file consists of one member for each call of `write`, without time stamps: so a
    continued file is the same as one written at once.
    """

    def __init__(
        self,
        path: Path | None,
        columns: Sequence[str],
        format: str,
        like: TableReader | None,
        resume: int | None,
    ) -> None:
        super().__init__(path)
        self._format = format
        self._columns = tuple(columns)
        self._known = len(like.columns) if like is not None else 0  # columns that are not ours
        of_csv = like if like is not None and like.format == format == "csv" else None
        self._delimiter = "\t" if format == "tsv" else of_csv.delimiter if of_csv else ","
        self._decimal_comma = of_csv is not None and of_csv.decimal_comma
        self._gzipped = path is not None and path.suffix.lower() == ".gz"
        with self._explained():
            if path is None:
                if not hasattr(sys.stdout, "buffer"):
                    raise DataError("standard output takes no bytes here: name a file with -o")
                self._file = sys.stdout.buffer
            elif resume is not None and self.partial is not None:
                self._file = _continued(self.partial, resume)
            else:
                self._file = (self.partial or path).open("wb")
        if resume is None and format != "sdf":
            start = "\ufeff" * (like is not None and like.marked and self.partial is not None)
            with closed_on_error(self.close):
                self._put(start + self._line(self._columns))

    def write(self, rows: Iterable[Sequence[object]], records: Sequence[str] | None = None) -> None:
        if self._format == "sdf":
            texts = starmap(self._record, zip(rows, records or (), strict=True))
        else:
            texts = map(self._line, rows)
        self._put("".join(texts))

    def _put(self, text: str) -> None:
        if not text:
            return  # of nothing, gzip makes an empty member
        data = text.encode("utf-8", "surrogateescape")
        with self._explained():
            self._file.write(gzip.compress(data, mtime=0) if self._gzipped else data)
            if self.partial is None:
                self._file.flush()

    def _line(self, cells: Sequence[object]) -> str:
        texts = [_text(cell) for cell in cells]
        if self._decimal_comma:
            for at, text in enumerate(texts[self._known :], self._known):
                if _WITH_POINT.fullmatch(text):
                    texts[at] = with_decimal_comma(text.replace(".", ","))
        if texts == [""]:
            return '""\n'  # an empty line would not be a row
        return self._delimiter.join(map(self._quoted, texts)) + "\n"

    def _quoted(self, text: str) -> str:
        needed = _QUOTED.search(text) and not isinstance(text, DecimalComma)
        if needed or self._delimiter in text:
            return '"' + text.replace('"', '""') + '"'
        return text

    def _record(self, cells: Sequence[object], record: str) -> str:
        end = "\r\n" if "\r\n" in record else "\n" if "\n" in record or not record else "\r"
        if not record.endswith(end):
            record += end  # the last of a file that was cut off
        added = [
            f">  <{in_a_line(name)}>{end}{text}{end}{end}"
            for name, cell in zip(self._columns[self._known :], cells[self._known :], strict=True)
            if (text := _text(cell))
        ]
        if added and not record.endswith((end * 2, f"M  END{end}")):
            record += end  # the data field before ours ends with an empty line
        return "".join([record, *added, f"$$$${end}"])

    def mark(self) -> int:
        if self.partial is None:
            return super().mark()
        with self._explained():
            self._file.flush()
            os.fsync(self._file.fileno())
            return self._file.tell()

    def close(self) -> None:
        if self._path is not None:
            with contextlib.suppress(OSError):  # no room for the rest: it is behind the last mark
                self._file.close()


def _continued(partial: Path, resume: int) -> Any:
    size = partial.stat().st_size if partial.exists() else -1
    if size < resume:
        state = "gone" if size < 0 else "shorter than it was when it was left"
        raise DataError(f"{partial} is {state}: it cannot be continued, start again")
    file = partial.open("r+b")
    file.truncate(resume)
    file.seek(resume)
    return file


def _text(cell: object) -> str:
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    return cell if isinstance(cell, str) else str(cell)
