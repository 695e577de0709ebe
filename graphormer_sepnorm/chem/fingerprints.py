"""Morgan fingerprints as arrays, for models that take vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator
from scipy.sparse import csr_array

from graphormer_sepnorm.chem.molecules import parse_smiles
from graphormer_sepnorm.errors import DataError


def morgan_fingerprints(
    smiles: Sequence[str],
    radius: int = 2,
    size: int = 2048,
    counts: bool = False,
    done: Callable[[int], None] | None = None,
) -> csr_array:
    """Return the Morgan (ECFP) fingerprints of molecules (Rogers and Hahn 2010).

    Without their zeros: a molecule sets a few dozen bits.

    Args:
        smiles: The molecules.
        radius: How many bonds far an atom's environment reaches; 2 is known as ECFP4.
        size: Number of bits that the environments are hashed to.
        counts: Whether to count each environment or only note that it occurs.
        done: Is told after each molecule how many are done.

    Returns:
        float64 ``[len(smiles), size]``.

    Raises:
        DataError: A SMILES cannot be read; the message names its position, counted from one.
    """

    def molecules() -> Iterator[Chem.Mol]:
        for number, text in enumerate(smiles, start=1):
            parsed = parse_smiles(text)
            if parsed.molecule is None:
                raise DataError(f"molecule {number} of {len(smiles)}: {parsed.reason}")
            yield parsed.molecule
            if done is not None:
                done(number)

    return fingerprints_of(molecules(), radius, size, counts)


def fingerprints_of(
    molecules: Iterable[Chem.Mol], radius: int = 2, size: int = 2048, counts: bool = False
) -> csr_array:
    """Return the Morgan fingerprints of molecules that are parsed; see `morgan_fingerprints`."""
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=radius, fpSize=size)
    compute = generator.GetCountFingerprintAsNumPy if counts else generator.GetFingerprintAsNumPy
    columns, values = [np.empty(0, np.int32)], [np.empty(0)]
    for molecule in molecules:
        fingerprint = compute(molecule)
        (occurring,) = fingerprint.nonzero()
        columns.append(occurring.astype(np.int32))
        values.append(fingerprint[occurring].astype(np.float64))
    starts = np.cumsum([len(row) for row in columns], dtype=np.int32)
    return csr_array(
        (np.concatenate(values), np.concatenate(columns), starts), shape=(len(columns) - 1, size)
    )
