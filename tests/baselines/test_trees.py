"""Trees as plain arrays: scikit-learn's values, and nothing that does not end at a leaf."""

import io
from typing import Any

import numpy as np
import pytest
import torch
from reference.trees import boosted_trees, random_features
from sklearn.ensemble import GradientBoostingRegressor

from graphormer_sepnorm.baselines import trees as module
from graphormer_sepnorm.baselines.trees import BoostedTrees
from graphormer_sepnorm.files import typed


def again(trees: BoostedTrees) -> BoostedTrees:
    """What a checkpoint gives back."""
    written = io.BytesIO()
    torch.save(trees.to_plain(), written)
    written.seek(0)
    return typed(BoostedTrees, torch.load(written, weights_only=True))


@pytest.mark.parametrize("kind", ["regression", "binary"])
def test_values_are_those_of_scikit_learn(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ROWS", 30)
    trees, scaled = boosted_trees(kind, targets=2, count=40)
    features = random_features(100, seed=5)
    values = again(trees).predict(features)
    for target, one in enumerate(scaled):
        boosters = one.models
        assert len(boosters) == 2
        if kind == "binary":
            logits = np.mean([each.decision_function(features) for each in boosters], axis=0)
            expected = 1 / (1 + np.exp(-logits))
        else:
            said = np.mean([each.predict(features) for each in boosters], axis=0)
            expected = said * one.std + one.mean
        assert expected.std() > 0.01
        np.testing.assert_allclose(values[:, target], expected, rtol=1e-12, atol=1e-12)


def test_what_lies_on_a_threshold_goes_where_scikit_learn_sends_it() -> None:
    """Features are compared in single precision, thresholds are double."""
    x = np.array([[0.1], [0.2], [0.3], [0.4]], np.float32)
    model = GradientBoostingRegressor(n_estimators=3, min_samples_leaf=1).fit(x, [1.0, 2, 3, 4])
    trees, _ = boosted_trees(models=[model])
    between = np.array([[tree[0].tree_.threshold[0]] for tree in model.estimators_], np.float32)
    for features in (between, np.nextafter(between, np.float32(9)), x):
        expected = model.predict(features)
        np.testing.assert_allclose(trees.predict(features)[:, 0], expected, rtol=1e-12)


def test_a_target_without_a_model_is_nan() -> None:
    trees, _ = boosted_trees(targets=3, count=5, without=1)
    values = again(trees).predict(random_features(4))
    assert np.isnan(values).all(axis=0).tolist() == [False, True, False]
    assert trees.known.tolist() == [True, False, True]
    assert trees.predict(random_features(0)).shape == (0, 3)
