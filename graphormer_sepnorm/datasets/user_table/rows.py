"""The rows of a table: molecules with labels, or the reason why one cannot be used."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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
from graphormer_sepnorm.chem.standardize import standardized
from graphormer_sepnorm.data_config import DataConfig
from graphormer_sepnorm.datasets.user_table.find_columns import TableColumns, find_columns
from graphormer_sepnorm.formatting import listed, shortened
from graphormer_sepnorm.process import is_first_process
from graphormer_sepnorm.tables.columns import (
    LARGEST,
    class_or_nan,
    class_word,
    is_empty,
    parse_class,
    parse_class_name,
    parse_number,
    parse_or_missing,
    readable,
    split_bound,
)
from graphormer_sepnorm.tables.opening import open_table
from graphormer_sepnorm.tables.progress import TableProgress
from graphormer_sepnorm.tables.reader import Layout, Row

# What a split column may say, in any case.
_SPLIT_WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("valid", "validation", "val", "dev"), "validation"),
    "test": "test",
}


@dataclass(frozen=True, slots=True)
class ValidRow:
    """A row that can be used.

    Attributes:
        number: Row of the file, from 1, the header not counted.
        text: The molecule as it is read again when its graph is made: SMILES, or a mol block.
        smiles: SMILES as given; of an SDF record, InChI or what standardizing changed, canonical.
        canonical: Canonical SMILES.
        scaffold: Murcko scaffold; empty without a ring.
        atoms: Number of atoms.
        labels: One per target; nan = missing. Of ``multiclass``: none yet.
        weight: Weight in the training loss.
        split: ``train``, ``validation`` or ``test``, the group or the time where a column has it,
            else empty.
        extra: Extra inputs of the network; nan = missing.
        bounds: Of missing labels what they are at least, one per target, then what they are at
            most; nan = unknown. Empty: of none.
        id: What the table calls the row; may be empty.
        class_name: Of ``multiclass``: the class.
    """

    number: int
    text: str
    smiles: str
    canonical: str
    scaffold: str
    atoms: int
    labels: tuple[float, ...]
    weight: float
    split: str
    extra: tuple[float, ...] = ()
    bounds: tuple[float, ...] = ()
    id: str = ""
    class_name: str = ""


@dataclass(frozen=True, slots=True)
class InvalidRow:
    """A row, or one of its labels, that cannot be used.

    Attributes:
        file: The file's path.
        row: Row of the file, from 1, the header not counted.
        line: Line where it starts, from 1; 0 where a file has no lines.
        smiles: The SMILES as given; may be empty.
        reason: Why, one line.
        kind: What sort of reason, for counting.
        id: What the table calls it; may be empty.
        column: The column of the label that cannot be used; else empty.
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


@dataclass
class TableContents:
    """All rows of one file.

    Attributes:
        columns: Which columns were used.
        valid: The rows that can be used.
        invalid: Those that cannot.
        cells: Labels that cannot be used, of rows that are used for their other labels.
        words: Of the targets whose labels are written in words, these words.
        id_name: Name of the column that names the rows; empty if there is none.
        unread: Names of the columns that are not read.
        notes: What was done to the rows, one line each.
    """

    columns: TableColumns
    valid: list[ValidRow] = field(default_factory=list)
    invalid: list[InvalidRow] = field(default_factory=list)
    cells: list[InvalidRow] = field(default_factory=list)
    words: dict[str, set[str]] = field(default_factory=dict)
    id_name: str = ""
    unread: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read_rows(path: Path, config: DataConfig, split: str, targets: Sequence[str]) -> TableContents:
    """Read a table, of which the targets may be named.

    Args:
        path: The file.
        config: What the user says about it.
        split: Which split has it as its file; ``train``: maybe all of them. Others need no weights,
            and the test split has none.
        targets: Names of the targets; empty: the only column that is nothing else.
    """
    layout = Layout(config.sheet, config.header_row, config.smiles_column, "--data.")
    with open_table(path, layout=layout) as reader:
        rows = list(reader)
    names = tuple(map(readable, reader.columns))
    columns = find_columns(reader, config, split, targets)
    used = {columns.smiles, columns.weight, columns.split, columns.id}
    used |= {*columns.targets.values(), *columns.extra.values()}
    table = TableContents(
        columns,
        id_name="" if columns.id is None else names[columns.id],
        unread=tuple(name for at, name in enumerate(names) if at not in used),
    )
    read = _RowReader(table, rows, config, None if split == "train" else 1.0)
    # Of several training processes only the first one shows anything.
    progress = TableProgress(reader, "read", quiet=not is_first_process(), total=len(rows))
    for row in rows:
        progress.show(row.number)
        unusable: list[Unusable] = []
        try:
            table.valid.append(read(row, unusable))
            left_out = table.cells
        except Unusable as error:
            unusable, left_out = [error], table.invalid
        for error in unusable:
            reason = " ".join(readable(str(error)).split())
            own = (_text_in(row, columns.smiles), reason, error.kind, _text_in(row, columns.id))
            left_out.append(InvalidRow(str(path), row.number, row.line, *own, error.column))
    progress.finish()
    if read.changed:
        steps = listed(config.standardize or ())
        table.notes = (f"{read.changed:,} molecules: their parent structure, by {steps}",)
    return table


class Unusable(Exception):
    """Why a row, or the label in a column, cannot be used: kind, reason."""

    def __init__(self, kind: str, reason: str, column: str = "") -> None:
        super().__init__(reason)
        self.kind, self.column = kind, column


class _RowReader:
    """Turns rows into `ValidRow`, and notes of the table what it finds in them.

    Attributes:
        changed: How many molecules standardizing has changed.
    """

    def __init__(
        self,
        table: TableContents,
        rows: Sequence[Row],
        config: DataConfig,
        missing_weight: float | None,
    ) -> None:
        self._table, self._columns, self._config = table, table.columns, config
        self._missing_weight = missing_weight
        self._binary = config.task == "binary" or config.positive is not None
        self.changed = 0
        self._parse = [
            self._parser([row.cells[at] for row in rows if not row.problem])
            for at in self._columns.targets.values()
        ]

    def _parser(self, cells: Sequence[object]) -> Callable[[object], float]:
        """Return what reads the labels of a column: as classes, if no other numbers are there."""
        if self._config.positive is not None:
            return self._is_positive
        words = any(map(class_word, cells)) and self._config.task != "regression"
        classes = words and all(
            value in (0, 1) or math.isnan(value) for value in map(class_or_nan, cells)
        )
        return parse_class if classes else parse_number

    def __call__(self, row: Row, unusable: list[Unusable]) -> ValidRow:
        """Read one row.

        Raises:
            Unusable: It cannot be used. Of one that can, labels that cannot are `unusable`.
        """
        if row.problem:
            raise Unusable("malformed", row.problem)
        columns, steps = self._columns, self._config.standardize or ()
        from_record = columns.smiles is None
        text: Any = row.record if columns.smiles is None else row.cells[columns.smiles]
        if from_record:
            given = parse_molblock(text)
        else:
            given = parse_smiles(None if is_empty(text) else text)
        if given.empty:
            raise Unusable("no structure", given.reason)
        before = canonical_smiles(given.molecule) if steps and given.molecule is not None else ""
        parsed = standardized(given, steps)
        if parsed.molecule is None:
            raise Unusable("unreadable structure", parsed.reason)
        labels, bounds, class_name = (), (), ""
        if self._config.task == "multiclass":
            ((name, at),) = columns.targets.items()
            class_name = parse_class_name(row.cells[at])
            if not class_name:
                raise Unusable("no label", f"no label in {name}")
        else:
            labels, bounds = self._labels(row, unusable)
        weight, split = self._weight(row), self._split(row)
        try:
            cells = [row.cells[at] for at in columns.extra.values()]
            extra = parse_or_missing(cells, tuple(columns.extra))
        except ValueError as error:
            raise Unusable("unusable descriptor", str(error)) from None
        canonical = canonical_smiles(parsed.molecule)
        changed = bool(steps) and canonical != before
        self.changed += changed
        if changed or is_inchi(text) or (steps and from_record):
            from_record, text = False, canonical  # from here on the molecule is what came of them
        return ValidRow(
            number=row.number,
            text=mol_block(text) if from_record else text,
            smiles=canonical if from_record else text,
            canonical=canonical,
            scaffold=murcko_scaffold(parsed.molecule),
            atoms=parsed.molecule.GetNumAtoms(),
            labels=labels,
            weight=weight,
            split=split,
            extra=extra,
            bounds=bounds,
            id=_text_in(row, columns.id),
            class_name=class_name,
        )

    def _labels(
        self, row: Row, unusable: list[Unusable]
    ) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the labels, and bounds of those that are missing (`ValidRow`)."""
        targets, found = self._columns.targets, []
        for (name, at), parse in zip(targets.items(), self._parse, strict=True):
            try:
                found.append(self._label(name, row.cells[at], parse))
            except Unusable as error:  # it costs its row only where that has no other label
                unusable.append(error)
                found.append((math.nan,) * 3)
        labels, low, high = zip(*found, strict=True)
        if all(map(math.isnan, (*labels, *low, *high))):
            if unusable:
                raise unusable[0]
            several = f"any of the {len(labels)} target columns"
            raise Unusable(
                "no label", f"no label in {several if found[1:] else next(iter(targets))}"
            )
        return labels, () if all(map(math.isnan, (*low, *high))) else (*low, *high)

    def _label(
        self, name: str, cell: object, parse: Callable[[object], float]
    ) -> tuple[float, float, float]:
        """Return a label, and what it is at least and at most where it is a bound."""
        side, number = ("", cell) if self._binary else split_bound(cell)
        value = _number(number, "unusable label", name, parse_number if side else parse, name)
        if side:
            return (math.nan, value, math.nan) if side == ">" else (math.nan, math.nan, value)
        if self._binary and value not in (0, 1) and not math.isnan(value):
            raise Unusable("label not 0 or 1", f"{name} is {value:.6g}: not 0 or 1", name)
        if (word := class_word(cell)) and self._config.positive is None:
            self._table.words.setdefault(name, set()).add(word)
        return value, math.nan, math.nan

    def _is_positive(self, cell: object) -> float:
        name, positive = parse_class_name(cell), parse_class_name(self._config.positive)
        return float(name.lower() == positive.lower()) if name else math.nan

    def _weight(self, row: Row) -> float:
        if self._columns.weight is None:
            return 1.0
        weight = _number(row.cells[self._columns.weight], "unusable weight", "the weight")
        if math.isnan(weight) and self._missing_weight is not None:
            return self._missing_weight
        if not weight >= 0:
            what = "missing" if math.isnan(weight) else f"{weight:.6g}: it must be 0 or more"
            raise Unusable("unusable weight", f"the weight is {what}")
        return weight

    def _split(self, row: Row) -> str:
        if self._columns.split is None:
            return ""
        cell, kind = row.cells[self._columns.split], self._config.resolved_split
        word = "" if is_empty(cell) else readable(str(cell)).strip()
        what = "the split" if kind == "column" else f"the {kind}"
        if not word:
            raise Unusable("unknown split", f"{what} is missing")
        if kind == "column" and word.lower() not in _SPLIT_WORDS:
            shown = shortened(word, 40)
            raise Unusable("unknown split", f"{what} is {shown!r}, not train, validation or test")
        return _SPLIT_WORDS[word.lower()] if kind == "column" else word


def _text_in(row: Row, at: int | None) -> str:
    """What stands in a column of a row, even of a malformed one; empty if nothing does."""
    cell = None if at is None or at >= len(row.cells) else row.cells[at]
    return "" if cell is None or (isinstance(cell, float) and math.isnan(cell)) else str(cell)


def _number(
    cell: object,
    kind: str,
    what: str,
    parse: Callable[[object], float] = parse_number,
    column: str = "",
) -> float:
    try:
        value = parse(cell)
    except ValueError as error:
        raise Unusable(kind, f"{what} is {error}", column) from None
    if abs(value) > LARGEST:
        raise Unusable(kind, f"{what} is {value:.6g}: too large", column)
    return value
