"""Calibrated probabilities, and sets of classes by them.

Networks and trees rank molecules well and are often overconfident. How often which probability was
right is known of unseen molecules: a map that keeps their order is fitted to that.

n molecules · K classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy  # whose parts are loaded when they are needed

from graphormer_sepnorm.uncertainty.conformal import ROUNDING, cross_fitted, quantiles_of

# With fewer labels of either class, or in all for each class, nothing is calibrated.
FEWEST_OF_A_CLASS = 10
# Of each class so many probabilities are stored; of more, quantiles.
MOST_KEPT = 1000
BINS = 10

_SMALLEST = 1e-12
_INVERSE_PENALTY = 1e4


@dataclass(frozen=True)
class Map:
    """Beta calibration (Kull, Silva Filho and Flach 2017), which keeps the order of probabilities.

    The log-odds become a ln p - b ln(1 - p) + c, where neither a nor b is negative; a = b is a
    temperature (Guo et al. 2017), a = b = 1, c = 0 changes nothing.
    """

    a: float = 1.0
    b: float = 1.0
    c: float = 0.0

    @property
    def name(self) -> str:
        """In a word, what it is."""
        if (self.a, self.b, self.c) == (1.0, 1.0, 0.0):
            return "none"
        return "temperature" if self.a == self.b and self.c == 0 else "beta"

    def of(self, probabilities: np.ndarray) -> np.ndarray:
        """Return the calibrated probabilities, nan where they are nan, of any shape."""
        if self.name == "none":
            return probabilities
        ones, zeros = _logarithms(probabilities)
        return scipy.special.expit(self.a * ones - self.b * zeros + self.c)


def _logarithms(probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ln p and ln(1 - p)."""
    inside = np.clip(probabilities, _SMALLEST, 1 - _SMALLEST)
    return np.log(inside), np.log1p(-inside)


def _temperature(probabilities: np.ndarray, labels: np.ndarray) -> Map:
    ones, zeros = _logarithms(probabilities)
    (factor,), _ = _logistic((ones - zeros)[:, None], labels, constant=False)
    return Map(factor, factor) if factor > 0 else Map()


def _beta(probabilities: np.ndarray, labels: np.ndarray) -> Map:
    ones, zeros = _logarithms(probabilities)
    (a, b), c = _logistic(np.stack([ones, -zeros], axis=1), labels)
    # A negative one would reverse the order: without that part, as its authors do.
    if a < 0:
        (b,), c = _logistic(-zeros[:, None], labels)
        a = 0.0
    elif b < 0:
        (a,), c = _logistic(ones[:, None], labels)
        b = 0.0
    return Map(a, b, c) if min(a, b) >= 0 and max(a, b) > 0 else Map()


def _logistic(
    features: np.ndarray, labels: np.ndarray, constant: bool = True
) -> tuple[list[float], float]:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=_INVERSE_PENALTY, fit_intercept=constant, max_iter=1000)
    # Some hundred labels make nothing certain: one more of each class (Platt 1999).
    alike = np.where(labels > 0.5, np.sum(labels > 0.5), np.sum(labels <= 0.5))
    right = (alike + 1) / (alike + 2)
    model.fit(
        np.concatenate([features, features]),
        np.concatenate([labels, 1 - labels]),
        sample_weight=np.concatenate([right, 1 - right]),
    )
    return model.coef_[0].tolist(), float(np.ravel(model.intercept_)[0]) if constant else 0.0


@dataclass(frozen=True, eq=False)
class Calibration:
    """The calibration of one target.

    Attributes:
        map: From predicted probabilities of class 1 to calibrated ones.
        zeros: float64, ascending: the calibrated probabilities of unseen molecules of class 0.
        ones: The same of class 1.
        counts: How many there were of each class, where quantiles are stored.
    """

    map: Map
    zeros: np.ndarray
    ones: np.ndarray
    counts: tuple[int, int]

    @classmethod
    def fit(cls, probabilities: np.ndarray, labels: np.ndarray, folds: np.ndarray) -> Self:
        """Fit it to molecules that the model has not seen.

        By probabilities of class 1, labels (0 and 1, none missing) and folds (int64), ``[n]`` each.
        Of no map, a temperature and beta calibration the simplest is taken, unless the log loss of
        another one on folds that it was not fitted to is lower by more than its standard error.
        """
        rest = [labels[folds != fold] for fold in np.unique(folds)]
        fewest = min(min(np.sum(part == 0), np.sum(part == 1)) for part in rest)
        found, best = Map(), log_loss(probabilities, labels)
        if len(rest) > 1 and fewest >= FEWEST_OF_A_CLASS:
            for kind in (_temperature, _beta):
                mapped = cross_fitted(kind, Map.of, probabilities, labels, folds)
                if _is_lower(losses := log_loss(mapped, labels), best):
                    found, best = kind(probabilities, labels), losses
        values = found.of(probabilities)
        classes = [values[labels == label] for label in (0, 1)]
        zeros, ones = (quantiles_of(one, MOST_KEPT, "linear") for one in classes)
        return cls(found, zeros, ones, (len(classes[0]), len(classes[1])))

    @property
    def labels(self) -> int:
        """How many labels there were of the class that has more."""
        return max(self.counts)

    def sets(self, probabilities: np.ndarray, level: float) -> np.ndarray:
        """Return which classes molecules may be of, bool ``[n, 2]``, by calibrated probabilities.

        Conformal for each class by itself (Mondrian, Vovk et al. 2003): of the molecules of a class
        a share `level` has it in the set, however rare it is. A set may have both or none.
        """
        # The share of unseen molecules of the class that are no more typical of it than this one.
        # It is compared in ranks: 1 - 0.9 is less than a tenth.
        above = 1 - np.searchsorted(self.zeros, probabilities, "left") / max(1, len(self.zeros))
        below = np.searchsorted(self.ones, probabilities, "right") / max(1, len(self.ones))
        counts = np.array(self.counts)
        ranks = np.stack([above, below], axis=1) * counts + 1
        return ranks > (counts + 1) * (1 - level) + ROUNDING


def tempered(probabilities: np.ndarray, temperature: float) -> np.ndarray:
    """Return probabilities ``[n, K]`` of classes that exclude each other, sharper or blunter.

    Their logarithms are divided by the temperature (Guo et al. 2017), and made to add up to 1; a
    row of nan stays one.
    """
    if temperature == 1:
        return probabilities
    return scipy.special.softmax(np.log(np.maximum(probabilities, _SMALLEST)) / temperature, axis=1)


def temperature_of(probabilities: np.ndarray, labels: np.ndarray, folds: np.ndarray) -> float:
    """Return the temperature of classes that exclude each other.

    By probabilities and labels (0 and 1, nan = missing), ``[n, K]``, and folds, int64 ``[n]``. 1
    unless the log loss of another one on folds that it was not fitted to is lower by more than its
    standard error.
    """
    known = np.isfinite(labels).all(axis=1) & np.isfinite(probabilities).all(axis=1)
    probabilities, labels, folds = probabilities[known], labels[known], folds[known]
    sizes = np.unique(folds, return_counts=True)[1]
    if len(sizes) < 2 or len(folds) - sizes.max() < FEWEST_OF_A_CLASS * labels.shape[1]:
        return 1.0
    tried = probabilities, labels, folds
    mapped = cross_fitted(_best_temperature, lambda found, values: tempered(values, found), *tried)
    own = labels.argmax(axis=1)[:, None]
    losses, before = (
        -np.log(np.maximum(np.take_along_axis(values, own, axis=1)[:, 0], _SMALLEST))
        for values in (mapped, probabilities)
    )
    return _best_temperature(probabilities, labels) if _is_lower(losses, before) else 1.0


def _best_temperature(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Return the temperature of the lowest log loss."""
    logarithms = np.log(np.maximum(probabilities, _SMALLEST))
    count, classes = probabilities.shape
    # Some hundred labels make nothing certain: one more of each class (Platt 1999).
    targets = np.full((count, classes), 1 / (count + classes))
    targets[np.arange(count), labels.argmax(axis=1)] = (count + 1) / (count + classes)

    def loss(logarithm: float) -> float:
        shares = scipy.special.log_softmax(logarithms / np.exp(logarithm), axis=1)
        return -float((targets * shares).sum())

    found: Any = scipy.optimize.minimize_scalar(loss, bounds=(-3, 3), method="bounded")
    return float(np.exp(found.x))


def _is_lower(losses: np.ndarray, others: np.ndarray) -> bool:
    """Return whether losses are lower than others by more than the standard error of that."""
    gain = others - losses
    return bool(gain.mean() > gain.std(ddof=1) / np.sqrt(len(gain)))


def expected_error(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Return the expected calibration error (Naeini et al. 2015), without what chance adds to it.

    The mean distance of probability and share of class 1, of bins with as many molecules, from
    which `error_by_chance` is subtracted as noise is, in squares.
    """
    parts = np.array_split(np.argsort(probabilities, kind="stable"), BINS)
    found = sum(abs((probabilities[part] - labels[part]).sum()) for part in parts) / len(labels)
    return float(np.sqrt(max(0.0, found**2 - error_by_chance(probabilities) ** 2)))


def error_by_chance(probabilities: np.ndarray) -> float:
    """Return the calibration error that exactly right probabilities ``[n]`` show."""
    parts = np.array_split(np.sort(probabilities), BINS)
    deviations = [np.sqrt((part * (1 - part)).sum()) for part in parts]
    return float(np.sqrt(2 / np.pi) * sum(deviations) / len(probabilities))


def log_loss(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the log loss of each label, of any shape; nan where there is none."""
    ones, zeros = _logarithms(probabilities)
    return np.where(np.isnan(labels), np.nan, -np.where(labels > 0.5, ones, zeros))


def entropy(probabilities: np.ndarray) -> np.ndarray:
    """Return the log loss that probabilities of any shape expect of themselves."""
    ones, zeros = _logarithms(probabilities)
    return -probabilities * ones - (1 - probabilities) * zeros
