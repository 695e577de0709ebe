"""Conformal intervals: what they cover, by what they are scaled, what they cannot tell."""

import math

import numpy as np
import pytest

from graphormer_sepnorm.uncertainty.conformal import FEWEST_TO_SCALE, LEVELS, Intervals, limits_of


def made(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Residuals whose size one signal tells, and another one that tells nothing."""
    random = np.random.default_rng(seed)
    signals = random.standard_normal((count, 2))
    return 3.0 * np.exp(signals[:, 0]) * random.standard_normal(count), signals


def half(intervals: Intervals, signals: np.ndarray, level: float) -> np.ndarray:
    """Half the width of intervals."""
    return intervals.score(level) * intervals.expected(signals)


def parts(count: int) -> np.ndarray:
    return np.arange(count) % 5


@pytest.fixture(scope="module")
def fitted() -> Intervals:
    return Intervals.fit(*made(2000), parts(2000), 3.0)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.95])
def test_they_cover_as_many_labels_as_their_level_says(fitted: Intervals, level: float) -> None:
    new, signals = made(20_000, seed=1)
    inside = np.abs(new) <= half(fitted, signals, level)
    # Four deviations of the share that 2,000 residuals put below their own quantile.
    assert inside.mean() == pytest.approx(level, abs=4 * math.sqrt(level * (1 - level) / 2000))
    # Not only on average: for those with large errors and for those with small ones.
    for large in (signals[:, 0] > 0.7, signals[:, 0] < -0.7):
        assert inside[large].mean() == pytest.approx(level, abs=0.06)


def test_expected_errors_follow_what_tells_their_size(fitted: Intervals) -> None:
    expected = fitted.expected(np.array([[-1.0, 0.0], [1.0, 0.0], [1.0, 1.0]]))
    # The mean of |3 e^s N(0, 1)|.
    mean = 3 * math.sqrt(2 / math.pi)
    np.testing.assert_allclose(expected, [mean / math.e, mean * math.e, mean * math.e], rtol=0.15)
    # A signal beyond what was seen counts as the last one seen.
    _, signals = made(2000)
    for beyond, last in ((1e9, signals[:, 0].max()), (-1e9, signals[:, 0].min())):
        far = fitted.expected(np.array([[beyond, 0.0], [last, 0.0]]))
        assert far[0] == far[1]


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


def test_the_expected_error_of_a_residual_has_not_seen_it() -> None:
    """30 signals that tell nothing can be fitted to 120 residuals, but to no others."""
    shares = []
    for seed in range(3):
        random = np.random.default_rng(seed)
        residuals, signals = random.standard_normal(120), random.standard_normal((120, 30))
        intervals = Intervals.fit(residuals, signals, parts(120), 1.0)
        new, new_signals = random.standard_normal(4000), random.standard_normal((4000, 30))
        shares.append(np.mean(np.abs(new) <= half(intervals, new_signals, 0.9)))
    assert np.mean(shares) > 0.88
    # Without folds it is the same for all.
    residuals, signals = made(FEWEST_TO_SCALE)
    intervals = Intervals.fit(residuals, signals, np.zeros(FEWEST_TO_SCALE), 3.0)
    np.testing.assert_allclose(intervals.expected(signals), np.abs(residuals).mean())


def assay(count: int, seed: int, side: int) -> tuple[np.ndarray, np.ndarray]:
    """True values, and a model that predicts beyond 0.5 on one side only that they lie there.

    Its errors are 1; where beyond the limit it predicts 3 in 10, is arbitrary.
    """
    random = np.random.default_rng(seed)
    truth = random.standard_normal(count)
    values = truth + random.standard_normal(count) * 0.5
    beyond = -0.5 - random.exponential(3, count)
    return side * truth, side * np.where(values < -0.5, beyond, values)


@pytest.mark.parametrize("side", [1, -1])
def test_beyond_the_limit_of_an_assay_intervals_keep_their_level_too(side: int) -> None:
    """Labels below -0.5 (above 0.5) are bounds: what is true there is only known to the test."""
    shares = []
    for seed in range(8):
        truth, values = assay(900, seed, side)
        bounded = side * truth < -0.5
        assert 0.25 < bounded.mean() < 0.36
        bounds = np.full((900, 2), np.nan)
        bounds[bounded, 1 if side == 1 else 0] = -0.5 * side
        labels = np.where(bounded, np.nan, truth)
        none = np.empty((900, 0))
        limits = limits_of(labels, bounds)
        assert limits == ((-0.5, None) if side == 1 else (None, 0.5))
        beyond = np.maximum(side * values[bounded] + 0.5, 0)
        residuals = (values - truth)[~bounded]
        made = Intervals.fit(residuals, none[~bounded], parts(900)[~bounded], 1.0)
        made = made.with_bounds(beyond, none[bounded], limits)
        new, values = assay(4000, 100 + seed, side)
        row = []
        for level in LEVELS:
            low, high = made.ends(values, half(made, np.empty((4000, 0)), level))
            inside, far = (low <= new) & (new <= high), side * new < -0.5
            row += [inside[~far].mean(), inside[far].mean(), inside.mean()]
        shares.append(row)
    within, beyond, all_of_them = np.mean(shares, axis=0).reshape(4, 3).T
    np.testing.assert_allclose(within, LEVELS, atol=0.02)
    assert (beyond > np.array(LEVELS) - 0.01).all()
    assert (all_of_them > np.array(LEVELS) - 0.01).all()


def test_intervals_are_as_wide_as_bounds_need() -> None:
    """A model that takes what lies beyond for what lies within contradicts them."""
    none, residuals = np.empty((99, 0)), np.linspace(0.01, 0.99, 99)
    made = Intervals.fit(residuals, none, parts(99), 1.0)
    with_bounds = made.with_bounds(np.repeat([0.0, 2.0], [80, 19]), none, (0.0, None))
    # Too few for a level: the labels alone decide.
    few = made.with_bounds(np.full(8, 2.0), none[:8], (0.0, None))
    for intervals, level, width in (
        (made, 0.9, 0.9),
        (with_bounds, 0.5, 0.5),
        (with_bounds, 0.9, 2),
        (few, 0.9, 0.9),
    ):
        assert half(intervals, none[:1], level) == pytest.approx(width)


def test_an_interval_that_reaches_a_limit_is_open_beyond_it() -> None:
    none = np.empty((99, 0))
    made = Intervals.fit(np.ones(99), none, parts(99), 1.0)
    made = made.with_bounds(np.zeros(3), none[:3], (-4.0, 8.0))
    values = np.array([-6.0, -4.5, -3.5, 0.0, 7.5, 9.0, 12.0, 0.0])
    low, high = made.ends(values, np.array([1.0, 1, 1, 1, 1, 1, 1, np.nan]))
    inf = np.inf
    np.testing.assert_array_equal(low, [-inf, -inf, -inf, -1, 6.5, 8, 8, np.nan])
    np.testing.assert_array_equal(high, [-4, -3.5, -2.5, 1, inf, inf, inf, np.nan])


@pytest.mark.parametrize(
    ("side", "bounds", "limits"),
    [
        (1, [], (None, None)),
        (1, [3.0, 4.0, 4.0, 9.5], (4.0, None)),  # the last stands above five labels
        (1, [3.0, 4.0, 4.0, 5.5], (5.5, None)),  # four bounds, one label
        (0, [10.0, 11.0, 10.0, 4.5], (None, 10.0)),
        (0, [10.0, 11.0, 10.0, 8.5], (None, 8.5)),
    ],
)
def test_a_limit_is_where_labels_end(side: int, bounds: list[float], limits: tuple) -> None:
    labels = np.array([5.0, 6, 7, 8, 9, *[np.nan] * len(bounds)])
    column = np.full((len(labels), 2), np.nan)
    column[5:, side] = bounds
    assert limits_of(labels, column) == limits


@pytest.mark.parametrize("disagreement", [0.0, 1.0, 2.0])
def test_intervals_of_a_mean_keep_their_level_by_residuals_of_single_networks(disagreement):
    """Five networks with errors in common and of their own, larger where a signal tells so."""

    def sampled(count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        random = np.random.default_rng(seed)
        signal, scale = random.standard_normal((2, count))
        size = np.exp(signal + 0.5 * scale)
        common, own = random.standard_normal(count), random.standard_normal((5, count))
        return size * common, disagreement * size * own, signal[:, None]

    shares = []
    for seed in range(6):
        common, own, signals = sampled(1000, seed)
        single = common + own[parts(1000), np.arange(1000)]
        made = Intervals.fit(single, signals, parts(1000), 1.0)
        _, other, own_signals = sampled(300, 50 + seed)
        made = made.of_mean(other.std(axis=0, ddof=1), own_signals, 5)
        common, own, signals = sampled(4000, 100 + seed)
        errors = np.abs(common + own.mean(axis=0))
        shares.append([np.mean(errors <= half(made, signals, level)) for level in LEVELS])
    np.testing.assert_allclose(np.mean(shares, axis=0), LEVELS, atol=0.02)


def test_a_higher_level_never_has_narrower_intervals() -> None:
    """Of few bounds too, which are enough for some levels and not for others."""
    random = np.random.default_rng(0)
    none = np.empty((160, 0))
    fitted = Intervals.fit(random.standard_normal(160), none, parts(160), 1.0)
    for bounds in (1, 4, 9, 12, 30):
        made = fitted.with_bounds(5 + random.random(bounds), none[:bounds], (None, None))
        scores = [made.score(level) for level in (0.5, 0.7, 0.8, 0.9, 0.92, 0.95, 0.99)]
        assert scores == sorted(scores)
        assert (made.score(0.9) > 4) == (bounds >= 9)
