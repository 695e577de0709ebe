"""One row of a table: its molecule and its labels, or why it cannot be used."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from graphormer_sepnorm.datasets.user_table.columns import (
    SPLIT_WORDS,
    TableColumns,
    holds_class_words,
)
from graphormer_sepnorm.datasets.user_table.options import TableOptions
from graphormer_sepnorm.formatting import shortened
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
    split_bound,
)
from graphormer_sepnorm.tables.reader import Row

# Kinds of reasons, for counting.
MALFORMED = "malformed"
EMPTY = "empty"
NO_STRUCTURE = "no structure"
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


class Unusable(Exception):
    """Why a row, or one of its labels, cannot be used: kind, reason."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


class RowReader:
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
        self._binary = options.task == "binary" or options.positive is not None
        self._positive = options.positive
        self._split_kind = options.resolved_split
        self._what_splits = (
            "the split" if self._split_kind == "column" else (f"the {self._split_kind}")
        )
        self._multiclass = options.task == "multiclass"
        self._numbers: dict[str, int] = {}
        self.words: dict[str, set[str]] = {}
        self.bad: dict[str, Unusable] = {}
        self.unsettled = 0
        self.standardised = 0  # molecules that it changed
        self._parse = [
            self._is_positive
            if options.positive is not None
            else parse_class
            if holds_class_words(sample, position)
            else parse_label
            for position in columns.targets
        ]

    def smiles(self, row: Row) -> str:
        """Return the SMILES of a row as given, even of a malformed one; empty if there is none."""
        cell = self._smiles_cell(row)
        return "" if cell is None or isinstance(cell, float) else str(cell)  # nan: nothing there

    def _smiles_cell(self, row: Row) -> Any:
        position = self._columns.smiles
        return None if position is None or position >= len(row.cells) else row.cells[position]

    def _id(self, row: Row) -> str:
        position = self._columns.id
        cell = None if position is None or position >= len(row.cells) else row.cells[position]
        return "" if cell is None else str(cell)

    def said(self, row: Row, unusable: Unusable) -> tuple[int, int, str, str, str, str]:
        """Return what `InvalidRow` says of a row, but its file."""
        reason = " ".join(readable(str(unusable)).split())
        return row.number, row.line, self.smiles(row), reason, unusable.kind, self._id(row)

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes so far, by their numbers."""
        return tuple(self._numbers)

    def __call__(self, row: Row, scaffold: bool) -> ValidRow:
        """Read one row, with or without the scaffold; raises `Unusable`."""
        if row.problem:
            raise Unusable(MALFORMED, row.problem)
        columns = self._columns
        from_record = columns.smiles is None
        if not from_record and all(cell is None or cell == "" for cell in row.cells):
            raise Unusable(EMPTY, "the row is empty")
        text = row.record if from_record else self._smiles_cell(row)
        if not from_record and is_empty(text):
            raise Unusable(NO_STRUCTURE, "the SMILES is empty")
        parsed = parse_molblock(text) if from_record else parse_smiles(text)
        if parsed.empty:
            raise Unusable(NO_STRUCTURE, parsed.reason)
        before = ""
        if self._steps and parsed.molecule is not None:
            before = canonical_smiles(parsed.molecule)
        parsed = standardised(parsed, self._steps)
        if parsed.molecule is None:
            raise Unusable(STRUCTURE, parsed.reason)
        of_class = self._class_name(row)
        labels, bounds = ((), ()) if of_class else self._labels(row)
        weight, split = self._weight(row), self._split(row)
        try:
            extra = parse_or_missing(
                [row.cells[place] for place in columns.extra], columns.extra_names
            )
        except ValueError as error:
            raise Unusable(BAD_EXTRA, str(error)) from None
        if of_class:  # now: a class of which all rows are left out is none
            labels = (float(self._numbers.setdefault(of_class, len(self._numbers))),)
        canonical = canonical_smiles(parsed.molecule)
        self.unsettled += UNSETTLED in parsed.remark
        changed = bool(self._steps) and canonical != before
        self.standardised += changed
        if (
            changed or is_inchi(text) or (self._steps and from_record)
        ):  # from here on the molecule is what came of them
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
            id=self._id(row),
        )

    def _class_name(self, row: Row) -> str:
        """Return the name of the class of a row; empty where labels are numbers."""
        if not self._multiclass:
            return ""
        name = parse_class_name(row.cells[self._columns.targets[0]])
        if not name:
            raise Unusable(NO_LABEL, f"no label in {self._columns.names[0]}")
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
            except Unusable as unusable:  # it costs its row only where that has no other label
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
            raise Unusable(NO_LABEL, f"no label in {which}")
        return tuple(labels), () if all(map(math.isnan, bounds)) else bounds

    def _label(
        self, name: str, cell: object, parse: Callable[[object], float]
    ) -> tuple[float, float, float]:
        """Return a label, and what it is at least and at most where it is a bound."""
        sides = {"<": math.nan, ">": math.nan}
        side, number = ("", cell) if self._binary else split_bound(cell)
        if side:
            sides[side] = _number(number, BAD_LABEL, name, parse_label)
            cell = None
        label = _number(cell, BAD_LABEL, name, parse)
        if self._binary and label not in (0, 1) and label == label:
            raise Unusable(NOT_A_CLASS, f"{name} is {label:.6g}: not 0 or 1")
        if (word := class_word(cell)) and self._positive is None:
            self.words.setdefault(name, set()).add(word)
        return label, sides[">"], sides["<"]

    def _is_positive(self, cell: object) -> float:
        name, positive = parse_class_name(cell), parse_class_name(self._positive)
        return float(name.lower() == positive.lower()) if name else math.nan

    def _weight(self, row: Row) -> float:
        position = self._columns.weight
        if position is None:
            return 1.0
        weight = _number(row.cells[position], BAD_WEIGHT, "the weight")
        if weight != weight:
            if self._missing_weight is not None:
                return self._missing_weight
            raise Unusable(BAD_WEIGHT, "the weight is missing")
        if weight < 0:
            raise Unusable(BAD_WEIGHT, f"the weight is {weight:.6g}: it must be 0 or more")
        return weight

    def _split(self, row: Row) -> str:
        position = self._columns.split
        if position is None:
            return ""
        cell = row.cells[position]
        word = "" if is_empty(cell) else readable(str(cell)).strip()
        if not word:
            raise Unusable(BAD_SPLIT, f"{self._what_splits} is missing")
        if self._split_kind != "column":
            return word
        if word.lower() not in SPLIT_WORDS:
            shown = shortened(word, 40)
            raise Unusable(BAD_SPLIT, f"the split is {shown!r}, not train, validation or test")
        return SPLIT_WORDS[word.lower()]


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
