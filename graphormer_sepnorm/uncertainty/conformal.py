"""Conformal intervals for predicted numbers, scaled by the expected error.

Residuals of molecules that a model has not seen show how wrong it is. Each is divided by its
expected error (Papadopoulos et al. 2011; Lei et al. 2018, section 5.2), and the quantile of these
scores gives the interval: y + q s. Where a new molecule and those are exchangeable, it covers the
truth as often as its level says, whatever the model (Vovk et al. 2005; for folds cross-conformal,
Vovk 2015). A molecule that is unlike all of them is not exchangeable.

Where an assay has a limit, labels beyond it are bounds, and nothing says how far beyond it a value
lies. An interval that reaches the limit is open to that side; intervals are so wide that labels and
bounds each stay in theirs as often as the level says.

n molecules · F signals · B bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np

# With fewer labels the expected error is the same for all molecules.
FEWEST_TO_SCALE = 100
# A target stores so many scores; of more, quantiles.
MOST_SCORES = 4000
# Levels that models are evaluated at.
LEVELS = (0.5, 0.8, 0.9, 0.95)
# 100 times 0.55 is a little more than 55 in floating-point numbers.
ROUNDING = 1e-9
_FEWEST_BOUNDS = 9  # which can tell a level of 0.9

_SMALLEST = 1e-3  # expected error in standard deviations of the labels
_PENALTY = 1e-2
_LARGEST_POWER = 50.0


@dataclass(frozen=True, eq=False)
class Scale:
    """The expected absolute error: the exponential of a linear function of signals.

    A generalized linear model with the gamma distribution and a logarithmic link.

    Attributes:
        low: float64 ``[F]``, the lowest signals that it was fitted to; lower ones count as these.
        high: float64 ``[F]``, in the same way.
        weights: float64 ``[F]``.
        constant: Of the linear function.
    """

    low: np.ndarray
    high: np.ndarray
    weights: np.ndarray
    constant: float

    @classmethod
    def fit(cls, signals: np.ndarray, errors: np.ndarray, constant: bool = False) -> Self:
        """Fit it to signals ``[n, F]`` and absolute errors ``[n]``; or `constant`, their mean."""
        from sklearn.linear_model import GammaRegressor

        if constant or signals.shape[1] == 0:
            none = np.zeros(signals.shape[1])
            return cls(none, none, none, float(np.log(max(_SMALLEST, np.mean(errors)))))
        center, deviation = signals.mean(axis=0), signals.std(axis=0)
        deviation = np.where(deviation > 0, deviation, 1.0)
        model = GammaRegressor(alpha=_PENALTY, max_iter=1000)
        model.fit((signals - center) / deviation, np.maximum(errors, _SMALLEST))
        weights = model.coef_ / deviation
        intercept = float(model.intercept_) - float(center @ weights)
        return cls(signals.min(axis=0), signals.max(axis=0), weights, intercept)

    def of(self, signals: np.ndarray) -> np.ndarray:
        """Return the expected errors ``[n]`` for signals ``[n, F]``."""
        powers = np.clip(signals, self.low, self.high) @ self.weights + self.constant
        return np.exp(np.clip(powers, -_LARGEST_POWER, _LARGEST_POWER))


@dataclass(frozen=True, eq=False)
class Intervals:
    """The intervals of one target.

    Attributes:
        scale: The expected error of a molecule, in standard deviations of the labels.
        scores: float64, ascending: absolute residuals, each divided by its expected error.
        labels: How many there were.
        unit: Standard deviation of the training labels.
        limits: The lower and the upper limit of the assay, see `limits_of`; None: it has none.
        beyond: float64, ascending: how far predictions were on the wrong side of bounds, each
            divided by its expected error; 0 on the right side.
    """

    scale: Scale
    scores: np.ndarray
    labels: int
    unit: float
    limits: tuple[float | None, float | None] = (None, None)
    beyond: np.ndarray = field(default_factory=lambda: np.empty(0))

    @classmethod
    def fit(
        cls, residuals: np.ndarray, signals: np.ndarray, folds: np.ndarray, unit: float
    ) -> Self:
        """Fit them to residuals ``[n]`` and signals ``[n, F]`` of unseen molecules.

        The expected error of each is by a scale fitted to the other folds, int64 ``[n]``; with
        fewer than `FEWEST_TO_SCALE` it is the same for all.
        """
        errors = np.abs(residuals) / unit
        constant = len(errors) < FEWEST_TO_SCALE or len(np.unique(folds)) < 2
        scale = Scale.fit(signals, errors, constant)
        expected = scale.of(signals)
        if not constant:
            expected = cross_fitted(Scale.fit, Scale.of, signals, errors, folds)
        scores = errors / expected
        stored = quantiles_of(scores, MOST_SCORES, "higher")
        return cls(scale, stored, len(scores), float(unit))

    def with_bounds(
        self, beyond: np.ndarray, signals: np.ndarray, limits: tuple[float | None, float | None]
    ) -> Self:
        """Return them for an assay with limits, see `limits_of`.

        By how far predictions were on the wrong side of bounds, ``[B]``, and their signals.
        """
        scores = quantiles_of(beyond / self.expected(signals), MOST_SCORES, "higher")
        return replace(self, limits=limits, beyond=scores)

    def of_mean(self, spread: np.ndarray, signals: np.ndarray, networks: int) -> Self:
        """Return them for the mean of networks, where each residual was that of one network.

        The square of one network's error is, on average over them, that of their mean's error plus
        that of their distance from it (Krogh and Vedelsby 1995): this tells without a label how
        much the mean is better. Taken of absolute values, which rare large ones do not dominate.
        By the standard deviation ``[n]`` over networks that have not seen a molecule.
        """
        # Of normal numbers: their mean distance from their mean, by their standard deviation.
        ratio = (networks - 1) / np.sqrt(np.pi * networks)
        ratio *= math.gamma((networks - 1) / 2) / math.gamma(networks / 2)
        distance = ratio * np.mean(spread / self.expected(signals))
        share = distance / max(np.mean(self.scores), _SMALLEST)
        factor = np.sqrt(max(1 / networks, 1 - share**2))
        scale = replace(self.scale, constant=self.scale.constant + float(np.log(factor)))
        return replace(self, scale=scale)

    def score(self, level: float) -> float:
        """Return how many expected errors make half an interval; nan: too few labels.

        A share `level` of the scores stays below it, and of bounds if there are `_FEWEST_BOUNDS`;
        of levels for which these are too few the highest that they can tell.
        """
        score, bounds = _quantile(self.scores, self.labels, level), len(self.beyond)
        if bounds < _FEWEST_BOUNDS:
            return score
        return max(score, _quantile(self.beyond, bounds, min(level, bounds / (bounds + 1))))

    def ends(self, values: np.ndarray, half: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return both ends of intervals by predictions and half the widths, ``[n]``; nan: none.

        Infinite where one reaches a limit of the assay. Where beyond a limit a prediction lies does
        not count: no label can tell.
        """
        lower, upper = (np.nan if limit is None else limit for limit in self.limits)
        low, high = values - half, values + half
        below, above = low <= lower, high >= upper
        return (
            np.where(below, -np.inf, np.where(above, np.minimum(low, upper), low)),
            np.where(above, np.inf, np.where(below, np.maximum(high, lower), high)),
        )

    def expected(self, signals: np.ndarray) -> np.ndarray:
        """Return the expected absolute errors, ``[n]``, in the unit of the labels."""
        return self.scale.of(signals) * self.unit


def limits_of(labels: np.ndarray, bounds: np.ndarray) -> tuple[float | None, float | None]:
    """Return the lower and the upper limit of an assay; None where it has none.

    The lower one is the highest *at most* below which there are no more labels than bounds: a bound
    among labels is no limit. The upper one in the same way.

    Args:
        labels: Of one target, ``[n]``; nan = missing.
        bounds: Lower and upper bounds of missing labels, ``[n, 2]``; nan = unknown.
    """
    found = []
    for sign, column in ((1, bounds[:, 1]), (-1, bounds[:, 0])):
        known = np.sort(sign * column[~np.isnan(column)])
        below = np.searchsorted(np.sort(sign * labels[~np.isnan(labels)]), known)
        fits = known[below <= np.searchsorted(known, known, "right")]
        found.append(sign * float(fits[-1]) if len(fits) else None)
    return found[0], found[1]


def cross_fitted(
    fit: Callable[[np.ndarray, np.ndarray], Any],
    use: Callable[[Any, np.ndarray], np.ndarray],
    inputs: np.ndarray,
    labels: np.ndarray,
    folds: np.ndarray,
) -> np.ndarray:
    """Return for the inputs of each fold what a fit to the other folds makes of them."""
    parts = [folds == fold for fold in np.unique(folds)]
    found = [use(fit(inputs[~own], labels[~own]), inputs[own]) for own in parts]
    return np.concatenate(found)[np.argsort(np.concatenate([*map(np.flatnonzero, parts)]))]


def quantiles_of(values: np.ndarray, most: int, method: Literal["linear", "higher"]) -> np.ndarray:
    """Return values in ascending order; of more than `most` that many quantiles."""
    values = np.sort(values)
    if len(values) <= most:
        return values
    return np.quantile(values, np.linspace(0, 1, most), method=method)


def _quantile(stored: np.ndarray, count: int, level: float) -> float:
    """Return the conformal quantile of `count` scores, of which some are stored; nan: too few."""
    rank = int(np.ceil((count + 1) * level - ROUNDING))
    if rank > count:
        return float("nan")
    return float(np.interp(rank - 1, np.linspace(0, count - 1, len(stored)), stored))
