"""Two areas under the ROC curve on the same molecules: DeLong's test.

It is over molecules, given the scores: it says whether *these* scores differ, not whether the next
training would. Scores that were averaged over seeds are those of an ensemble, whose area is
not the mean of the areas of its members.

Labels are 0 or 1 per molecule ``[n]``, both of them there; scores ``[n]`` are larger for class 1,
in any monotone unit. P positives · N negatives.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata

from graphormer_sepnorm.compare.statistics import CONFIDENCE


@dataclass(frozen=True)
class AreaDifference:
    """Two areas under the ROC curve and their difference b - a, all as fractions of 1.

    Attributes:
        auc_a: Area of scores a.
        auc_b: Area of scores b.
        difference: ``auc_b - auc_a``.
        standard_error: Of the difference.
        low: Lower end of its interval.
        high: Its upper end.
        confidence: Its confidence.
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


def delong(labels: ArrayLike, scores_a: ArrayLike, scores_b: ArrayLike) -> AreaDifference:
    """Compare two areas under the ROC curve by DeLong's test, in O(n log n).

    The covariance is that of DeLong, DeLong & Clarke-Pearson (1988, Biometrics 44:837-845), the
    midranks are those of Sun & Xu (2014, IEEE Signal Processing Letters 21:1389-1393); interval and
    p-value are normal.

    Returns:
        Standard error, interval and p-value are nan if a class has one molecule only, and interval
        and p-value if the variance vanishes though the areas differ (each separates the classes
        perfectly, one of them the wrong way round): there the normal approximation has nothing to
        say. Scores of the same order have p = 1.
    """
    wins_a, losses_a = _placements(labels, scores_a)
    wins_b, losses_b = _placements(labels, scores_b)
    pairs = len(wins_a) * len(losses_a)
    difference = float(wins_b.sum() - wins_a.sum()) / pairs
    standard_error = _standard_error(wins_b - wins_a, losses_b - losses_a)
    if standard_error > 0:
        half = float(ndtri((1 + CONFIDENCE) / 2)) * standard_error
        low, high = difference - half, difference + half
        p_value = 2 * float(ndtr(-abs(difference) / standard_error))
    elif standard_error == 0 and difference == 0:
        low, high, p_value = 0.0, 0.0, 1.0
    else:
        low = high = p_value = math.nan
    auc_a, auc_b = (float(wins.sum()) / pairs for wins in (wins_a, wins_b))
    return AreaDifference(auc_a, auc_b, difference, standard_error, low, high, CONFIDENCE, p_value)


def _placements(labels: ArrayLike, scores: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Count for each molecule the pairs with the other class that are in the right order.

    Returns:
        For each positive the negatives below it, float64 ``[P]``, and for each negative the
        positives above it, ``[N]``; a tie counts 1/2.
    """
    positive, column = np.asarray(labels) == 1, np.asarray(scores, dtype=np.float64)
    ranks, positives, negatives = rankdata(column), column[positive], column[~positive]
    wins = ranks[positive] - rankdata(positives)
    losses = rankdata(negatives) + len(positives) - ranks[~positive]
    return wins, losses


def _standard_error(wins: np.ndarray, losses: np.ndarray) -> float:
    """Return DeLong's standard error from placements, or from differences of them.

    They are multiples of 1/2 and so are exact, and equal ones have a variance of exactly 0.
    """
    p, n = len(wins), len(losses)
    if min(p, n) < 2:
        return math.nan
    return math.sqrt(wins.var(ddof=1) / n**2 / p + losses.var(ddof=1) / p**2 / n)
