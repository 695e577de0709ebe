"""DeLong's test, against loops over all pairs, scikit-learn and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import roc_auc_score

from graphormer_sepnorm.compare.roc_statistics import delong


def delong_by_loops(labels, *scores) -> tuple[np.ndarray, np.ndarray]:
    """Areas and their covariance, equations 1 to 6 of DeLong et al. (1988) word for word."""
    positives = [i for i, label in enumerate(labels) if label == 1]
    negatives = [i for i, label in enumerate(labels) if label == 0]

    def psi(x: float, y: float) -> float:
        return 1.0 if x > y else 0.5 if x == y else 0.0

    v10 = [[np.mean([psi(s[i], s[j]) for j in negatives]) for i in positives] for s in scores]
    v01 = [[np.mean([psi(s[i], s[j]) for i in positives]) for j in negatives] for s in scores]
    areas = np.array([np.mean(row) for row in v10])
    covariance = np.zeros((len(scores), len(scores)))
    for r in range(len(scores)):
        for s in range(len(scores)):
            for v in (v10, v01):
                products = [
                    (a - areas[r]) * (b - areas[s]) for a, b in zip(v[r], v[s], strict=True)
                ]
                covariance[r, s] += sum(products) / (len(products) - 1) / len(products)
    return areas, covariance


def correlated_scores(seed: int, p: int, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels and two scores, both normal, and larger by 1 on average for positives."""
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.repeat([1, 0], [p, n]))
    shared = generator.normal(size=p + n) + labels
    noise = generator.normal(scale=0.5, size=(2, p + n))
    return labels, shared + noise[0], shared + noise[1]


@pytest.mark.parametrize("decimals", [0, 1, 9])
@pytest.mark.parametrize(("p", "n"), [(2, 2), (5, 40), (23, 17)])
def test_delong_is_the_sum_over_all_pairs(decimals: int, p: int, n: int) -> None:
    labels, a, b = correlated_scores(5, p, n)
    a, b = a.round(decimals), b.round(decimals)  # few decimals make many ties
    areas, covariance = delong_by_loops(labels, a, b)
    variance = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
    result = delong(labels, a, b)
    assert (result.auc_a, result.auc_b) == pytest.approx(tuple(areas))
    assert result.difference == pytest.approx(areas[1] - areas[0])
    assert result.standard_error == pytest.approx(math.sqrt(max(variance, 0)), abs=1e-9)


def test_delongs_interval_and_p_value_are_normal() -> None:
    labels, a, b = correlated_scores(2, 30, 70)
    result = delong(labels, a, b)
    low, high = stats.norm.interval(0.95, result.difference, result.standard_error)
    assert (result.low, result.high, result.confidence) == pytest.approx((low, high, 0.95))
    z = abs(result.difference) / result.standard_error
    assert result.p_value == pytest.approx(2 * stats.norm.sf(z))


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=4, max_size=25),
    st.integers(2, 23),
)
def test_areas_swap_and_units_do_not_matter(scores: list[tuple[int, int]], p: int) -> None:
    a, b = (np.array(column, dtype=float) for column in zip(*scores, strict=True))
    labels = np.arange(len(a)) < min(p, len(a) - 2)
    result, swapped = delong(labels, a, b), delong(labels, b, a)
    assert result.auc_a == pytest.approx(roc_auc_score(labels, a))
    assert result.auc_b == pytest.approx(roc_auc_score(labels, b))
    assert swapped.difference == -result.difference
    assert swapped.standard_error == result.standard_error
    assert repr(delong(labels, np.exp(a), 3 * b - 100)) == repr(result)


def test_scores_of_the_same_order_do_not_differ() -> None:
    labels, a, _ = correlated_scores(0, 20, 30)
    result = delong(labels, a, np.exp(a))
    assert (result.difference, result.standard_error, result.p_value) == (0.0, 0.0, 1.0)
    assert (result.low, result.high) == (0.0, 0.0)


def test_nothing_is_claimed_where_the_variance_vanishes() -> None:
    labels = [0, 0, 0, 1, 1]
    right = delong(labels, [1, 2, 3, 4, 5], [1, 2, 3, 5, 4])
    assert (right.difference, right.p_value) == (0.0, 1.0)
    wrong = delong(labels, [1, 2, 3, 4, 5], [5, 4, 3, 2, 1])
    assert (wrong.difference, wrong.standard_error) == (-1.0, 0.0)
    assert all(math.isnan(value) for value in (wrong.low, wrong.high, wrong.p_value))
    single = delong([0, 0, 1], [1, 2, 3], [1, 3, 2])
    assert single.difference == -0.5
    assert math.isnan(single.standard_error)
    assert math.isnan(single.p_value)


def test_infinite_scores_are_the_largest() -> None:
    result = delong([1, 1, 0, 0], [math.inf, 0, 0, -math.inf], [2, 1, 1, 0])
    assert result.auc_a == result.auc_b == 0.875
