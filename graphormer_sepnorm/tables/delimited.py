"""Text tables: CSV, TSV and files of SMILES."""

from __future__ import annotations

import csv
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.tables.columns import (
    NO_RANK,
    DecimalComma,
    find_header,
    is_smiles_name,
    with_decimal_comma,
)
from graphormer_sepnorm.tables.reader import Layout, Row, TableReader
from graphormer_sepnorm.tables.text import TextSource

# A cell longer than this is an unclosed quote that swallows the rest of the table.
_LONGEST_CELL = 10_000_000
# Lines in which the header is looked for, and numbers with a decimal comma.
_LOOKED_AT, _AHEAD = 30, 1000


class _TextReader(TableReader):
    """What text tables share: the source, where reading stands, and what an empty line is.

    It is a row of empty cells, but not at the end of the file.
    """

    def __init__(self, text: TextSource) -> None:
        self.name = text.name
        self._text = text

    @abstractmethod
    def _parsed(self) -> Iterator[tuple[int, tuple[str, ...], str]]:
        """Give line, cells and problem of each row; no cells: an empty line."""

    def __iter__(self) -> Iterator[Row]:
        blank: list[int] = []  # lines of empty rows, which count once something follows
        for line, cells, problem in self._parsed():
            if not cells:
                blank.append(line)
                continue
            for earlier in blank:
                self._done += 1
                yield Row(self._done, earlier, ("",) * len(self.columns))
            blank.clear()
            self._done += 1
            yield Row(self._done, line, cells, problem)

    def fraction(self) -> float | None:
        return self._text.fraction()

    def close(self) -> None:
        self._text.close()


class DelimitedReader(_TextReader):
    """CSV and TSV (RFC 4180), read by Python's csv module.

    The first line names the columns, or one below it that `layout` says, or that names a column of
    SMILES where no line above it does; a column without a name is called ``column_3`` by its place.
    Rows that are too short are filled up with empty cells. Rows that are too long have a
    `Row.problem`, unless what is too much is empty.

    Args:
        text: The file.
        format: ``csv`` or ``tsv``.
        layout: Where its header is; None: it has to be found.

    Attributes:
        delimiter: What separates the cells: a comma, a semicolon, a tab or a bar, or what ``sep=``
            says.

    Raises:
        DataError: There is no header.
    """

    def __init__(self, text: TextSource, format: str, layout: Layout | None = None) -> None:
        super().__init__(text)
        self.format = format
        self.marked = text.marked
        lines = text.lines(self._place)
        ahead = list(islice(lines, 1))
        above = self._above(ahead, lines, layout or Layout(), text.separator, format)
        self._ended = False
        header = "".join(ahead[above : above + 1])
        self.delimiter = text.separator or _find_delimiter(header, format)
        self.announced = bool(text.separator)
        self._skipped = int(self.announced) + above
        if self.delimiter == ";":
            ahead += islice(lines, _AHEAD)
            cells = (cell.strip(' "\r\n') for line in ahead[above:] for cell in line.split(";"))
            self.decimal_comma = any(
                isinstance(with_decimal_comma(cell), DecimalComma) for cell in cells
            )
        csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_CELL))  # of the whole process
        self._reader = csv.reader(
            self._watched(chain(ahead[above:], lines)), delimiter=self.delimiter
        )
        names = self._next_row()
        if not names:
            which = f"line {above + 1}" if above else "its first line"
            raise DataError(f"{self.name} has no header: {which} must name the columns")
        self.columns = tuple(
            name.strip() or f"column_{place}" for place, name in enumerate(names, start=1)
        )

    def _above(
        self,
        ahead: list[str],
        lines: Iterator[str],
        layout: Layout,
        separator: str,
        format: str,
    ) -> int:
        """Return how many lines are above the header, which is read `ahead` then."""

        def header(lines: list[str]) -> tuple[int, int]:
            rows = [_names(one.strip(), separator or _find_delimiter(one, format)) for one in lines]
            return find_header(rows, layout.smiles_column)

        if layout.header_row is not None:
            ahead += islice(lines, layout.header_row - 1)
            return layout.header_row - 1
        open_quote = bool(ahead) and ahead[0].count('"') % 2
        if not ahead or open_quote or header(ahead)[1] < NO_RANK:
            return 0
        ahead += islice(lines, _LOOKED_AT)
        place, _ = header(ahead)
        if place:
            self.notes = (f"line {place + 1} is taken for the header, with nothing above it",)
        return place

    def _parsed(self) -> Iterator[tuple[int, tuple[str, ...], str]]:
        width = len(self.columns)
        while True:
            line = self._line()
            cells = self._next_row()
            if cells is None:
                return
            problem = ""
            if any(cells[width:]):
                problem = f"the row has {len(cells)} cells, the header names {width}"
            if self.delimiter == ";":
                cells = [with_decimal_comma(cell) for cell in cells]
            missing = width - len(cells) if cells else 0
            yield line, (*cells[:width], *[""] * missing), problem

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

    def _watched(self, lines: Iterable[str]) -> Iterator[str]:
        yield from lines
        self._ended = True


class SmilesReader(_TextReader):
    """Files of SMILES: one on each line, and after white space a name.

    A CXSMILES extension (``|...|``) belongs to the SMILES. There is no header, unless the first
    word is ``smiles``.
    """

    format = "smi"
    columns = ("smiles", "name")

    def _parsed(self) -> Iterator[tuple[int, tuple[str, ...], str]]:
        for line, content in enumerate(self._text.lines(self._place), start=1):
            smiles, name = _split_smiles(content)
            if line > 1 or not is_smiles_name(smiles):
                yield line, (smiles, name) if smiles else (), ""


def _split_smiles(line: str) -> tuple[str, str]:
    smiles, _, rest = line.strip().replace("\t", " ").partition(" ")
    rest = rest.strip()
    if rest.startswith("|") and "|" in rest[1:]:
        end = rest.index("|", 1) + 1
        smiles, rest = f"{smiles} {rest[:end]}", rest[end:].strip()
    return smiles, rest


def _find_delimiter(header: str, format: str) -> str:
    if format == "tsv":
        return "\t"
    outside = "".join(header.split('"')[::2])
    found = [mark for mark in ",;\t" if mark in outside]
    # A bar is rare, and may be a part of a name.
    possible = found or [mark for mark in "|" if mark in outside]
    # smiles;logS (mol/L, 25 C) has another comma.
    named = [mark for mark in possible if any(map(is_smiles_name, _names(header, mark)))]
    return next(iter([*named, *found]), ",")


def _names(header: str, delimiter: str) -> list[str]:
    return [name.strip().strip('"') for name in header.split(delimiter)]
