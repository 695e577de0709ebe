"""How good it is what a model says of its own errors, judged on molecules with labels.

n molecules.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from graphormer_sepnorm.confidence.probabilities import expected_error, reliability

# Shares of the molecules that are kept where the least certain ones are left out.
KEPT = tuple(tenth / 10 for tenth in range(10, 0, -1))


@dataclass(frozen=True)
class OfIntervals:
    """Of the intervals of one target.

    Attributes:
        labels: How many there were.
        levels: Of intervals.
        inside: The share of the labels inside the intervals of each level; nan: there were none.
        widths: Their mean widths, in the unit of the target.
        rank_correlation: Spearman's, of expected and actual absolute errors; nan: undefined.
        mae_of_surest: MAE of the shares `KEPT` with the smallest expected errors.
    """

    labels: int
    levels: tuple[float, ...]
    inside: tuple[float, ...]
    widths: tuple[float, ...]
    rank_correlation: float
    mae_of_surest: tuple[float, ...]

    def to_plain(self) -> dict[str, Any]:
        """Return it as a dict."""
        return asdict(self)


@dataclass(frozen=True)
class OfProbabilities:
    """Of the probabilities of one target.

    Attributes:
        labels: How many there were.
        map: How they were calibrated.
        error_before: Expected calibration error of what network and trees say.
        error: The same of the calibrated probabilities.
        bins_before: Mean probability, share of class 1 and number of molecules of each bin.
        bins: The same of the calibrated ones.
    """

    labels: int
    map: str
    error_before: float
    error: float
    bins_before: list[tuple[float, float, int]]
    bins: list[tuple[float, float, int]]

    def to_plain(self) -> dict[str, Any]:
        """Return it as a dict."""
        return asdict(self)


def judge_intervals(
    errors: np.ndarray, expected: np.ndarray, half_widths: dict[float, np.ndarray]
) -> OfIntervals:
    """Judge intervals.

    Args:
        errors: Absolute errors ``[n]``, none missing.
        expected: What was expected ``[n]``.
        half_widths: By level, ``[n]``; nan: there is no interval.
    """
    order = np.argsort(expected, kind="stable")
    there = {level: bool(np.isfinite(half).all()) for level, half in half_widths.items()}
    return OfIntervals(
        len(errors),
        tuple(half_widths),
        tuple(
            float(np.mean(errors <= half)) if there[level] else math.nan
            for level, half in half_widths.items()
        ),
        tuple(float(np.mean(2 * half)) for half in half_widths.values()),
        _rank_correlation(expected, errors),
        tuple(float(errors[order[: max(1, round(kept * len(order)))]].mean()) for kept in KEPT),
    )


def judge_probabilities(
    labels: np.ndarray, before: np.ndarray, probabilities: np.ndarray, name: str
) -> OfProbabilities:
    """Judge probabilities.

    Args:
        labels: 0 and 1, ``[n]``, none missing.
        before: What network and trees say ``[n]``.
        probabilities: Calibrated ``[n]``.
        name: Of the way in which they were calibrated.
    """
    return OfProbabilities(
        len(labels),
        name,
        expected_error(before, labels),
        expected_error(probabilities, labels),
        reliability(before, labels),
        reliability(probabilities, labels),
    )


def _rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    from scipy.stats import spearmanr

    if len(first) < 2 or first.min() == first.max() or second.min() == second.max():
        return math.nan
    found: Any = spearmanr(first, second)
    return float(found.statistic)
