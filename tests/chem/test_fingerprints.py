from __future__ import annotations

import numpy as np
import pytest
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator

from graphormer_sepnorm.chem.fingerprints import morgan_fingerprints
from graphormer_sepnorm.errors import DataError


def test_bits_and_counts():
    smiles = ["CCCCCCO", "c1ccccc1"]
    bits = morgan_fingerprints(smiles).toarray()
    counts = morgan_fingerprints(smiles, counts=True).toarray()
    assert bits.shape == counts.shape == (2, 2048)
    assert set(np.unique(bits)) == {0.0, 1.0}
    np.testing.assert_array_equal(counts > 0, bits > 0)
    # Benzene: six equal atoms, and their neighbourhoods of radius one and two.
    assert sorted(counts[1][counts[1] > 0]) == [6.0, 6.0, 6.0][: int(bits[1].sum())]


def test_radius_and_size_are_used():
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=1, fpSize=64)
    expected = list(generator.GetFingerprint(Chem.MolFromSmiles("CC(=O)Nc1ccccc1")))
    np.testing.assert_array_equal(
        morgan_fingerprints(["CC(=O)Nc1ccccc1"], radius=1, size=64).toarray()[0], expected
    )


def test_unreadable_molecule_is_named():
    with pytest.raises(DataError, match="molecule 3 of 3"):
        morgan_fingerprints(["C", "CC", "C1"])


def test_no_molecule_and_how_many_are_done():
    assert morgan_fingerprints([]).shape == (0, 2048)
    told: list[int] = []
    morgan_fingerprints(["C", "CC"], done=told.append)
    assert told == [1, 2]
