"""What a model has to beat: trees on fingerprints and descriptors, and for real values a constant.

n molecules · T targets · F features.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.special import expit
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.utils.parallel import Parallel, delayed

from graphormer_sepnorm.baselines.features import FeatureColumns, compute_features
from graphormer_sepnorm.datasets.splits import SPLITS
from graphormer_sepnorm.metrics import Kind

# Bounds of the work: molecules of a split, targets, rows that a tree is grown on, and the sum of
# these over the targets.
MOST_MOLECULES, MOST_TARGETS, MOST_ROWS, MOST_LABELS = 40_000, 50, 10_000, 150_000
# With folds: of so many molecules what models say that have not seen them is worth knowing.
ENOUGH_HELD_OUT = 2000
# Fewer labels than this say nothing to trees.
FEWEST_LABELS = 10
# Trees of a target.
BOOSTED = {"regression": 500, "binary": 300}
FOREST = {"regression": 200, "binary": 300}
# Boostings whose mean is taken, or fewer where labels are many: so many are boosted in all.
BOOSTERS, MOST_BOOSTED_LABELS = 5, 250_000
# The simple models, in the order in which they are shown.
MODELS = {"mean": "mean", "forest": "random forest", "boosting": "gradient boosting"}

_LEARNING_RATE, _DEPTH, _SMALLEST_LEAF = 0.05, 5, 3
_BOOSTED_FEATURES, _FEWEST_FEATURES = 0.03, 16

Tell = Callable[[str, int, int], None]
# Of several splits, float64 ``[n, T]``.
Values = dict[str, np.ndarray]


@dataclass(frozen=True)
class BaggedBoosting:
    """The mean of what several boostings say: of values, or of the logits of class 1.

    Each tree of stochastic gradient boosting sees a part of the molecules and of the features, so
    that two boostings of the same data differ; their mean is mostly better than one.

    Attributes:
        boosters: Fitted, `GradientBoostingRegressor` or `GradientBoostingClassifier`.
    """

    boosters: tuple[Any, ...]

    @classmethod
    def fit(
        cls, booster: Any, number: int, x: np.ndarray, y: np.ndarray, weight: np.ndarray | None
    ) -> Self:
        """Fit `number` copies of a booster, with the random states 0, 1, …, on threads.

        Args:
            booster: Of scikit-learn; it stays as it is.
            number: How many.
            x: Features, ``[n, F]``.
            y: Labels, ``[n]``.
            weight: Of the molecules, ``[n]``; None: all weigh the same.
        """
        copies = [
            type(booster)(**booster.get_params() | {"random_state": state})
            for state in range(number)
        ]
        fitted = Parallel(n_jobs=-1, prefer="threads")(
            delayed(one.fit)(x, y, sample_weight=weight) for one in copies
        )
        return cls(tuple(fitted))

    @property
    def of_classes(self) -> bool:
        """Whether it predicts the probability of class 1."""
        return hasattr(self.boosters[0], "predict_proba")

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Return values, or probabilities of class 1, float64 ``[n]``, for features ``[n, F]``."""
        if self.of_classes:
            return expit(np.mean([one.decision_function(x) for one in self.boosters], axis=0))
        return np.mean([one.predict(x) for one in self.boosters], axis=0)


@dataclass(frozen=True)
class Scaled:
    """A simple model of one target.

    Attributes:
        model: Fitted: of standardised labels, or a classifier; None says the mean.
        mean: Of the labels; 0 for a classifier.
        std: Of the labels; 1 for a classifier.
    """

    model: Any
    mean: float = 0.0
    std: float = 1.0

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Return real units or the probability of class 1, ``[n]``, for features ``[n, F]``."""
        if self.model is None or len(x) == 0:
            return np.full(len(x), self.mean)
        if isinstance(self.model, RandomForestClassifier):
            return np.asarray(self.model.predict_proba(x))[:, 1]
        return self.model.predict(x) * self.std + self.mean


@dataclass(frozen=True)
class Baselines:
    """What simple models say of the molecules of all splits.

    Attributes:
        predictions: By model, of `MODELS` those that were asked for: the values of validation and
            test molecules, real units or the probability of class 1; nan for targets without a
            model. With folds the validation molecules are molecules that all models but one are
            fitted on: that one says it.
        rows: Which molecules of each split were used, int64; with folds those under ``validation``
            are counted from the first training molecule on.
        labelled: Molecules of each split that have a label.
        labels: Of what is predicted, as `predictions`.
        targets: The first so many targets were looked at.
        columns: The features of the trees.
        boosted: The gradient boosting of each target; None where there is none.
    """

    predictions: dict[str, Values]
    rows: dict[str, np.ndarray]
    labelled: dict[str, int]
    labels: Values
    targets: int
    columns: FeatureColumns
    boosted: tuple[Scaled | None, ...]


def fit_baselines(
    smiles: Mapping[str, Sequence[str]],
    targets: Mapping[str, np.ndarray],
    kind: Kind,
    tell: Tell = lambda what, done, total: None,
    models: Collection[str] = MODELS,
    folds: np.ndarray | None = None,
    columns: Mapping[str, np.ndarray] | None = None,
    names: Sequence[str] = (),
    bounds: Mapping[str, np.ndarray] | None = None,
    weights: Mapping[str, np.ndarray] | None = None,
) -> Baselines:
    """Fit the models that chemists try first, with settings that do well on many data sets.

    `mean` (of the training labels; real values only), `forest`, a random forest (Breiman 2001), and
    `boosting`, the mean of five stochastic gradient boostings (Friedman 2002), of scikit-learn, on
    the features of `FeatureColumns`. Nothing is chosen on the validation split.

    Of a split with more than `MOST_MOLECULES` molecules so many are drawn, always the same; a tree
    is grown on at most `MOST_ROWS` of them; of the targets come the first ones, so many as
    `MOST_TARGETS` and `MOST_LABELS` leave room for; and there are so many boostings as
    `MOST_BOOSTED_LABELS` leave room for.

    Args:
        smiles: The molecules under ``train``, ``validation`` and ``test``.
        targets: Real values, or 0 and 1, ``[n, T]``, under the same names; nan where missing.
        kind: ``regression`` or ``binary``.
        tell: Is told what is done, how far that is, and how far it goes.
        models: Which of `MODELS`.
        folds: Of each training and then each validation molecule its fold, int64. Then models are
            fitted on both splits, and others without a fold at a time, of two folds or more, until
            `ENOUGH_HELD_OUT` molecules have been predicted so.
        columns: Of a table, which are features too: ``[n, C]``, under the same names; nan where
            missing.
        names: Of these columns.
        bounds: Of missing labels the values that they are known to lie beyond, ``[n, T]``, under
            the same names; nan = unknown. Models learn these; nothing is judged by them.
        weights: Of the molecules that models are fitted on, ``[n]``, under the same names; None:
            all weigh the same. Nothing is judged by them, but that with folds those that weigh 0
            judge nothing.
    """
    learned = {
        split: np.where(np.isnan(targets[split]), bounds[split], targets[split])
        if bounds is not None
        else targets[split]
        for split in SPLITS
    }
    labelled = {split: np.flatnonzero(~np.isnan(learned[split]).all(axis=1)) for split in SPLITS}
    rows = {split: _drawn(members) for split, members in labelled.items()}
    count, of_all = targets["train"].shape[1], sum(map(len, rows.values()))
    before, features = 0, {}
    for split in SPLITS:
        features[split] = compute_features(
            [str(smiles[split][row]) for row in rows[split]],
            lambda number, before=before: tell("descriptors", before + number, of_all),
        ).with_columns(None if columns is None else columns[split][rows[split]])
        before += len(rows[split])
    fitted_on = SPLITS[:1] if folds is None else SPLITS[:2]
    described = [features[split] for split in fitted_on]
    if weights is not None:  # what weighs nothing teaches nothing, not even a median
        described = [
            features[split].take(np.flatnonzero(weights[split][rows[split]] > 0))
            for split in fitted_on
        ]
    chosen = FeatureColumns.fit(*described, columns=names)
    x = {split: chosen.of(features.pop(split)) for split in SPLITS}
    y, taught = (
        {split: np.asarray(of[split][rows[split]], np.float64) for split in SPLITS}
        for of in (targets, learned)
    )
    weight = None
    if weights is not None:
        weight = np.concatenate([weights[split][rows[split]] for split in fitted_on])
    dealt, judged, held = np.empty(0, np.int64), np.empty(0, bool), 0
    if folds is not None:
        pooled = np.concatenate([rows["train"], rows["validation"] + len(targets["train"])])
        for of in (x, y, taught):
            of["train"] = np.concatenate([of["train"], of["validation"]])
        dealt = folds[pooled]
        judged = np.ones(len(dealt), bool) if weight is None else weight > 0
        ends = np.cumsum(np.bincount(dealt[judged], minlength=dealt.max() + 1))
        held = min(len(ends), max(2, 1 + int(np.searchsorted(ends, ENOUGH_HELD_OUT))))
        judged &= dealt < held
        rows["validation"] = pooled[judged]
        labelled["validation"] = rows["validation"]
    held_labels = y["validation"] if folds is None else y["train"][judged]
    asked = [name for name in MODELS if name in models and (name, kind) != ("mean", "binary")]
    predictions = {
        name: {split: np.full((len(rows[split]), count), np.nan) for split in SPLITS[1:]}
        for name in asked
    }
    boosted: list[Scaled | None] = [None] * count
    looked_at, boosters = _room(taught["train"])
    for target in range(looked_at):
        for name in asked:
            tell(MODELS[name], target, looked_at)
            values = predictions[name]
            # The mean is of what it is judged by: of bounds nothing is known but a side.
            labels = (y if name == "mean" else taught)["train"][:, target]
            known = ~np.isnan(labels)
            if weight is not None:
                known &= weight > 0
            whole = _fitted(name, kind, boosters, x["train"], labels, known, weight)
            if whole is None:
                continue
            if name == "boosting":
                boosted[target] = whole
            values["test"][:, target] = whole.predict(x["test"])
            if folds is None:
                values["validation"][:, target] = whole.predict(x["validation"])
            for fold in range(held):
                own = dealt == fold
                other = _fitted(name, kind, boosters, x["train"], labels, known & ~own, weight)
                if other is not None:
                    at = dealt[judged] == fold
                    values["validation"][at, target] = other.predict(x["train"][own & judged])
    return Baselines(
        predictions,
        rows,
        {split: len(members) for split, members in labelled.items()},
        {"validation": held_labels, "test": y["test"]},
        looked_at,
        chosen,
        tuple(boosted),
    )


def _drawn(rows: np.ndarray) -> np.ndarray:
    if len(rows) <= MOST_MOLECULES:
        return rows
    return np.sort(np.random.default_rng(0).permutation(rows)[:MOST_MOLECULES])


def _room(labels: np.ndarray) -> tuple[int, int]:
    """How many targets, from the first one on, there is room for, and for how many boostings."""
    grown_on = np.minimum((~np.isnan(labels)).sum(axis=0), MOST_ROWS)
    fits = np.cumsum(grown_on) <= MOST_LABELS
    targets = max(1, int(fits[:MOST_TARGETS].sum()))
    boosters = MOST_BOOSTED_LABELS // max(1, int(grown_on[:targets].sum()))
    return targets, min(max(1, boosters), BOOSTERS)


def _fitted(
    name: str,
    kind: Kind,
    boosters: int,
    x: np.ndarray,
    labels: np.ndarray,
    rows: np.ndarray,
    weight: np.ndarray | None,
) -> Scaled | None:
    """Fit a model of one target on some rows, bool ``[n]``; None where they say too little."""
    y = labels[rows]
    if len(y) == 0:
        return None
    # Standardised: trees stop growing at a variance of nearly 0, in whatever unit.
    mean, std = (float(y.mean()), float(y.std()) or 1.0) if kind == "regression" else (0.0, 1.0)
    own = None if weight is None else weight[rows] / weight[rows].mean()
    if own is not None and kind == "regression":
        mean = float(np.average(y, weights=own))
        std = float(np.sqrt(np.average((y - mean) ** 2, weights=own))) or 1.0
    if name == "mean":
        return Scaled(None, mean)
    if len(y) < FEWEST_LABELS or (kind == "binary" and y.min() == y.max()):
        return None
    x = x if rows.all() else x[rows]
    model, y = _made(name, kind, *x.shape), (y - mean) / std
    if name == "boosting":
        return Scaled(BaggedBoosting.fit(model, boosters, x, y, own), mean, std)
    model.fit(x, y, sample_weight=own)
    model.n_jobs = 1  # threads would add the trees up in any order
    return Scaled(model, mean, std)


def _made(name: str, kind: Kind, molecules: int, features: int) -> Any:
    if name == "forest":
        options: dict[str, Any] = {
            "n_estimators": FOREST[kind],
            "max_samples": MOST_ROWS if molecules > MOST_ROWS else None,
            "random_state": 0,
            "n_jobs": -1,
        }
        if kind == "binary":
            return RandomForestClassifier(min_samples_leaf=2, **options)
        return RandomForestRegressor(max_features=0.1, **options)
    boosting = GradientBoostingClassifier if kind == "binary" else GradientBoostingRegressor
    return boosting(
        n_estimators=BOOSTED[kind],
        learning_rate=_LEARNING_RATE,
        max_depth=_DEPTH,
        subsample=min(0.5, MOST_ROWS / molecules),
        max_features=min(features, max(_FEWEST_FEATURES, round(_BOOSTED_FEATURES * features))),
        min_samples_leaf=_SMALLEST_LEAF,
    )
