"""One pass over a table: molecules with labels, and rows that cannot be used, with the reason."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from graphormer_sepnorm.chem.molecules import canonical_smiles, parse_molblock, parse_smiles
from graphormer_sepnorm.chem.scaffolds import murcko_scaffold
from graphormer_sepnorm.chem.standardise import standardised
from graphormer_sepnorm.datasets.user_table.columns import (
    SPLIT_WORDS,
    TableColumns,
    find_columns,
    holds_class_words,
    is_missing,
    not_taken,
    refuse_words,
)
from graphormer_sepnorm.datasets.user_table.options import ALL, TableOptions
from graphormer_sepnorm.datasets.user_table.unread import UnreadColumns
from graphormer_sepnorm.formatting import shortened
from graphormer_sepnorm.process import is_first_process
from graphormer_sepnorm.tables.columns import (
    LARGEST,
    DecimalComma,
    class_word,
    no_number,
    parse_class,
    parse_class_name,
    parse_label,
    parse_number,
    parse_or_missing,
    percent,
    readable,
    says_no_class,
    says_no_label,
    split_bound,
)
from graphormer_sepnorm.tables.opening import open_table
from graphormer_sepnorm.tables.progress import TableProgress
from graphormer_sepnorm.tables.reader import Row

if TYPE_CHECKING:
    from pathlib import Path

_GROUPED = re.compile(r"\s*[-+]?[1-9]\d{0,2}(\.\d{3})+\s*")
_SAMPLE = 1000  # rows that are looked at, at least, to tell columns of numbers

# Kinds of reasons, for counting.
MALFORMED = "malformed"
EMPTY = "empty"
STRUCTURE = "unreadable structure"
NO_LABEL = "no label"
BAD_LABEL = "unusable label"
NOT_A_CLASS = "label not 0 or 1"
BAD_WEIGHT = "unusable weight"
BAD_EXTRA = "unusable descriptor"
BAD_SPLIT = "unknown split"


@dataclass(frozen=True, slots=True)
class ValidRow:
    """A row that can be used.

    Attributes:
        number: Row of the file, from 1, the header not counted.
        text: The molecule as it is read again when its graph is made: SMILES, or a mol block.
        smiles: SMILES as given; of an SDF record, or standardised, the canonical one.
        canonical: Canonical SMILES.
        scaffold: Murcko scaffold, or None if it was not asked for.
        atoms: Number of atoms.
        labels: One per target; nan = missing.
        weight: Weight in the training loss.
        split: ``train``, ``validation`` or ``test`` where a column says so, else empty.
        extra: Numbers that are read beside the graph; nan = missing.
        bounds: Of missing labels what they are at least, one per target, then what they are at
            most; nan = unknown. Empty: of none.
    """

    number: int
    text: str
    smiles: str
    canonical: str
    scaffold: str | None
    atoms: int
    labels: tuple[float, ...]
    weight: float
    split: str
    extra: tuple[float, ...] = ()
    bounds: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class InvalidRow:
    """A row that cannot be used.

    Attributes:
        file: The file's path.
        row: Row of the file, from 1, the header not counted.
        line: Line where it starts, from 1; 0 where a file has no lines.
        smiles: The SMILES as given; may be empty.
        reason: Why, one line.
        kind: What sort of reason, for counting.
    """

    file: str
    row: int
    line: int
    smiles: str
    reason: str
    kind: str

    @property
    def place(self) -> str:
        """Row and line, for messages."""
        return f"row {self.row}" + (f", line {self.line}" if self.line else "")


@dataclass(frozen=True, slots=True)
class InvalidCell(InvalidRow):
    """A label that cannot be used, of a row that is used for its other labels.

    Attributes:
        column: Its column.
    """

    column: str


class CellCounts(dict[str, tuple[int, str]]):
    """How many cells of some columns have something in common, and the first of each column."""

    def add(self, column: str, first: object, count: int = 1) -> None:
        """Count cells of a column, the first of which is `first`."""
        before, kept = self.get(readable(column), (0, str(first).strip()))
        self[readable(column)] = before + count, kept


@dataclass(frozen=True)
class TableContents:
    """All rows of one file.

    Attributes:
        columns: Which columns were used.
        format: ``csv``, ``tsv``, ``sdf`` or ``parquet``.
        valid: The rows that can be used.
        invalid: Those that cannot.
        cells: Labels that cannot be used, of rows that can.
        words: Of the targets whose labels are written in words, these words.
        classes: Of ``multiclass`` the classes, by the numbers that stand in the rows.
        relations: Columns that are not read and say which labels are bounds.
        split_columns: Columns that are not read and say how the rows may be split.
        decimal_comma: The first label with a decimal comma, as it is written; empty if none has.
        grouped: The first one with a point where others may have one between thousands.
        no_value: Labels' cells with words that are no value, such as ``n.d.``.
        percent: Labels that are given in per cent.
        units: Columns that are not read and name units, and how many used rows have which.
        not_taken: Of ``all`` targets why the other columns are none; None: targets were named.
    """

    columns: TableColumns
    format: str
    valid: list[ValidRow]
    invalid: list[InvalidRow]
    cells: list[InvalidCell]
    words: dict[str, set[str]]
    classes: tuple[str, ...] = ()
    relations: tuple[str, ...] = ()
    split_columns: tuple[str, ...] = ()
    decimal_comma: str = ""
    grouped: str = ""
    no_value: CellCounts = field(default_factory=CellCounts)
    percent: CellCounts = field(default_factory=CellCounts)
    units: dict[str, Counter[str]] = field(default_factory=dict)
    not_taken: dict[str, str] | None = None

    @property
    def from_records(self) -> bool:
        """Whether molecules come from SDF records and not from a column of SMILES."""
        return self.columns.smiles is None


class _Unusable(Exception):
    """Why a row, or one of its labels, cannot be used: kind, reason."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


def read_rows(
    path: Path,
    options: TableOptions,
    targets: tuple[str, ...],
    max_scaffolds: int | None,
    missing_weight: float | None = None,
) -> TableContents:
    """Read a table.

    Args:
        path: The file.
        options: What the user says about it.
        targets: Names of the targets; empty: the only column of numbers.
        max_scaffolds: How many molecules' scaffolds are computed; None: those of all.
        missing_weight: The weight of a row that says none; None: such a row cannot be used.

    Raises:
        DataError: The file cannot be read or its columns are not as they should be.
    """
    valid: list[ValidRow] = []
    invalid: list[InvalidRow] = []
    cells: list[InvalidCell] = []
    with open_table(path) as reader:
        rows = iter(reader)
        ahead, sample, total = _read_ahead(rows, reader.columns, targets)
        columns = find_columns(reader, sample, options, targets)
        read = _RowReader(columns, sample, options, missing_weight)
        unread = UnreadColumns(reader.columns, columns)
        # Of several training processes only the first one speaks.
        progress = TableProgress(reader, "read", quiet=not is_first_process(), total=total)
        for row in itertools.chain(_drained(ahead), rows):
            progress.show(row.number)
            unread.see(row)
            try:
                scaffold = max_scaffolds is None or len(valid) < max_scaffolds
                valid.append(read(row, scaffold))
            except _Unusable as unusable:
                invalid.append(InvalidRow(str(path), *read.said(row, unusable)))
                continue
            unread.use(row)
            for name, unusable in read.bad.items():
                cells.append(InvalidCell(str(path), *read.said(row, unusable), name))
        progress.finish()
        if options.task != "multiclass":
            without = _without_labels(columns, valid)
            refuse_words(reader.name, reader.columns, sample, without)
        takes_all = targets == (ALL,) and columns.names != targets
        return TableContents(
            columns,
            reader.format,
            valid,
            invalid,
            cells,
            read.words,
            read.classes,
            unread.relations,
            unread.splits,
            read.decimal_comma,
            read.grouped,
            read.no_value,
            read.percent,
            unread.units,
            not_taken(reader.columns, sample, columns) if takes_all else None,
        )


def _without_labels(columns: TableColumns, rows: Sequence[ValidRow]) -> list[int]:
    """Return the positions of the targets of which no row has a label or a bound."""
    empty = dict(enumerate(columns.targets))
    for row in rows:
        for at in [*empty]:
            known = (row.labels[at], *row.bounds[at :: len(columns.targets)])
            if not all(map(math.isnan, known)):
                del empty[at]
        if not empty:
            break
    return [*empty.values()]


def _read_ahead(
    rows: Iterator[Row], columns: Sequence[str], targets: tuple[str, ...]
) -> tuple[deque[Row], list[Row], int | None]:
    """Take rows until columns can be told: some first ones, and as long as a column is empty.

    Of tables that are sorted by assay many a column is empty for long.

    Args:
        rows: Of the table, in their order.
        columns: Its columns.
        targets: See `read_rows`.

    Returns:
        The rows that were taken; of them the first ones, with those that have the first value of a
        column; and how many there are, if these are all.
    """
    ahead = deque(itertools.islice(rows, _SAMPLE))
    sample = list(ahead)
    names = {name.lower() for name in targets}
    named = {at for at, name in enumerate(columns) if name.lower() in names}
    empty = named or set(range(len(columns)))
    for row in sample:
        empty -= _filled(empty, row)
    while empty and (row := next(rows, None)) is not None:
        ahead.append(row)
        if found := _filled(empty, row):
            sample.append(row)
            empty -= found
    return ahead, sample, len(ahead) if empty else None


def _filled(columns: set[int], row: Row) -> set[int]:
    if row.problem:
        return set()
    return {at for at in columns if not is_missing(row.cells[at])}


def _drained(rows: deque[Row]) -> Iterator[Row]:
    """Give rows, each of which is forgotten."""
    while rows:
        yield rows.popleft()


class _RowReader:
    """Turns rows into `ValidRow`; by the first rows, `sample`, labels in words are known.

    Of ``multiclass`` a label is the number of its class, in the order in which they occur.

    Attributes:
        bad: Of the row that was read last, which has other labels, those that cannot be used.
    """

    def __init__(
        self,
        columns: TableColumns,
        sample: Sequence[Row],
        options: TableOptions,
        missing_weight: float | None,
    ) -> None:
        self._columns = columns
        self._missing_weight = missing_weight
        self._steps = options.standardise
        self._binary = options.task == "binary"
        self._multiclass = options.task == "multiclass"
        self._numbers: dict[str, int] = {}
        self.words: dict[str, set[str]] = {}
        self.bad: dict[str, _Unusable] = {}
        self.no_value, self.percent = CellCounts(), CellCounts()
        self.decimal_comma = ""
        self.grouped = ""
        self._parse = [
            parse_class if holds_class_words(sample, position) else parse_label
            for position in columns.targets
        ]

    def smiles(self, row: Row) -> str:
        """Return the SMILES of a row as given, even of a malformed one; empty if there is none."""
        position = self._columns.smiles
        if position is None or position >= len(row.cells):
            return ""
        cell = row.cells[position]
        return cell if isinstance(cell, str) else ""

    def said(self, row: Row, unusable: _Unusable) -> tuple[int, int, str, str, str]:
        """Return what `InvalidRow` says of a row, but its file."""
        reason = " ".join(str(unusable).split())
        return row.number, row.line, self.smiles(row), reason, unusable.kind

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes so far, by their numbers."""
        return tuple(self._numbers)

    def __call__(self, row: Row, scaffold: bool) -> ValidRow:
        """Read one row, with or without the scaffold; raises `_Unusable`."""
        if row.problem:
            raise _Unusable(MALFORMED, row.problem)
        columns = self._columns
        from_record = columns.smiles is None
        if not from_record and all(cell is None or cell == "" for cell in row.cells):
            raise _Unusable(EMPTY, "the row is empty")
        text = row.record if from_record else self.smiles(row)
        parsed = parse_molblock(text) if from_record else parse_smiles(text)
        parsed = standardised(parsed, self._steps)
        if parsed.molecule is None:
            raise _Unusable(STRUCTURE, parsed.reason)
        of_class = self._class_name(row)
        labels, bounds = ((), ()) if of_class else self._labels(row)
        weight, split = self._weight(row), self._split(row)
        try:
            extra = parse_or_missing(
                [row.cells[place] for place in columns.extra], columns.extra_names
            )
        except ValueError as error:
            raise _Unusable(BAD_EXTRA, str(error)) from None
        if of_class:  # now: a class of which all rows are left out is none
            labels = (float(self._numbers.setdefault(of_class, len(self._numbers))),)
        canonical = canonical_smiles(parsed.molecule)
        if self._steps:  # from here on the molecule is what came of them
            from_record, text = False, canonical
        return ValidRow(
            number=row.number,
            text=_mol_block(text) if from_record else text,
            smiles=canonical if from_record else text,
            canonical=canonical,
            scaffold=murcko_scaffold(parsed.molecule) if scaffold else None,
            atoms=parsed.molecule.GetNumAtoms(),
            labels=labels,
            weight=weight,
            split=split,
            extra=extra,
            bounds=bounds,
        )

    def _class_name(self, row: Row) -> str:
        """Return the name of the class of a row; empty where labels are numbers."""
        if not self._multiclass:
            return ""
        cell = row.cells[self._columns.targets[0]]
        if says_no_class(cell):
            self.no_value.add(self._columns.names[0], cell)
        name = parse_class_name(cell)
        if not name:
            raise _Unusable(NO_LABEL, f"no label in {self._columns.names[0]}")
        return name

    def _labels(self, row: Row) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the labels, and bounds of those that are missing (`ValidRow`)."""
        columns = self._columns
        labels, low, high = [], [], []
        self.bad = {}
        places = zip(columns.names, columns.targets, self._parse, strict=True)
        for name, position, parse in places:
            label, least, most = math.nan, math.nan, math.nan
            try:
                label, least, most = self._label(name, row.cells[position], parse)
            except _Unusable as unusable:  # it costs its row only where that has no other label
                self.bad[name] = unusable
            labels.append(label)
            low.append(least)
            high.append(most)
        bounds = (*low, *high)
        if all(math.isnan(number) for number in (*labels, *bounds)):
            for unusable in self.bad.values():
                raise unusable
            one = len(labels) == 1
            which = columns.names[0] if one else f"any of the {len(labels)} target columns"
            raise _Unusable(NO_LABEL, f"no label in {which}")
        return tuple(labels), () if all(map(math.isnan, bounds)) else bounds

    def _label(
        self, name: str, cell: object, parse: Callable[[object], float]
    ) -> tuple[float, float, float]:
        """Return a label, and what it is at least and at most where it is a bound."""
        if isinstance(cell, DecimalComma) and not self.decimal_comma:
            self.decimal_comma = cell.strip()
        sides = {"<": math.nan, ">": math.nan}
        side, number = ("", cell) if self._binary else split_bound(cell)
        if says_no_label(number):
            self.no_value.add(name, number)
        if percent(number):
            self.percent.add(name, number)
        if side:
            sides[side] = _number(number, BAD_LABEL, name, parse_label)
            cell = None
        label = _number(cell, BAD_LABEL, name, parse)
        if self._binary and label not in (0, 1) and label == label:
            raise _Unusable(NOT_A_CLASS, f"{name} is {label:.6g}: not 0 or 1")
        if not self.grouped and isinstance(cell, str) and _GROUPED.fullmatch(cell):
            self.grouped = cell.strip()
        if word := class_word(cell):
            self.words.setdefault(name, set()).add(word)
        return label, sides[">"], sides["<"]

    def _weight(self, row: Row) -> float:
        position = self._columns.weight
        if position is None:
            return 1.0
        weight = _number(row.cells[position], BAD_WEIGHT, "the weight")
        if weight != weight:
            if self._missing_weight is not None:
                return self._missing_weight
            raise _Unusable(BAD_WEIGHT, "the weight is missing")
        if weight < 0:
            raise _Unusable(BAD_WEIGHT, f"the weight is {weight:.6g}: it must be 0 or more")
        return weight

    def _split(self, row: Row) -> str:
        position = self._columns.split
        if position is None:
            return ""
        cell = row.cells[position]
        word = "" if cell is None else str(cell).strip()
        if word.lower() not in SPLIT_WORDS:
            said = (
                f"is {shortened(word, 40)!r}, not train, validation or test"
                if word
                else "is missing"
            )
            raise _Unusable(BAD_SPLIT, f"the split {said}")
        return SPLIT_WORDS[word.lower()]


def _number(
    cell: object, kind: str, what: str, parse: Callable[[object], float] = parse_number
) -> float:
    try:
        value = parse(cell)
    except ValueError as error:
        raise _Unusable(kind, no_number(what, cell, error)) from None
    if abs(value) > LARGEST:
        raise _Unusable(kind, f"{what} is {value:.6g}: too large")
    return value


def _mol_block(record: str) -> str:
    """Return the part of an SDF record that is the molecule, without its data fields."""
    block, end, _ = record.partition("M  END")
    return f"{block}{end}\n" if end else record
