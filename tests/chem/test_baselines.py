"""The simple models: the same as scikit-learn's one by one, once for all targets, and bounded."""

from __future__ import annotations

import csv
import gzip
import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score

from graphormer_sepnorm.chem import baselines
from graphormer_sepnorm.chem.baselines import PENALTIES, Baselines, fit_baselines
from graphormer_sepnorm.chem.fingerprints import morgan_fingerprints
from graphormer_sepnorm.resources import sample_path

SPLITS = ("train", "validation", "test")
CHAINS = ["C" * length for length in range(3, 23)]
OXYGEN = {
    "train": CHAINS + [chain + "O" for chain in CHAINS],
    "validation": ["CC(C)CC", "CC(C)CCCO"],
    "test": ["CC(C)CCC", "CC(C)CCO", "CCC(C)CCCCO", "CCCC(C)C"],
}


def has_oxygen(scale: float = 1.0) -> dict[str, np.ndarray]:
    return {
        split: np.array([[scale * ("O" in text)] for text in members])
        for split, members in OXYGEN.items()
    }


def sample(molecules: int, targets: int, gaps: float) -> tuple[dict, dict]:
    """Molecules of the sample with made-up targets, of which a share of the labels is missing."""
    with gzip.open(sample_path(), "rt") as file:
        smiles = [row["smiles"] for row in csv.DictReader(file)][:molecules]
    random = np.random.default_rng(0)
    counted = np.array([[text.count(c) for c in "cNOCl=("] for text in smiles], float)
    values = counted @ random.normal(size=(counted.shape[1], targets))
    values += random.normal(size=values.shape)
    values[random.random(values.shape) < gaps] = np.nan
    ends = {"train": (0, 0.7), "validation": (0.7, 0.85), "test": (0.85, 1)}
    parts = {split: slice(*(int(end * molecules) for end in both)) for split, both in ends.items()}
    return (
        {split: smiles[part] for split, part in parts.items()},
        {split: values[part] for split, part in parts.items()},
    )


def one_by_one(smiles: dict, targets: dict, target: int, counts: bool) -> dict[str, tuple]:
    """Features and labels of each split for one target, in float64."""
    found = {}
    for split in SPLITS:
        known = ~np.isnan(targets[split][:, target])
        texts = [text for text, there in zip(smiles[split], known, strict=True) if there]
        features = morgan_fingerprints(texts, counts=counts).toarray()
        found[split] = features, targets[split][known, target]
    return found


# More features than molecules, and more molecules than features, which short words have.
@pytest.mark.parametrize(("words", "gaps"), [(False, 0.0), (False, 0.3), (True, 0.1)])
def test_ridge_is_that_of_scikit_learn_for_each_target(words: bool, gaps: float) -> None:
    smiles, targets = sample(400 if words else 120, 3, gaps)
    if words:
        random = np.random.default_rng(1)
        smiles = {
            split: ["".join(random.choice(list("CNO"), 3)) for _ in texts]
            for split, texts in smiles.items()
        }
    found = fit_baselines(smiles, targets, "regression").scores
    for target in range(3):
        data = one_by_one(smiles, targets, target, counts=True)
        mean = data["train"][1].mean()
        models = [Ridge(alpha=penalty).fit(*data["train"]) for penalty in PENALTIES]
        errors = {
            split: [
                np.abs(model.predict(data[split][0]) - data[split][1]).mean() for model in models
            ]
            for split in ("validation", "test")
        }
        best = int(np.argmin(errors["validation"]))
        for split in ("validation", "test"):
            ridge, constant = (getattr(found[name], split)[target] for name in ("ridge", "mean"))
            assert ridge == pytest.approx(errors[split][best], rel=1e-8)
            assert constant == pytest.approx(np.abs(data[split][1] - mean).mean())


def test_logistic_regression_is_that_of_scikit_learn_for_each_target() -> None:
    smiles, targets = sample(200, 2, 0.2)
    targets = {
        split: np.where(np.isnan(values), np.nan, values > 0) for split, values in targets.items()
    }
    found = fit_baselines(smiles, targets, "binary").scores["logistic"]
    for target in range(2):
        data = one_by_one(smiles, targets, target, counts=False)
        areas = [
            [
                roc_auc_score(data[split][1], model.decision_function(data[split][0]))
                for split in SPLITS[1:]
            ]
            for penalty in PENALTIES
            for model in [LogisticRegression(C=1 / penalty, max_iter=1000).fit(*data["train"])]
        ]
        validation, test = max(areas, key=lambda pair: pair[0])
        assert found.validation[target] == pytest.approx(validation, abs=1e-9)
        assert found.test[target] == pytest.approx(test, abs=1e-9)


def test_baselines_on_a_linear_target() -> None:
    """A target that counts a group is found by the ridge, and the mean is what it is."""
    scores = fit_baselines(OXYGEN, has_oxygen(10.0), "regression").scores
    assert scores["mean"].test == pytest.approx([5.0])
    assert scores["ridge"].test[0] < 1.0


def test_logistic_baseline_finds_a_group_and_needs_both_classes() -> None:
    targets = has_oxygen()

    def area(test: np.ndarray) -> float:
        return fit_baselines(OXYGEN, targets | {"test": test}, "binary").scores["logistic"].test[0]

    assert area(targets["test"]) == 1.0
    assert area(1 - targets["test"]) == 0.0
    assert np.isnan(area(np.zeros((4, 1))))


def test_fingerprints_are_made_once_and_targets_with_the_same_molecules_share_a_factorisation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, factorised = [], []
    fingerprints, factorise = baselines.morgan_fingerprints, baselines.cho_factor

    def noted(smiles: list[str], **options: object) -> object:
        made.append(len(smiles))
        return fingerprints(smiles, **options)  # type: ignore[arg-type]

    def counted(matrix: np.ndarray, **options: object) -> object:
        factorised.append(len(matrix))
        return factorise(matrix, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(baselines, "morgan_fingerprints", noted)
    monkeypatch.setattr(baselines, "cho_factor", counted)
    smiles, targets = sample(60, 7, 0.0)
    targets["train"][:5, 3] = np.nan
    fit_baselines(smiles, targets, "regression")
    assert made == [len(smiles[split]) for split in SPLITS]
    assert factorised == [42] * len(PENALTIES) + [37] * len(PENALTIES)


def test_nothing_is_warned_of() -> None:
    """Copies of a few molecules: in float32 the matrix of the smallest penalty is singular."""
    random = np.random.default_rng(0)
    smiles = {"train": ["C" * (1 + n % 30) + "O" for n in range(3000)], "validation": ["CCO"]}
    smiles["test"] = ["CCCO"]
    targets = {split: random.normal(size=(len(texts), 1)) for split, texts in smiles.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit_baselines(smiles, targets, "regression")


def test_logistic_regression_that_does_not_converge_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert fit_baselines(OXYGEN, has_oxygen(), "binary").unconverged == 0
    monkeypatch.setattr(baselines, "_ITERATIONS", 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fit_baselines(OXYGEN, has_oxygen(), "binary").unconverged == 1


def bounded(monkeypatch: pytest.MonkeyPatch, limit: str, most: int, gaps: float) -> Baselines:
    monkeypatch.setattr(baselines, limit, most)
    return fit_baselines(*sample(100, 4, gaps), "regression")


def test_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        drawn = bounded(patch, "MOST_MOLECULES", 20, 0.0)
        again = bounded(patch, "MOST_MOLECULES", 20, 0.0)
    assert drawn.molecules == {"train": (20, 70), "validation": (15, 15), "test": (15, 15)}
    assert drawn.targets == 4
    np.testing.assert_array_equal(drawn.scores["ridge"].test, again.scores["ridge"].test)
    for limit, most, gaps, left in (
        ("MOST_LABELS", 3 * 70, 0.0, 3),
        ("MOST_LABELS", 1, 0.0, 1),  # one always is
        ("MOST_SETS", 2, 0.2, 2),
        ("MOST_SETS", 2, 0.0, 4),  # one set
    ):
        with monkeypatch.context() as patch:
            found = bounded(patch, limit, most, gaps)
        assert found.targets == left
        assert np.isfinite(found.scores["ridge"].test).tolist() == [n < left for n in range(4)]


def test_it_says_how_far_it_is() -> None:
    told: list[tuple[str, int, int]] = []
    fit_baselines(OXYGEN, has_oxygen(), "regression", lambda *what: told.append(what))
    assert told == [*(("fingerprints", n, 46) for n in range(1, 47)), ("ridge", 0, 1)]
