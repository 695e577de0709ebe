"""Which columns of a table hold the molecules, the labels, the weights, the split and the names."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from graphormer_sepnorm.chem.molecules import is_smiles
from graphormer_sepnorm.data_config import ALL, DataConfig
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.formatting import listed
from graphormer_sepnorm.tables.columns import (
    class_word,
    find_column,
    find_id_column,
    find_smiles_column,
    is_empty,
    names_rows,
    parse_class,
    readable,
    require_one_of_its_name,
)
from graphormer_sepnorm.tables.reader import Row, TableReader

# What looks like a label: a number, however it is written, or a bound; a unit may be behind it.
_LABEL = re.compile(
    r"[<>≤≥]?=?\s*[-+\N{MINUS SIGN}]?[.,]?\d[\d.,]*(e[-+]?\d+)?\s*(%|[^\W\d_]{1,4}\d?)?",
    re.IGNORECASE,
)
_ENOUGH = 0.2  # share of the cells of a column that may hold labels, whatever else it holds

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
        split: None where no column says the split, the group or the time.
        extra: Those that are read beside the graph.
        extra_names: Their names.
        id: That which names the rows; None: none does.
    """

    smiles: int | None
    targets: tuple[int, ...]
    names: tuple[str, ...]
    weight: int | None
    split: int | None
    extra: tuple[int, ...] = ()
    extra_names: tuple[str, ...] = ()
    id: int | None = None

    def unread(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return the names of those of all columns that are not used."""
        used = {self.smiles, self.weight, self.split, self.id, *self.targets, *self.extra}
        return tuple(readable(name) for at, name in enumerate(columns) if at not in used)


def find_columns(
    reader: TableReader, sample: Sequence[Row], config: DataConfig, targets: Sequence[str]
) -> TableColumns:
    """Find the columns by their names, and the target by its contents if it is not named.

    Args:
        reader: The table.
        sample: Its first rows, for telling what may hold labels.
        config: What the user says.
        targets: Names of the targets; `ALL`: all columns that may hold labels; empty: the only one.

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
    if reader.format != "sdf" or config.smiles_column is not None:
        smiles = find_smiles_column(columns, config.smiles_column, where, is_molecule=is_smiles)
    weight, split, named_id = (
        None if name is None else find_column(columns, name, where)
        for name in (config.weight_column, config.column_of_split, config.id_column)
    )
    extra = tuple(find_column(columns, name, where) for name in config.descriptor_columns or ())
    taken = {one for one in (smiles, weight, split, named_id, *extra) if one is not None}
    if targets and (tuple(targets) != (ALL,) or ALL in columns or config.task == "multiclass"):
        found = tuple(find_column(columns, name, where) for name in targets)
    else:
        found = _targets(where, columns, sample, taken, several=bool(targets))
    used = [one for one in (smiles, weight, split, *extra, *found) if one is not None]
    for position in used:
        if used.count(position) > 1:
            raise DataError(
                f"{where}: column {columns[position]!r} is named for two purposes: molecules, "
                "labels, weights, split and descriptors need a column each"
            )
    names, extra_names = (tuple(reader.columns[one] for one in chosen) for chosen in (found, extra))
    id_column = find_id_column(columns, config.id_column, where, used)
    return TableColumns(smiles, found, names, weight, split, extra, extra_names, id_column)


def _targets(
    where: str, columns: Sequence[str], sample: Sequence[Row], taken: set[int], several: bool
) -> tuple[int, ...]:
    """Return the only column that may hold labels, or all `several` ones."""
    free = [at for at in range(len(columns)) if at not in taken]
    found = [at for at in free if _may_hold_labels(columns, sample, at)]
    found = [at for at in found if not _says_nothing(_cells(sample, at))] or found
    for position in found:
        require_one_of_its_name(columns, position, where)
    if len(found) == 1 or (found and several):
        return tuple(found)
    if not sample:
        raise DataError(f"{where}: there are no rows below the header ({listed(columns)})")
    names = [columns[at] for at in found or free] or list(columns)
    which = f"{len(found)} columns" if found else "no column"
    raise DataError(
        f"{where}: {which} may hold the labels ({'' if found else 'columns: '}{listed(names)}): "
        f"name them with --data.target_columns, for example '[{names[0]}]'; of two classes in "
        "words give --data.positive too, of more --data.task multiclass"
    )


def _may_hold_labels(columns: Sequence[str], sample: Sequence[Row], position: int) -> bool:
    """Whether a column has numbers or words of classes, and does not name the rows."""
    # The first column has no name where pandas has written an index.
    if names_rows(columns[position]) or (position == 0 and columns[0] == "column_1"):
        return False
    cells = [cell for cell in _cells(sample, position) if not is_empty(cell)]
    labels = sum(bool(class_word(cell) or _LABEL.fullmatch(str(cell).strip())) for cell in cells)
    return labels > _ENOUGH * len(cells)


def _says_nothing(cells: Sequence[Any]) -> bool:
    """Whether a column is a constant, or counts its rows."""
    texts = [str(cell).strip() for cell in cells]
    first = int(texts[0]) if texts and texts[0].isdecimal() else 0
    counted = len(texts) > 2 and texts == [str(first + place) for place in range(len(texts))]
    return counted or len({*texts}) == 1 < len(texts)


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
