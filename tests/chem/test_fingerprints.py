"""Counts of Morgan environments: RDKit's own, as a sparse array."""

from __future__ import annotations

import numpy as np
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator

from graphormer_sepnorm.chem.fingerprints import ENVIRONMENTS, morgan_counts


def test_counts_are_rdkits() -> None:
    molecules = [Chem.MolFromSmiles(text) for text in ("CCCCCCO", "c1ccccc1", "CC(=O)Nc1ccccc1")]
    counts = morgan_counts(molecules).toarray()
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=ENVIRONMENTS)
    expected = [list(generator.GetCountFingerprint(molecule)) for molecule in molecules]
    np.testing.assert_array_equal(counts, expected)
    # Benzene: six equal atoms, and their neighbourhoods of radius one and two.
    assert sorted(counts[1][counts[1] > 0]) == [6.0, 6.0, 6.0]


def test_no_molecule() -> None:
    assert morgan_counts([]).shape == (0, ENVIRONMENTS)
