"""How many molecules are held and computed at once; of values the last digits depend on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from graphormer_sepnorm.chem.molecules import ParsedMolecule, as_text, parse_smiles
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.graphs.loading import bounded

BATCH_SIZE = 128
# Molecules that are held in memory at once, sorted by size and divided into batches.
CHUNK_ROWS = 1024
# Padded pairs of atoms computed at once: bounds the memory whatever the sizes of the molecules.
_MAX_PAIRS = 1_000_000

Part = TypeVar("Part")


def given_smiles(smiles: Any) -> tuple[Any, ...]:
    """Return one SMILES or several as a tuple; what is no text stays, and gets an error later.

    Args:
        smiles: A text, or several in anything that can be gone through: a list, a Series, an array,
            also one with a single column. RDKit molecules become their SMILES.

    Raises:
        DataError: It is nothing of that, such as a table of several columns.
    """
    smiles = as_text(smiles)
    if isinstance(smiles, str):
        return (smiles,)
    shape = getattr(smiles, "shape", (1,))
    if len(shape) == 2 and shape[1] == 1:
        smiles = np.asarray(smiles, dtype=object)[:, 0]
    elif len(shape) != 1 or isinstance(smiles, Mapping | bytes) or not isinstance(smiles, Iterable):
        raise DataError(
            f"the SMILES are of the type {type(smiles).__name__}, shape {[*shape]}: give one, a "
            "list or one column of them, as table['smiles']"
        )
    of_arrow = getattr(smiles, "to_pylist", None)  # a column of pyarrow
    return tuple(map(as_text, smiles if of_arrow is None else of_arrow()))


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
    given = given_smiles(smiles)
    starts = range(0, max(len(given), 1), CHUNK_ROWS)
    chunks = [slice(start, start + CHUNK_ROWS) for start in starts]
    return given, [
        compute([parse_smiles(text) for text in given[rows]], given[rows], rows) for rows in chunks
    ]


def by_size(sizes: np.ndarray, batch_size: int) -> Iterator[list[int]]:
    """Group molecules of similar size: little padding."""
    return bounded(np.argsort(sizes, kind="stable").tolist(), sizes, batch_size, _MAX_PAIRS)
