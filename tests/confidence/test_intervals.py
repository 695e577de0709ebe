"""Conformal intervals: what they hold, by what they are scaled, what they cannot say."""

from __future__ import annotations

import math

import numpy as np
import pytest

from graphormer_sepnorm.confidence.intervals import FEWEST_TO_SCALE, MOST_SCORES, Intervals


def made(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Residuals whose size a signal tells, beside one that tells nothing."""
    random = np.random.default_rng(seed)
    signals = random.standard_normal((count, 2))
    return 3.0 * np.exp(signals[:, 0]) * random.standard_normal(count), signals


def half(intervals: Intervals, signals: np.ndarray, level: float) -> np.ndarray:
    """Half the width of intervals."""
    return intervals.score(level) * intervals.expected(signals)


def parts(count: int) -> np.ndarray:
    return np.arange(count) % 5


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.95])
def test_they_hold_as_many_labels_as_their_level_says(level: float) -> None:
    residuals, signals = made(2000)
    intervals = Intervals.fit(residuals, signals, parts(2000), 3.0)
    new, new_signals = made(20_000, seed=1)
    inside = np.abs(new) <= half(intervals, new_signals, level)
    # Four deviations of the share that 2,000 residuals put below their own quantile.
    assert inside.mean() == pytest.approx(level, abs=4 * math.sqrt(level * (1 - level) / 2000))
    # Not only on average: for those with large errors and for those with small ones.
    for large in (new_signals[:, 0] > 0.7, new_signals[:, 0] < -0.7):
        assert inside[large].mean() == pytest.approx(level, abs=0.06)


def test_what_tells_the_size_of_errors_makes_them_narrow_where_errors_are_small() -> None:
    residuals, signals = made(2000)
    intervals = Intervals.fit(residuals, signals, parts(2000), 3.0)
    expected = intervals.expected(np.array([[-1.0, 0.0], [1.0, 0.0], [1.0, 1.0]]))
    # The mean of |3 e^s N(0, 1)|.
    mean = 3 * math.sqrt(2 / math.pi)
    np.testing.assert_allclose(expected, [mean / math.e, mean * math.e, mean * math.e], rtol=0.15)


def test_few_labels_give_the_quantile_of_split_conformal_prediction() -> None:
    random = np.random.default_rng(0)
    residuals, signals = random.standard_normal(19), random.standard_normal((19, 3))
    assert len(residuals) < FEWEST_TO_SCALE
    intervals = Intervals.fit(residuals, signals, parts(19), 2.0)
    for level, rank in ((0.5, 10), (0.9, 18), (0.95, 19)):
        width = half(intervals, random.standard_normal((4, 3)), level)
        np.testing.assert_allclose(width, np.sort(np.abs(residuals))[rank - 1], rtol=1e-12)
    assert np.isnan(half(intervals, signals, 0.96)).all()
    # 100 times 0.55 is a little more than 55 in floating-point numbers.
    residuals = random.standard_normal(99)
    intervals = Intervals.fit(residuals, np.empty((99, 0)), parts(99), 1.0)
    assert half(intervals, np.empty((1, 0)), 0.55) == pytest.approx(np.sort(np.abs(residuals))[54])


def test_what_is_expected_of_a_residual_has_not_seen_it() -> None:
    """30 signals that tell nothing can be fitted to 120 residuals, but to no others."""
    shares = []
    for seed in range(3):
        random = np.random.default_rng(seed)
        residuals, signals = random.standard_normal(120), random.standard_normal((120, 30))
        intervals = Intervals.fit(residuals, signals, parts(120), 1.0)
        new, new_signals = random.standard_normal(4000), random.standard_normal((4000, 30))
        shares.append(np.mean(np.abs(new) <= half(intervals, new_signals, 0.9)))
    assert np.mean(shares) > 0.88


def test_without_folds_the_expected_error_is_the_same_for_all() -> None:
    residuals, signals = made(FEWEST_TO_SCALE)
    intervals = Intervals.fit(residuals, signals, np.zeros(FEWEST_TO_SCALE), 3.0)
    np.testing.assert_allclose(intervals.expected(signals), np.abs(residuals).mean())


def test_the_unit_of_the_labels_does_not_matter() -> None:
    residuals, signals = made(300)
    one = Intervals.fit(residuals, signals, parts(300), 1.0)
    thousand = Intervals.fit(1000 * residuals, signals, parts(300), 1000.0)
    np.testing.assert_allclose(
        1000 * half(one, signals, 0.9), half(thousand, signals, 0.9), rtol=1e-6
    )


def test_a_signal_beyond_what_was_seen_is_taken_as_the_last_one_seen() -> None:
    residuals, signals = made(500)
    intervals = Intervals.fit(residuals, signals, parts(500), 3.0)
    for beyond, last in ((1e9, signals[:, 0].max()), (-1e9, signals[:, 0].min())):
        far = intervals.expected(np.array([[beyond, 0.0], [last, 0.0]]))
        assert far[0] == far[1]


def test_of_many_scores_quantiles_are_kept() -> None:
    residuals, signals = made(3 * MOST_SCORES)
    intervals = Intervals.fit(residuals, signals, parts(len(residuals)), 3.0)
    assert len(intervals.scores) == MOST_SCORES
    assert intervals.labels == len(residuals)
    inside = np.abs(residuals) <= half(intervals, signals, 0.9)
    assert inside.mean() == pytest.approx(0.9, abs=0.005)


def test_a_model_without_errors_has_intervals_of_no_width() -> None:
    signals = np.zeros((200, 1))
    intervals = Intervals.fit(np.zeros(200), signals, parts(200), 1.0)
    np.testing.assert_array_equal(half(intervals, signals, 0.9), 0)
