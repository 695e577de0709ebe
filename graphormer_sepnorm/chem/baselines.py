"""What a model has to beat: a constant, and a linear model of Morgan fingerprints.

n molecules · T targets.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from graphormer_sepnorm.chem.fingerprints import morgan_fingerprints

PENALTIES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
# Together they hold the work at about five minutes of a CPU core and, beside the labels themselves,
# a gigabyte: molecules of a split, training labels, and sets of labelled training molecules
# (each is a factorisation).
MOST_MOLECULES, MOST_LABELS, MOST_SETS = 100_000, 6_000_000, 300

_ITERATIONS = 1000
_SPLITS = ("train", "validation", "test")

Tell = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Scores:
    """The metric of a simple model for each target: nan where it is undefined or left out.

    Attributes:
        validation: float64 ``[T]``.
        test: float64 ``[T]``.
    """

    validation: np.ndarray
    test: np.ndarray


@dataclass(frozen=True)
class Baselines:
    """What simple models reach.

    Attributes:
        scores: Of ``mean`` and ``ridge``, or of ``logistic``.
        molecules: Molecules of each split that were used, and those that have a label.
        targets: The first so many targets were looked at.
        unconverged: Targets for which logistic regression stopped before it had converged.
    """

    scores: dict[str, Scores]
    molecules: dict[str, tuple[int, int]]
    targets: int
    unconverged: int = 0


def fit_baselines(
    smiles: Mapping[str, Sequence[str]],
    targets: Mapping[str, np.ndarray],
    kind: Literal["regression", "binary"],
    tell: Tell = lambda what, done, total: None,
) -> Baselines:
    """Return the errors of models that take no training to speak of.

    A regression has the mean absolute error, in the targets' unit, of ``mean``, the mean of the
    training labels, and of ``ridge``: linear in 2,048 Morgan counts of radius 2, by penalised least
    squares. Counts are the stronger baseline for a target that adds up over atoms. Binary targets
    have the AUROC of ``logistic``: logistic regression on whether the environments occur. The
    penalty is for each target that of `PENALTIES` that does best on the validation set.

    Of a split with more than `MOST_MOLECULES` molecules so many are drawn, always the same; and of
    the targets come only the first ones that `MOST_LABELS` and `MOST_SETS` leave room for.

    Args:
        smiles: The molecules under ``train``, ``validation`` and ``test``.
        targets: Real values, or 0 and 1, ``[n, T]``, under the same names; nan where missing.
        kind: ``regression`` or ``binary``.
        tell: Is told what is done, how far that is, and how far it goes.

    Raises:
        DataError: A SMILES cannot be read.
    """
    labelled = {split: np.flatnonzero(~np.isnan(targets[split]).all(axis=1)) for split in _SPLITS}
    chosen = {split: _drawn(rows) for split, rows in labelled.items()}
    values = {split: np.asarray(targets[split][rows], np.float64) for split, rows in chosen.items()}
    count = _room(values["train"], sets=kind == "regression")
    values = {split: columns[:, :count] for split, columns in values.items()}
    total, before, features = sum(map(len, chosen.values())), 0, {}
    for split, rows in chosen.items():
        features[split] = morgan_fingerprints(
            [str(smiles[split][row]) for row in rows],
            counts=kind == "regression",
            done=lambda number, before=before: tell("fingerprints", before + number, total),
        )
        before += len(rows)
    names, fit = (("mean", "ridge"), _ridge) if kind == "regression" else (("logistic",), _logistic)
    shape = (len(names), targets["train"].shape[1])
    found = {"validation": np.full(shape, np.nan), "test": np.full(shape, np.nan)}
    unconverged = fit(features, values, found, tell)
    return Baselines(
        {name: Scores(found["validation"][at], found["test"][at]) for at, name in enumerate(names)},
        {split: (len(chosen[split]), len(labelled[split])) for split in _SPLITS},
        count,
        unconverged,
    )


def _drawn(rows: np.ndarray) -> np.ndarray:
    if len(rows) <= MOST_MOLECULES:
        return rows
    return np.sort(np.random.default_rng(0).permutation(rows)[:MOST_MOLECULES])


def _room(train: np.ndarray, sets: bool) -> int:
    """How many targets, from the first one on, there is room for."""
    present = ~np.isnan(train)
    seen = {column.tobytes(): place for place, column in reversed(list(enumerate(present.T)))}
    new = [seen[column.tobytes()] == place for place, column in enumerate(present.T)]
    fits = np.cumsum(present.sum(axis=0)) <= MOST_LABELS
    if sets:
        fits &= np.cumsum(new) <= MOST_SETS
    return max(1, int(fits.sum()))


def _ridge(
    features: Mapping[str, csr_array],
    values: Mapping[str, np.ndarray],
    found: Mapping[str, np.ndarray],
    tell: Tell,
) -> int:
    """Fill in the errors ``[2, T]`` of the mean and of the ridge."""
    sets: dict[bytes, list[int]] = {}
    present = {split: ~np.isnan(columns) for split, columns in values.items()}
    for target in range(values["train"].shape[1]):
        if all(columns[:, target].any() for columns in present.values()):
            sets.setdefault(present["train"][:, target].tobytes(), []).append(target)
    for number, members in enumerate(sets.values(), start=1):
        tell("ridge", number - 1, len(sets))
        rows = np.flatnonzero(present["train"][:, members[0]])
        x, y = features["train"][rows], values["train"][rows][:, members]
        means = y.mean(axis=0)
        for split, errors in found.items():
            errors[0, members] = np.nanmean(np.abs(values[split][:, members] - means), axis=0)
        best = np.full(len(members), np.inf)
        for weights, constant in _ridge_path(x, y):
            validation, test = (
                np.nanmean(
                    np.abs(features[split] @ weights + constant - values[split][:, members]), axis=0
                )
                for split in ("validation", "test")
            )
            better = validation < best
            best = np.where(better, validation, best)
            improved = np.array(members)[better]
            found["validation"][1, improved] = validation[better]
            found["test"][1, improved] = test[better]
    return 0


def _ridge_path(x: csr_array, y: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Give weights ``[2048, T]`` and constants ``[T]`` of the ridge, for each of `PENALTIES`.

    For all targets at once, by one factorisation for each penalty of the smaller of the two
    matrices that will do: of features (as many as occur) or of molecules. In float64 the matrix of
    the smallest penalty is far from singular; in float32 it is not.
    """
    n = len(y)
    mean = np.asarray(x.mean(axis=0))
    centred = y - y.mean(axis=0)
    occurring = np.flatnonzero(mean)
    dense = n >= len(occurring)
    x = csr_array(x[:, occurring])
    if dense:
        matrix = (x.T @ x).toarray() - n * np.outer(mean[occurring], mean[occurring])
        right = x.T @ centred
    else:
        matrix = (x @ x.T).toarray()
        of_rows = matrix.mean(axis=0)
        matrix += matrix.mean() - of_rows[:, None] - of_rows[None, :]
        right = centred
    diagonal = np.diag(matrix).copy()
    weights = np.zeros((len(mean), y.shape[1]))
    for penalty in PENALTIES:
        np.fill_diagonal(matrix, diagonal + penalty)
        solved = cho_solve(cho_factor(matrix, check_finite=False), right, check_finite=False)
        weights[occurring] = solved if dense else x.T @ solved
        yield weights, y.mean(axis=0) - mean @ weights


def _logistic(
    features: Mapping[str, csr_array],
    values: Mapping[str, np.ndarray],
    found: Mapping[str, np.ndarray],
    tell: Tell,
) -> int:
    """Fill in the areas ``[1, T]``; return for how many targets the regression did not converge."""
    count, unconverged = values["train"].shape[1], 0
    for target in range(count):
        tell("logistic regression", target, count)
        rows = {split: np.flatnonzero(~np.isnan(values[split][:, target])) for split in _SPLITS}
        labels = {split: values[split][rows[split], target] > 0.5 for split in _SPLITS}
        if any(column.all() or not column.any() for column in labels.values()):
            continue
        x = {split: features[split][rows[split]] for split in _SPLITS}
        best, converged = -1.0, True
        for penalty in PENALTIES:
            model = LogisticRegression(C=1 / penalty, max_iter=_ITERATIONS)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # it is counted
                model.fit(x["train"], labels["train"])
            validation, test = (
                float(roc_auc_score(labels[split], model.decision_function(x[split])))
                for split in ("validation", "test")
            )
            if validation > best:
                best, converged = validation, bool(model.n_iter_.max() < _ITERATIONS)
                found["validation"][0, target], found["test"][0, target] = validation, test
        unconverged += not converged
    return unconverged
