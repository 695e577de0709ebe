"""Gradient boosting as plain arrays: what a checkpoint can hold, and how it predicts.

The trees are scikit-learn's; their nodes stand one after the other, a parent before its children.

N nodes · R trees · T targets · F features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import torch
from scipy.special import expit, logit

from graphormer_sepnorm.baselines.features import FeatureColumns
from graphormer_sepnorm.errors import CheckpointError

# The arrays of `BoostedTrees` and their types.
ARRAYS = {
    **dict.fromkeys(("feature", "left", "right", "roots", "trees"), "int32"),
    **dict.fromkeys(("threshold", "value", "start"), "float64"),
}
_DEEPEST = 64  # steps from a root to a leaf
_LEAF = -1
# Molecules that go through the trees of a target together.
_ROWS = 1024


@dataclass(frozen=True, eq=False)
class BoostedTrees:
    """Gradient boosting of one or several targets.

    Attributes:
        columns: What the features are.
        feature: int32 ``[N]``, which one a node looks at; -1: it is a leaf.
        threshold: float64 ``[N]``: up to it a molecule goes left.
        left: int32 ``[N]``, the node to the left; -1 of a leaf.
        right: int32 ``[N]``, as `left`.
        value: float64 ``[N]``, what a leaf adds, times the learning rate.
        roots: int32 ``[R]``, the first node of each tree, those of a target one after the other.
        trees: int32 ``[T]``, how many trees a target has; 0: it has no model.
        start: float64 ``[T]``, to which the trees add.
        logistic: Whether the sum is a logit.
    """

    columns: FeatureColumns
    feature: np.ndarray
    threshold: np.ndarray
    left: np.ndarray
    right: np.ndarray
    value: np.ndarray
    roots: np.ndarray
    trees: np.ndarray
    start: np.ndarray
    logistic: bool

    @classmethod
    def from_fitted(cls, columns: FeatureColumns, boosted: Sequence[Any], logistic: bool) -> Self:
        """Take the trees out of the boosting of each target (`fit.Fitted`), or None."""
        parts: dict[str, list[np.ndarray]] = {name: [] for name in ARRAYS}
        first = 0
        for one in boosted:
            boosters, std = ((), 1.0) if one is None else (one.models, one.std)
            grown = [(tree[0].tree_, each) for each in boosters for tree in each.estimators_]
            parts["trees"].append(np.array([len(grown)]))
            parts["start"].append(np.array([0.0 if one is None else _start(one, logistic)]))
            for tree, booster in grown:
                scale = booster.learning_rate * std / len(boosters)
                leaf = tree.children_left == _LEAF
                parts["roots"].append(np.array([first]))
                parts["feature"].append(np.where(leaf, _LEAF, tree.feature))
                parts["threshold"].append(np.where(leaf, 0.0, tree.threshold))
                parts["left"].append(np.where(leaf, _LEAF, tree.children_left + first))
                parts["right"].append(np.where(leaf, _LEAF, tree.children_right + first))
                parts["value"].append(np.where(leaf, tree.value[:, 0, 0] * scale, 0.0))
                first += tree.node_count
        arrays = {
            name: np.concatenate([np.empty(0, kind), *parts[name]]).astype(kind)
            for name, kind in ARRAYS.items()
        }
        return cls(columns=columns, logistic=logistic, **arrays)

    @property
    def known(self) -> np.ndarray:
        """Whether there is a model, for each target: bool ``[T]``."""
        return self.trees > 0

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Return values or probabilities of class 1, float64 ``[n, T]``; nan without a model.

        Of features float32 ``[n, F]``, see `FeatureColumns`.
        """
        values = np.full((len(features), len(self.trees)), np.nan)
        ends = np.cumsum(self.trees)
        for target in np.flatnonzero(self.known):
            roots = self.roots[ends[target] - self.trees[target] : ends[target]]
            for row in range(0, len(features), _ROWS):
                part = features[row : row + _ROWS]
                values[row : row + _ROWS, target] = self.start[target] + self._sums(part, roots)
        return expit(values) if self.logistic else values

    def _sums(self, features: np.ndarray, roots: np.ndarray) -> np.ndarray:
        """What the leaves of some trees say together, ``[n]``."""
        node = np.broadcast_to(roots, (len(features), len(roots)))
        molecule = np.arange(len(features))[:, None]
        for _ in range(_DEEPEST):
            feature = self.feature[node]
            inner = feature != _LEAF
            if not inner.any():
                return self.value[node].sum(axis=1)
            goes_left = features[molecule, feature] <= self.threshold[node]
            below = np.where(goes_left, self.left[node], self.right[node])
            node = np.where(inner, below, node)
        raise CheckpointError(f"its trees are deeper than {_DEEPEST}")

    def to_plain(self) -> dict[str, Any]:
        """Return dictionaries, lists and tensors, for a checkpoint; `typed` undoes it."""
        return asdict(
            self,
            dict_factory=lambda parts: {
                name: torch.from_numpy(value) if name in ARRAYS else value for name, value in parts
            },
        )


def _start(one: Any, logistic: bool) -> float:
    """What scikit-learn begins with: the mean, or the logit of the share of class 1."""
    booster = one.models[0]  # all begin alike
    if not logistic:
        return float(booster.init_.constant_.item()) * one.std + one.mean
    smallest = np.finfo(np.float32).eps
    return float(logit(np.clip(booster.init_.class_prior_[1], smallest, 1 - smallest)))
