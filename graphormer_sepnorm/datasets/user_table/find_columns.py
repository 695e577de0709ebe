"""Which column of a table holds what, by names.

Nothing heavy is imported: a slip is answered at once.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from graphormer_sepnorm.data_config import ALL, DataConfig
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.formatting import listed
from graphormer_sepnorm.tables.columns import find_column, find_smiles_column, names_rows, readable
from graphormer_sepnorm.tables.reader import TableReader


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
    reader: TableReader, config: DataConfig, split: str, targets: Sequence[str]
) -> TableColumns:
    """Find the columns of a table.

    Args:
        reader: The table.
        config: What the user says about it.
        split: Which split has it as its file, as in `read_rows`.
        targets: Names of the targets; empty: the only column that is nothing else.

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
        found = _find_targets(where, columns, taken, several=bool(targets))
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
    where: str, columns: Sequence[str], taken: set[int | None], several: bool
) -> tuple[int, ...]:
    """Return the only column, or `several`, that is not taken and names no rows.

    The first column has no name where pandas has written an index.
    """
    free = [at for at in range(len(columns)) if at not in taken]
    index = {at for at in free if names_rows(columns[at]) or (at == 0 and columns[0] == "column_1")}
    found = [at for at in free if at not in index]
    for at in found:
        find_column(columns, columns[at], where)  # it is the only one of its name
    if len(found) == 1 or (found and several):
        return tuple(found)
    if not free:
        raise DataError(f"{where}: no column is left for labels; it has {listed(columns)}")
    which = f"{len(found)} columns may hold the labels" if found else "no column is left for labels"
    more = f", or {ALL} if all are numbers or classes" if found else ""
    names = [columns[at] for at in found or free]
    example = shlex.quote(f'"{names[0]}"' if "," in names[0] else names[0])
    raise DataError(
        f"{where}: {which} ({listed(names)}): name them, for example --data.target_columns "
        f"{example}{more}"
    )


def looks_like_smiles(text: str) -> bool:
    """Whether RDKit reads a text as SMILES; it is imported for that."""
    from graphormer_sepnorm.chem.molecules import is_smiles  # only where a header may be missing

    return is_smiles(text)
