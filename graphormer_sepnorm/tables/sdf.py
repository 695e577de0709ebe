"""SD files: records of a mol block and data fields, closed by ``$$$$`` (CTfile formats, BIOVIA)."""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.tables.columns import free_name
from graphormer_sepnorm.tables.reader import STANDARD_INPUT, Row, TableReader
from graphormer_sepnorm.tables.text import TextSource, open_binary, standard_input

_END = "$$$$"
# A data header has a name in angle brackets, or numbers alone: of the record, or of the field.
_NAMED = re.compile(r"^>.*?<(.*)>")
_NUMBERED = re.compile(r"^>(?:\s*(?:DT\d+|\d+|\([^()]*\)|FROM ARCHIVES?))*\s*$")
_FIELD = re.compile(r"\bDT\d+\b")


class _DataItems:
    """Tells data headers from all other lines of a record, which are given one after the other.

    A data header begins with ``>``. The next one follows an empty line, and what stands between
    them is the value of the first, even empty lines and others that begin with ``>``. The first
    three lines of a record are title, program and comment, which may begin with anything.
    """

    def __init__(self) -> None:
        self._line = 0
        self._begun = False
        self._below_text = False  # of a value
        self._nameless = 0

    def header(self, line: str) -> str | None:
        """Return the name of the data item that begins with this line; None: none begins.

        Without a name it is that of its field (``DT12``), else ``unnamed``, ``unnamed_2``, ...
        """
        self._line += 1
        below_text, self._below_text = self._below_text, self._begun and bool(line.strip())
        if self._line <= 3 or below_text or not line.startswith(">"):
            return None
        named = _NAMED.match(line)
        if self._begun and not named and not _NUMBERED.match(line):
            return None
        self._begun = self._below_text = True
        if named and named[1].strip():
            return named[1]
        if field := _FIELD.search(line):
            return field[0]
        self._nameless += 1
        return "unnamed" if self._nameless == 1 else f"unnamed_{self._nameless}"


class SDFReader(TableReader):
    """An SD file. Its columns are the names of all data fields, found in a first pass over it.

    The title line of the records is a column too, ``title``, if any record has one. The molecule
    itself is in `Row.record`.

    Args:
        source: The file; standard input (``-``) and pipes are copied to a temporary file first.
    """

    format = "sdf"
    _unit = "record"

    def __init__(self, source: str | Path) -> None:
        self._spool: Any = None
        self.name = str(source)
        if self.name == STANDARD_INPUT:
            self.name = "standard input"
            self._spool = _spooled(standard_input())
            source = self._spool.name
        elif Path(source).exists() and not Path(source).is_file() and not Path(source).is_dir():
            with open_binary(Path(source)) as stream:  # a pipe
                self._spool = _spooled(stream)
            source = self._spool.name
        self._path = Path(source)
        try:
            self._fields, titled = self._field_names()
            self._text = self._open()
        except DataError:
            if self._spool is not None:
                self._spool.close()
            raise
        title = (free_name("title", self._fields),) if titled else ()
        self.columns = (*title, *self._fields)

    def _open(self) -> TextSource:
        text = TextSource(self._path)
        text.name = self.name
        return text

    def _field_names(self) -> tuple[tuple[str, ...], bool]:
        names: dict[str, None] = {}
        titled = molecules = False
        text = self._open()
        first = True  # line of a record
        items = _DataItems()
        try:
            for line in text.lines(self._place):
                if line.startswith(_END):
                    first = True
                    items = _DataItems()
                    self._done += 1
                    continue
                titled = titled or (first and bool(line.strip()))
                molecules = molecules or line.startswith("M  END")
                first = False
                if name := items.header(line):
                    names[name] = None
        finally:
            text.close()
        if titled and not molecules and not self._done:
            raise DataError(f"{self.name} is not an SD file: no record in it ends with {_END}")
        return tuple(names), titled

    def __iter__(self) -> Iterator[Row]:
        self._done = 0
        lines: list[str] = []
        start = 1
        for number, line in enumerate(self._text.lines(self._place), start=1):
            if not line.startswith(_END):
                lines.append(line)
                continue
            self._done += 1
            yield self._row(start, lines)
            start, lines = number + 1, []
        if any(line.strip() for line in lines):  # the last record may lack its end
            self._done += 1
            yield self._row(start, lines)

    def _row(self, start: int, lines: list[str]) -> Row:
        values: dict[str, list[list[str]]] = {}
        value: list[str] = []
        items = _DataItems()
        for line in lines:
            name = items.header(line)
            if name is None:
                value.append(line.rstrip("\r\n") if line.strip() else "")
            else:
                value = []
                values.setdefault(name, []).append(value)
        cells = [
            "\n".join(filter(None, ("\n".join(one).strip("\n") for one in values.get(name, ()))))
            for name in self._fields
        ]
        if len(self.columns) > len(self._fields):
            cells.insert(0, lines[0].strip() if lines else "")
        return Row(self._done, start, tuple(cells), record="".join(lines))

    def fraction(self) -> float | None:
        """Share of the file's bytes that have been read, the first pass not counted."""
        return self._text.fraction()

    def close(self) -> None:
        """Close the file."""
        self._text.close()
        if self._spool is not None:
            self._spool.close()


def _spooled(stream: Any) -> Any:
    """Return what comes out of a pipe as a temporary file, since an SD file is read twice."""
    spool = tempfile.NamedTemporaryFile(prefix="graphormer_sepnorm.")  # noqa: SIM115
    try:
        shutil.copyfileobj(stream, spool)
        spool.flush()
    except OSError as error:
        with contextlib.suppress(OSError):
            spool.close()
        raise DataError(
            f"the input cannot be kept in {tempfile.gettempdir()} "
            f"({error.strerror or error}): save it as a file and name that"
        ) from error
    return spool
