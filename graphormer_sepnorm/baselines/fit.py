"""What a model has to beat: trees, a kernel on substructures, and for real values a constant.

n molecules · T targets · F features · C columns of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.base import clone
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.utils.parallel import Parallel, delayed

from graphormer_sepnorm.baselines.evaluation import NAMES
from graphormer_sepnorm.baselines.features import FeatureColumns, compute_features
from graphormer_sepnorm.baselines.fit_kernel import fit_kernel
from graphormer_sepnorm.baselines.kernel import Kernel
from graphormer_sepnorm.datasets.splits import SPLITS
from graphormer_sepnorm.metrics import Kind

# Bounds of the work: molecules of a split, targets, rows that a tree is grown on, and the sum of
# these over the targets.
MOST_MOLECULES, MOST_TARGETS, MOST_ROWS, MOST_LABELS = 40_000, 50, 10_000, 150_000
# With folds: predictions out of fold are made of at least so many molecules.
ENOUGH_HELD_OUT = 2000
# Fewer labels than this say nothing to trees.
FEWEST_LABELS = 10
# Trees of a target.
BOOSTED = {"regression": 500, "binary": 300}
FOREST = {"regression": 200, "binary": 300}
# Boostings whose mean is taken, or fewer where labels are many: so many are boosted in all.
BOOSTERS, MOST_BOOSTED_LABELS = 3, 150_000
_FEW = 20_000_000  # features of all molecules

_LEARNING_RATE, _DEPTH, _SMALLEST_LEAF = 0.05, 5, 3
# The share of features that a split of a boosted tree chooses from: more where a table has columns
# of its own, of which one may decide everything.
_BOOSTED_FEATURES, _WITH_COLUMNS, _FEWEST_FEATURES = 0.01, 0.03, 16


@dataclass(frozen=True)
class Fitted:
    """A baseline of one target.

    Attributes:
        models: Of scikit-learn, whose mean is taken: of standardized labels, or classifiers. None
            of them: the mean of the labels.
        mean: Of the labels; 0 for classes.
        std: Of the labels; 1 for classes.
    """

    models: tuple[Any, ...]
    mean: float = 0.0
    std: float = 1.0

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Return real units or the probability of class 1, ``[n]``, for features ``[n, F]``."""
        if not self.models or len(x) == 0:
            return np.full(len(x), self.mean)
        if isinstance(self.models[0], RandomForestClassifier):
            return np.asarray(self.models[0].predict_proba(x))[:, 1]
        if isinstance(self.models[0], GradientBoostingClassifier):
            return expit(np.mean([model.decision_function(x) for model in self.models], axis=0))
        return np.mean([model.predict(x) for model in self.models], axis=0) * self.std + self.mean


@dataclass(frozen=True, eq=False)
class Table:
    """Molecules to fit and evaluate baselines on.

    Attributes:
        smiles: The n molecules.
        split: int64 ``[n]``: 0 for training, 1 for validation, 2 for test.
        labels: Real values, or 0 and 1, float64 ``[n, T]``; nan where missing.
        bounds: Of missing labels the values that they are known to lie beyond, as `labels`; models
            learn these, nothing is evaluated by them. None: there are none.
        weights: ``[n]`` in training. None: all weigh the same.
        columns: Of a table, which are features too: float32 ``[n, C]``; nan where missing.
        names: Of these columns.
        folds: int64 ``[n]``, of training and validation molecules. Then models are fitted on both
            splits, and others without a fold at a time, of two folds or more, until
            `ENOUGH_HELD_OUT` molecules that do not weigh 0 have been predicted so.
    """

    smiles: list[str]
    split: np.ndarray
    labels: np.ndarray
    bounds: np.ndarray | None = None
    weights: np.ndarray | None = None
    columns: np.ndarray | None = None
    names: tuple[str, ...] = ()
    folds: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Baselines:
    """What baselines predict for molecules of a `Table` that they were not fitted on.

    Attributes:
        predictions: By model, then by ``validation`` and ``test``: real units or probabilities of
            class 1, ``[m, T]``; nan for targets without a model. With folds the validation
            molecules are molecules of training too, predicted out of fold.
        rows: Which molecules of the table these are, int64 ``[m]``, by split.
        labels: Theirs, as `predictions`.
        sampled: By split, how many of its labeled molecules were used, and how many there are.
        targets: The first so many targets were used.
        columns: The features of the trees.
        boosted: The gradient boosting of each target; None where there is none.
        kernel: The kernel ridge regression; None: there is none.
    """

    predictions: dict[str, dict[str, np.ndarray]]
    rows: dict[str, np.ndarray]
    labels: dict[str, np.ndarray]
    sampled: dict[str, tuple[int, int]]
    targets: int
    columns: FeatureColumns
    boosted: tuple[Fitted | None, ...]
    kernel: Kernel | None = None


def fit_baselines(
    table: Table,
    kind: Kind,
    progress: Callable[[str, int, int], None] = lambda *_: None,
    models: Collection[str] = tuple(NAMES),
) -> Baselines:
    """Fit baselines on the training molecules, one target after the other.

    The work is bounded: of each split at most `MOST_MOLECULES` are used, sampled at random, always
    the same; a tree is grown on at most `MOST_ROWS` of them; of the targets come the first ones,
    as many as `MOST_TARGETS` and `MOST_LABELS` leave room for; and there are as many boostings as
    `MOST_BOOSTED_LABELS` leaves room for. `progress` is given what is done, how far that is, and
    how far it goes.
    """
    labels = table.labels
    taught = labels if table.bounds is None else np.where(np.isnan(labels), table.bounds, labels)
    labeled = ~np.isnan(taught).all(axis=1)
    by_split = [np.flatnonzero(labeled & (table.split == part)) for part in range(len(SPLITS))]
    chosen = [_sampled(rows) for rows in by_split]
    rows = np.concatenate(chosen)
    split, labels, taught = table.split[rows], labels[rows], taught[rows]
    weights = np.ones(len(rows)) if table.weights is None else table.weights[rows]
    own = None if table.columns is None else table.columns[rows]
    raw = compute_features([table.smiles[row] for row in rows]).with_columns(own)
    in_training = split < (1 if table.folds is None else 2)
    # What weighs nothing teaches nothing, not even a median.
    fitted_on = in_training & (weights > 0)
    columns = FeatureColumns.fit(raw.take(np.flatnonzero(fitted_on)), table.names)
    x, substructures = columns.of(raw), raw.substructures
    del raw
    folds, held_out, evaluated = np.full(len(rows), -1), 0, split == 1
    if table.folds is not None:
        folds[in_training] = table.folds[rows[in_training]]
        ends = np.cumsum(np.bincount(folds[fitted_on], minlength=folds.max() + 1))
        held_out = min(len(ends), max(2, 1 + int(np.searchsorted(ends, ENOUGH_HELD_OUT))))
        evaluated = fitted_on & (folds < held_out)
    parts = {"validation": evaluated, "test": split == 2}
    wanted = [name for name in NAMES if name in models and (name, kind) != ("mean", "binary")]
    found = {name: np.full(labels.shape, np.nan) for name in wanted}
    boosted: list[Fitted | None] = [None] * labels.shape[1]
    targets, boosters = _room(taught[in_training])
    size = boosters, _WITH_COLUMNS if table.names else _BOOSTED_FEATURES
    for target in range(targets):
        for name in (one for one in wanted if one != "kernel"):
            progress(name, target, targets)
            # The mean is of what it is evaluated by: of bounds nothing is known but a side.
            y = (labels if name == "mean" else taught)[:, target]
            known = fitted_on & ~np.isnan(y)
            fits = (
                delayed(_fitted)(name, kind, size, x, y, weights, rows)
                for rows in (known, *(known & (folds != fold) for fold in range(held_out)))
            )
            # Side by side where copies of the features are no burden; a forest's trees are already.
            at_once = -1 if name == "boosting" and x.size < _FEW else 1
            whole, *others = Parallel(n_jobs=at_once, prefer="threads")(fits)
            if whole is None:
                continue
            if name == "boosting":
                boosted[target] = whole
            predicted = split == 2 if held_out else split > 0
            found[name][predicted, target] = whole.predict(x[predicted])
            for fold, without in enumerate(others):
                own = evaluated & (folds == fold)
                if without is not None:
                    found[name][own, target] = without.predict(x[own])
    kernel = None
    known = fitted_on[:, None] & ~np.isnan(taught)
    enough = [
        target for target in range(targets) if _enough(taught[known[:, target], target], kind)
    ]
    if "kernel" in wanted and enough:
        apart, show = folds if held_out else None, partial(progress, "kernel")
        kernel, found["kernel"] = fit_kernel(
            substructures, taught, fitted_on, weights, apart, kind, enough, show
        )
    return Baselines(
        {
            name: {part: values[own] for part, own in parts.items()}
            for name, values in found.items()
        },
        {part: rows[own] for part, own in parts.items()},
        {part: labels[own] for part, own in parts.items()},
        {
            name: (len(some), len(there))
            for name, some, there in zip(SPLITS, chosen, by_split, strict=True)
        },
        targets,
        columns,
        tuple(boosted),
        kernel,
    )


def _enough(labels: np.ndarray, kind: Kind) -> bool:
    """Whether labels ``[n]`` say anything to a model."""
    return len(labels) >= FEWEST_LABELS and (kind != "binary" or labels.min() < labels.max())


def _sampled(rows: np.ndarray) -> np.ndarray:
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
    size: tuple[int, float],
    x: np.ndarray,
    labels: np.ndarray,
    weights: np.ndarray,
    rows: np.ndarray,
) -> Fitted | None:
    """Fit a model of one target on some rows, bool ``[n]``; None where they say too little.

    `size` is how many boostings are fitted, and the share of features that splits choose from.
    """
    y, weight = labels[rows], weights[rows]
    if len(y) == 0:
        return None
    # Forests draw other samples where there are weights, be they all the same.
    weight = weight / weight.mean() if np.ptp(weight) > 0 else None
    mean, std = 0.0, 1.0
    if kind == "regression":
        # Standardized: trees stop growing at a variance of nearly 0, in whatever unit.
        mean = float(np.average(y, weights=weight))
        std = float(np.sqrt(np.average((y - mean) ** 2, weights=weight))) or 1.0
    if name == "mean":
        return Fitted((), mean)
    if not _enough(y, kind):
        return None
    x, y = x[rows], (y - mean) / std
    model = _made(name, kind, size[1], *x.shape)
    if name == "forest":
        model.fit(x, y, sample_weight=weight)
        model.n_jobs = 1  # threads would add the trees up in any order
        return Fitted((model,), mean, std)
    # Each tree of stochastic gradient boosting sees a part of the molecules and of the features, so
    # that two boostings of the same data differ; their mean is mostly better than one.
    copies: list[Any] = [clone(model) for _ in range(size[0])]
    for state, copy in enumerate(copies):
        copy.set_params(random_state=state)
    fits = (delayed(copy.fit)(x, y, sample_weight=weight) for copy in copies)
    return Fitted(tuple(Parallel(n_jobs=-1, prefer="threads")(fits)), mean, std)


def _made(name: str, kind: Kind, share: float, molecules: int, features: int) -> Any:
    if name == "forest":
        options: dict[str, Any] = {
            "n_estimators": FOREST[kind],
            "max_samples": MOST_ROWS if molecules > MOST_ROWS else None,
            "random_state": 0,
            "n_jobs": -1,
        }
        if kind == "binary":
            return RandomForestClassifier(min_samples_leaf=2, **options)
        return RandomForestRegressor(max_features=0.03, **options)
    boosting = GradientBoostingClassifier if kind == "binary" else GradientBoostingRegressor
    return boosting(
        n_estimators=BOOSTED[kind],
        learning_rate=_LEARNING_RATE,
        max_depth=_DEPTH,
        subsample=min(0.5, MOST_ROWS / molecules),
        max_features=min(features, max(_FEWEST_FEATURES, round(share * features))),
        min_samples_leaf=_SMALLEST_LEAF,
    )
