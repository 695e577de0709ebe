"""Probabilities that mean what they say, and what can be decided by them.

Networks and trees rank molecules well and are often too sure. Of molecules that they have not seen
it is known how often which probability was right: a map that keeps their order is fitted to that.

n molecules.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_softmax, softmax

# Fewer of either class say nothing of probabilities; and so many labels are enough for a free form.
FEWEST_OF_A_CLASS, ENOUGH_FOR_ISOTONIC = 10, 1000
# Of each class so many probabilities are kept; of more, quantiles.
MOST_KEPT = 1000
BINS = 10

_SMALLEST = 1e-12
_INVERSE_PENALTY = 1e4
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Map:
    """A map of probabilities that keeps their order.

    Beta calibration (Kull, Silva Filho and Flach 2017): the log-odds become
    a ln p - b ln(1 - p) + c; a = b is a temperature (Guo et al. 2017), a = b = 1, c = 0 changes
    nothing. Or, with knots, lines between the steps of an isotonic regression.

    Attributes:
        a: Not negative.
        b: Not negative.
        c: Any number.
        knots: float64 ``[K, 2]``, log-odds and probabilities, both increasing; empty for the rest.
    """

    a: float = 1.0
    b: float = 1.0
    c: float = 0.0
    knots: np.ndarray = field(default_factory=lambda: np.empty((0, 2)))

    @property
    def name(self) -> str:
        """In a word, what it is."""
        if len(self.knots):
            return "isotonic"
        if (self.a, self.b, self.c) == (1.0, 1.0, 0.0):
            return "none"
        return "temperature" if self.a == self.b and self.c == 0 else "beta"

    def of(self, probabilities: np.ndarray) -> np.ndarray:
        """Return the calibrated probabilities, nan where they are nan, of any shape."""
        if self.name == "none":
            return probabilities
        ones, zeros = _logarithms(probabilities)
        if len(self.knots):
            mapped = np.interp(ones - zeros, *self.knots.T)
            return np.where(np.isnan(probabilities), np.nan, mapped)
        return expit(self.a * ones - self.b * zeros + self.c)


def _logarithms(probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ln p and ln(1 - p)."""
    inside = np.clip(probabilities, _SMALLEST, 1 - _SMALLEST)
    return np.log(inside), np.log1p(-inside)


def _nothing(probabilities: np.ndarray, labels: np.ndarray) -> Map:
    return Map()


def _temperature(probabilities: np.ndarray, labels: np.ndarray) -> Map:
    ones, zeros = _logarithms(probabilities)
    (factor,), _ = _logistic((ones - zeros)[:, None], labels, constant=False)
    return Map(factor, factor) if factor > 0 else Map()


def _beta(probabilities: np.ndarray, labels: np.ndarray) -> Map:
    ones, zeros = _logarithms(probabilities)
    (a, b), c = _logistic(np.stack([ones, -zeros], axis=1), labels)
    # A negative one would turn the order round: without that part, as its authors do.
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
    # Nothing is certain because some hundred labels say so: one more of each class (Platt 1999).
    alike = np.where(labels > 0.5, np.sum(labels > 0.5), np.sum(labels <= 0.5))
    right = (alike + 1) / (alike + 2)
    model.fit(
        np.concatenate([features, features]),
        np.concatenate([labels, 1 - labels]),
        sample_weight=np.concatenate([right, 1 - right]),
    )
    return model.coef_[0].tolist(), float(np.ravel(model.intercept_)[0]) if constant else 0.0


def _isotonic(probabilities: np.ndarray, labels: np.ndarray) -> Map:
    """Steps have one value for many molecules: lines between their middles keep the order."""
    from sklearn.isotonic import IsotonicRegression

    ones, zeros = _logarithms(probabilities)
    odds = np.sort(ones - zeros)
    steps = IsotonicRegression().fit_transform(ones - zeros, labels)
    heights, where, count = np.unique(np.sort(steps), return_inverse=True, return_counts=True)
    middles = np.bincount(where, odds) / count
    # Nothing is certain because some hundred labels say so. Small steps are drawn to the half most:
    # one that is higher than the next by that is levelled with it, each by its weight.
    heights = (heights * count + 0.5) / (count + 1)
    heights = IsotonicRegression().fit_transform(middles, heights, sample_weight=count + 1)
    knots = np.stack([middles, heights], axis=1)
    return Map(knots=knots) if len(knots) > 1 else Map()


@dataclass(frozen=True, eq=False)
class Calibration:
    """Of one target.

    Attributes:
        map: From what network and trees say to the probability of class 1.
        zeros: float64, ascending: the probabilities, mapped, of unseen molecules of class 0.
        ones: The same of class 1.
        counts: How many there were of each class, where quantiles are kept.
    """

    map: Map
    zeros: np.ndarray
    ones: np.ndarray
    counts: tuple[int, int]

    @classmethod
    def fit(
        cls,
        probabilities: np.ndarray,
        labels: np.ndarray,
        folds: np.ndarray,
        ranked: bool = False,
    ) -> Self:
        """Take it from molecules that the model has not seen.

        Of no map, a temperature, beta calibration and (with `ENOUGH_FOR_ISOTONIC` labels) isotonic
        regression the simplest is taken, unless the log loss of another one on folds that it was
        not fitted to is lower by more than its standard error.

        Args:
            probabilities: Of class 1, ``[n]``.
            labels: 0 and 1, ``[n]``, none missing.
            folds: int64 ``[n]``.
            ranked: Whether no two probabilities may become one, as by isotonic regression.
        """
        kinds: list[Callable[[np.ndarray, np.ndarray], Map]] = []
        numbers = np.unique(folds)
        rest = [labels[folds != fold] for fold in numbers]
        fewest = min(min(np.sum(part == 0), np.sum(part == 1)) for part in rest)
        if len(numbers) > 1 and fewest >= FEWEST_OF_A_CLASS:
            kinds += [_temperature, _beta]
            kinds += [_isotonic] if len(labels) >= ENOUGH_FOR_ISOTONIC and not ranked else []
        chosen, best = _nothing, probabilities
        for kind in kinds:
            mapped = np.empty(len(labels))
            for fold in numbers:
                own = folds == fold
                mapped[own] = kind(probabilities[~own], labels[~own]).of(probabilities[own])
            if _is_lower(log_loss(mapped, labels), log_loss(best, labels)):
                chosen, best = kind, mapped
        final = chosen(probabilities, labels)
        values = final.of(probabilities)
        return cls(
            final,
            _quantiles(values[labels == 0]),
            _quantiles(values[labels == 1]),
            (int(np.sum(labels == 0)), int(np.sum(labels == 1))),
        )

    def sets(self, probabilities: np.ndarray, level: float) -> np.ndarray:
        """Return which classes a molecule may be of, bool ``[n, 2]``.

        Conformal for each class by itself (Mondrian, Vovk et al. 2003): of the molecules of a class
        a share `level` has it in the set, however rare it is. A set may hold both or none.

        Args:
            probabilities: Calibrated, ``[n]``.
            level: Above 0, below 1.
        """
        # The share of unseen molecules of the class that are no more typical of it than this one.
        # It is compared in ranks: 1 - 0.9 is less than a tenth.
        above = 1 - np.searchsorted(self.zeros, probabilities, "left") / max(1, len(self.zeros))
        below = np.searchsorted(self.ones, probabilities, "right") / max(1, len(self.ones))
        share = np.stack([above, below], axis=1)
        counts = np.array(self.counts)
        return share * counts + 1 > (counts + 1) * (1 - level) + _ROUNDING


def tempered(probabilities: np.ndarray, temperature: float) -> np.ndarray:
    """Return probabilities of classes of which each molecule is of one, sharper or blunter.

    Their logarithms are divided by the temperature (Guo et al. 2017), and made to add up to 1.

    Args:
        probabilities: Of each class ``[n, K]``; a row of nan stays one.
        temperature: Above 0; above 1 it says less.
    """
    logarithms = np.log(np.maximum(probabilities, _SMALLEST))
    return softmax(logarithms / temperature, axis=1)


def temperature_of(probabilities: np.ndarray, labels: np.ndarray, folds: np.ndarray) -> float:
    """Return the temperature of classes of which each molecule is of one.

    1 unless the log loss of another one on folds that it was not fitted to is lower by more than
    its standard error.

    Args:
        probabilities: Of each class ``[n, K]``.
        labels: 1 of its class, 0 of the others, ``[n, K]``; nan = missing.
        folds: int64 ``[n]``.
    """
    known = np.isfinite(labels).all(axis=1) & np.isfinite(probabilities).all(axis=1)
    right, said, folds = labels[known].argmax(axis=1), probabilities[known], folds[known]
    numbers, sizes = np.unique(folds, return_counts=True)
    enough = FEWEST_OF_A_CLASS * probabilities.shape[1]
    if len(numbers) < 2 or len(folds) - sizes.max() < enough:
        return 1.0
    mapped = np.empty_like(said)
    for fold in numbers:
        own = folds == fold
        mapped[own] = tempered(said[own], _best_temperature(said[~own], right[~own]))
    lower = _is_lower(_loss_of_class(mapped, right), _loss_of_class(said, right))
    return _best_temperature(said, right) if lower else 1.0


def _is_lower(losses: np.ndarray, others: np.ndarray) -> bool:
    """Return whether losses are lower than others by more than the standard error of that."""
    gain = others - losses
    return bool(gain.mean() > gain.std(ddof=1) / np.sqrt(len(gain)))


def _best_temperature(probabilities: np.ndarray, right: np.ndarray) -> float:
    logarithms = np.log(np.maximum(probabilities, _SMALLEST))
    count, classes = probabilities.shape
    # Nothing is certain because some hundred labels say so: one more of each class (Platt 1999).
    targets = np.full((count, classes), 1 / (count + classes))
    targets[np.arange(count), right] = (count + 1) / (count + classes)

    def loss(logarithm: float) -> float:
        return -float((targets * log_softmax(logarithms / np.exp(logarithm), axis=1)).sum())

    found: Any = minimize_scalar(loss, bounds=(-3, 3), method="bounded")
    return float(np.exp(found.x))


def _loss_of_class(probabilities: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the log loss of each row; `right` is the number of its class."""
    own = np.take_along_axis(probabilities, right[:, None], axis=1)[:, 0]
    return -np.log(np.maximum(own, _SMALLEST))


def expected_error(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Return the expected calibration error (Naeini et al. 2015), without what chance adds to it.

    The mean distance of probability and share of class 1, of bins with as many molecules, of which
    `error_by_chance` is taken off as noise is, in squares; nan without labels.
    """
    if len(labels) == 0:
        return float("nan")
    parts = np.array_split(np.argsort(probabilities, kind="stable"), BINS)
    found = sum(abs((probabilities[part] - labels[part]).sum()) for part in parts) / len(labels)
    return float(np.sqrt(max(0.0, found**2 - error_by_chance(probabilities) ** 2)))


def error_by_chance(probabilities: np.ndarray) -> float:
    """Return the calibration error that probabilities ``[n]`` show which are exactly right.

    The share of class 1 in a bin is not its mean probability: nan of none.
    """
    if len(probabilities) == 0:
        return float("nan")
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


def _quantiles(values: np.ndarray) -> np.ndarray:
    values = np.sort(values)
    if len(values) <= MOST_KEPT:
        return values
    return np.quantile(values, np.linspace(0, 1, MOST_KEPT))
