"""Splits of a table's rows: by chance, scaffold, group or time, into folds, by a column or file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import numpy as np

from graphormer_sepnorm.chem.scaffolds import split_by_scaffold
from graphormer_sepnorm.data_config import DataConfig
from graphormer_sepnorm.datasets.folds import deal, place
from graphormer_sepnorm.datasets.splits import SPLITS
from graphormer_sepnorm.datasets.user_table.rows import TableContents, ValidRow
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.formatting import shortened
from graphormer_sepnorm.tables.columns import parse_number


def split_rows(
    config: DataConfig, tables: Mapping[str, TableContents]
) -> dict[str, list[ValidRow]]:
    """Return the rows of the three splits, in the order of the files.

    Where a column or files say the split, those for validation and test may be empty.

    Args:
        config: What the user says; it names the split.
        tables: The table, under ``train``, or those of some splits.

    Raises:
        DataError: A split is empty.
    """
    split = config.resolved_split
    rows = tables["train"].valid
    needed: Sequence[str] = SPLITS
    if split == "files":
        return {name: tables[name].valid if name in tables else [] for name in SPLITS}
    if split == "column":
        parts = {name: [row for row in rows if row.split == name] for name in SPLITS}
        advice = f"mark rows for it in column {config.split_column!r}, or choose another split"
        needed = ("train",)
    else:
        if config.folds is not None:
            positions, advice = _fold_of(config, rows)
        elif split in ("random", "group"):
            positions = random_split(
                _groups(config, rows), config.split_fractions, config.split_seed
            )
            advice = "give more molecules, or other --data.split_fractions"
        elif split == "time":
            positions = dealt_out(_times(config, rows), config.split_fractions)
            advice = "rows of one time stay together: try other --data.split_fractions"
        else:
            scaffolds = [row.scaffold or "" for row in rows]
            positions = split_by_scaffold(scaffolds, config.split_fractions)
            advice = (
                f"the molecules have {len(set(scaffolds)):,} different scaffolds, which stay "
                "together: try --data.split random, or other --data.split_fractions"
            )
        parts = {
            name: [rows[at] for at in chosen]
            for name, chosen in zip(SPLITS, positions, strict=True)
        }
    if empty := [name for name in needed if not parts[name]]:
        sizes = ", ".join(f"{len(part):,} {name}" for name, part in parts.items())
        unusable = ""
        if invalid := tables["train"].invalid:
            first = invalid[0]
            unusable = (
                f"; {len(invalid):,} of {len(invalid) + len(rows):,} rows cannot be used, the "
                f"first, {first.place}: {first.reason}"
            )
        raise DataError(
            f"{config.table}: the {split} split leaves no molecule for {' and '.join(empty)} "
            f"({sizes}){unusable}; {advice}"
        )
    return parts


def _fold_of(
    config: DataConfig, rows: Sequence[ValidRow]
) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], str]:
    """The splits of one fold, and what helps where one of them is empty."""
    folds, fold = config.folds, config.fold
    assert folds is not None
    assert fold is not None
    groups, split = _groups(config, rows), config.resolved_split
    different = len(set(groups))
    alone = split == "random"
    advice = "give more molecules" if alone else "try --data.split random, or fewer folds"
    if different < folds:
        what = "molecules" if alone else f"{split}s"
        raise DataError(
            f"{config.table}: {different:,} different {what} cannot be dealt into {folds} folds: "
            f"{advice}"
        )
    return fold_split(groups, folds, fold, config.split_seed), advice


def _groups(config: DataConfig, rows: Sequence[ValidRow]) -> list[str]:
    """Return of each row the text of what stays together."""
    if config.resolved_split == "group":
        return [row.split for row in rows]
    by_scaffold = config.resolved_split == "scaffold"
    return [(row.scaffold or "") if by_scaffold else row.canonical for row in rows]


def _times(config: DataConfig, rows: Sequence[ValidRow]) -> list[float]:
    """Return the time of each row, which all are numbers, or all dates.

    Raises:
        DataError: One is neither, or a number among dates.
    """

    def date(text: str) -> float:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()

    for read in (parse_number, date):
        found = []
        for row in rows:
            try:
                found.append(read(row.split))
            except ValueError:
                break
        else:
            return found
    row = rows[len(found)]
    raise DataError(
        f"{config.table}, row {row.number}: {config.time_column} is "
        f"{shortened(row.split, 40)!r}: give numbers in all rows, or dates such as 2024-05-31"
    )


def random_split(
    molecules: Sequence[str], fractions: tuple[float, float, float], seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Split by chance, equal molecules together.

    The molecules are ordered by a hash of seed and text and dealt out in this order, so which
    molecule goes where does not depend on the order of the rows. Each boundary between two splits
    is as close to its share as whole groups of equal molecules allow.

    Args:
        molecules: One canonical text per row.
        fractions: Shares of training, validation and test split, which add up to 1.
        seed: Another seed gives another split.

    Returns:
        Positions in `molecules`, three int64 arrays, each in rising order.
    """
    return dealt_out([place(molecule, seed) for molecule in molecules], fractions)


def dealt_out(
    keys: Sequence[Any], fractions: tuple[float, float, float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Split in the order of some keys, equal ones together; see `random_split`."""
    members: dict[Any, list[int]] = defaultdict(list)
    for position, key in enumerate(keys):
        members[key].append(position)
    # Exact arithmetic: 0.7 + 0.1 as floating-point numbers times n falls short of an integer.
    train, validation, _ = (Fraction(share).limit_denominator() for share in fractions)
    ends = [train * len(keys), (train + validation) * len(keys)]
    parts: tuple[list[int], list[int], list[int]] = ([], [], [])
    dealt = 0
    for key in sorted(members):
        group = members[key]
        middle = dealt + Fraction(len(group), 2)
        parts[sum(middle > end for end in ends)].extend(group)
        dealt += len(group)
    first, second, third = (np.array(sorted(part), dtype=np.int64) for part in parts)
    return first, second, third


def fold_split(
    groups: Sequence[str], folds: int, fold: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Split by folds: each row is in the test split of exactly one of them.

    They are dealt out as `deal` says. From what is not in the test split groups are drawn in the
    order of another hash, of its own for each fold, and make the validation split if they still fit
    into a tenth of it. So nothing depends on the order of the rows.

    Args:
        groups: Of each row, a text; rows with the same one stay together.
        folds: How many, at most as there are groups.
        fold: Which is the test split, from 0.
        seed: Another seed gives other folds.

    Returns:
        Positions in `groups` of training, validation and test split, three int64 arrays, each in
        rising order. Only that of training can be empty.
    """
    dealt = deal(groups, folds, seed)
    test = np.flatnonzero(dealt == fold)
    members: dict[str, list[int]] = defaultdict(list)
    for position in np.flatnonzero(dealt != fold).tolist():
        members[groups[position]].append(position)
    drawn = sorted(members, key=lambda group: place(group, f"{seed} without fold {fold}"))
    room = max(1, (len(groups) - len(test)) // 10)
    validation: list[int] = []
    for group in drawn:
        if len(validation) + len(members[group]) <= room:
            validation += members[group]
    if not validation:  # every group is larger than a tenth
        validation = members[min(drawn, key=lambda group: len(members[group]))]
    held = np.array(sorted(validation), dtype=np.int64)
    return np.setdiff1d(np.flatnonzero(dealt != fold), held), held, test
