"""How many molecules are held and computed at once; values do not depend on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from graphormer_sepnorm.chem.molecules import ParsedMolecule, parse_smiles
from graphormer_sepnorm.graphs.loading import bounded

BATCH_SIZE = 128
# Molecules that are held in memory at once, sorted by size and divided into batches.
CHUNK_ROWS = 1024
# Padded pairs of atoms computed at once: bounds the memory whatever the sizes of the molecules.
_MAX_PAIRS = 1_000_000

Part = TypeVar("Part")


def in_chunks(
    smiles: str | Sequence[str],
    compute: Callable[[list[ParsedMolecule], Sequence[str], slice], Part],
) -> tuple[tuple[str, ...], list[Part]]:
    """Parse SMILES, one or several, and have a chunk of them computed at a time.

    Args:
        smiles: What is given.
        compute: Takes the molecules of a chunk, their SMILES, and which of all they are.

    Returns:
        What was given, and what was made of the molecules of each chunk; without any there is one
        chunk, which is empty.
    """
    given = (smiles,) if isinstance(smiles, str) else tuple(smiles)
    starts = range(0, max(len(given), 1), CHUNK_ROWS)
    chunks = [slice(start, start + CHUNK_ROWS) for start in starts]
    return given, [
        compute([parse_smiles(text) for text in given[rows]], given[rows], rows) for rows in chunks
    ]


def by_size(sizes: np.ndarray, batch_size: int) -> Iterator[list[int]]:
    """Group molecules of similar size: little padding."""
    return bounded(np.argsort(sizes, kind="stable").tolist(), sizes, batch_size, _MAX_PAIRS)
