"""What trees see: counts that training knows, RDKit's descriptors without gaps."""

import math

import numpy as np
import pytest
from rdkit import Chem
from rdkit.Chem import Descriptors, rdFingerprintGenerator, rdReducedGraphs
from reference.molecules import spellings

from graphormer_sepnorm import process
from graphormer_sepnorm.baselines import features as tree_features
from graphormer_sepnorm.baselines.features import (
    COUNTED,
    FeatureColumns,
    RawFeatures,
    compute_features,
    raw_features,
)
from graphormer_sepnorm.chem.descriptors import (
    LEFT_OUT,
    compute_descriptors,
    descriptor_names,
    quick_descriptor_names,
)
from graphormer_sepnorm.chem.fingerprints import (
    ENVIRONMENTS,
    HASHED,
    hashed_counts,
    morgan_bits,
    substructures,
)

SMILES = ["CCO", "CCN", "CCCl", "c1ccccc1O", "CC(C)C", "[Na+].[Cl-]"]


def test_descriptors_are_rdkits() -> None:
    molecule = Chem.MolFromSmiles("CC(=O)Oc1ccccc1C(=O)O")
    (values,) = compute_descriptors([molecule])
    theirs = Descriptors.CalcMolDescriptors(molecule)
    assert len(descriptor_names()) == len(theirs) - len(LEFT_OUT)
    for name, value in zip(descriptor_names(), values, strict=True):
        assert value == pytest.approx(theirs[name], rel=1e-6), name


def test_what_is_undefined_is_nan_and_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(molecule: Chem.Mol) -> float:
        return 1 / (molecule.GetNumAtoms() - 2)

    more = [("fails", fails), ("endless", lambda _: math.inf), ("beyond", lambda _: 1e300)]
    monkeypatch.setattr(Descriptors, "descList", [*Descriptors.descList, *more])
    salt = Chem.MolFromSmiles("[Na+].[Cl-]")
    values = compute_descriptors([None, salt], ["MolWt", *(name for name, _ in more)])
    assert np.isnan(values[0]).all()
    assert values[1, 0] == pytest.approx(58.44, abs=0.01)
    assert np.isnan(values[1, 1:]).all()
    assert values.dtype == np.float32


def test_counts_are_hashed_substructures_and_reduced_graphs() -> None:
    """Morgan environments as RDKit hashes them; of the others nothing is lost but by collision."""
    molecules = [*map(Chem.MolFromSmiles, SMILES), None]
    found = substructures(molecules)
    counts = compute_features([*SMILES, "C1CC"]).counts.toarray()
    assert counts.shape[1] == COUNTED
    bits = np.unpackbits(morgan_bits(molecules).view(np.uint8), axis=1, bitorder="little")
    np.testing.assert_array_equal(counts[:, :ENVIRONMENTS] > 0, bits)
    assert morgan_bits([]).shape == (0, ENVIRONMENTS / 64)
    morgan = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=ENVIRONMENTS)
    features = rdFingerprintGenerator.GetMorganFeatureAtomInvGen()
    of_features = rdFingerprintGenerator.GetMorganGenerator(
        radius=2, fpSize=1024, atomInvariantsGenerator=features
    )
    pairs = rdFingerprintGenerator.GetAtomPairGenerator()
    for row, molecule in zip(counts, molecules, strict=True):
        molecule = molecule or Chem.Mol()
        parts = np.split(row, [ENVIRONMENTS, ENVIRONMENTS + 1024, HASHED])
        np.testing.assert_array_equal(parts[0], morgan.GetCountFingerprintAsNumPy(molecule))
        np.testing.assert_array_equal(parts[1], of_features.GetCountFingerprintAsNumPy(molecule))
        every = pairs.GetSparseCountFingerprint(molecule).GetNonzeroElements().values()
        assert sorted(parts[2][parts[2] > 0]) == sorted(every)
    in_order = [Chem.MolFromSmiles(Chem.MolToSmiles(one)) for one in molecules[:-1]]
    expected = [rdReducedGraphs.GetErGFingerprint(one) for one in in_order]
    np.testing.assert_allclose(counts[:-1, HASHED:], expected, rtol=1e-6)
    assert not counts[-1].any()
    np.testing.assert_array_equal(hashed_counts(found).toarray(), counts[:, :HASHED])


def test_features_do_not_depend_on_the_order_of_atoms() -> None:
    smiles = ["CC(=O)Nc1ccc(O)cc1", "OC(=O)CCN1CCC(F)CC1", "c1ccc2[nH]ccc2c1", "CCCC(O)C(N)C#N"]
    raw = compute_features(smiles)
    for texts in zip(*(spellings(text, 5) for text in smiles), strict=True):
        other = compute_features(texts)
        np.testing.assert_array_equal(other.counts.toarray(), raw.counts.toarray())
        np.testing.assert_allclose(other.descriptors, raw.descriptors, rtol=1e-4, atol=1e-5)


def test_counts_in_three_molecules_and_quick_descriptors() -> None:
    columns = FeatureColumns.fit(raw := compute_features(SMILES))
    molecules = [Chem.MolFromSmiles(text) for text in SMILES]
    counts = raw.counts.toarray()
    expected = np.flatnonzero((counts > 0).sum(axis=0) >= 3)
    assert len(expected) > 0
    assert list(columns.environments) == expected.tolist()
    assert columns.descriptors == quick_descriptor_names()
    assert {"MolLogP", "TPSA", "SlogP_VSA3"} <= {*columns.descriptors} < {*descriptor_names()}
    features = columns.of(raw)
    assert features.dtype == np.float32
    np.testing.assert_array_equal(features[:, : len(expected)], counts[:, expected])
    weight = len(expected) + columns.descriptors.index("MolWt")
    np.testing.assert_allclose(
        features[:, weight], [Descriptors.MolWt(one) for one in molecules], rtol=1e-6
    )
    alone = raw_features(molecules, columns.descriptors)
    np.testing.assert_array_equal(columns.of(alone), features)


def test_what_is_undefined_is_the_median_of_training_and_large_descriptors_are_clipped() -> None:
    raw = compute_features(SMILES)
    descriptors = np.tile(np.arange(6, dtype=np.float32)[:, None], len(quick_descriptor_names()))
    descriptors[[0, 1], 0] = np.nan
    descriptors[:, 1] = np.nan
    descriptors[2, 2], descriptors[3, 2] = 1e30, -1e30
    descriptors[:, 3] = [np.nan, *[1e30] * 5]
    of_table = np.array([[np.nan], *[[1e9]] * 5])  # which is not clipped
    raw = RawFeatures(raw.counts, descriptors).with_columns(of_table)
    columns = FeatureColumns.fit(raw, columns=["assay"])
    assert columns.medians[:2] == (3.5, 0.0)
    assert (columns.medians[3], columns.medians[-1]) == (1e6, 1e9)
    features = columns.of(raw)[:, len(columns.environments) :]
    assert features[:, 0].tolist() == [3.5, 3.5, 2, 3, 4, 5]
    assert features[:, 1].tolist() == [0] * 6
    assert features[[2, 3], 2].tolist() == [1e6, -1e6]
    assert features[:, 3].tolist() == [1e6] * 6
    assert features[:, -1].tolist() == [1e9] * 6


def test_several_processes_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = compute_features(SMILES)
    monkeypatch.setattr(tree_features, "_CHUNK", 4)
    for name, value in (("_MANY", 1), ("cores", lambda: 2)):
        monkeypatch.setattr(process, name, value)
    several = compute_features(SMILES)
    np.testing.assert_array_equal(several.descriptors, alone.descriptors)
    np.testing.assert_array_equal(several.counts.toarray(), alone.counts.toarray())
