"""A text file as lines, unpacked if it is gzipped, every byte kept."""

from __future__ import annotations

import codecs
import contextlib
import gzip
import io
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.tables.columns import is_smiles_name
from graphormer_sepnorm.tables.reader import STANDARD_INPUT

_GZIP = b"\x1f\x8b"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
# How other files begin; whatever of it is letters, the name of a column may begin with too.
_NOT_TEXT = {
    re.compile(rb"PAR1[\x00-\x08\x0e-\x1f]"): "Parquet (.parquet)",
    re.compile(rb"PK\x03\x04"): "a zip archive or an Excel sheet",
    re.compile(rb"\xd0\xcf\x11\xe0"): "an old Excel sheet",
    re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"): "compressed with bzip2",
    re.compile(rb"\xfd7zX"): "compressed with xz",
    re.compile(rb"\x28\xb5\x2f\xfd"): "compressed with Zstandard",
}
# The fourth line of a record of an SD file (CTfile formats, BIOVIA: the counts line).
_COUNTS = re.compile(rb"(?:[^\r\n]*(?:\r\n?|\n)){3}[ \d]{6}[^\r\n]{0,40}V[23]000\s")
# Excel's line before the header; a tab is stripped.
_SEPARATOR = re.compile(r'"?sep=([,;|]?)"?', re.IGNORECASE)
# A longer line is no line of a table, and might have no end.
_LONGEST_LINE = 20_000_000


class TextSource:
    """The lines of a file or of standard input.

    Bytes that are not UTF-8 become lone surrogates, and these the same bytes again when they are
    written with ``errors="surrogateescape"``. A byte-order mark is dropped; UTF-16 is known by it.

    Args:
        source: A file; ``-`` is standard input.

    Attributes:
        name: What it is called in messages.
        separator: What separates cells, if a line ``sep=;`` says so; it is not one of the lines.
        marked: Whether it begins with a byte-order mark.

    Raises:
        DataError: It is not there, cannot be opened or is not text.
    """

    def __init__(self, source: str | Path) -> None:
        self._standard = str(source) == STANDARD_INPUT
        self.name = "standard input" if self._standard else str(source)
        self._raw: Any = standard_input() if self._standard else open_binary(Path(source))
        self._size = 0 if self._standard else os.fstat(self._raw.fileno()).st_size
        self._place: Callable[[], str] = lambda: "at its beginning"
        try:
            with self._explained():
                self._wrapper = self._decoded()
            self._lines: Iterable[str] = self._bounded()
            self.separator = self._taken_separator()
        except DataError:
            if not self._standard:
                self._raw.close()
            raise

    def _taken_separator(self) -> str:
        """Take the line of `separator` away, if there is one."""
        said = _SEPARATOR.fullmatch(self._first_line())
        if not said:
            return ""
        next(iter(self._lines))
        return said[1] or "\t"

    def _decoded(self) -> io.TextIOWrapper:
        stream = self._raw if hasattr(self._raw, "peek") else io.BufferedReader(self._raw)
        if stream.peek(2)[:2] == _GZIP:
            # Not buffered once more: a buffer loses what stands before the end of a cut-off file.
            stream = gzip.GzipFile(fileobj=stream)
        start = stream.peek(10)
        for mark, other in _NOT_TEXT.items():
            if mark.match(start):
                raise DataError(f"{self.name} is {other}, not text: convert or rename it")
        self._sd_file = _COUNTS.match(start) is not None
        start = stream.peek(3)[:3]
        self.marked = start[:2] in _UTF16 or start == codecs.BOM_UTF8
        encoding = "utf-16" if start[:2] in _UTF16 else "utf-8-sig"
        # newline="": line ends inside quotes stay what they are.
        return io.TextIOWrapper(stream, encoding, errors="surrogateescape", newline="")

    def _bounded(self) -> Iterator[str]:
        while line := self._wrapper.readline(_LONGEST_LINE):
            if len(line) == _LONGEST_LINE and line[-1] not in "\r\n":
                raise DataError(
                    f"{self.name} is not a table: a line {self._place()} has more than "
                    f"{_LONGEST_LINE:,} characters"
                )
            yield line

    def guess_format(self) -> str:
        """Return the format of the text by its first lines, which stay to be read."""
        line = self._first_line()
        if announced := self.announced_format():
            return announced
        with self._explained():
            first = list(islice(self._lines, 2))
        self._lines = chain(first, self._lines)
        # "smiles zinc_id" may be one name or two: the line below it tells.
        below = first[1].split() if len(first) > 1 else []
        if len(below) > 1 and is_smiles_name(line.partition(" ")[0]):
            return "smi"
        return "csv" if is_smiles_name(line.strip('"')) else "smi"

    def announced_format(self) -> str:
        """Return the format that the first lines leave no doubt about; empty if there is none."""
        if self._sd_file:
            return "sdf"
        if self.separator:
            return "tsv" if self.separator == "\t" else "csv"
        line = self._first_line()
        for delimiter, format in (("\t", "tsv"), (",", "csv"), (";", "csv"), ("|", "csv")):
            cells = [cell.strip(' "') for cell in line.split(delimiter)]
            if len(cells) > 1 and any(is_smiles_name(cell) for cell in cells):
                return format
        return ""

    def _first_line(self) -> str:
        with self._explained():
            first = next(iter(self._lines), "")
        self._lines = chain([first] if first else [], self._lines)
        return first.strip()

    def lines(self, place: Callable[[], str]) -> Iterator[str]:
        """Go through the lines, with their ends.

        Args:
            place: Says how far the table has been read, for messages: ``after row 7``.

        Raises:
            DataError: The file is damaged.
        """
        self._place = place
        with self._explained():
            yield from self._lines

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except EOFError as error:
            raise DataError(f"{self.name} is cut off {self._place()}: it ends too early") from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise DataError(f"{self.name} is damaged {self._place()} ({error})") from error
        except UnicodeError as error:
            raise DataError(f"{self.name} is not text {self._place()} ({error})") from error
        except OSError as error:
            reason = error.strerror or error
            raise DataError(f"{self.name} cannot be read {self._place()} ({reason})") from error

    def fraction(self) -> float | None:
        """Share of the file's bytes that have been read."""
        if not self._size or self._raw.closed:
            return None
        return min(self._raw.tell() / self._size, 1.0)

    def close(self) -> None:
        """Close the file; standard input stays open."""
        if not self._standard:
            self._raw.close()
        else:
            with contextlib.suppress(ValueError):  # it is closed already
                self._wrapper.detach()  # or collecting the wrapper would close standard input


def standard_input() -> Any:
    """Return standard input as bytes.

    Raises:
        DataError: It is closed.
    """
    if getattr(sys.stdin, "buffer", None) is None:  # or a notebook's
        raise DataError("standard input is closed: name a file")
    return sys.stdin.buffer


def open_binary(path: Path) -> Any:
    """Open a file for reading.

    Raises:
        DataError: It is not there, is a directory, or cannot be opened.
    """
    if path.is_dir():
        raise DataError(f"{path} is a directory: name a file")
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise DataError(f"there is no file {path}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be opened ({error.strerror})") from error
