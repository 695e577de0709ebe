"""SD files: records of a mol block and data fields, closed by ``$$$$`` (CTfile formats, BIOVIA)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.tables.columns import free_name
from graphormer_sepnorm.tables.reader import Row, closed_on_error
from graphormer_sepnorm.tables.text import TextReader, TextSource

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
    itself is in `Row.record`.
    """

    format = "sdf"
    _unit = "record"

    def __init__(self, source: str | Path) -> None:
        super().__init__(TextSource(source))
        names: dict[str, None] = {}
        titled = molecules = False
        with closed_on_error(self._text.close):
            for _, record in self._records():
                titled = titled or bool(record and record[0].strip())
                molecules = molecules or any(line.startswith("M  END") for line in record)
                names |= dict.fromkeys(_fields(record))
            if titled and not molecules:
                raise DataError(f"{self.name} is not an SD file: no record in it has a mol block")
            self._text.rewind()
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
