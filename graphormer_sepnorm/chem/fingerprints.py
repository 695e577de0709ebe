"""Morgan fingerprints as arrays, for models that take vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rdkit.Chem import rdFingerprintGenerator

from graphormer_sepnorm.chem.molecules import parse_smiles
from graphormer_sepnorm.errors import DataError


def morgan_fingerprints(
    smiles: Sequence[str], radius: int = 2, size: int = 2048, counts: bool = False
) -> np.ndarray:
    """Return the Morgan (ECFP) fingerprints of molecules (Rogers and Hahn 2010).

    Args:
        smiles: The molecules.
        radius: How many bonds far an atom's environment reaches; 2 is known as ECFP4.
        size: Number of bits that the environments are hashed to.
        counts: Whether to count each environment or only note that it occurs.

    Returns:
        float32 ``[len(smiles), size]``.

    Raises:
        DataError: A SMILES cannot be read; the message names its position, counted from one.
    """
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=radius, fpSize=size)
    compute = generator.GetCountFingerprintAsNumPy if counts else generator.GetFingerprintAsNumPy
    fingerprints = np.zeros((len(smiles), size), dtype=np.float32)
    for position, text in enumerate(smiles):
        parsed = parse_smiles(text)
        if parsed.molecule is None:
            raise DataError(f"molecule {position + 1} of {len(smiles)}: {parsed.reason}")
        fingerprints[position] = compute(parsed.molecule)
    return fingerprints
