"""Who goes into which split or fold: by chance, scaffold, group or time, by a column or file.

Groups stay together, and nothing depends on the order of the rows.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from graphormer_sepnorm.datasets.splits import SPLITS
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.formatting import shortened
from graphormer_sepnorm.tables.columns import parse_number

if TYPE_CHECKING:
    from graphormer_sepnorm.data_config import DataConfig
    from graphormer_sepnorm.datasets.user_table.rows import TableContents, ValidRow

# Indices of training, validation and test split, int64, each in rising order.
Parts = tuple[np.ndarray, np.ndarray, np.ndarray]


def assign_folds(groups: Sequence[str], folds: int, seed: int | str) -> np.ndarray:
    """Return the fold of each row, int64 ``[rows]``, from 0; rows of one group stay together.

    The largest group is assigned first, each to the fold that is the smallest so far; groups of one
    size come in the order of a hash of seed and text.
    """
    members = _members(groups)
    sizes = [0] * folds
    assigned = np.empty(len(groups), np.int64)
    for group in sorted(members, key=lambda group: (-len(members[group]), _hash(group, seed))):
        smallest = sizes.index(min(sizes))
        sizes[smallest] += len(members[group])
        assigned[members[group]] = smallest
    return assigned


def without_large_groups(
    groups: Sequence[str], molecules: Sequence[str], folds: int
) -> Sequence[str]:
    """Return groups of which none is larger than half a fold: the `molecules` of others part.

    Half of the molecules of many tables have no ring, for example, and with it the same scaffold.
    """
    sizes, most = Counter(groups), len(groups) / folds / 2
    return [
        f"{group} {molecule}" if sizes[group] > most else group
        for group, molecule in zip(groups, molecules, strict=True)
    ]


def random_split(
    molecules: Sequence[str], fractions: tuple[float, float, float], seed: int
) -> Parts:
    """Split at random, equal canonical texts together: in the order of a hash of seed and text.

    Each boundary between two splits is as close to its share (these add up to 1) as whole groups of
    equal molecules allow.
    """
    return _in_order([_hash(molecule, seed) for molecule in molecules], fractions)


def scaffold_split(scaffolds: Sequence[str], fractions: tuple[float, float, float]) -> Parts:
    """Split molecules by their scaffolds, in shares that add up to 1.

    From the most frequent scaffold to the rarest, each goes to the training set if it still fits
    there, else to the validation set, else to the test set (the procedure of MoleculeNet, Wu et al.
    2018, arXiv 1703.00564). Scaffolds of equal frequency come in the order of a hash of their
    SMILES: rare ones are spread by chance and not by the alphabet.
    """
    members, (first, second) = _members(scaffolds), map(int, _ends(len(scaffolds), fractions))
    room, parts = (first, second - first, len(scaffolds)), ([], [], [])

    def order(scaffold: str) -> tuple[int, str]:
        return -len(members[scaffold]), hashlib.sha256(scaffold.encode()).hexdigest()

    for scaffold in sorted(members, key=order):
        group = members[scaffold]
        part = next(
            part for part, most in zip(parts, room, strict=True) if len(part) + len(group) <= most
        )
        part += group
    return _sorted(parts)


def fold_split(groups: Sequence[str], folds: int, fold: int, seed: int) -> Parts:
    """Split by folds: each row is in the test split of exactly one of them, see `assign_folds`.

    From what is not in the test split groups are sampled in the order of another hash, of its own
    for each fold, and make the validation split if they still fit into a tenth of it. Only the
    training split can be empty.
    """
    in_test = assign_folds(groups, folds, seed) == fold
    test, others = np.flatnonzero(in_test), np.flatnonzero(~in_test)
    members = {group: own for group, own in _members(groups).items() if not in_test[own[0]]}
    sampled = sorted(members, key=lambda group: _hash(group, f"{seed} without fold {fold}"))
    room = max(1, len(others) // 10)
    validation: list[int] = []
    for group in sampled:
        if len(validation) + len(members[group]) <= room:
            validation += members[group]
    if not validation:  # every group is larger than a tenth
        validation = members[min(sampled, key=lambda group: len(members[group]))]
    held_out = np.array(sorted(validation), dtype=np.int64)
    return np.setdiff1d(others, held_out), held_out, test


def split_rows(
    config: DataConfig, tables: Mapping[str, TableContents]
) -> dict[str, list[ValidRow]]:
    """Return the rows of a table, or of its files, in three splits, in the order of the files.

    Where a column or files have the split, those for validation and test may be empty.

    Raises:
        DataError: A split is empty.
    """
    split, rows = config.resolved_split, tables["train"].valid
    if split == "files":
        return {name: tables[name].valid if name in tables else [] for name in SPLITS}
    kinds = {"group": [row.split for row in rows], "scaffold": [row.scaffold for row in rows]}
    groups = kinds.get(split, [row.canonical for row in rows])
    different = f"{len(set(groups)):,} different {split if split in kinds else 'molecule'}s"
    if split == "column":
        parts = [np.flatnonzero([row.split == name for row in rows]) for name in SPLITS]
    elif config.folds is not None and config.fold is not None:
        if len(set(groups)) < config.folds:
            raise DataError(
                f"{config.table}: {different} cannot be assigned to {config.folds} folds: give "
                "more molecules, fewer folds, or another --data.split"
            )
        parts = fold_split(groups, config.folds, config.fold, config.split_seed)
    elif split == "scaffold":
        parts = scaffold_split(groups, config.split_fractions)
    elif split == "time":
        parts = _in_order(_times_of(config, rows), config.split_fractions)
    else:
        parts = random_split(groups, config.split_fractions, config.split_seed)
    found = {name: [rows[at] for at in chosen] for name, chosen in zip(SPLITS, parts, strict=True)}
    if empty := [name for name in SPLITS[: 1 if split == "column" else 3] if not found[name]]:
        sizes = ", ".join(f"{len(part):,} {name}" for name, part in found.items())
        raise DataError(
            f"{config.table}: the {split} split of {different} leaves none for "
            f"{' and '.join(empty)} ({sizes}); give more molecules, or another --data.split"
        )
    return found


def _times_of(config: DataConfig, rows: Sequence[ValidRow]) -> list[float]:
    """Return the time of each row, which all are numbers, or all dates."""

    def date(text: str) -> float:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()

    found: list[float] = []
    for read in (parse_number, date):
        found = []
        try:
            found.extend(read(row.split) for row in rows)
        except ValueError:
            continue
        if np.isfinite(found).all():
            return found
        found = found[: int(np.argmin(np.isfinite(found)))]
        break
    row = rows[len(found)]
    raise DataError(
        f"{config.table}, row {row.number}: {config.time_column} is "
        f"{shortened(row.split, 40)!r}: give numbers in all rows, or dates such as 2024-05-31"
    )


def _in_order(keys: Sequence[Any], fractions: tuple[float, float, float]) -> Parts:
    """Split in the order of some keys, equal ones together; see `random_split`."""
    members = _members(keys)
    ends = _ends(len(keys), fractions)
    parts: tuple[list[int], list[int], list[int]] = ([], [], [])
    before = 0
    for key in sorted(members):
        middle = before + Fraction(len(members[key]), 2)
        parts[sum(middle > end for end in ends)].extend(members[key])
        before += len(members[key])
    return _sorted(parts)


def _ends(count: int, fractions: tuple[float, float, float]) -> tuple[Fraction, Fraction]:
    """Return where training and validation split end among so many molecules."""
    # Exact arithmetic: 0.7 + 0.1 as floating-point numbers times n falls short of an integer.
    train, validation, _ = (Fraction(share).limit_denominator() for share in fractions)
    return train * count, (train + validation) * count


def _sorted(parts: Iterable[list[int]]) -> Parts:
    first, second, third = (np.array(sorted(part), dtype=np.int64) for part in parts)
    return first, second, third


def _members(keys: Sequence[Any]) -> dict[Any, list[int]]:
    """Return the indices of each key."""
    members: dict[Any, list[int]] = defaultdict(list)
    for at, key in enumerate(keys):
        members[key].append(at)
    return members


def _hash(text: str, seed: int | str) -> bytes:
    """What texts are ordered by, another one with another seed."""
    return hashlib.sha256(f"{seed} {text}".encode()).digest()
