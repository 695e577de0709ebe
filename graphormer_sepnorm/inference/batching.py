"""What a predictor is given, and how much of it is computed at once, and where."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set, Sized, ValuesView
from typing import Any, TypeVar

import numpy as np
import torch

from graphormer_sepnorm.chem.molecules import ParsedMolecule, as_text, parse_smiles
from graphormer_sepnorm.errors import ConfigError, DataError
from graphormer_sepnorm.formatting import listed, shortened
from graphormer_sepnorm.graphs.loading import bounded

# Molecules sorted by size and batched at once: the last digits of values depend on it.
CHUNK_ROWS = 1024
# Padded pairs of atoms computed at once: bounds the memory whatever the sizes of the molecules.
_MAX_PAIRS = 1_000_000

Part = TypeVar("Part")


def usable_device(device: str | None) -> str:
    """Return where to compute; None: a GPU if there is one.

    Raises:
        ConfigError: The device is not there.
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.zeros(1).to(device)
    except (RuntimeError, AssertionError) as error:
        reason = shortened(str(error).splitlines()[0].rstrip("."), 80)
        ways = "give cpu, or cuda where torch finds a GPU"
        raise ConfigError(f"device {device!r} cannot be used ({reason}): {ways}") from error
    return device


def given_smiles(smiles: Any) -> tuple[Any, ...]:
    """Return one SMILES or several as a tuple; what is not text stays, and gets an error later.

    Args:
        smiles: A text, or several in any iterable: a list, a Series, an array, also one with a
            single column. RDKit molecules become their SMILES.

    Raises:
        DataError: It is nothing of that, such as a table of several columns.
    """
    smiles = as_text(smiles)
    if isinstance(smiles, str):
        return (smiles,)
    view = isinstance(smiles, Set | ValuesView)  # of which numpy makes one object
    if view or (isinstance(smiles, Iterable) and not isinstance(smiles, Sized)):
        smiles = [*smiles]
    given = np.asarray(smiles, dtype=object)
    if given.ndim == 2 and given.shape[1] == 1:
        given = given[:, 0]
    if given.ndim != 1:
        raise DataError(
            f"the SMILES are of the type {type(smiles).__name__}, shape {[*given.shape]}: give a "
            "list or one column of them, as table['smiles']"
        )
    return tuple(map(as_text, given))


def given_columns(
    columns: Mapping[str, Any] | None, names: Sequence[str], molecules: int
) -> np.ndarray:
    """Return the columns that are read in addition to molecules, float64 ``[molecules, names]``.

    Raises:
        DataError: One is missing, has another length, or does not hold numbers.
    """
    values, given = np.empty((molecules, len(names))), {} if columns is None else columns
    for index, name in enumerate(names):
        try:
            numbers = np.asarray(given[name], np.float64)
            if numbers.shape not in ((), (molecules,)):
                raise ValueError(f"shape {[*numbers.shape]} for {molecules} molecules")
            values[:, index] = numbers
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"the model reads {listed(names)} in addition to the molecule: give {name} as "
                "one number for each, nan where it is missing, in a table (-i FILE) or from Python "
                f"as columns={{...}} ({type(error).__name__}: {error})"
            ) from error
    return np.where(np.abs(values) <= np.finfo(np.float32).max, values, np.nan)


def in_chunks(
    smiles: tuple[Any, ...], compute: Callable[[list[ParsedMolecule], slice], Part]
) -> list[Part]:
    """Parse SMILES and compute a chunk of them at a time, which rows these are is given too."""
    starts = range(0, max(len(smiles), 1), CHUNK_ROWS)  # an empty chunk where there are none
    chunks = [slice(start, start + CHUNK_ROWS) for start in starts]
    return [compute([parse_smiles(text) for text in smiles[rows]], rows) for rows in chunks]


def by_size(sizes: np.ndarray, batch_size: int) -> Iterator[list[int]]:
    """Group molecules of similar size: little padding."""
    return bounded(np.argsort(sizes, kind="stable").tolist(), sizes, batch_size, _MAX_PAIRS)
