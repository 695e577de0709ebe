"""Which columns of a table hold the molecules, the labels, the weights and the split."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from graphormer_sepnorm.chem.molecules import is_smiles
from graphormer_sepnorm.datasets.user_table.options import ALL, TableOptions
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.formatting import listed, shortened
from graphormer_sepnorm.tables.columns import (
    CLASS_WORDS,
    class_word,
    ending,
    find_column,
    find_smiles_column,
    is_empty,
    parse_class,
    parse_label,
    readable,
    require_one_of_its_name,
    split_bound,
)
from graphormer_sepnorm.tables.reader import Row, TableReader

# Words in the name of a column of whole numbers that are no property of a molecule.
_ID_WORDS = {"id", "ids", "idx", "index", "row", "cid", "sid", "title", "unnamed"}
_SHOWN = 20  # characters of a word in a message
_MOST_WORDS = 8  # that are taken for classes; more are names or remarks
_ENOUGH = 0.2  # share of numbers in a column that may hold labels, whatever else it holds

# What a split column may say, in any case.
SPLIT_WORDS = {
    "train": "train",
    "training": "train",
    "valid": "validation",
    "validation": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
}


@dataclass(frozen=True)
class TableColumns:
    """Positions of the columns that are used.

    Attributes:
        smiles: None where the molecules are in the records themselves (SDF).
        targets: One per target.
        names: Names of the targets.
        weight: None where all rows weigh the same.
        split: None where no column says the split.
        extra: Those that are read beside the graph.
        extra_names: Their names.
    """

    smiles: int | None
    targets: tuple[int, ...]
    names: tuple[str, ...]
    weight: int | None
    split: int | None
    extra: tuple[int, ...] = ()
    extra_names: tuple[str, ...] = ()


def find_columns(
    reader: TableReader, sample: Sequence[Row], options: TableOptions, targets: tuple[str, ...]
) -> TableColumns:
    """Find the columns by their names, and the target by its contents if it is not named.

    Args:
        reader: The table.
        sample: Its first rows, for telling columns of numbers.
        options: What the user says.
        targets: Names of the targets; `ALL`: all columns of numbers; empty: the only one.

    Raises:
        DataError: A column is not there, is named for two purposes, or which one holds the labels
            cannot be told.
    """
    where, columns = reader.name, tuple(map(readable, reader.columns))
    if reader.format == "smi":
        raise DataError(
            f"{where} is a SMILES file, which has no labels to learn from: give a table (CSV, TSV, "
            "SDF, Parquet or Excel) that has them"
        )
    smiles = None
    if reader.format != "sdf" or options.smiles_column is not None:
        smiles = find_smiles_column(columns, options.smiles_column, where, is_molecule=is_smiles)
    weight, split = (
        None if name is None else find_column(columns, name, where)
        for name in (options.weight_column, options.split_column)
    )
    extra = tuple(find_column(columns, name, where) for name in options.descriptor_columns)
    if not targets:  # any column may hold the labels
        reader.require_values(range(len(columns)))
    taken = {position for position in (smiles, weight, split, *extra) if position is not None}
    if targets == (ALL,) and ALL not in columns and options.task != "multiclass":
        found = _all_targets(where, columns, sample, taken)
    elif targets:
        found = tuple(find_column(columns, name, where) for name in targets)
    else:
        found = (_only_target(where, columns, sample, taken),)
    used = [one for one in (smiles, weight, split, *extra, *found) if one is not None]
    for position in used:
        if used.count(position) > 1:
            raise DataError(
                f"{where}: column {columns[position]!r} is named for two purposes: molecules, "
                "labels, weights, split and descriptors need a column each"
            )
    reader.require_values(used)
    names, extra_names = (tuple(reader.columns[one] for one in chosen) for chosen in (found, extra))
    return TableColumns(smiles, found, names, weight, split, extra, extra_names)


def _all_targets(
    where: str, columns: Sequence[str], sample: Sequence[Row], taken: set[int]
) -> tuple[int, ...]:
    """Return all columns of numbers that can be properties; of classes, where there is none."""
    candidates, _, _ = _candidates(where, columns, sample, taken)
    return tuple(candidates) or (_only_target(where, columns, sample, taken),)  # which says why


def not_taken(columns: Sequence[str], sample: Sequence[Row], found: TableColumns) -> dict[str, str]:
    """Say of each column that `ALL` leaves out why it is none of the targets.

    Args:
        columns: Names of all columns.
        sample: First rows of the table, which decide.
        found: The columns that are used.
    """
    used = {found.smiles, found.weight, found.split, *found.targets, *found.extra}
    return {
        readable(name): _why_not_taken(sample, position)
        for position, name in enumerate(columns)
        if position not in used
    }


def _why_not_taken(sample: Sequence[Row], position: int) -> str:
    cells = _filled(sample, position)
    if not cells:
        return "empty"
    if _numbers(sample, position):
        return "numbers the molecules"  # or it would be a target
    whys = [why for cell in cells if (why := _why_no_number(cell))]
    if 2 * sum("decimal comma" in why for why in whys) > len(cells):
        return "numbers with a comma, where a decimal one has to be a point"
    if common := _common_ending(cells):
        return f"numbers that end in {shortened(common, _SHOWN)!r}"
    if numbers := len(cells) - len(whys):
        return f"numbers in {numbers:,} of {len(cells):,} cells"
    return "words" if any(map(str.isalpha, str(cells[0]))) else "no numbers"


def _common_ending(cells: Sequence[Any]) -> str:
    """Return what stands behind the number in more than half of some cells; mostly nothing."""
    endings = Counter(filter(None, (ending(split_bound(cell)[1]) for cell in cells)))
    (first, count), *_ = endings.most_common(1) or [("", 0)]
    return first if 2 * count > len(cells) else ""


def _candidates(
    where: str, columns: Sequence[str], sample: Sequence[Row], taken: set[int]
) -> tuple[list[int], Collection[int], Collection[int]]:
    """Return the columns that can be properties, those of numbers, and those that are ids."""
    free = [position for position in range(len(columns)) if position not in taken]
    found = {position: _numbers(sample, position) for position in free}
    ids = {position for position in free if _are_ids(columns, position, found[position])}
    numbers = {
        position: values for position, values in found.items() if values and position not in ids
    }
    candidates = list(numbers)
    if len(candidates) > 1:  # a column that counts the rows is not one, if there is another
        candidates = [position for position in candidates if not _counts(sample, position)]
    if not numbers:
        candidates = [position for position in free if holds_class_words(sample, position)]
    for position in candidates:
        require_one_of_its_name(columns, position, where)
    return candidates, numbers.keys(), ids


def _only_target(where: str, columns: Sequence[str], sample: Sequence[Row], taken: set[int]) -> int:
    """Return the only column of numbers that can be a property."""
    free = [position for position in range(len(columns)) if position not in taken]
    candidates, numbers, ids = _candidates(where, columns, sample, taken)
    if len(candidates) == 1:
        if numbers:
            rest = [one for one in free if one not in numbers and one not in ids]
            _refuse_others(where, columns, sample, columns[candidates[0]], rest)
        return candidates[0]
    if candidates:
        names = [columns[position] for position in candidates]
        raise DataError(
            f"{where}: {len(names)} columns hold {'numbers' if numbers else 'classes'} "
            f"({listed(names)}): say which are the "
            f"labels, for example --data.target_columns '[{names[0]}]', or --data.target_columns "
            f"{ALL}"
        )
    if not sample:
        raise DataError(f"{where}: there are no rows below the header ({listed(columns)})")
    refuse_words(where, columns, sample, free)
    hint = ""
    reasons = [_why_no_number(cell) for row in sample for cell in row.cells]
    unit = next(filter(None, (_common_ending(_filled(sample, one)) for one in free)), "")
    if any("decimal comma" in reason for reason in reasons):
        hint = (
            " (there are numbers with a comma: a decimal comma has to be a point, one of thousands "
            "has to go)"
        )
    elif unit:
        hint = (
            f" (there are numbers that end in {unit!r}: take it away, or put the unit into the "
            "header)"
        )
    elif ids:
        names = listed([columns[position] for position in sorted(ids)])
        hint = f" ({names}: whole numbers, and by the name no property)"
    raise DataError(
        f"{where}: no column holds numbers that could be labels{hint} (columns: "
        f"{listed(columns)}): name the labels with --data.target_columns '[COLUMN]'"
    )


def _are_ids(columns: Sequence[str], position: int, values: Sequence[float]) -> bool:
    """Whether a column of numbers only numbers the molecules, by its name and what it holds."""
    words = re.findall(r"[a-z0-9]+", spaced(columns[position]).lower())
    named = bool({*words} & _ID_WORDS) or words[-1:] == ["nr"]  # NR-AR is a nuclear receptor
    # The first column has no name where pandas has written an index.
    nameless = position == 0 and columns[0] == "column_1"
    whole = all(value.is_integer() for value in values)
    return bool(values and (named or nameless) and whole and not set(values) <= {0, 1})


def _refuse_others(
    where: str, columns: Sequence[str], sample: Sequence[Row], only: str, others: Sequence[int]
) -> None:
    """Refuse to take the only column of numbers where another one seems to hold the labels.

    Raises:
        DataError: One does: classes in words, or numbers among much else.
    """
    for position in others:
        cells = _filled(sample, position)
        reasons = [why for cell in cells if (why := _why_no_number(cell))]
        commas, numbers = sum("decimal comma" in why for why in reasons), len(cells) - len(reasons)
        if holds_class_words(sample, position):
            why = "holds classes"
        elif commas > _ENOUGH * len(cells):
            why = "holds numbers with a comma, where a decimal one has to be a point"
        elif numbers > _ENOUGH * len(cells):
            why = f"holds numbers in {numbers:,} of {len(cells):,} rows"
        else:
            continue
        name = columns[position]
        raise DataError(
            f"{where}: column {only!r} is the only one of numbers, but {name!r} {why}: say which "
            f"are the labels, for example --data.target_columns '[{name}]'"
        )


def refuse_words(
    where: str, columns: Sequence[str], sample: Sequence[Row], positions: Iterable[int]
) -> None:
    """Refuse columns that hold a few words again and again: classes, and nobody knows which is 1.

    Args:
        where: The table.
        columns: Names of its columns.
        sample: Its first rows.
        positions: Of the columns that may hold labels.

    Raises:
        DataError: One of them holds two to eight words and no number.
    """
    found = []
    for position in positions:
        words = _words(sample, position)
        classes: dict[str, str] = {}
        for word in words:
            classes.setdefault(word.lower(), word)
        several = 2 < len(classes) <= _MOST_WORDS and len(words) >= 2 * len(classes)
        if (len(classes) == 2 or several) and not classes.keys() <= SPLIT_WORDS.keys():
            *others, last = (repr(shortened(readable(one), _SHOWN)) for one in classes.values())
            holds = f"holds {', '.join(others)} and {last}"
            found.append((readable(columns[position]), holds))
    if found:
        pairs = ", ".join(f"{zero} and {one}" for one, zero in CLASS_WORDS)
        said = listed([f"column {name!r} {words}" for name, words in found], most=3)
        raise DataError(
            f"{where}: no number in what could be labels, but {said}: labels of two classes have "
            f"to be 0 and 1 (or {pairs}), so write these instead; or give --data.task multiclass "
            f"--data.target_columns '[{found[0][0]}]'"
        )


def holds_class_words(sample: Sequence[Row], position: int) -> bool:
    """Whether a column is labelled in words of `CLASS_WORDS`, and in no numbers but 0 and 1.

    Other words do not count, as long as they are fewer: *inconclusive* has no class.
    """
    words, others = 0, 0
    for cell in _cells(sample, position):
        words += bool(class_word(cell))
        try:
            label = parse_class(cell)
        except ValueError:
            others += 1
            continue
        if label not in (0, 1) and not math.isnan(label):
            return False
    return words > others


def _cells(sample: Sequence[Row], position: int) -> list[Any]:
    """Return what stands in a column, but in malformed rows."""
    return [row.cells[position] for row in sample if not row.problem]


def _filled(sample: Sequence[Row], position: int) -> list[Any]:
    """Return what stands in a column, but where it is missing."""
    return [cell for cell in _cells(sample, position) if not is_empty(cell)]


def _words(sample: Sequence[Row], position: int) -> list[str]:
    """Return the words of a column; none if it holds anything else."""
    words: list[str] = []
    for cell in _cells(sample, position):
        try:
            if not math.isnan(parse_label(cell)):
                return []
        except ValueError:
            word = str(cell).strip()
            if not word[0].isalpha():
                return []
            words.append(word)
    return words


def _why_no_number(cell: Any) -> str:
    """Return why a label's cell is no number, nor a bound; empty if it is one, or missing."""
    try:
        parse_label(split_bound(cell)[1])
    except ValueError as error:
        return str(error)
    return ""


def spaced(name: str) -> str:
    """Return a column's name with a space between the words of one such as ``moleculeId``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)


def _numbers(sample: Sequence[Row], position: int) -> list[float]:
    """Return the numbers of a column; none at all if most of its cells are something else."""
    values, others = [], 0
    for cell in _cells(sample, position):
        try:
            value = parse_label(split_bound(cell)[1])
        except ValueError:
            others += 1
        else:
            if value == value:  # not missing
                values.append(value)
    return values if len(values) > others else []


def _counts(sample: Sequence[Row], position: int) -> bool:
    """Whether a column is 0, 1, 2, ... or 1, 2, 3, ... in each row."""
    # Of the first ones, without a gap between them; an empty row may count or not.
    first = [row for place, row in enumerate(sample, start=1) if row.number == place]
    rows = [row for row in first if not row.problem and not all(map(is_empty, row.cells))]
    try:
        values = [parse_label(row.cells[position]) for row in rows]
    except ValueError:
        return False
    by_row = {value - row.number for value, row in zip(values, rows, strict=True)}
    by_place = {value - place for place, value in enumerate(values, start=1)}
    return len(values) > 2 and any(steps in ({0}, {-1}) for steps in (by_row, by_place))
