"""The kernel and its held-out predictions are those of a literal computation."""

from collections import Counter

import numpy as np
import pytest
import torch
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator as generators
from reference.molecules import sample_rows
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import roc_auc_score

from graphormer_sepnorm.baselines import fit_kernel as fitting
from graphormer_sepnorm.baselines.fit_kernel import fit_kernel, fit_ridge
from graphormer_sepnorm.baselines.kernel import Counts, Kernel
from graphormer_sepnorm.chem.fingerprints import substructures

FEATURES = generators.GetMorganFeatureAtomInvGen()
KINDS = (
    generators.GetMorganGenerator(radius=2),
    generators.GetMorganGenerator(radius=2, atomInvariantsGenerator=FEATURES),
    generators.GetAtomPairGenerator(),
)


@pytest.fixture(scope="module")
def molecules():
    return [*(Chem.MolFromSmiles(smiles) for smiles, _ in sample_rows()[::40][:60]), None]


def min_max(one: Chem.Mol, other: Chem.Mol) -> float:
    shares = []
    for kind in KINDS:
        found = [kind.GetSparseCountFingerprint(of) for of in (one, other)]
        a, b = (Counter(counts.GetNonzeroElements()) for counts in found)
        shares.append((a & b).total() / (a | b).total() if a | b else 1.0)
    return float(np.mean(shares))


def test_similarities_are_of_counts(molecules):
    some, others = molecules[:8], molecules[4:]
    counts = Counts.of(substructures(others))
    found = Counts.of(substructures(some), counts.vocabulary).similarities(counts)
    expected = [[min_max(a, b or Chem.Mol()) for b in others] for a in some]
    np.testing.assert_allclose(found, expected, atol=1e-7)
    assert found[4, 0] == 1


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("by_folds", [False, True])
def test_held_out_predictions_are_those_without_the_fold(
    molecules, weighted, by_folds, monkeypatch
):
    monkeypatch.setattr(fitting, "NOISES", (0.1,))
    random = np.random.default_rng(1)
    known = [one for one in molecules if one is not None]
    y, weights = random.normal(3, 2, len(known)), random.uniform(0.5, 2, len(known))
    weights = weights if weighted else np.ones(len(known))
    folds = random.integers(0, 4, len(known)) if by_folds else np.arange(len(known))
    labels, rows = y[:, None], np.ones(len(known), bool)
    own = folds if by_folds else None
    _, held_out = fit_kernel(substructures(known), labels, rows, weights, own, "regression", [0])
    counts = Counts.of(substructures(known))
    gram = counts.similarities(counts) + 1
    mean = np.average(y, weights=weights)
    for fold in np.unique(folds):
        left, out = folds != fold, folds == fold
        ridge = KernelRidge(alpha=0.1, kernel="precomputed")
        weight = (weights / weights.mean())[left]
        ridge.fit(gram[np.ix_(left, left)], y[left] - mean, sample_weight=weight)
        expected = ridge.predict(gram[np.ix_(out, left)]) + mean
        np.testing.assert_allclose(held_out[out, 0], expected, rtol=1e-5)


def test_new_molecules_are_predicted_as_by_scikit_learn(molecules, monkeypatch):
    monkeypatch.setattr(fitting, "NOISES", (0.1,))
    y = np.array([0.0 if one is None else one.GetNumAtoms() / 10 for one in molecules])
    rows = np.arange(len(molecules)) < 40
    of, same = substructures(molecules), np.ones(len(y))
    made, found = fit_kernel(of, y[:, None], rows, same, None, "regression", [0])
    gram = Counts.of(of).similarities(Counts.of(of)) + 1
    ridge = KernelRidge(alpha=0.1, kernel="precomputed")
    ridge.fit(gram[np.ix_(rows, rows)], y[rows] - y[rows].mean())
    expected = ridge.predict(gram[:, rows]) + y[rows].mean()
    np.testing.assert_allclose(made.predict(of)[:, 0], expected, rtol=1e-5)
    np.testing.assert_allclose(found[~rows, 0], expected[~rows], rtol=1e-5)


def test_the_noise_is_that_of_the_least_held_out_error():
    random = np.random.default_rng(0)
    features = random.normal(size=(50, 3))
    features -= features.mean(axis=0)
    y = features @ [1.0, 2.0, 3.0] + random.normal(size=50) / 10
    beta, _, _ = fit_ridge(features, y, np.ones(50))
    np.testing.assert_allclose(beta, [1, 2, 3], atol=0.2)
    beta, constant, held_out = fit_ridge(features, random.normal(size=50), np.ones(50))
    assert abs(beta).max() < 0.5
    assert abs(held_out - constant).max() < 1


def test_both_ways_to_leave_a_fold_out_agree():
    random = np.random.default_rng(0)
    features, y, weights = random.normal(size=(60, 8)), random.normal(size=60), np.ones(60)
    wide = np.hstack([features, np.zeros((60, 40))])  # more columns than a fold has rows
    folds = np.arange(60) % 3
    _, _, small = fit_ridge(features, y, weights, folds)
    _, _, large = fit_ridge(wide, y, weights, folds)
    np.testing.assert_allclose(small, large, rtol=1e-9)


def test_classes_with_gaps_landmarks_and_a_file(molecules, tmp_path, monkeypatch):
    monkeypatch.setattr(fitting, "LANDMARKS", 30)
    size = np.array([0 if one is None else one.GetNumAtoms() for one in molecules])
    labels = np.stack([size > np.median(size), size % 2, np.full(len(size), np.nan)], axis=1)
    labels = labels.astype(float)
    labels[::5, 0] = np.nan
    rows, folds = np.ones(len(size), bool), np.arange(len(size)) % 3
    of, same = substructures(molecules), np.ones(len(size))
    made, found = fit_kernel(of, labels, rows, same, folds, "binary", [0, 1])
    known = ~np.isnan(labels[:, 0])
    assert roc_auc_score(labels[known, 0], found[known, 0]) > 0.7
    assert ((found[:, :2] > 0) & (found[:, :2] < 1)).all()
    assert np.isnan(found[:, 2]).all()
    assert len(made.alpha) == int(30 / 2 ** (1 / 3))
    torch.save(made.to_plain(), tmp_path / "a")
    again = Kernel.from_plain(torch.load(tmp_path / "a", weights_only=True), 3)
    np.testing.assert_array_equal(again.predict(of), made.predict(of))
    plain = made.to_plain()
    for wrong in ({"alpha": plain["alpha"][:2]}, {"alpha": plain["alpha"][:, :2]}, {"kinds": []}):
        with pytest.raises(ValueError, match="fit"):
            Kernel.from_plain(plain | wrong, 3)
    plain["kinds"][0]["columns"][3] = 10**6
    with pytest.raises(ValueError, match="ind"):
        Kernel.from_plain(plain, 3)
    noise = np.random.default_rng(3).permutation(np.arange(len(size)) % 2.0)[:, None]
    assert roc_auc_score(noise, fit_kernel(of, noise, rows, same, None, "binary", [0])[1]) < 0.5


def test_equal_molecules_have_a_fit(molecules):
    many = [molecules[0]] * 40 + molecules
    labels = np.arange(len(many), dtype=float)[:, None]
    rows, weights = np.ones(len(many), bool), np.ones(len(many))
    of = substructures(many)
    made, found = fit_kernel(of, labels, rows, weights, None, "regression", [0])
    assert np.isfinite(found).all()
    assert np.ptp(made.predict(of)[:40]) < 1e-6
