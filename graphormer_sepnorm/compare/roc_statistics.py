"""Two areas under the ROC curve on the same molecules: DeLong's test and a paired bootstrap.

Both are over molecules, given the scores: they say whether *these* scores differ, not whether the
next training would. Scores that were averaged over seeds are those of an ensemble, whose area is
not the mean of the areas of its members.

P positives · N negatives · K distinct scores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from graphormer_sepnorm.compare.statistics import check_confidence


@dataclass(frozen=True)
class AreaDifference:
    """Two areas under the ROC curve and their difference, all as fractions of 1.

    Attributes:
        auc_a: Area of scores a.
        auc_b: Area of scores b.
        difference: ``auc_b - auc_a``.
        standard_error: Of the difference.
        low: Lower end of its interval.
        high: Its upper end.
        confidence: Its confidence, 0.95 for 95 %.
        p_value: Two-sided, that the areas are the same.
    """

    auc_a: float
    auc_b: float
    difference: float
    standard_error: float
    low: float
    high: float
    confidence: float
    p_value: float


def delong(
    labels: ArrayLike, scores_a: ArrayLike, scores_b: ArrayLike, confidence: float = 0.95
) -> AreaDifference:
    """Compare two areas under the ROC curve by DeLong's test, in O(n log n).

    The covariance is that of DeLong, DeLong & Clarke-Pearson (1988, Biometrics 44:837-845), the
    midranks are those of Sun & Xu (2014, IEEE Signal Processing Letters 21:1389-1393); interval and
    p-value are normal.

    Args:
        labels: 0 or 1 per molecule, ``[n]``.
        scores_a: Larger for class 1, in any monotone unit, ``[n]``.
        scores_b: The same molecules in the same order, ``[n]``.
        confidence: Of the interval, between 0 and 1.

    Returns:
        Standard error, interval and p-value are nan if a class has one molecule only, and interval
        and p-value if the variance vanishes though the areas differ (each separates the classes
        perfectly, one of them the wrong way round): there the normal approximation has nothing to
        say. Scores of the same order have p = 1.

    Raises:
        ValueError: The lengths differ, a label is neither 0 nor 1, a class is missing, a score is
            nan, or the confidence is not between 0 and 1.
    """
    check_confidence(confidence)
    positive = _positives(labels)
    wins_a, losses_a = _placements(positive, _ranks(scores_a, positive, "scores_a"))
    wins_b, losses_b = _placements(positive, _ranks(scores_b, positive, "scores_b"))
    pairs = len(wins_a) * len(losses_a)
    difference = float(wins_b.sum() - wins_a.sum()) / pairs
    standard_error = _standard_error(wins_b - wins_a, losses_b - losses_a)
    if standard_error > 0:
        half = float(ndtri((1 + confidence) / 2)) * standard_error
        low, high = difference - half, difference + half
        p_value = 2 * float(ndtr(-abs(difference) / standard_error))
    elif standard_error == 0 and difference == 0:
        low, high, p_value = 0.0, 0.0, 1.0
    else:
        low = high = p_value = math.nan
    return AreaDifference(
        auc_a=float(wins_a.sum()) / pairs,
        auc_b=float(wins_b.sum()) / pairs,
        difference=difference,
        standard_error=standard_error,
        low=low,
        high=high,
        confidence=confidence,
        p_value=p_value,
    )


def auc_standard_error(labels: ArrayLike, scores: ArrayLike) -> float:
    """Return DeLong's standard error of one area under the ROC curve.

    It is nan if a class has one molecule only, and 0, which is too little, if the classes are
    separated perfectly.

    Args:
        labels: 0 or 1 per molecule, ``[n]``.
        scores: Larger for class 1, ``[n]``.

    Raises:
        ValueError: The lengths differ, a label is neither 0 nor 1, a class is missing, or a score
            is nan.
    """
    positive = _positives(labels)
    return _standard_error(*_placements(positive, _ranks(scores, positive, "scores")))


def paired_bootstrap_auc(
    labels: ArrayLike,
    scores_a: ArrayLike,
    scores_b: ArrayLike,
    samples: int = 2000,
    seed: int = 0,
    confidence: float = 0.95,
) -> AreaDifference:
    """Compare two areas under the ROC curve by a bootstrap, paired and stratified by class.

    Each sample draws as many positives and as many negatives as there are, with replacement, and
    the same ones for both scores. The interval is the percentile one (Efron & Tibshirani 1993, An
    Introduction to the Bootstrap, chapter 13); the p-value is the one that goes with it, twice the
    share of samples on the far side of zero, with the observed one counted in.

    Args:
        labels: 0 or 1 per molecule, ``[n]``.
        scores_a: Larger for class 1, ``[n]``.
        scores_b: The same molecules in the same order, ``[n]``.
        samples: How many; the p-value is no smaller than 2 / (samples + 1).
        seed: Of the generator; the same seed gives the same result.
        confidence: Of the interval, between 0 and 1.

    Raises:
        ValueError: The lengths differ, a label is neither 0 nor 1, a class is missing, a score is
            nan, there are fewer than 2 samples, or the confidence is not between 0 and 1.
    """
    check_confidence(confidence)
    if samples < 2:
        raise ValueError(f"a bootstrap needs 2 samples or more, not {samples}")
    positive = _positives(labels)
    arms = [
        (ranks[positive], ranks[~positive], int(ranks.max()) + 1)
        for ranks in (
            _ranks(scores_a, positive, "scores_a"),
            _ranks(scores_b, positive, "scores_b"),
        )
    ]
    p, n = int(positive.sum()), int((~positive).sum())
    observed_a, observed_b = (_wins(*arm) for arm in arms)
    generator = np.random.default_rng(seed)
    # In wins, which are multiples of 1/2 and so exact: a difference of zero is zero.
    differences = np.empty(samples)
    for sample in range(samples):
        drawn_p, drawn_n = generator.integers(p, size=p), generator.integers(n, size=n)
        wins_a, wins_b = (_wins(pos[drawn_p], neg[drawn_n], k) for pos, neg, k in arms)
        differences[sample] = wins_b - wins_a
    tail = min((differences <= 0).sum(), (differences >= 0).sum())
    differences /= p * n
    low, high = np.quantile(differences, [(1 - confidence) / 2, (1 + confidence) / 2])
    return AreaDifference(
        auc_a=observed_a / (p * n),
        auc_b=observed_b / (p * n),
        difference=(observed_b - observed_a) / (p * n),
        standard_error=float(differences.std(ddof=1)),
        low=float(low),
        high=float(high),
        confidence=confidence,
        p_value=min(1.0, 2 * (int(tail) + 1) / (samples + 1)),
    )


def _positives(labels: ArrayLike) -> np.ndarray:
    column = np.asarray(labels, dtype=np.float64)
    if column.ndim != 1:
        raise ValueError(f"labels: a list of numbers is needed, not an array {column.shape}")
    positive = column == 1
    if not (positive | (column == 0)).all():
        raise ValueError("a label is neither 0 nor 1")
    if positive.all() or not positive.any():
        raise ValueError("an area under the ROC curve needs molecules of both classes")
    return positive


def _ranks(scores: ArrayLike, positive: np.ndarray, name: str) -> np.ndarray:
    """Return the position of each score among the distinct ones, int64 ``[n]``, 0 to K - 1."""
    column = np.asarray(scores, dtype=np.float64)
    if column.shape != positive.shape:
        raise ValueError(f"{name}: one score per label is needed, {len(positive)} of them")
    if np.isnan(column).any():
        raise ValueError(f"{name}: a score is nan")
    return np.unique(column, return_inverse=True)[1].astype(np.int64)


def _placements(positive: np.ndarray, ranks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Count for each molecule the pairs with the other class that are in the right order.

    Returns:
        For each positive the negatives below it, float64 ``[P]``, and for each negative the
        positives above it, ``[N]``; a tie counts 1/2.
    """
    midranks = _midranks(ranks)
    positives, negatives = ranks[positive], ranks[~positive]
    wins = midranks[positive] - _midranks(positives)
    losses = _midranks(negatives) + len(positives) - midranks[~positive]
    return wins, losses


def _midranks(ranks: np.ndarray) -> np.ndarray:
    """Return the ranks from 1 on, where tied ones share their mean."""
    sizes = np.bincount(ranks)
    return (np.cumsum(sizes) - (sizes - 1) / 2)[ranks]


def _standard_error(wins: np.ndarray, losses: np.ndarray) -> float:
    """Return DeLong's standard error from placements, or from differences of them.

    They are multiples of 1/2 and so are exact, and equal ones have a variance of exactly 0.
    """
    p, n = len(wins), len(losses)
    if min(p, n) < 2:
        return math.nan
    return math.sqrt(wins.var(ddof=1) / n**2 / p + losses.var(ddof=1) / p**2 / n)


def _wins(positives: np.ndarray, negatives: np.ndarray, distinct: int) -> float:
    """Return the number of pairs in the right order, from the ranks; a tie counts 1/2."""
    at = np.bincount(negatives, minlength=distinct)
    below = np.cumsum(at) - at / 2
    return float(below[positives].sum())
