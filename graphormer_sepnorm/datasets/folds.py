"""Dealing molecules into folds, those of one group together, whatever the order of the rows."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np


def deal(groups: Sequence[str], folds: int, seed: int | str) -> np.ndarray:
    """Return the fold of each row.

    The largest group is dealt out first, each to the fold that is the smallest so far; groups of
    one size come in the order of a hash of seed and text.

    Args:
        groups: Of each row, a text; rows with the same one stay together.
        folds: How many.
        seed: Another seed gives other folds.

    Returns:
        int64 ``[rows]``, from 0.
    """
    members: dict[str, list[int]] = defaultdict(list)
    for position, group in enumerate(groups):
        members[group].append(position)
    sizes = [0] * folds
    dealt = np.empty(len(groups), np.int64)
    for group in sorted(members, key=lambda group: (-len(members[group]), place(group, seed))):
        smallest = sizes.index(min(sizes))
        sizes[smallest] += len(members[group])
        dealt[members[group]] = smallest
    return dealt


def without_large_groups(
    groups: Sequence[str], molecules: Sequence[str], folds: int
) -> Sequence[str]:
    """Return groups of which none is larger than half a fold: the molecules of others part.

    Where folds are to be of a size. Half of the molecules of many tables have no ring, for example,
    and with it the same scaffold.

    Args:
        groups: Of each row, a text.
        molecules: Of each row, its canonical text.
        folds: Into which they will be dealt.
    """
    sizes, most = Counter(groups), len(groups) / folds / 2
    return [
        f"{group} {molecule}" if sizes[group] > most else group
        for group, molecule in zip(groups, molecules, strict=True)
    ]


def place(text: str, seed: int | str) -> bytes:
    """Return by what texts are ordered: a hash, another one with another seed."""
    return hashlib.sha256(f"{seed} {text}".encode()).digest()
