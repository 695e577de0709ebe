"""Splits of a table's rows: by chance, by scaffold, by a column, by file."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

SPLITS = ("train", "validation", "test")

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
    members: dict[str, list[int]] = defaultdict(list)
    for position, molecule in enumerate(molecules):
        members[molecule].append(position)
    # Exact arithmetic: 0.7 + 0.1 as floating-point numbers times n falls short of an integer.
    train, validation, _ = (Fraction(share).limit_denominator() for share in fractions)
    ends = [train * len(molecules), (train + validation) * len(molecules)]
    parts: tuple[list[int], list[int], list[int]] = ([], [], [])
    dealt = 0
    for molecule in sorted(members, key=lambda molecule: _place(molecule, seed)):
        group = members[molecule]
        middle = dealt + Fraction(len(group), 2)
        parts[sum(middle > end for end in ends)].extend(group)
        dealt += len(group)
    first, second, third = (np.array(sorted(part), dtype=np.int64) for part in parts)
    return first, second, third


def _place(molecule: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed} {molecule}".encode()).digest()
