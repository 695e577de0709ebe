"""The simple models: scikit-learn's on the same features, one target at a time, and bounded."""

from __future__ import annotations

import csv
import gzip
import warnings
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
)

from graphormer_sepnorm.baselines import fit as baselines
from graphormer_sepnorm.baselines.features import FeatureColumns, RawFeatures, compute_features
from graphormer_sepnorm.baselines.fit import BaggedBoosting, Baselines, fit_baselines
from graphormer_sepnorm.resources import sample_path

SPLITS = ("train", "validation", "test")
with gzip.open(sample_path(), "rt") as file:
    SMILES = [row["smiles"] for row, _ in zip(csv.DictReader(file), range(100), strict=False)]
ENDS = {"train": slice(70), "validation": slice(70, 85), "test": slice(85, 100)}


@cache
def computed(smiles: tuple[str, ...]) -> RawFeatures:
    """Descriptors take longer than all trees."""
    return compute_features(smiles)


@pytest.fixture(autouse=True)
def _few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    def remembered(smiles: list[str], done: Callable[[int], None]) -> RawFeatures:
        done(len(smiles))
        return computed(tuple(smiles))

    monkeypatch.setattr(baselines, "compute_features", remembered)
    for kind in ("regression", "binary"):
        monkeypatch.setitem(baselines.BOOSTED, kind, 12)
        monkeypatch.setitem(baselines.FOREST, kind, 7)


def made(targets: int, binary: bool = False) -> tuple[dict, dict]:
    """Molecules of the sample with made-up targets."""
    random = np.random.default_rng(0)
    counted = np.array([[text.count(c) for c in "cNOCl=("] for text in SMILES], float)
    values = counted @ random.normal(size=(counted.shape[1], targets))
    values += random.normal(size=values.shape)
    values = (values > np.median(values)).astype(float) if binary else values
    return (
        {split: SMILES[part] for split, part in ENDS.items()},
        {split: values[part] for split, part in ENDS.items()},
    )


def features_of(
    smiles: dict[str, list[str]], fitted: str = "train", own: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    raw = {split: computed(tuple(some)) for split, some in smiles.items()}
    columns = FeatureColumns.fit(raw[fitted] if own is None else raw[fitted].take(own))
    return {split: columns.of(one) for split, one in raw.items()}


def mean_of_five(
    x: np.ndarray, y: np.ndarray, weight: np.ndarray | None = None
) -> Callable[[np.ndarray], np.ndarray]:
    """What five boostings of scikit-learn say in the mean."""
    models = [
        GradientBoostingRegressor(
            n_estimators=12,
            learning_rate=0.05,
            max_depth=5,
            subsample=0.5,
            max_features=max(16, round(0.03 * x.shape[1])),
            min_samples_leaf=3,
            random_state=state,
        ).fit(x, y, weight)
        for state in range(5)
    ]
    return lambda test: np.mean([model.predict(test) for model in models], axis=0)


def test_boosting_of_each_target_is_that_of_scikit_learn() -> None:
    smiles, targets = made(2)
    targets["train"][::5, 1] = np.nan
    found = fit_baselines(smiles, targets, "regression")
    assert list(found.predictions) == ["mean", "forest", "boosting"]
    x = features_of(smiles)
    for target in range(2):
        y = targets["train"][:, target]
        known = ~np.isnan(y)
        say = mean_of_five(x["train"][known], (y[known] - y[known].mean()) / y[known].std())
        for split in SPLITS[1:]:
            expected = say(x[split]) * y[known].std() + y[known].mean()
            own = found.predictions["boosting"][split][:, target]
            np.testing.assert_allclose(own, expected, rtol=1e-12)
            assert (found.predictions["mean"][split][:, target] == y[known].mean()).all()


@pytest.mark.parametrize("in_folds", [False, True])
def test_bounds_are_learned_as_labels_and_judge_nothing(in_folds: bool) -> None:
    smiles, targets = made(1)
    bounds = {split: np.full_like(targets[split], np.nan) for split in SPLITS}
    censored = {split: targets[split].copy() for split in SPLITS}
    for split in SPLITS:
        bounds[split][::4], censored[split][::4] = targets[split][::4], np.nan
    folds = np.arange(85) % 3 if in_folds else None
    options = {"folds": folds, "models": ["boosting"]}
    whole = fit_baselines(smiles, targets, "regression", **options)
    found = fit_baselines(smiles, censored, "regression", **options, bounds=bounds)
    for split in SPLITS[1:]:
        ours, theirs = found.predictions["boosting"][split], whole.predictions["boosting"][split]
        np.testing.assert_array_equal(ours, theirs)
        assert len(ours) == len(found.labels[split])
        assert np.isnan(found.labels[split]).mean() > 0.2
    assert np.isnan(whole.labels["test"]).sum() == 0
    mean = fit_baselines(
        smiles, censored, "regression", folds=folds, models=["mean"], bounds=bounds
    ).predictions["mean"]["test"]
    known = [censored["train"], censored["validation"]] if in_folds else [censored["train"]]
    assert mean == pytest.approx(np.nanmean(np.concatenate(known)))


@pytest.mark.parametrize("in_folds", [False, True])
def test_weights_weigh_what_is_fitted(in_folds: bool) -> None:
    smiles, targets = made(1)
    random = np.random.default_rng(1)
    weights = {split: random.integers(0, 3, len(targets[split])) * 1.0 for split in SPLITS}
    folds = np.arange(85) % 3 if in_folds else None
    found = fit_baselines(smiles, targets, "regression", folds=folds, weights=weights)
    fitted_on = SPLITS[:2] if in_folds else SPLITS[:1]
    pooled = {"pool": [one for split in fitted_on for one in smiles[split]]}
    y = np.concatenate([targets[split][:, 0] for split in fitted_on])
    weight = np.concatenate([weights[split] for split in fitted_on])
    own = weight > 0
    molecules = {**pooled, "test": smiles["test"]}
    pool, test = features_of(molecules, "pool", np.flatnonzero(own)).values()
    often = np.repeat(y, weight.astype(int))  # a weight of 2 is a row that is there twice
    np.testing.assert_allclose(found.predictions["mean"]["test"], often.mean())
    # To the last bit, since trees have ties: only then the same ones grow.
    share = weight[own] / weight[own].mean()
    mean = np.average(y[own], weights=share)
    std = np.sqrt(np.average((y[own] - mean) ** 2, weights=share))
    np.testing.assert_allclose((mean, std), (often.mean(), often.std()))
    expected = mean_of_five(pool[own], (y[own] - mean) / std, share)(test) * std + mean
    np.testing.assert_allclose(found.predictions["boosting"]["test"][:, 0], expected, rtol=1e-9)
    # What weighs nothing may be anything.
    absurd = {
        split: np.where(weights[split][:, None] > 0, targets[split], 1e6) for split in fitted_on
    }
    absurd |= {split: targets[split] for split in SPLITS if split not in fitted_on}
    other = fit_baselines(smiles, absurd, "regression", folds=folds, weights=weights)
    for name, predictions in found.predictions.items():
        for split in SPLITS[1:]:
            np.testing.assert_array_equal(other.predictions[name][split], predictions[split])
    if in_folds:  # nor does it judge
        assert found.rows["validation"].tolist() == np.flatnonzero(own).tolist()
        np.testing.assert_array_equal(found.labels["validation"][:, 0], y[own])


def test_several_boostings_of_classes_are_one_by_their_logits() -> None:
    random = np.random.default_rng(0)
    x, y = random.random((60, 4)), random.random(60) < 0.4
    options = {"n_estimators": 5, "subsample": 0.5}
    made = BaggedBoosting.fit(GradientBoostingClassifier(**options), 3, x, y, None)
    each = [
        GradientBoostingClassifier(**options, random_state=state).fit(x, y) for state in range(3)
    ]
    logits = np.mean([one.decision_function(x) for one in each], axis=0)
    np.testing.assert_allclose(made.predict(x), 1 / (1 + np.exp(-logits)), rtol=1e-9)


def test_forest_of_two_classes_is_that_of_scikit_learn() -> None:
    smiles, targets = made(1, binary=True)
    found = fit_baselines(smiles, targets, "binary")
    assert list(found.predictions) == ["forest", "boosting"]
    x = features_of(smiles)
    forest = RandomForestClassifier(7, min_samples_leaf=2, random_state=0)
    forest.fit(x["train"], targets["train"][:, 0])
    expected = forest.predict_proba(x["test"])[:, 1]
    np.testing.assert_allclose(found.predictions["forest"]["test"][:, 0], expected, rtol=1e-12)


def test_with_folds_what_is_held_out_is_said_by_models_that_have_not_seen_it() -> None:
    smiles, targets = made(1, binary=True)
    targets["validation"][3] = np.nan  # has no label: neither trained on nor predicted
    folds = np.arange(85) % 3
    found = fit_baselines(smiles, targets, "binary", folds=folds)
    labelled = np.delete(np.arange(85), 73)
    np.testing.assert_array_equal(found.rows["validation"], labelled)
    y = np.concatenate([targets["train"], targets["validation"]])[labelled, 0]
    np.testing.assert_array_equal(found.labels["validation"][:, 0], y)
    pooled = [(smiles["train"] + smiles["validation"])[row] for row in labelled]
    pool, test = features_of({"pool": pooled, "test": smiles["test"]}, "pool").values()
    forest = RandomForestClassifier(7, min_samples_leaf=2, random_state=0)
    expected = forest.fit(pool, y).predict_proba(test)[:, 1]
    np.testing.assert_allclose(found.predictions["forest"]["test"][:, 0], expected, rtol=1e-12)
    for fold in range(3):
        own = folds[labelled] == fold
        expected = forest.fit(pool[~own], y[~own]).predict_proba(pool[own])[:, 1]
        values = found.predictions["forest"]["validation"][own, 0]
        np.testing.assert_allclose(values, expected, rtol=1e-12)
    assert np.isfinite(found.predictions["boosting"]["validation"]).all()


def test_folds_are_held_out_until_enough_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "ENOUGH_HELD_OUT", 40)
    smiles, targets = made(1)
    folds = np.arange(85) % 5
    found = fit_baselines(smiles, targets, "regression", models=["boosting"], folds=folds)
    assert found.rows["validation"].tolist() == np.flatnonzero(folds < 3).tolist()
    assert len(found.predictions["boosting"]["validation"]) == 51
    # One fold would give nothing to fit intervals on and to judge them by.
    monkeypatch.setattr(baselines, "ENOUGH_HELD_OUT", 1)
    found = fit_baselines(smiles, targets, "regression", models=["boosting"], folds=folds)
    assert found.rows["validation"].tolist() == np.flatnonzero(folds < 2).tolist()


def test_a_model_is_fitted_on_all_and_once_without_each_fold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made_of, real = [], baselines._made
    monkeypatch.setattr(
        baselines,
        "_made",
        lambda name, kind, rows, features: made_of.append(rows) or real(name, kind, rows, features),
    )
    smiles, targets = made(1)
    fit_baselines(smiles, targets, "regression", models=["boosting"], folds=np.arange(85) % 5)
    assert made_of == [85, *[68] * 5]


@pytest.mark.parametrize("scale", [2.0**-60, 2.0**120])  # by which nothing is rounded
def test_the_unit_of_a_target_makes_no_difference(scale: float) -> None:
    smiles, targets = made(1)
    scaled = {split: values * scale for split, values in targets.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small, large = (fit_baselines(smiles, each, "regression") for each in (targets, scaled))
    for name in ("forest", "boosting"):
        values = small.predictions[name]["test"]
        assert values.std() > 0.1
        np.testing.assert_allclose(large.predictions[name]["test"], values * scale, rtol=1e-6)


def test_targets_that_trees_cannot_learn_have_no_values() -> None:
    smiles, targets = made(3, binary=True)
    targets["train"][:, 0] = 1.0
    targets["train"][9:, 1] = np.nan
    found = fit_baselines(smiles, targets, "binary")
    assert [one is None for one in found.boosted] == [True, True, False]
    for name in ("forest", "boosting"):
        known = np.isfinite(found.predictions[name]["test"]).all(axis=0)
        assert known.tolist() == [False, False, True]


def test_only_what_was_asked_for_is_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "RandomForestRegressor", None)
    smiles, targets = made(1)
    assert list(fit_baselines(smiles, targets, "regression", models=["boosting"]).predictions) == [
        "boosting"
    ]


def test_a_smiles_that_cannot_be_read_is_one_of_which_nothing_is_known() -> None:
    smiles, targets = made(1)
    smiles["train"][4] = smiles["test"][0] = "C1CC"
    found = fit_baselines(smiles, targets, "regression").predictions
    assert all(np.isfinite(values["test"]).all() for values in found.values())


def bounded(monkeypatch: pytest.MonkeyPatch, **limits: int) -> Baselines:
    for limit, most in limits.items():
        monkeypatch.setattr(baselines, limit, most)
    return fit_baselines(*made(4), "regression")


def test_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        drawn = bounded(patch, MOST_MOLECULES=20)
        again = bounded(patch, MOST_MOLECULES=20)
    assert {split: len(rows) for split, rows in drawn.rows.items()} == {
        "train": 20,
        "validation": 15,
        "test": 15,
    }
    assert drawn.labelled["train"] == 70
    np.testing.assert_array_equal(
        drawn.predictions["forest"]["test"], again.predictions["forest"]["test"]
    )
    for limits, left in (
        ({"MOST_TARGETS": 2}, 2),
        ({"MOST_LABELS": 3 * 70}, 3),
        ({"MOST_LABELS": 2 * 30, "MOST_ROWS": 30}, 2),
        ({"MOST_LABELS": 1}, 1),  # one always is
    ):
        with monkeypatch.context() as patch:
            found = bounded(patch, **limits)
        assert found.targets == left
        for name in ("mean", "boosting"):
            known = np.isfinite(found.predictions[name]["test"]).all(axis=0)
            assert known.tolist() == [target < left for target in range(4)]


def test_molecules_are_drawn_at_random_and_stay_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the first ones: a table may be sorted, by its labels too."""
    monkeypatch.setattr(baselines, "MOST_MOLECULES", 200)
    rows = np.arange(0, 3000, 3)
    drawn = baselines._drawn(rows)
    assert len(drawn) == 200
    assert (np.diff(drawn) > 0).all()
    assert set(drawn.tolist()) <= set(rows.tolist())
    # As many of each fifth, within four deviations of such a draw.
    assert np.abs(np.histogram(drawn, 5, (0, 3000))[0] - 40).max() < 4 * (40 * 0.8 * 0.8) ** 0.5
    np.testing.assert_array_equal(baselines._drawn(rows[:200]), rows[:200])


def test_a_tree_is_grown_on_so_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    (boosted, *_) = bounded(monkeypatch, MOST_ROWS=14).boosted
    for booster in boosted.model.boosters:
        assert booster.subsample == 14 / 70
        assert {tree[0].tree_.n_node_samples[0] for tree in booster.estimators_} == {14}


def test_many_labels_are_boosted_fewer_times(monkeypatch: pytest.MonkeyPatch) -> None:
    for most, expected in ((1, 1), (3 * 4 * 70, 3), (250_000, 5)):
        boosted = bounded(monkeypatch, MOST_BOOSTED_LABELS=most).boosted
        assert [len(one.model.boosters) for one in boosted] == [expected] * 4


def test_it_says_how_far_it_is() -> None:
    told: list[tuple[str, int, int]] = []
    fit_baselines(*made(1), "regression", lambda *what: told.append(what))
    assert told == [
        *(("descriptors", number, 100) for number in (70, 85, 100)),
        *((what, 0, 1) for what in ("mean", "random forest", "gradient boosting")),
    ]
