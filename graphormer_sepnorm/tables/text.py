"""Text tables: CSV, TSV and files of SMILES, unpacked if they are gzipped, every byte kept."""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import io
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.tables.columns import DecimalComma, is_smiles_name, with_decimal_comma
from graphormer_sepnorm.tables.reader import (
    STANDARD_INPUT,
    Layout,
    TableReader,
    closed_on_error,
    explained,
    names_of,
)

_GZIP = b"\x1f\x8b"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
# How Parquet, zip (as Excel), old Excel, bzip2, xz and Zstandard files begin. The name of a column
# may begin so too, but has none of the other bytes that they have.
_NOT_TEXT = (b"PAR1", b"PK\x03\x04", b"\xd0\xcf\x11\xe0", b"BZh", b"\xfd7zX", b"\x28\xb5\x2f\xfd")
_NO_LETTERS, _START = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]"), 64
_LONGEST_CELL = 10_000_000  # a longer one is an unclosed quote that swallows the rest of the table
_COMMA_LINES = 1000  # in which numbers with a decimal comma are looked for


class TextSource:
    """An iterator over the lines of a file, standard input (``-``), with their ends.

    Bytes that are not UTF-8 become lone surrogates, and these the same bytes again when they are
    written with ``errors="surrogateescape"``. A byte-order mark is dropped; UTF-16 is known by it.

    Attributes:
        name: What it is called in messages.
        marked: Whether it begins with a byte-order mark.
        place: How far the table has been read, for messages: ``after row 7``.

    Raises:
        DataError: It is not there, cannot be opened, is damaged or not text.
    """

    def __init__(self, source: str | Path) -> None:
        self._standard = standard = str(source) == STANDARD_INPUT
        self.name = "standard input" if standard else str(source)
        if standard and getattr(sys.stdin, "buffer", None) is None:  # or a notebook's
            raise DataError("standard input is closed: name a file")
        self._raw: Any = sys.stdin.buffer if standard else open_binary(Path(source))
        self._size = 0 if standard else os.fstat(self._raw.fileno()).st_size
        self.place: Callable[[], str] = lambda: "at its beginning"
        self._ahead: deque[str] = deque()
        self._lines = self._read()
        closing = contextlib.nullcontext() if standard else closed_on_error(self._raw.close)
        with closing, self._explained():
            self._wrapper = self._decoded()

    def _decoded(self) -> io.TextIOWrapper:
        stream = self._raw if hasattr(self._raw, "peek") else io.BufferedReader(self._raw)
        if stream.peek(2)[:2] == _GZIP:
            # Not buffered once more: a buffer loses what stands before the end of a cut-off file.
            stream = gzip.GzipFile(fileobj=stream)
        start = stream.peek(_START)[:_START]
        self.marked = start.startswith((*_UTF16, codecs.BOM_UTF8))
        if start.startswith(_NOT_TEXT) and _NO_LETTERS.search(start):
            raise ValueError("Excel, Parquet, another compression? Convert or rename it")
        encoding = "utf-16" if start.startswith(_UTF16) else "utf-8-sig"
        # newline="": line ends inside quotes stay what they are.
        return io.TextIOWrapper(stream, encoding, errors="surrogateescape", newline="")

    def _read(self) -> Iterator[str]:
        with self._explained():
            while line := self._wrapper.readline():  # yield from would close the file with this
                yield line

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        return self._ahead.popleft() if self._ahead else next(self._lines)

    def peek(self, count: int) -> list[str]:
        """Return the next lines, which stay to be read; fewer at the end of the file."""
        self._ahead.extend(islice(self._lines, max(0, count - len(self._ahead))))
        return list(islice(self._ahead, count))

    def rewind(self) -> None:
        """Begin again; not of standard input."""
        self._wrapper.detach()  # or collecting the wrapper would close the file
        self._raw.seek(0)
        self._wrapper = self._decoded()
        self._lines = self._read()

    def _explained(self) -> contextlib.AbstractContextManager[None]:
        return explained(self.name, "text", lambda: self.place())  # which a reader sets

    def fraction(self) -> float | None:
        """Share of the file's bytes that have been read."""
        known = self._size and not self._raw.closed
        return min(self._raw.tell() / self._size, 1.0) if known else None

    def close(self) -> None:
        """Close the file; standard input stays open."""
        if not self._standard:
            self._raw.close()
        else:
            with contextlib.suppress(ValueError):  # it is closed already
                self._wrapper.detach()  # or collecting the wrapper would close standard input


class TextReader(TableReader):
    """A table whose rows come from the lines of a text."""

    def __init__(self, text: TextSource) -> None:
        self.name = text.name
        self._text = text
        text.place = self._place

    def fraction(self) -> float | None:
        """Share of the file's bytes that have been read."""
        return self._text.fraction()

    def close(self) -> None:
        """Close the file."""
        self._text.close()


class DelimitedReader(TextReader):
    """CSV and TSV (RFC 4180), read by Python's csv module.

    Rows that are too short are filled up with empty cells. Rows that are too long have a
    `Row.problem`, unless what is too much is empty.
    """

    def __init__(self, text: TextSource, format: str, layout: Layout) -> None:
        super().__init__(text)
        self.format, self.marked = format, text.marked
        self._skipped = above = (layout.header_row or 1) - 1
        for _ in islice(text, above):
            pass
        header = "".join(text.peek(1))
        self.delimiter = _find_delimiter(header, format)
        if self.delimiter == ";":
            lines = text.peek(_COMMA_LINES)
            cells = (with_decimal_comma(cell) for line in lines for cell in split_line(line, ";"))
            self.decimal_comma = any(isinstance(cell, DecimalComma) for cell in cells)
        csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_CELL))  # of the whole process
        self._ended = False
        self._reader = csv.reader(self._watched(), delimiter=self.delimiter)
        names = self._next_row()
        if not names:
            raise DataError(f"{self.name} has no header: line {above + 1} must name the columns")
        self.columns = names_of(names)

    def _parsed(self) -> Iterator[tuple[int, Sequence[str]]]:
        while True:
            line = self._line()
            cells = self._next_row()
            if cells is None:
                return
            yield line, [*map(with_decimal_comma, cells)] if self.delimiter == ";" else cells

    def _next_row(self) -> list[str] | None:
        """Return the cells of the next row, [] for an empty line, None at the end."""
        line = self._line()
        try:
            cells = next(self._reader, None)
        except csv.Error as error:
            raise DataError(
                f"{self.name}, line {line}: the row that begins here cannot be read ({error}); "
                "most likely a quote is not closed"
            ) from error
        # The csv module takes an unclosed quote at the end of the file for a closed one. It has
        # looked for another line inside a row only if a quote was open (5" pipe opens none).
        if cells is not None and self._ended:
            raise DataError(f'{self.name}, line {line}: a quote (") is opened and never closed')
        return cells

    def _line(self) -> int:
        return self._skipped + self._reader.line_num + 1

    def _watched(self) -> Iterator[str]:
        yield from self._text
        self._ended = True


class SmilesReader(TextReader):
    """Files of SMILES: one on each line, and after white space a name.

    A CXSMILES extension (``|...|``) belongs to the SMILES. There is no header, unless the first
    word is ``smiles``.
    """

    format = "smi"
    columns = ("smiles", "name")

    def _parsed(self) -> Iterator[tuple[int, Sequence[str]]]:
        for line, content in enumerate(self._text, start=1):
            smiles, _, rest = content.strip().replace("\t", " ").partition(" ")
            rest = rest.strip()
            if line == 1 and is_smiles_name(smiles):
                continue
            if rest.startswith("|") and "|" in rest[1:]:
                end = rest.index("|", 1) + 1
                smiles, rest = f"{smiles} {rest[:end]}", rest[end:].strip()
            yield line, (smiles, rest) if smiles else ()


def _find_delimiter(header: str, format: str) -> str:
    if format == "tsv":
        return "\t"
    outside = "".join(header.split('"')[::2])
    found = [mark for mark in ",;\t" if mark in outside]
    # A bar is rare, and may be a part of a name.
    possible = found or [mark for mark in "|" if mark in outside]
    # smiles;logS (mol/L, 25 C) has another comma.
    named = [mark for mark in possible if any(map(is_smiles_name, split_line(header, mark)))]
    return next(iter([*named, *found]), ",")


def split_line(line: str, delimiter: str) -> list[str]:
    """Return the names in the first line of a table, without quotes."""
    return [name.strip().strip('"') for name in line.strip("\r\n").split(delimiter)]


def open_binary(path: Path) -> Any:
    """Open a file for reading; a DataError if it is not there or cannot be opened."""
    if path.is_dir():
        raise DataError(f"{path} is a directory: name a file")
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise DataError(f"there is no file {path}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be opened ({error.strerror})") from error
