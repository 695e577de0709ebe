"""Intervals for predicted numbers: conformal, of residuals by the error that was to be expected.

Residuals of molecules that a model has not seen say how wrong it is. Each is divided by the error
that was to be expected of it (Papadopoulos et al. 2011; Lei et al. 2018, section 5.2), and the
quantile of these scores gives the interval: y + q s. Where a new molecule and those are
exchangeable, it holds the truth as often as its level says, whatever the model (Vovk et al. 2005;
for folds cross-conformal, Vovk 2015). A molecule that is unlike all of them is not exchangeable.

Where an assay has a limit, labels beyond it are bounds, and nothing says how far beyond it a value
lies. An interval that reaches the limit is open to that side; intervals are so wide that labels and
bounds each stay in theirs as often as the level says.

n molecules · T targets · F signals · B bounds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from scipy.special import gamma

# Fewer labels than this are not enough to say which errors are to be expected of which molecule.
FEWEST_TO_SCALE = 100
# A target keeps so many scores; of more, quantiles.
MOST_SCORES = 4000
# Levels that models are judged at.
LEVELS = (0.5, 0.8, 0.9, 0.95)

_SMALLEST = 1e-3  # expected error in deviations of the labels
_PENALTY = 1e-2
_LARGEST_POWER = 50.0
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Scale:
    """The absolute error to be expected: the exponential of a linear function of signals.

    Fitted as a generalised linear model with the gamma distribution and a logarithmic link.

    Attributes:
        low: float64 ``[F]``: signals below are taken as this, the lowest that it was fitted on.
        high: float64 ``[F]``, in the same way.
        weights: float64 ``[F]``.
        constant: Of the linear function.
    """

    low: np.ndarray
    high: np.ndarray
    weights: np.ndarray
    constant: float

    @classmethod
    def fit(cls, signals: np.ndarray, errors: np.ndarray) -> Self:
        """Fit it to signals ``[n, F]`` and absolute errors ``[n]``."""
        from sklearn.linear_model import GammaRegressor

        if signals.shape[1] == 0:
            return cls.without_signals(errors, 0)
        centre, deviation = signals.mean(axis=0), signals.std(axis=0)
        deviation = np.where(deviation > 0, deviation, 1.0)
        model = GammaRegressor(alpha=_PENALTY, max_iter=1000)
        model.fit((signals - centre) / deviation, np.maximum(errors, _SMALLEST))
        weights = model.coef_ / deviation
        constant = float(model.intercept_) - float(centre @ weights)
        return cls(signals.min(axis=0), signals.max(axis=0), weights, constant)

    @classmethod
    def without_signals(cls, errors: np.ndarray, count: int) -> Self:
        """Expect the mean error of every molecule, whatever `count` signals say."""
        none = np.zeros(count)
        return cls(none, none, none, float(np.log(max(_SMALLEST, np.mean(errors)))))

    def of(self, signals: np.ndarray) -> np.ndarray:
        """Return the expected errors ``[n]`` for signals ``[n, F]``."""
        powers = np.clip(signals, self.low, self.high) @ self.weights + self.constant
        return np.exp(np.clip(powers, -_LARGEST_POWER, _LARGEST_POWER))


@dataclass(frozen=True, eq=False)
class Intervals:
    """Of one target.

    Attributes:
        scale: What error is to be expected of a molecule, in deviations of the labels.
        scores: float64, ascending: the residuals that were seen, each by its expected error.
        labels: How many there were.
        unit: Deviation of the training labels.
        limits: Of the assay, the lower and the upper one, see `limits_of`; None: it has none.
        beyond: float64, ascending: how far predictions were on the wrong side of bounds, each by
            its expected error; 0 on the right side.
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
        """Take them from molecules that the model has not seen.

        The expected error of each is that of a scale fitted to the other folds; with fewer than
        `FEWEST_TO_SCALE` it is the same for all.

        Args:
            residuals: ``[n]``, none missing.
            signals: ``[n, F]``.
            folds: int64 ``[n]``: what is to be fitted without each other's residuals.
            unit: Deviation of the training labels.
        """
        errors = np.abs(residuals) / unit
        if len(errors) < FEWEST_TO_SCALE or len(np.unique(folds)) < 2:
            scale = Scale.without_signals(errors, signals.shape[1])
            expected = scale.of(signals)
        else:
            scale = Scale.fit(signals, errors)
            expected = np.empty(len(errors))
            for fold in np.unique(folds):
                own = folds == fold
                expected[own] = Scale.fit(signals[~own], errors[~own]).of(signals[own])
        return cls(scale, _kept(errors / expected), len(errors), float(unit))

    def with_bounds(
        self,
        beyond: np.ndarray,
        signals: np.ndarray,
        limits: tuple[float | None, float | None],
    ) -> Self:
        """Return them for an assay with limits.

        Args:
            beyond: ``[B]``, how far predictions were on the wrong side of bounds; 0: not at all.
            signals: Of these, ``[B, F]``.
            limits: As `Intervals.limits`.
        """
        scores = _kept(beyond / self.expected(signals))
        return replace(self, limits=limits, beyond=scores)

    def of_mean(self, spread: np.ndarray, signals: np.ndarray, networks: int) -> Self:
        """Return them for the mean of networks, where each residual is that of one.

        The square of one network's error is, on average over them, that of their mean's error plus
        that of their distance from it (Krogh and Vedelsby 1995): without a label it is known by how
        much the mean is better. Taken of absolute values, which rare large ones do not rule.

        Args:
            spread: Standard deviation over networks that have not seen a molecule, ``[n]``.
            signals: Of these molecules, ``[n, F]``.
            networks: How many.
        """
        # Of normal numbers: their mean distance from their mean, by their standard deviation.
        ratio = (networks - 1) / np.sqrt(np.pi * networks)
        ratio *= gamma((networks - 1) / 2) / gamma(networks / 2)
        distance = ratio * np.mean(spread / self.expected(signals))
        share = distance / max(np.mean(self.scores), _SMALLEST)
        factor = np.sqrt(max(1 / networks, 1 - share**2))
        scale = replace(self.scale, constant=self.scale.constant + float(np.log(factor)))
        return replace(self, scale=scale)

    def score(self, level: float) -> float:
        """Return the score that a share `level` stays below; nan where there are too few.

        So many times the expected error is half the width of an interval. Bounds, where there are
        enough, stay below it as often.
        """
        own = _quantile(self.scores, self.labels, level)
        of_bounds = _quantile(self.beyond, len(self.beyond), level)
        return max(own, of_bounds) if of_bounds == of_bounds else own

    def ends(self, values: np.ndarray, half: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return both ends of intervals, infinite where one reaches a limit of the assay.

        Beyond a limit it is not known where: what a prediction says there is not held against it.

        Args:
            values: Predictions, ``[n]``.
            half: Half the widths, ``[n]``; nan: there is no interval.
        """
        lower, upper = (np.nan if limit is None else limit for limit in self.limits)
        low, high = values - half, values + half
        below, above = low <= lower, high >= upper
        return (
            np.where(below, -np.inf, np.where(above, np.minimum(low, upper), low)),
            np.where(above, np.inf, np.where(below, np.maximum(high, lower), high)),
        )

    def expected(self, signals: np.ndarray) -> np.ndarray:
        """Return the absolute error to be expected, ``[n]``, in the unit of the labels."""
        return self.scale.of(signals) * self.unit


def limits_of(labels: np.ndarray, bounds: np.ndarray) -> tuple[float | None, float | None]:
    """Return the lower and the upper limit of an assay; None where it has none.

    The lower one is the highest *at most* below which there are no more labels than bounds: a bound
    among labels is no limit. The upper one in the same way.

    Args:
        labels: Of one target, ``[n]``; nan = missing.
        bounds: What missing ones are at least, and at most, ``[n, 2]``; nan where nothing is known.
    """
    found = []
    for sign, column in ((1, bounds[:, 1]), (-1, bounds[:, 0])):
        known = np.sort(sign * column[~np.isnan(column)])
        below = np.searchsorted(np.sort(sign * labels[~np.isnan(labels)]), known)
        fits = known[below <= np.searchsorted(known, known, "right")]
        found.append(sign * float(fits[-1]) if len(fits) else None)
    return found[0], found[1]


def _kept(scores: np.ndarray) -> np.ndarray:
    """Return them in order, or quantiles of many."""
    scores = np.sort(scores)
    if len(scores) <= MOST_SCORES:
        return scores
    return np.quantile(scores, np.linspace(0, 1, MOST_SCORES), method="higher")


def _quantile(kept: np.ndarray, count: int, level: float) -> float:
    """Return the conformal quantile of so many scores, of which some are kept; nan: too few."""
    rank = int(np.ceil((count + 1) * level - _ROUNDING))
    if rank > count:
        return float("nan")
    return float(np.interp(rank - 1, np.linspace(0, count - 1, len(kept)), kept))
