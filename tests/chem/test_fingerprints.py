from __future__ import annotations

import numpy as np
import pytest
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator

from graphormer_sepnorm.chem.baselines import baseline_aurocs, baseline_errors
from graphormer_sepnorm.chem.fingerprints import morgan_fingerprints
from graphormer_sepnorm.errors import DataError


def test_bits_and_counts():
    smiles = ["CCCCCCO", "c1ccccc1"]
    bits = morgan_fingerprints(smiles)
    counts = morgan_fingerprints(smiles, counts=True)
    assert bits.shape == counts.shape == (2, 2048)
    assert bits.dtype == np.float32
    assert set(np.unique(bits)) == {0.0, 1.0}
    np.testing.assert_array_equal(counts > 0, bits > 0)
    # Benzene: six equal atoms, and their neighbourhoods of radius one and two.
    assert sorted(counts[1][counts[1] > 0]) == [6.0, 6.0, 6.0][: int(bits[1].sum())]


def test_radius_and_size_are_used():
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=1, fpSize=64)
    expected = list(generator.GetFingerprint(Chem.MolFromSmiles("CC(=O)Nc1ccccc1")))
    np.testing.assert_array_equal(
        morgan_fingerprints(["CC(=O)Nc1ccccc1"], radius=1, size=64)[0], expected
    )


def test_unreadable_molecule_is_named():
    with pytest.raises(DataError, match="molecule 3 of 3"):
        morgan_fingerprints(["C", "CC", "C1"])


def test_baselines_on_a_linear_target():
    """A target that counts a group is found by the ridge, and the mean is what it is."""
    chains = ["C" * length for length in range(3, 23)]
    smiles = {
        "train": chains + [chain + "O" for chain in chains],
        "validation": ["CC(C)CC", "CC(C)CCCO"],
        "test": ["CC(C)CCC", "CC(C)CCO", "CCC(C)CCCCO"],
    }
    targets = {
        split: np.array([10.0 * ("O" in text) for text in members])
        for split, members in smiles.items()
    }
    errors = baseline_errors(smiles, targets)
    assert errors["mean"] == pytest.approx(5.0)
    assert errors["ridge"] < 1.0


def test_logistic_baseline_finds_a_group_and_needs_both_classes():
    chains = ["C" * length for length in range(3, 23)]
    smiles = {
        "train": chains + [chain + "O" for chain in chains],
        "validation": ["CC(C)CC", "CC(C)CCCO"],
        "test": ["CC(C)CCC", "CC(C)CCO", "CCC(C)CCCCO", "CCCC(C)C"],
    }
    targets = {
        split: np.array([float("O" in text) for text in members])
        for split, members in smiles.items()
    }
    assert baseline_aurocs(smiles, targets) == {"logistic": 1.0}
    inverted = {**targets, "test": 1 - targets["test"]}
    assert baseline_aurocs(smiles, inverted) == {"logistic": 0.0}
    one_class = {**targets, "test": np.zeros(4)}
    assert np.isnan(baseline_aurocs(smiles, one_class)["logistic"])
