"""The rows of a table: molecules with labels, or the reason why one cannot be used."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphormer_sepnorm.chem.molecules import (
    canonical_smiles,
    is_inchi,
    mol_block,
    parse_molblock,
    parse_smiles,
)
from graphormer_sepnorm.chem.scaffolds import murcko_scaffold
from graphormer_sepnorm.chem.standardise import UNSETTLED, standardised
from graphormer_sepnorm.data_config import DataConfig
from graphormer_sepnorm.datasets.user_table.columns import (
    SPLIT_WORDS,
    TableColumns,
    find_columns,
    holds_class_words,
)
from graphormer_sepnorm.formatting import listed, shortened
from graphormer_sepnorm.process import is_first_process
from graphormer_sepnorm.tables.columns import (
    LARGEST,
    class_word,
    is_empty,
    no_number,
    parse_class,
    parse_class_name,
    parse_label,
    parse_number,
    parse_or_missing,
    readable,
    smiles_choice,
    split_bound,
)
from graphormer_sepnorm.tables.opening import open_table
from graphormer_sepnorm.tables.progress import TableProgress
from graphormer_sepnorm.tables.reader import Layout, Row

NOT_A_CLASS = "label not 0 or 1"
_SAMPLE = 1000  # rows that are looked at, at least, to tell what columns hold


@dataclass(frozen=True, slots=True)
class ValidRow:
    """A row that can be used.

    Attributes:
        number: Row of the file, from 1, the header not counted.
        text: The molecule as it is read again when its graph is made: SMILES, or a mol block.
        smiles: SMILES as given; of an SDF record, InChI or what standardising changed, canonical.
        canonical: Canonical SMILES.
        scaffold: Murcko scaffold, or None if it was not asked for.
        atoms: Number of atoms.
        labels: One per target; nan = missing.
        weight: Weight in the training loss.
        split: ``train``, ``validation`` or ``test``, the group or the time where a column says so,
            else empty.
        extra: Numbers that are read beside the graph; nan = missing.
        bounds: Of missing labels what they are at least, one per target, then what they are at
            most; nan = unknown. Empty: of none.
        id: What the table calls the row; may be empty.
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
    id: str = ""


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
        id: What the table calls it; may be empty.
        column: Of a row that is used for its other labels, that of the label which cannot be used.
    """

    file: str
    row: int
    line: int
    smiles: str
    reason: str
    kind: str
    id: str = ""
    column: str = ""

    @property
    def place(self) -> str:
        """Row and line, for messages."""
        return f"row {self.row}" + (f", line {self.line}" if self.line else "")


@dataclass(frozen=True)
class TableContents:
    """All rows of one file.

    Attributes:
        columns: Which columns were used.
        format: ``csv``, ``tsv``, ``sdf``, ``parquet`` or ``xlsx``.
        valid: The rows that can be used.
        invalid: Those that cannot.
        cells: Labels that cannot be used, of rows that can.
        words: Of the targets whose labels are written in words, these words.
        classes: Of ``multiclass`` the classes, by the numbers that stand in the rows.
        id_name: Name of the column that names the rows; empty if there is none.
        unread: Names of the columns that are not read.
        notes: How the file is read, where that was not the only way, one line each.
        unsettled: How many molecules have more tautomers than RDKit goes through.
    """

    columns: TableColumns
    format: str
    valid: list[ValidRow]
    invalid: list[InvalidRow]
    cells: list[InvalidRow]
    words: dict[str, set[str]]
    classes: tuple[str, ...] = ()
    id_name: str = ""
    unread: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unsettled: int = 0


def layout_of(config: DataConfig) -> Layout:
    """Return which part of a file is the table."""
    return Layout(config.sheet, config.header_row, config.smiles_column, "--data.")


def read_rows(
    path: Path,
    config: DataConfig,
    targets: Sequence[str],
    max_scaffolds: int | None,
    missing_weight: float | None,
) -> TableContents:
    """Read a table.

    Args:
        path: The file.
        config: What the user says about it.
        targets: Names of the targets; empty: the only column of numbers.
        max_scaffolds: How many molecules' scaffolds are computed; None: those of all.
        missing_weight: The weight of a row that says none; None: such a row cannot be used.

    Raises:
        DataError: The file cannot be read or its columns are not as they should be.
    """
    valid: list[ValidRow] = []
    invalid: list[InvalidRow] = []
    cells: list[InvalidRow] = []
    with open_table(path, layout=layout_of(config)) as reader:
        sample = _sample(reader, reader.columns, targets)
        columns = find_columns(reader, sample, config, targets)
    read = RowReader(columns, sample, config, missing_weight)
    with open_table(path, layout=layout_of(config)) as reader:
        # Of several training processes only the first one speaks.
        progress = TableProgress(reader, "read", quiet=not is_first_process())
        for row in reader:
            progress.show(row.number)
            try:
                scaffold = max_scaffolds is None or len(valid) < max_scaffolds
                valid.append(read(row, scaffold))
                unusable = read.bad
            except Unusable as error:
                unusable = {"": error}
            for column, error in unusable.items():
                reason = " ".join(readable(str(error)).split())
                own = (read.smiles(row), reason, error.kind, read.id(row), column)
                (cells if column else invalid).append(
                    InvalidRow(str(path), row.number, row.line, *own)
                )
        progress.finish()
    notes = [*reader.notes]
    if config.smiles_column is None:
        notes.append(smiles_choice(reader.columns, columns.smiles))
    if read.standardised:
        steps = listed(config.standardise or ())
        notes.append(f"{read.standardised:,} molecules: their parent structure, by {steps}")
    return TableContents(
        columns,
        reader.format,
        valid,
        invalid,
        cells,
        read.words,
        tuple(read.classes),
        "" if columns.id is None else reader.columns[columns.id],
        columns.unread(reader.columns),
        tuple(filter(None, notes)),
        read.unsettled,
    )


def _sample(rows: Iterable[Row], columns: Sequence[str], targets: Sequence[str]) -> list[Row]:
    """Return the first rows, and those with the first value of a column.

    Of tables that are sorted by assay many a column is empty for long.
    """
    names = {name.lower() for name in targets}
    empty = {at for at, name in enumerate(columns) if name.lower() in names}
    empty = empty or {*range(len(columns))}
    sample: list[Row] = []
    for row in rows:
        found = set() if row.problem else {at for at in empty if not is_empty(row.cells[at])}
        if found or row.number <= _SAMPLE:
            sample.append(row)
        empty -= found
        if not empty and row.number >= _SAMPLE:
            break
    return sample


class Unusable(Exception):
    """Why a row, or one of its labels, cannot be used: kind, reason."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


class RowReader:
    """Turns rows into `ValidRow`; by the first rows, `sample`, labels in words are known.

    Attributes:
        bad: Of the row that was read last, which has other labels, those that cannot be used.
        classes: Of ``multiclass`` the number of each class, in the order in which they occur.
        words: See `TableContents`.
        unsettled: See `TableContents`.
        standardised: How many molecules that has changed.
    """

    def __init__(
        self,
        columns: TableColumns,
        sample: Sequence[Row],
        config: DataConfig,
        missing_weight: float | None,
    ) -> None:
        self._columns = columns
        self._config = config
        self._missing_weight = missing_weight
        self._steps = config.standardise or ()
        self._split_kind = config.resolved_split
        self._binary = config.task == "binary" or config.positive is not None
        self.bad: dict[str, Unusable] = {}
        self.classes: dict[str, int] = {}
        self.words: dict[str, set[str]] = {}
        self.unsettled = 0
        self.standardised = 0
        self._parse = [
            self._is_positive
            if config.positive is not None
            else parse_class
            if holds_class_words(sample, position)
            else parse_label
            for position in columns.targets
        ]

    def smiles(self, row: Row) -> str:
        """Return the SMILES of a row as given, even of a malformed one; empty if there is none."""
        cell = _cell(row, self._columns.smiles)
        return "" if isinstance(cell, float) else str(cell)  # nan: nothing there

    def id(self, row: Row) -> str:
        """Return what the table calls a row, even a malformed one; empty if it does not."""
        return str(_cell(row, self._columns.id))

    def __call__(self, row: Row, scaffold: bool) -> ValidRow:
        """Read one row, with or without the scaffold; raises `Unusable`."""
        self.bad = {}
        if row.problem:
            raise Unusable("malformed", row.problem)
        columns = self._columns
        from_record = columns.smiles is None
        if not from_record and all(cell is None or cell == "" for cell in row.cells):
            raise Unusable("empty", "the row is empty")
        text = row.record if from_record else _cell(row, columns.smiles)
        if not from_record and is_empty(text):
            raise Unusable("no structure", "the SMILES is empty")
        parsed = parse_molblock(text) if from_record else parse_smiles(text)
        if parsed.empty:
            raise Unusable("no structure", parsed.reason)
        before = ""
        if self._steps and parsed.molecule is not None:
            before = canonical_smiles(parsed.molecule)
        parsed = standardised(parsed, self._steps)
        if parsed.molecule is None:
            raise Unusable("unreadable structure", parsed.reason)
        of_class = ""
        if self._config.task == "multiclass":
            of_class = parse_class_name(row.cells[columns.targets[0]])
            if not of_class:
                raise Unusable("no label", f"no label in {columns.names[0]}")
        labels, bounds = ((), ()) if of_class else self._labels(row)
        weight, split = self._weight(row), self._split(row)
        try:
            extra = parse_or_missing(
                [row.cells[place] for place in columns.extra], columns.extra_names
            )
        except ValueError as error:
            raise Unusable("unusable descriptor", str(error)) from None
        if of_class:  # now: a class of which all rows are left out is none
            labels = (float(self.classes.setdefault(of_class, len(self.classes))),)
        canonical = canonical_smiles(parsed.molecule)
        self.unsettled += UNSETTLED in parsed.remark
        changed = bool(self._steps) and canonical != before
        self.standardised += changed
        if changed or is_inchi(text) or (self._steps and from_record):
            # From here on the molecule is what came of them.
            from_record, text = False, canonical
        return ValidRow(
            number=row.number,
            text=mol_block(text) if from_record else text,
            smiles=canonical if from_record else text,
            canonical=canonical,
            scaffold=murcko_scaffold(parsed.molecule) if scaffold else None,
            atoms=parsed.molecule.GetNumAtoms(),
            labels=labels,
            weight=weight,
            split=split,
            extra=extra,
            bounds=bounds,
            id=self.id(row),
        )

    def _labels(self, row: Row) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the labels, and bounds of those that are missing (`ValidRow`)."""
        columns = self._columns
        found = []
        for name, position, parse in zip(columns.names, columns.targets, self._parse, strict=True):
            try:
                found.append(self._label(name, row.cells[position], parse))
            except Unusable as unusable:  # it costs its row only where that has no other label
                self.bad[name] = unusable
                found.append((math.nan,) * 3)
        labels, low, high = zip(*found, strict=True)
        bounds = (*low, *high)
        if all(map(math.isnan, (*labels, *bounds))):
            for unusable in self.bad.values():
                raise unusable
            one = len(labels) == 1
            which = columns.names[0] if one else f"any of the {len(labels)} target columns"
            raise Unusable("no label", f"no label in {which}")
        return labels, () if all(map(math.isnan, bounds)) else bounds

    def _label(
        self, name: str, cell: object, parse: Callable[[object], float]
    ) -> tuple[float, float, float]:
        """Return a label, and what it is at least and at most where it is a bound."""
        sides = {"<": math.nan, ">": math.nan}
        side, number = ("", cell) if self._binary else split_bound(cell)
        if side:
            sides[side] = _number(number, "unusable label", name, parse_label)
            cell = None
        label = _number(cell, "unusable label", name, parse)
        if self._binary and label not in (0, 1) and label == label:
            raise Unusable(NOT_A_CLASS, f"{name} is {label:.6g}: not 0 or 1")
        if (word := class_word(cell)) and self._config.positive is None:
            self.words.setdefault(name, set()).add(word)
        return label, sides[">"], sides["<"]

    def _is_positive(self, cell: object) -> float:
        name, positive = parse_class_name(cell), parse_class_name(self._config.positive)
        return float(name.lower() == positive.lower()) if name else math.nan

    def _weight(self, row: Row) -> float:
        if self._columns.weight is None:
            return 1.0
        weight = _number(row.cells[self._columns.weight], "unusable weight", "the weight")
        if math.isnan(weight) and self._missing_weight is not None:
            return self._missing_weight
        if math.isnan(weight):
            raise Unusable("unusable weight", "the weight is missing")
        if weight < 0:
            raise Unusable("unusable weight", f"the weight is {weight:.6g}: it must be 0 or more")
        return weight

    def _split(self, row: Row) -> str:
        if self._columns.split is None:
            return ""
        cell = row.cells[self._columns.split]
        word = "" if is_empty(cell) else readable(str(cell)).strip()
        by_name = self._split_kind == "column"
        if not word:
            what = "the split" if by_name else f"the {self._split_kind}"
            raise Unusable("unknown split", f"{what} is missing")
        if by_name and word.lower() not in SPLIT_WORDS:
            shown = shortened(word, 40)
            raise Unusable(
                "unknown split", f"the split is {shown!r}, not train, validation or test"
            )
        return SPLIT_WORDS[word.lower()] if by_name else word


def _cell(row: Row, position: int | None) -> Any:
    """Return what stands in a column of a row, which may be too short; else the empty string."""
    cell = None if position is None or position >= len(row.cells) else row.cells[position]
    return "" if cell is None else cell


def _number(
    cell: object, kind: str, what: str, parse: Callable[[object], float] = parse_number
) -> float:
    try:
        value = parse(cell)
    except ValueError as error:
        raise Unusable(kind, no_number(what, cell, error)) from None
    if abs(value) > LARGEST:
        raise Unusable(kind, f"{what} is {value:.6g}: too large")
    return value
