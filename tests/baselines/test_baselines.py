"""The baselines: scikit-learn's on the same features, one target at a time, and bounded."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from reference.molecules import sample_rows
from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier

from graphormer_sepnorm.baselines import fit as baselines
from graphormer_sepnorm.baselines.features import FeatureColumns, RawFeatures, compute_features
from graphormer_sepnorm.baselines.fit import Baselines, Table, fit_baselines

SMILES = [smiles for smiles, _ in sample_rows(100)]
SPLIT = np.repeat([0, 1, 2], [70, 15, 15])
FOLDS = np.arange(85) % 3


@cache
def computed(smiles: tuple[str, ...]) -> RawFeatures:
    """Descriptors take longer than all trees."""
    return compute_features(smiles)


@pytest.fixture(autouse=True)
def _few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "compute_features", lambda smiles: computed(tuple(smiles)))
    for kind in ("regression", "binary"):
        monkeypatch.setitem(baselines.BOOSTED, kind, 12)
        monkeypatch.setitem(baselines.FOREST, kind, 7)


def made(targets: int, binary: bool = False, **more: Any) -> Table:
    """Molecules of the sample with made-up targets."""
    random = np.random.default_rng(0)
    counted = np.array([[text.count(c) for c in "cNOCl=("] for text in SMILES], float)
    values = counted @ random.normal(size=(counted.shape[1], targets))
    values += random.normal(size=values.shape)
    values = (values > np.median(values)).astype(float) if binary else values
    return Table(SMILES, SPLIT, values, **more)


def features_of(rows: Sequence[int] | np.ndarray, smiles: Sequence[str] = SMILES) -> np.ndarray:
    """Features of all molecules, those that training knows in some rows of them."""
    raw = computed(tuple(smiles))
    return FeatureColumns.fit(raw.take(np.asarray(rows))).of(raw)


def mean_of_three(
    x: np.ndarray, y: np.ndarray, weight: np.ndarray | None = None
) -> Callable[[np.ndarray], np.ndarray]:
    """The mean prediction of three boostings of scikit-learn."""
    options = {"n_estimators": 12, "learning_rate": 0.05, "max_depth": 5, "subsample": 0.5}
    options |= {"max_features": max(16, round(0.01 * x.shape[1])), "min_samples_leaf": 3}
    three = [GradientBoostingRegressor(**options, random_state=state) for state in range(3)]
    models = [model.fit(x, y, weight) for model in three]
    return lambda test: np.mean([model.predict(test) for model in models], axis=0)


def test_boosting_of_each_target_is_that_of_scikit_learn() -> None:
    table = made(2)
    table.labels[:70:5, 1] = np.nan
    found = fit_baselines(table, "regression")
    assert list(found.predictions) == ["mean", "forest", "boosting", "kernel"]
    x = features_of(range(70))
    for target in range(2):
        y = table.labels[:70, target]
        known = ~np.isnan(y)
        predict = mean_of_three(x[:70][known], (y[known] - y[known].mean()) / y[known].std())
        for split, part in (("validation", slice(70, 85)), ("test", slice(85, 100))):
            expected = predict(x[part]) * y[known].std() + y[known].mean()
            own = found.predictions["boosting"][split][:, target]
            np.testing.assert_allclose(own, expected, rtol=1e-12)
            assert found.predictions["mean"][split][:, target] == pytest.approx(y[known].mean())


@pytest.mark.parametrize("folds", [None, FOLDS])
def test_bounds_are_learned_as_labels_and_are_not_evaluated_by(folds: np.ndarray | None) -> None:
    whole = made(1, folds=folds)
    bounds, labels = np.full_like(whole.labels, np.nan), whole.labels.copy()
    bounds[::4], labels[::4] = whole.labels[::4], np.nan
    censored = dataclasses.replace(whole, labels=labels, bounds=bounds)
    of_labels, found = (
        fit_baselines(one, "regression", models=["boosting"]) for one in (whole, censored)
    )
    for split in ("validation", "test"):
        ours = found.predictions["boosting"][split]
        np.testing.assert_array_equal(ours, of_labels.predictions["boosting"][split])
        assert len(ours) == len(found.labels[split])
        assert np.isnan(found.labels[split]).mean() > 0.1
    mean = fit_baselines(censored, "regression", models=["mean"]).predictions["mean"]["test"]
    assert mean == pytest.approx(np.nanmean(labels[: 70 if folds is None else 85]))


@pytest.mark.parametrize("folds", [None, FOLDS])
def test_weights_weight_what_is_fitted(folds: np.ndarray | None) -> None:
    weights = np.random.default_rng(1).integers(0, 3, 100) * 1.0
    table = made(1, weights=weights, folds=folds)
    found = fit_baselines(table, "regression")
    fitted_on = slice(70 if folds is None else 85)
    y, weight = table.labels[fitted_on, 0], weights[fitted_on]
    own = weight > 0
    x = features_of(np.flatnonzero(own))
    often = np.repeat(y, weight.astype(int))  # a weight of 2 is a row that is there twice
    np.testing.assert_allclose(found.predictions["mean"]["test"], often.mean())
    # To the last bit, since trees have ties: only then the same ones grow.
    share = weight[own] / weight[own].mean()
    mean = np.average(y[own], weights=share)
    std = np.sqrt(np.average((y[own] - mean) ** 2, weights=share))
    np.testing.assert_allclose((mean, std), (often.mean(), often.std()))
    predict = mean_of_three(x[fitted_on][own], (y[own] - mean) / std, share)
    expected = predict(x[85:]) * std + mean
    np.testing.assert_allclose(found.predictions["boosting"]["test"][:, 0], expected, rtol=1e-9)
    # What weighs nothing may be anything.
    absurd = table.labels.copy()
    absurd[fitted_on][~own] = 1e6
    other = fit_baselines(dataclasses.replace(table, labels=absurd), "regression")
    for name, predictions in found.predictions.items():
        for split, values in predictions.items():
            np.testing.assert_array_equal(other.predictions[name][split], values)
    if folds is not None:  # nor is it evaluated by
        assert found.rows["validation"].tolist() == np.flatnonzero(own).tolist()
        np.testing.assert_array_equal(found.labels["validation"][:, 0], y[own])


def test_with_folds_molecules_are_predicted_by_models_that_have_not_seen_them() -> None:
    table = made(1, binary=True, folds=FOLDS)
    table.labels[73] = np.nan  # has no label: neither trained on nor predicted
    found = fit_baselines(table, "binary")
    assert list(found.predictions) == ["forest", "boosting", "kernel"]
    labeled = np.delete(np.arange(85), 73)
    np.testing.assert_array_equal(found.rows["validation"], labeled)
    y = table.labels[labeled, 0]
    np.testing.assert_array_equal(found.labels["validation"][:, 0], y)
    x = features_of(range(84), [*np.delete(SMILES, 73)])
    forest = RandomForestClassifier(7, min_samples_leaf=2, random_state=0)
    expected = forest.fit(x[:84], y).predict_proba(x[84:])[:, 1]
    np.testing.assert_allclose(found.predictions["forest"]["test"][:, 0], expected, rtol=1e-12)
    for fold in range(3):
        own = FOLDS[labeled] == fold
        expected = forest.fit(x[:84][~own], y[~own]).predict_proba(x[:84][own])[:, 1]
        values = found.predictions["forest"]["validation"][own, 0]
        np.testing.assert_allclose(values, expected, rtol=1e-12)
    assert np.isfinite(found.predictions["boosting"]["validation"]).all()


# One fold would give nothing to fit intervals on and to evaluate them by.
@pytest.mark.parametrize(("enough", "folds"), [(40, 3), (1, 2), (2000, 5)])
def test_folds_are_held_out_until_enough_is_known(enough: int, folds: int, monkeypatch) -> None:
    fits, real = [], baselines._made
    monkeypatch.setattr(baselines, "_made", lambda *of: fits.append(of[3]) or real(*of))
    monkeypatch.setattr(baselines, "ENOUGH_HELD_OUT", enough)
    table = made(1, folds=np.arange(85) % 5)
    found = fit_baselines(table, "regression", models=["boosting"])
    assert found.rows["validation"].tolist() == np.flatnonzero(np.arange(85) % 5 < folds).tolist()
    # On all, and once without each fold, side by side.
    assert sorted(fits, reverse=True) == [85, *[68] * folds]


def bounded(monkeypatch: pytest.MonkeyPatch, **limits: int) -> Baselines:
    for limit, most in limits.items():
        monkeypatch.setattr(baselines, limit, most)
    return fit_baselines(made(4), "regression")


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        ({"MOST_TARGETS": 2}, 2),
        ({"MOST_LABELS": 3 * 70}, 3),
        ({"MOST_LABELS": 2 * 30, "MOST_ROWS": 30}, 2),
        ({"MOST_LABELS": 1}, 1),  # one always is
    ],
)
def test_work_is_bounded(limits: dict[str, int], left: int, monkeypatch) -> None:
    found = bounded(monkeypatch, **limits)
    assert found.targets == left
    for name in ("mean", "boosting"):
        known = np.isfinite(found.predictions[name]["test"]).all(axis=0)
        assert known.tolist() == [target < left for target in range(4)]


def test_molecules_are_sampled_at_random_and_stay_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the first ones: a table may be sorted, by its labels too."""
    found = bounded(monkeypatch, MOST_MOLECULES=20)
    assert found.sampled == {"train": (20, 70), "validation": (15, 15), "test": (15, 15)}
    monkeypatch.setattr(baselines, "MOST_MOLECULES", 200)
    rows = np.arange(0, 3000, 3)
    drawn = baselines._sampled(rows)
    assert len(drawn) == 200
    assert (np.diff(drawn) > 0).all()
    assert set(drawn.tolist()) <= set(rows.tolist())
    assert abs(drawn.mean() - 1500) < 250  # four deviations of such a draw
    np.testing.assert_array_equal(baselines._sampled(rows), drawn)
    np.testing.assert_array_equal(baselines._sampled(rows[:200]), rows[:200])


def test_a_tree_is_grown_on_a_bounded_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    (boosted, *_) = bounded(monkeypatch, MOST_ROWS=14).boosted
    assert boosted is not None
    for booster in boosted.models:
        assert booster.subsample == 14 / 70
        assert {tree[0].tree_.n_node_samples[0] for tree in booster.estimators_} == {14}
