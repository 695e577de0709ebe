"""What a network reads in addition to a molecule's graph: columns of a table.

n molecules · D numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any

import numpy as np

from graphormer_sepnorm.formatting import listed

# Deviations from the training mean at which a standardized number is clipped, as in pre-training.
CLIPPED = 6.0
# A deviation that is smaller, as a share of the mean or absolutely, is rounding.
_SMALLEST_SHARE, _SMALLEST = 1e-6, 1e-15
# Percentiles between which most values lie. At each end there are more than the 1 in 37 that can
# lie outside six deviations: a column whose two differ is not clipped to nothing.
_CENTRAL = (5, 95)
# A deviation that shrinks by a smaller share stays. One outlier among 38 loses 1 % in a round.
_STAYS, _MOST_ROUNDS = 1e-7, 2000


def columns_of(facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the columns that the network of a checkpoint reads; mostly none."""
    return tuple(facts.get("extra_inputs", {}).get("columns", ()))


def in_report(names: Sequence[str], values: np.ndarray, factors: np.ndarray) -> list[str]:
    """Return a line on what is missing, and one on what is constant, if anything is.

    `values` are those of all molecules, ``[n, D]``, nan = missing; `factors` of `standardization`.
    """
    counts = zip(names, np.isnan(values).sum(axis=0).tolist(), strict=True)
    parts = [f"{name} of {count:,}" for name, count in counts if count]
    constant = list(compress(names, factors == 0))
    lines = []
    if parts:
        lines.append(f"missing, the training mean stands for it: {listed(parts)} molecules")
    if constant:
        lines.append(f"one value throughout the training split: {listed(constant)}")
    return lines


def standardization(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and 1 / deviation, float64 ``[D]``, of molecules ``[n, D]``; nan = missing.

    What lies beyond six deviations counts as six: one enormous value would make all others equal.
    It makes the deviation enormous too, so this is repeated until the deviation shrinks no more;
    but once where nine of ten molecules have one value, of which nothing but that would be left.
    Of fewer than 38 molecules none lies beyond six deviations, whatever its value. The factor is 0
    where training has no value, or no two different ones: nothing can be learned from these.
    """
    mean, factor = np.zeros(values.shape[1]), np.zeros(values.shape[1])
    for place, column in enumerate(np.asarray(values, np.float64).T):
        present = column[~np.isnan(column)]
        if len(present):
            mean[place], deviation = _clipped(present)
            if _differ(deviation, abs(mean[place])):
                factor[place] = 1 / deviation
    return mean, factor


def _clipped(column: np.ndarray) -> tuple[float, float]:
    """Return mean and deviation of a column ``[n]`` that is clipped until they stay."""
    low, high = np.percentile(column, _CENTRAL)
    rounds = _MOST_ROUNDS if _differ(high - low, max(abs(low), abs(high))) else 1
    mean, deviation = float(column.mean()), float(column.std())
    for _ in range(rounds):
        column = np.clip(column, mean - CLIPPED * deviation, mean + CLIPPED * deviation)
        before, mean, deviation = deviation, float(column.mean()), float(column.std())
        if deviation > before * (1 - _STAYS):
            break
    return mean, deviation


def _differ(spread: float, size: float) -> bool:
    """Whether values of a size that are spread so far differ by more than rounding."""
    return spread > max(_SMALLEST_SHARE * size, _SMALLEST)
