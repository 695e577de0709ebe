"""The distribution of Dunnett's test: the largest of several |t| against one baseline.

Dunnett 1955, Journal of the American Statistical Association 50:1096-1121.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import gammaincinv, ndtr, ndtri, stdtrit

# Gauss and Legendre's, moved to (0, 1).
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(80)
_QUANTILES, _WEIGHTS = (_NODES + 1) / 2, _WEIGHTS / 2


def beyond(score: float, sizes: Sequence[int], freedom: int) -> float:
    """Return the probability that the largest |t| is beyond a score, where arms do not differ.

    With λᵢ² = nᵢ / (nᵢ + n₀) the scores of the arms are independent, given the baseline's mean and
    the standard deviation: two integrals, here over their quantiles. (`scipy.stats.dunnett` samples
    them, and its search for the interval may end far from it.)

    Args:
        score: At least 0.
        sizes: Runs of the baseline, then of each arm.
        freedom: Degrees of freedom of the standard deviation.
    """
    of_mean = ndtri(_QUANTILES)[:, None]
    of_sd = score * np.sqrt(2 * gammaincinv(freedom / 2, _QUANTILES) / freedom)
    inside = np.ones((len(_QUANTILES), len(_QUANTILES)))
    for size in sizes[1:]:
        loading = math.sqrt(size / (size + sizes[0]))
        rest = math.sqrt(1 - loading**2)
        middle = loading * of_mean
        inside *= ndtr((middle + of_sd) / rest) - ndtr((middle - of_sd) / rest)
    return min(1.0, max(0.0, 1 - float(_WEIGHTS @ inside @ _WEIGHTS)))


def critical(sizes: Sequence[int], freedom: int, level: float) -> float:
    """Return the score that the largest |t| stays below with this probability; see `beyond`."""
    # One comparison needs less, and Bonferroni's bound for all of them more.
    share = (1 - level) / 2
    low, high = (float(stdtrit(freedom, 1 - share / count)) for count in (1, len(sizes) - 1))
    for _ in range(20):
        middle = (low + high) / 2
        above = beyond(middle, sizes, freedom) > 1 - level
        low, high = (middle, high) if above else (low, middle)
    return high
