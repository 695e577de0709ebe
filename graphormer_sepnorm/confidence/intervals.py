"""Intervals for predicted numbers: conformal, of residuals by the error that was to be expected.

Residuals of molecules that a model has not seen say how wrong it is. Each is divided by the error
that was to be expected of it (Papadopoulos et al. 2011; Lei et al. 2018, section 5.2), and the
quantile of these scores gives the interval: y + q s. Where a new molecule and those are
exchangeable, it holds the truth as often as its level says, whatever the model (Vovk et al. 2005;
for folds cross-conformal, Vovk 2015). A molecule that is unlike all of them is not exchangeable.

n molecules · T targets · F signals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

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

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Self:
        """Make it from what a checkpoint holds."""
        low, high, weights = (
            np.array(plain[name], np.float64) for name in ("low", "high", "weights")
        )
        return cls(low, high, weights, plain["constant"])


@dataclass(frozen=True, eq=False)
class Intervals:
    """Of one target.

    Attributes:
        scale: What error is to be expected of a molecule, in deviations of the labels.
        scores: float64, ascending: the residuals that were seen, each by its expected error.
        labels: How many there were.
        unit: Deviation of the training labels.
    """

    scale: Scale
    scores: np.ndarray
    labels: int
    unit: float

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
        scores = np.sort(errors / expected)
        if len(scores) > MOST_SCORES:
            scores = np.quantile(scores, np.linspace(0, 1, MOST_SCORES), method="higher")
        return cls(scale, scores, len(errors), float(unit))

    def score(self, level: float) -> float:
        """Return the score that a share `level` stays below; nan where there are too few.

        So many times the expected error is half the width of an interval.
        """
        rank = int(np.ceil((self.labels + 1) * level - _ROUNDING))
        if rank > self.labels:
            return float("nan")
        kept = np.linspace(0, self.labels - 1, len(self.scores))
        return float(np.interp(rank - 1, kept, self.scores))

    def expected(self, signals: np.ndarray) -> np.ndarray:
        """Return the absolute error to be expected, ``[n]``, in the unit of the labels."""
        return self.scale.of(signals) * self.unit

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Self:
        """Make it from what a checkpoint holds, of which the contents have been checked."""
        scores = np.array(plain["scores"], np.float64)
        return cls(Scale.from_plain(plain["scale"]), scores, plain["labels"], plain["unit"])
