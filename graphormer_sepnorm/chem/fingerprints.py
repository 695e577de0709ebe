"""Morgan fingerprints as arrays, for models that take vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator
from scipy.sparse import csr_array

# Environments reach two bonds far (ECFP4) and are hashed to so many columns.
RADIUS, ENVIRONMENTS = 2, 2048


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
