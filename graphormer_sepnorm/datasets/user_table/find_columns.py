"""Which column of a table holds what, by names, and targets by their contents if not named.

Nothing heavy is imported: a slip is answered at once.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from graphormer_sepnorm.data_config import ALL, DataConfig
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.formatting import listed
from graphormer_sepnorm.tables.columns import (
    class_or_nan,
    find_column,
    find_smiles_column,
    is_empty,
    names_rows,
    readable,
    split_bound,
)
from graphormer_sepnorm.tables.reader import Row, TableReader

_ENOUGH = 0.2  # share of the cells of a column that may hold labels, whatever else it holds


@dataclass(frozen=True)
class TableColumns:
    """Indices of the columns that are used.

    Attributes:
        smiles: None where the molecules are in the records themselves (SDF).
        targets: By the names of the targets.
        weight: None where all rows weigh the same.
        split: None where no column has the split, the group or the time.
        extra: Extra inputs of the network, by their names.
        id: That which names the rows; None: none does.
    """

    smiles: int | None
    targets: dict[str, int]
    weight: int | None
    split: int | None
    extra: dict[str, int]
    id: int | None


def find_columns(
    reader: TableReader, rows: Sequence[Row], config: DataConfig, split: str, targets: Sequence[str]
) -> TableColumns:
    """Find the columns of a table.

    Args:
        reader: The table.
        rows: All its rows, by which targets are found that are not named; else they may be missing.
        config: What the user says about it.
        split: Which split has it as its file, as in `read_rows`.
        targets: Names of the targets; empty: the only column of numbers.

    Raises:
        DataError: A column is not there, or which one is meant cannot be told.
    """
    where, columns = reader.name, tuple(map(readable, reader.columns))
    if reader.format == "smi":
        raise DataError(
            f"{where} is a SMILES file, which has no labels to learn from: give a table (CSV, TSV, "
            "SDF, Parquet or Excel) that has them"
        )
    smiles = None
    if reader.format != "sdf" or config.smiles_column is not None:
        smiles = find_smiles_column(
            columns, config.smiles_column, where, is_molecule=looks_like_smiles
        )
    wanted = config.weight_column
    lower = [name.lower() for name in columns]
    if split == "test" or (split != "train" and wanted and wanted.lower() not in lower):
        wanted = None
    weight, own_split, named_id = (
        None if name is None else find_column(columns, name, where)
        for name in (wanted, config.column_of_split, config.id_column)
    )
    extra = tuple(find_column(columns, name, where) for name in config.descriptor_columns or ())
    if targets and (tuple(targets) != (ALL,) or ALL in columns or config.task == "multiclass"):
        found = tuple(find_column(columns, name, where) for name in targets)
    else:
        taken = {smiles, weight, own_split, named_id, *extra}
        found = _find_targets(where, columns, rows, taken, several=bool(targets))
    used = [one for one in (smiles, weight, own_split, *extra, *found) if one is not None]
    for at in used:
        if used.count(at) > 1:
            raise DataError(
                f"{where}: column {columns[at]!r} is named for two purposes: molecules, "
                "labels, weights, split and descriptors need a column each"
            )
    named, extras = ({columns[at]: at for at in chosen} for chosen in (found, extra))
    if named_id is None:
        free = (at for at, name in enumerate(columns) if at not in used and names_rows(name))
        named_id = next(free, None)
    return TableColumns(smiles, named, weight, own_split, extras, named_id)


def _find_targets(
    where: str, columns: Sequence[str], rows: Sequence[Row], taken: set[int | None], several: bool
) -> tuple[int, ...]:
    """Return the only column with numbers or words of classes that names no rows, or all of them.

    The first column has no name where pandas has written an index. Constants and what counts the
    rows are labels only where there is nothing else.
    """
    free = [at for at in range(len(columns)) if at not in taken]
    if not free:
        raise DataError(f"{where}: its only columns are {listed(columns)}: give SMILES and labels")
    says: dict[int, bool] = {}  # columns that may be meant: whether they say anything
    for at in free:
        cells = [row.cells[at] for row in rows if not row.problem]
        numbers = [class_or_nan(split_bound(cell)[1]) for cell in cells]
        labels = len(numbers) - sum(map(math.isnan, numbers))
        index = names_rows(columns[at]) or (at == 0 and columns[0] == "column_1")
        if labels > _ENOUGH * sum(not is_empty(cell) for cell in cells) and not index:
            steps = {after - before for before, after in pairwise(numbers)}
            says[at] = steps not in ({0.0}, {1.0})
    found = [at for at in says if says[at]] or [*says]
    for at in found:
        find_column(columns, columns[at], where)  # it is the only one of its name
    if len(found) == 1 or (found and several):
        return tuple(found)
    if not rows:
        raise DataError(f"{where}: there are no rows below the header ({listed(columns)})")
    which, more = f"{len(found)} columns may hold the labels", f", or {ALL} to take them all"
    if not found:
        found, which = free, "no column has labels"
        more = "; of two classes in words give --data.positive too, of more --data.task multiclass"
    example = f'"{columns[found[0]]}"' if "," in columns[found[0]] else columns[found[0]]
    raise DataError(
        f"{where}: {which} ({listed([columns[at] for at in found])}): name them, for example "
        f"--data.target_columns {shlex.quote(example)}{more}"
    )


def looks_like_smiles(text: str) -> bool:
    """Whether RDKit reads a text as SMILES; it is imported for that."""
    from graphormer_sepnorm.chem.molecules import is_smiles  # only where a header may be missing

    return is_smiles(text)
