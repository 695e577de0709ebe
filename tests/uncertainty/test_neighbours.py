"""The sketch of training molecules and the border of the domain, against RDKit and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from rdkit import Chem, DataStructs
from rdkit.Chem import rdFingerprintGenerator
from reference.confidence import TRAINED, fingerprints

from graphormer_sepnorm.uncertainty import neighbours
from graphormer_sepnorm.uncertainty.calibration import entropy, log_loss
from graphormer_sepnorm.uncertainty.domain import Domain, Nearest, Neighbors, drawn, mean_errors

NEW = ["CCCCO", "c1ccccc1CCO", "[Na+]", "CC(C)(C)c1ccncc1", "OCCO"]


def tanimoto(first: str, others: list[str]) -> np.ndarray:
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    made = [generator.GetFingerprint(Chem.MolFromSmiles(text)) for text in (first, *others)]
    return np.array(DataStructs.BulkTanimotoSimilarity(made[0], made[1:]))


def test_the_nearest_are_those_of_rdkit() -> None:
    found = Neighbors.of(fingerprints(TRAINED), np.arange(len(TRAINED))).nearest(
        fingerprints(NEW), 3
    )
    for text, similarity, rows in zip(NEW, *found, strict=True):
        every = tanimoto(text, TRAINED)
        np.testing.assert_allclose(similarity, np.sort(every)[::-1][:3], rtol=1e-6)
        np.testing.assert_allclose(every[rows], similarity, rtol=1e-6)
    assert found.similarity[0, 0] == 1


def test_company_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    sketch = Neighbors.of(fingerprints(TRAINED), np.arange(len(TRAINED)))
    together = sketch.nearest(fingerprints(NEW), 4)
    monkeypatch.setattr(neighbours, "_AT_ONCE", 2)
    for both in zip(together, sketch.nearest(fingerprints(NEW), 4), strict=True):
        np.testing.assert_array_equal(*both)
    alone = sketch.nearest(fingerprints(NEW[3:4]), 4)
    np.testing.assert_array_equal(alone.rows[0], together.rows[3])


def test_molecules_of_the_same_fold_are_no_neighbours() -> None:
    folds = np.arange(len(TRAINED)) % 3
    sketch = Neighbors.of(fingerprints(TRAINED), np.arange(len(TRAINED)))
    found = sketch.nearest(fingerprints(TRAINED), 2, folds, folds)
    assert (folds[found.rows] != folds[:, None]).all()
    for number, text in enumerate(TRAINED):
        others = [one for one, fold in zip(TRAINED, folds, strict=True) if fold != folds[number]]
        assert found.similarity[number, 0] == pytest.approx(tanimoto(text, others).max())


def test_of_those_that_are_as_similar_the_first_come_first() -> None:
    smiles = ["CCO", "CCN", "CCO", "CCO", "CCCO", "CCO"]
    sketch = Neighbors.of(fingerprints(smiles), np.arange(len(smiles)))
    for count in range(1, 7):
        found = sketch.nearest(fingerprints(["CCO"]), count)
        assert found.rows[0].tolist() == [0, 2, 3, 5, 4, 1][:count]
        assert found.similarity[0, 0] == 1


def test_of_many_molecules_some_are_taken_always_the_same() -> None:
    np.testing.assert_array_equal(drawn(12, 12), np.arange(12))
    some = drawn(34, 10)
    assert len(np.unique(some)) == 10
    np.testing.assert_array_equal(some, np.sort(drawn(34, 10)))
    kept = [TRAINED[number] for number in some]
    sketch = Neighbors.of(fingerprints(kept), some, kept)
    assert sketch.nearest(fingerprints([kept[7]]), 20).rows.shape == (1, 10)
    assert sketch.numbers[sketch.nearest(fingerprints([kept[7]]), 1).rows[0, 0]] == some[7]


@pytest.mark.parametrize("kept", ["nothing", "smiles", "labels"])
def test_all_goes_through_a_file(kept: str) -> None:
    labels = np.random.default_rng(0).random((len(TRAINED), 2)) if kept == "labels" else None
    smiles = [] if kept == "nothing" else TRAINED
    numbers = 3 * np.arange(len(TRAINED)) + 70_000
    sketch = Neighbors.of(fingerprints(TRAINED), numbers, smiles, labels)
    plain = sketch.to_plain()
    assert ("smiles" in plain, "labels" in plain) == (kept != "nothing", kept == "labels")
    again = Neighbors.from_plain(plain)
    assert again.smiles == sketch.smiles
    np.testing.assert_array_equal(again.numbers, numbers)
    if labels is not None:
        np.testing.assert_array_equal(again.labels, labels)
    for found, expected in zip(
        again.nearest(fingerprints(NEW), 3), sketch.nearest(fingerprints(NEW), 3), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def test_errors_of_neighbours_count_by_similarity_and_of_nothing_similar_the_mean_does() -> None:
    errors = np.array([1.0, 5.0, np.nan, 3.0])
    nearest = Nearest(
        np.array([[1.0, 0.5, 0.9], [0.0, 0.0, -1.0]]), np.array([[0, 1, 2], [0, 3, 1]])
    )
    mean = 3.0  # of 1, 5 and 3
    by_hand = (1.0 * 1 + 0.125 * 5 + 0.1 * mean) / (1 + 0.125 + 0.1)
    np.testing.assert_allclose(mean_errors(nearest, errors), [by_hand, mean])


def test_the_border_is_where_errors_become_large() -> None:
    similarity = np.linspace(0, 1, 1000)
    errors = np.where(similarity < 0.19, 4.0, 1.0)
    domain = Domain.fit(similarity, errors)
    assert domain.border == 0.3  # at 0.35 they are 1.5 times as large, and more than a third
    outside = similarity < 0.3
    assert domain.larger == pytest.approx(errors[outside].mean() / errors.mean(), abs=0.01)
    assert domain.molecules == outside.sum()
    assert domain.said(0.45) == ""
    assert f"below 0.30: errors were {domain.larger:.1f} times the usual" in domain.said(0.2)


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
    assert "its [CLS] is 3.4 times as far" in domain.said(0.6, 3.4)
    assert domain.said(0.6, 2.7) == ""
    assert domain.said(0.1, 3.4).endswith(f"; {domain.said(0.6, 3.4)}")
    assert Domain.fit(similarity, np.ones(1000), distance).furthest is None
    np.testing.assert_array_equal(domain.outside(similarity, None), False)


def test_where_errors_do_not_grow_only_the_untried_is_outside() -> None:
    similarity = np.linspace(0.2, 1, 1001)
    domain = Domain.fit(similarity, np.ones(1001))
    assert (domain.border, domain.larger) == (pytest.approx(0.208), 0)
    assert domain.said(0.1).endswith(
        "below 0.21: nearly all that the model was tried on are above it"
    )
    assert domain.rule == "similarity to training molecules below 0.208"


def test_few_molecules_give_no_border() -> None:
    domain = Domain.fit(np.linspace(0, 1, 19), np.ones(19), np.ones(19))
    assert (domain.border, domain.furthest, domain.rule) == (0, None, "")
    assert domain.said(0.0, 9.0) == ""


def test_what_has_the_similarity_of_the_border_is_inside() -> None:
    similarity = np.full(100, 2 / 3)
    domain = Domain.fit(similarity, np.ones(100))
    assert domain.border == 0.666
    assert not domain.outside(similarity, None).any()


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
            said = 1 / (1 + np.exp(4 - random.standard_normal(count)))
            expected = entropy(said)
            errors = log_loss(said, (random.random(count) < said).astype(float))
        domain = Domain.fit(similarity, errors, distance, expected)
        with_border += bool(domain.larger or domain.larger_beyond)
    assert with_border <= 5


def test_what_probabilities_expect_of_themselves_is_no_reason_for_a_border() -> None:
    """They are less sure of what is less similar, and right about that; then they are too sure."""
    random = np.random.default_rng(0)
    similarity = random.random(3000)
    said = np.where(similarity < 0.3, 0.5, 0.05)
    labels = (random.random(3000) < said).astype(float)
    right = Domain.fit(similarity, log_loss(said, labels), None, entropy(said))
    assert right.larger == 0
    said = np.where(similarity < 0.3, 0.05, 0.05)
    wrong = Domain.fit(similarity, log_loss(said, labels), None, entropy(said))
    assert wrong.border >= 0.3
    assert wrong.larger > 1.5


def test_a_border_is_found_where_errors_are_twice_as_large() -> None:
    found = 0
    for seed in range(20):
        random = np.random.default_rng(seed)
        similarity = random.beta(4, 5, 500)
        errors = np.abs(random.standard_normal(500)) * np.where(similarity < 0.3, 2.2, 1)
        found += Domain.fit(similarity, errors).larger > 0
    assert found >= 18
