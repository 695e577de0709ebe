"""The sketch of training molecules and the border of the domain, against RDKit and by hand."""

import numpy as np
import pytest
from rdkit import Chem, DataStructs
from rdkit.Chem import rdFingerprintGenerator
from reference.confidence import TRAINED, fingerprints, sketch_of

from graphormer_sepnorm.uncertainty import domain
from graphormer_sepnorm.uncertainty.calibration import entropy, log_loss
from graphormer_sepnorm.uncertainty.domain import Domain, Nearest, Neighbors, sampled

NEW = ["CCCCO", "c1ccccc1CCO", "[Na+]", "CC(C)(C)c1ccncc1", "OCCO"]


def tanimoto(first: str, others: list[str]) -> np.ndarray:
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    made = [generator.GetFingerprint(Chem.MolFromSmiles(text)) for text in (first, *others)]
    return np.array(DataStructs.BulkTanimotoSimilarity(made[0], made[1:]))


def test_the_nearest_are_those_of_rdkit(monkeypatch: pytest.MonkeyPatch) -> None:
    found = sketch_of(TRAINED).nearest(fingerprints(NEW), 3)
    for text, similarity, rows in zip(NEW, *found, strict=True):
        every = tanimoto(text, TRAINED)
        np.testing.assert_allclose(similarity, np.sort(every)[::-1][:3], rtol=1e-6)
        np.testing.assert_allclose(every[rows], similarity, rtol=1e-6)
    # Nor does it matter how many are compared at once.
    monkeypatch.setattr(domain, "_AT_ONCE", 2)
    for both in zip(found, sketch_of(TRAINED).nearest(fingerprints(NEW), 3), strict=True):
        np.testing.assert_array_equal(*both)


def test_molecules_of_the_same_fold_are_no_neighbors() -> None:
    folds = np.arange(len(TRAINED)) % 3
    found = sketch_of(TRAINED).nearest(fingerprints(TRAINED), 2, folds, folds)
    assert (folds[found.rows] != folds[:, None]).all()
    for index, text in enumerate(TRAINED):
        others = [one for one, fold in zip(TRAINED, folds, strict=True) if fold != folds[index]]
        assert found.similarity[index, 0] == pytest.approx(tanimoto(text, others).max())


def test_of_those_that_are_as_similar_the_first_come_first() -> None:
    sketch = sketch_of(["CCO", "CCN", "CCO", "CCO", "CCCO", "CCO"])
    for count in range(1, 7):
        found = sketch.nearest(fingerprints(["CCO"]), count)
        assert found.rows[0].tolist() == [0, 2, 3, 5, 4, 1][:count]
        assert found.similarity[0, 0] == 1


def test_of_many_molecules_some_are_taken_always_the_same() -> None:
    np.testing.assert_array_equal(sampled(12, 12), np.arange(12))
    some = sampled(34, 10)
    assert len(np.unique(some)) == 10
    np.testing.assert_array_equal(some, np.sort(sampled(34, 10)))
    stored = [TRAINED[index] for index in some]
    found = Neighbors.of(fingerprints(stored), some, stored).nearest(fingerprints([stored[7]]), 20)
    assert found.rows.shape == (1, 10)
    assert found.rows[0, 0] == 7


def test_errors_of_neighbors_count_by_similarity_and_of_nothing_similar_the_mean_does() -> None:
    errors = np.array([1.0, 5.0, np.nan, 3.0])
    nearest = Nearest(
        np.array([[1.0, 0.5, 0.9], [0.0, 0.0, -1.0]]), np.array([[0, 1, 2], [0, 3, 1]])
    )
    mean = 3.0  # of 1, 5 and 3
    by_hand = (1.0 * 1 + 0.125 * 5 + 0.1 * mean) / (1 + 0.125 + 0.1)
    np.testing.assert_allclose(nearest.mean_errors(errors), [by_hand, mean])


def test_the_border_is_where_errors_become_large() -> None:
    similarity = np.linspace(0, 1, 1000)
    errors = np.where(similarity < 0.19, 4.0, 1.0)
    domain = Domain.fit(similarity, errors)
    assert domain.border == 0.3  # at 0.35 they are 1.5 times as large, and more than a third
    outside = similarity < 0.3
    assert domain.larger == pytest.approx(errors[outside].mean() / errors.mean(), abs=0.01)
    assert domain.molecules == outside.sum()
    inside, why = domain.reasons(np.array([0.45, 0.2]), None)
    assert inside == ""
    assert f"below 0.300: errors were {domain.larger:.1f} times the usual" in why


def test_the_distance_of_cls_has_a_border_of_its_own() -> None:
    distance = np.linspace(0, 4, 1000)
    similarity = np.tile([0.5, 0.6], 500)
    errors = np.where(distance > 3, 4.0, 1.0)
    domain = Domain.fit(similarity, errors, distance)
    beyond = distance > 2.7  # the first that a third at most is beyond
    assert domain.furthest == 2.7
    assert domain.larger_beyond == pytest.approx(errors[beyond].mean() / errors.mean(), abs=0.01)
    assert domain.molecules == beyond.sum()
    np.testing.assert_array_equal(domain.outside(similarity, distance), beyond)
    why = domain.reasons(np.array([0.6, 0.6, 0.1]), np.array([3.4, 2.7, 3.4]))
    assert "its [CLS] is 3.40 times as far" in why[0]
    assert why[1] == ""
    assert why[2].endswith(f"; {why[0]}")
    assert Domain.fit(similarity, np.ones(1000), distance).furthest is None
    np.testing.assert_array_equal(domain.outside(similarity, None), False)


def test_where_errors_do_not_grow_only_the_untried_is_outside() -> None:
    domain = Domain.fit(np.linspace(0.2, 1, 1001), np.ones(1001))
    assert (domain.border, domain.larger) == (pytest.approx(0.208), 0)
    [why] = domain.reasons(np.array([0.1]), None)
    assert why.endswith("below 0.208: nearly all molecules that it was evaluated on are above it")
    assert domain.rule == "similarity to training molecules below 0.208"
    # What has exactly the similarity of the border is inside.
    similarity = np.full(100, 2 / 3)
    domain = Domain.fit(similarity, np.ones(100))
    assert domain.border == 0.666
    assert not domain.outside(similarity, None).any()


def test_few_molecules_give_no_border() -> None:
    domain = Domain.fit(np.linspace(0, 1, 19), np.ones(19), np.ones(19))
    assert (domain.border, domain.furthest, domain.rule) == (0, None, "")
    assert domain.reasons(np.zeros(1), np.full(1, 9.0)) == [""]


@pytest.mark.parametrize("kind", ["classes", "values"])
def test_errors_that_depend_on_nothing_have_no_border(kind: str) -> None:
    """Of class 1 are 3.5 % of the molecules: one in twenty models may have a border by chance."""
    with_border = 0
    for seed in range(100):
        random = np.random.default_rng(seed)
        count = (200, 600, 2000, 5000)[seed % 4]
        similarity, distance = random.beta(4, 5, count), random.lognormal(0, 0.4, count)
        errors, expected = random.lognormal(0, 1.2, count), None
        if kind == "classes":
            values = 1 / (1 + np.exp(4 - random.standard_normal(count)))
            expected = entropy(values)
            errors = log_loss(values, (random.random(count) < values).astype(float))
        domain = Domain.fit(similarity, errors, distance, expected)
        with_border += bool(domain.larger or domain.larger_beyond)
    assert with_border <= 5


def test_what_probabilities_expect_of_themselves_is_no_reason_for_a_border() -> None:
    """They are less certain of what is less similar, and right about that; then overconfident."""
    random = np.random.default_rng(0)
    similarity = random.random(3000)
    right, wrong = np.where(similarity < 0.3, 0.5, 0.05), np.full(3000, 0.05)
    labels = (random.random(3000) < right).astype(float)
    assert Domain.fit(similarity, log_loss(right, labels), None, entropy(right)).larger == 0
    found = Domain.fit(similarity, log_loss(wrong, labels), None, entropy(wrong))
    assert found.border >= 0.3
    assert found.larger > 1.5
