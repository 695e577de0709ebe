"""How many molecules are held and computed at once; values do not depend on it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from graphormer_sepnorm.graphs.loading import bounded

BATCH_SIZE = 128
MAX_ATOMS = 500
# Molecules that are held in memory at once, sorted by size and divided into batches.
CHUNK_ROWS = 1024
# Padded pairs of atoms computed at once: bounds the memory whatever the sizes of the molecules.
_MAX_PAIRS = 1_000_000


def by_size(sizes: np.ndarray, batch_size: int) -> Iterator[list[int]]:
    """Group molecules of similar size: little padding."""
    return bounded(np.argsort(sizes, kind="stable").tolist(), sizes, batch_size, _MAX_PAIRS)
