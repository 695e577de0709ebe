"""What columns say that are not read: of splits, of relations, of units."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from graphormer_sepnorm.datasets.user_table.columns import (
    SPLIT_WORDS,
    TableColumns,
    spaced,
)
from graphormer_sepnorm.tables.columns import is_empty, readable
from graphormer_sepnorm.tables.reader import Row

# What a column of relations holds.
_EXACT = frozenset(("=", "~"))
_BOUNDS = frozenset((">", "<", ">=", "<=", ">>", "<<", "≥", "≤"))
_SAID = _EXACT | _BOUNDS | SPLIT_WORDS.keys()

# The last word of the name of a column that names units, as standard_units, and how many different
# ones it may hold: more are something else.
_UNIT_WORDS = {"unit", "units"}
_MOST_UNITS = 12
_MICRO = re.compile("[\N{MICRO SIGN}\N{GREEK SMALL LETTER MU}]")  # of either, and u, it is one unit


class UnreadColumns:
    """What columns say that are not read, as far as that is splits, relations or units.

    All rows count: tables are sorted by just that. Of columns that name units those count that are
    used.

    Args:
        names: Of all columns.
        columns: Those that are read.
    """

    def __init__(self, names: Sequence[str], columns: TableColumns) -> None:
        read = {columns.smiles, columns.weight, columns.split, *columns.targets, *columns.extra}
        self._names = tuple(map(readable, names))
        unread = [at for at in range(len(names)) if at not in read]
        self._words: dict[int, set[str]] = {at: set() for at in unread}
        self._units = {at: Counter[str]() for at in unread if _names_units(names[at])}

    def see(self, row: Row) -> None:
        """Look at a row; a column with another word is forgotten."""
        if row.problem:
            return
        for at in [*self._words]:
            word = str(row.cells[at]).strip(" '\"").lower()
            if word in _SAID:
                self._words[at].add(word)
            elif not is_empty(word):
                del self._words[at]

    def use(self, row: Row) -> None:
        """Look at a row whose labels are learned: what counts is the units of these."""
        for at, found in [*self._units.items()]:
            cell = row.cells[at]
            if is_empty(cell):
                continue
            found[_MICRO.sub("u", readable(str(cell)).strip(" '\""))] += 1
            if len(found) > _MOST_UNITS:
                del self._units[at]

    @property
    def units(self) -> dict[str, Counter[str]]:
        """Of the columns that name units these, and in how many used rows each stands."""
        return {self._names[at]: found for at, found in self._units.items() if found}

    @property
    def relations(self) -> tuple[str, ...]:
        """Those that say of other cells that they are bounds.

        As ``Standard Relation`` of ChEMBL, which has ``'>'`` beside a label without a sign.
        """
        return tuple(
            self._names[at]
            for at, words in self._words.items()
            if words <= _EXACT | _BOUNDS and words & _BOUNDS
        )

    @property
    def splits(self) -> tuple[str, ...]:
        """Those that say what is for training and what for the test."""
        return tuple(
            self._names[at]
            for at, words in self._words.items()
            if {"train"} < {SPLIT_WORDS.get(word) for word in words} <= {*SPLIT_WORDS.values()}
        )


def _names_units(name: str) -> bool:
    words = re.findall(r"[a-z]+", spaced(name).lower())
    return bool(words) and words[-1] in _UNIT_WORDS
