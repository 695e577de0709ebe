"""Morgan fingerprints as arrays, for models that take vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator
from scipy.sparse import csr_array

# Environments reach two bonds far (ECFP4) and are hashed to so many columns.
RADIUS, ENVIRONMENTS = 2, 2048
# Substructures that are counted without hashing to columns: Morgan environments of elements, and of
# pharmacophore features; pairs of atoms.
SUBSTRUCTURES = {
    "morgan": rdFingerprintGenerator.GetMorganGenerator(radius=RADIUS),
    "feature morgan": rdFingerprintGenerator.GetMorganGenerator(
        radius=RADIUS, atomInvariantsGenerator=rdFingerprintGenerator.GetMorganFeatureAtomInvGen()
    ),
    "atom pairs": rdFingerprintGenerator.GetAtomPairGenerator(),
}


def morgan_counts(molecules: Sequence[Chem.Mol | None]) -> csr_array:
    """Return how often each environment occurs (Morgan or ECFP; Rogers and Hahn 2010).

    float64 ``[molecules, ENVIRONMENTS]``, sparse: a molecule has a few dozen environments. None for
    one that RDKit does not take, as a few of ogbg-molhiv: it has nothing.
    """
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=RADIUS, fpSize=ENVIRONMENTS)
    columns, values = [np.empty(0, np.int32)], [np.empty(0)]
    for molecule in molecules:
        fingerprint = generator.GetCountFingerprintAsNumPy(molecule or Chem.Mol())
        (occurring,) = fingerprint.nonzero()
        columns.append(occurring.astype(np.int32))
        values.append(fingerprint[occurring].astype(np.float64))
    starts = np.cumsum([len(row) for row in columns], dtype=np.int32)
    return csr_array(
        (np.concatenate(values), np.concatenate(columns), starts),
        shape=(len(molecules), ENVIRONMENTS),
    )


def substructures(kind: str, molecules: Sequence[Chem.Mol | None]) -> list[np.ndarray]:
    """Return a number for each substructure of a molecule and each k from 1 to its count.

    Of each molecule int64 ``[...]``, so that counts are sets; None has none. The kind is one of
    `SUBSTRUCTURES`.
    """
    found = []
    for molecule in molecules:
        fingerprint = SUBSTRUCTURES[kind].GetSparseCountFingerprint(molecule or Chem.Mol())
        counts = fingerprint.GetNonzeroElements()
        hashes = np.fromiter(counts.keys(), np.int64, len(counts))
        times = np.fromiter(counts.values(), np.int64, len(counts))
        k = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
        found.append((np.repeat(hashes, times) << 20) + k)
    return found
