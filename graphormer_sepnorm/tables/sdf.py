"""SD files: records of a mol block and data fields, closed by ``$$$$`` (CTfile formats, BIOVIA)."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.tables.columns import free_name
from graphormer_sepnorm.tables.reader import STANDARD_INPUT, Row
from graphormer_sepnorm.tables.text import TextReader, TextSource, open_binary, standard_input

_END = "$$$$"
_NAMED = re.compile(r"^>.*?<(.*)>")  # a data header


def _fields(record: Sequence[str]) -> dict[str, str]:
    """Return the data fields of a record by their names, those of one name below each other.

    A data header begins with ``>`` and has a name in angle brackets. The first one stands anywhere
    below title, program and comment, the others below an empty line: what stands between them is
    the value of the first, even empty lines and others that begin with ``>``.
    """
    values: dict[str, list[list[str]]] = {}
    value: list[str] = []
    for above, line in pairwise(record[2:]):
        named = _NAMED.match(line)
        if named and not (values and above.strip()):
            value = []
            values.setdefault(named[1] if named[1].strip() else "unnamed", []).append(value)
        else:
            value.append(line.rstrip("\r\n") if line.strip() else "")
    return {
        name: "\n".join(filter(None, ("\n".join(one).strip("\n") for one in found)))
        for name, found in values.items()
    }


class SDFReader(TextReader):
    """An SD file. Its columns are the names of all data fields, found in a first pass over it.

    The title line of the records is a column too, ``title``, if any record has one. The molecule
    itself is in `Row.record`. Standard input (``-``) and pipes are copied to a temporary file
    first.
    """

    format = "sdf"
    _unit = "record"

    def __init__(self, source: str | Path) -> None:
        path, spool = Path(source), None
        if str(source) == STANDARD_INPUT:
            spool = _spooled(standard_input())
        elif path.is_fifo():
            with open_binary(path) as pipe:
                spool = _spooled(pipe)
        super().__init__(TextSource(source, spool))
        names: dict[str, None] = {}
        titled = molecules = False
        try:
            for _, record in self._records():
                titled = titled or bool(record and record[0].strip())
                molecules = molecules or any(line.startswith("M  END") for line in record)
                names |= dict.fromkeys(_fields(record))
            if titled and not molecules:
                raise DataError(f"{self.name} is not an SD file: no record in it has a mol block")
            self._text.rewind()
        except BaseException:
            self._text.close()
            raise
        self._names = tuple(names)
        self._title = (free_name("title", names),) * titled
        self.columns = (*self._title, *names)

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """Give the records, without their last lines, and the line where each begins."""
        self.rows_read = 0
        lines: list[str] = []
        start = 1
        for number, line in enumerate(self._text, start=1):
            if not line.startswith(_END):
                lines.append(line)
                continue
            self.rows_read += 1
            yield start, lines
            start, lines = number + 1, []
        if any(line.strip() for line in lines):  # the last record may lack its end
            self.rows_read += 1
            yield start, lines

    def __iter__(self) -> Iterator[Row]:
        for start, record in self._records():
            values = _fields(record)
            title = ((record[0] if record else "").strip(),) * len(self._title)
            cells = (*title, *(values.get(name, "") for name in self._names))
            yield Row(self.rows_read, start, cells, record="".join(record))


def _spooled(stream: Any) -> Any:
    """Return what comes out of a pipe as a file without a name, since an SD file is read twice."""
    try:
        spool = tempfile.TemporaryFile()  # noqa: SIM115
        shutil.copyfileobj(stream, spool)
        spool.seek(0)
    except OSError as error:
        raise DataError(
            f"the input cannot be kept in {tempfile.gettempdir()} "
            f"({error.strerror or error}): save it as a file and name that"
        ) from error
    return spool
