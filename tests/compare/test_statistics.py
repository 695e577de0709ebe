"""Paired comparisons over seeds and over molecules, against scipy and literal restatements."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from graphormer_sepnorm.compare.statistics import (
    DRAWS,
    MeanDifference,
    fold_difference,
    holm,
    jackknifed,
    norm_effects,
    paired_difference,
    sign_flip_p,
    verdict,
)
from graphormer_sepnorm.metrics import METRICS

# Whole numbers over 8 are exact in float64, so that a literal restatement has the same ties.
eighths = st.integers(-40, 40).map(lambda number: number / 8)


def flipped_p_by_loops(differences: list[float]) -> float:
    reached = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True))) >= abs(sum(differences))
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    return sum(reached) / len(reached)


def flipped_p_by_counting(differences: list[int]) -> float:
    """Count the assignments of signs by their sum, one difference after the other."""
    counts = {0: 1}
    for difference in differences:
        following: dict[int, int] = {}
        for total, count in counts.items():
            for signed in (total + difference, total - difference):
                following[signed] = following.get(signed, 0) + count
        counts = following
    observed = abs(sum(differences))
    reached = sum(count for total, count in counts.items() if abs(total) >= observed)
    return reached / 2 ** len(differences)


def holm_by_its_statement(p_values: list[float]) -> list[float]:
    """The smallest level at which the step-down procedure of Holm (1979) rejects each."""
    adjusted = []
    ascending = sorted(p_values)
    for p in p_values:
        before = [other for other in ascending if other <= p]
        steps = [(len(p_values) - i) * other for i, other in enumerate(before)]
        adjusted.append(min(1.0, max(steps)))
    return adjusted


def test_the_summary_of_a_comparison() -> None:
    result = paired_difference([10.0, 12.0, 14.0], [9.0, 9.0, 12.0])
    assert (result.seeds, result.baseline_mean, result.treatment_mean) == (3, 12.0, 10.0)
    assert (result.mean, result.sd) == (-2.0, 1.0)
    assert result.relative_percent == pytest.approx(-100 / 6)
    half = 4.302652729911275 / math.sqrt(3)  # Student's t with 2 degrees of freedom, tables
    assert (result.low, result.high) == pytest.approx((-2 - half, -2 + half))
    assert not result.resolved
    assert result.p_value == result.smallest_p == 0.25


def test_of_one_pair_nothing_is_known() -> None:
    one, fold = paired_difference([0.5], [0.25]), fold_difference([0.5], [0.25], 80, 20)
    for found in (one, fold):
        assert (found.mean, found.baseline_mean, found.treatment_mean) == (-0.25, 0.5, 0.25)
        assert math.isnan(found.low)
        assert not found.resolved
    assert one.p_value == 1.0
    assert math.isnan(fold.p_value)


@pytest.mark.parametrize(("seeds", "smallest"), [(1, 1.0), (4, 0.125), (6, 0.03125)])
def test_the_smallest_p_is_reached_where_all_seeds_agree(seeds: int, smallest: float) -> None:
    baseline = np.linspace(0.30, 0.31, seeds)
    result = paired_difference(baseline, baseline - np.geomspace(0.01, 0.02, seeds))
    assert result.smallest_p == smallest
    assert result.p_value == smallest
    assert result.resolved == (seeds > 1)


def test_arms_that_are_equal_but_for_rounding_do_not_differ() -> None:
    result = paired_difference([0.3, 0.6, 0.7], [0.1 + 0.2, 0.1 * 6, 0.1 * 7])
    assert (result.mean, result.sd, result.low, result.high) == (0.0, 0.0, 0.0, 0.0)
    assert result.p_value == 1.0
    # The same difference under every seed is not resolved; 0.3 - 0.2 and 0.4 - 0.3 differ.
    result = paired_difference([0.2, 0.3, 0.4], [0.3, 0.4, 0.5])
    assert (result.sd, result.resolved) == (0.0, False)
    assert result.low == result.high == pytest.approx(0.1)


@pytest.mark.parametrize("offset", [0, 10_000, 123_456, 1_000_000])
def test_ties_between_sums_are_seen_through_rounding(offset: float) -> None:
    # The differences are 1, 2, -3 and 4 tenths; 10 of the 16 sums are 4 tenths or more in
    # magnitude, 4 of them exactly, but for rounding. An offset leaves fewer digits to them.
    baseline, treatment = np.array([0.1, 0.1, 0.7, 0.3]), np.array([0.2, 0.3, 0.4, 0.7])
    result = paired_difference(baseline + offset, treatment + offset)
    assert result.p_value == flipped_p_by_counting([1, 2, -3, 4]) == 10 / 16


def test_relative_change_of_a_negative_metric_has_the_sign_of_the_difference() -> None:
    assert paired_difference([-2.0, -2.0], [-1.0, -2.0]).relative_percent == 25.0
    assert math.isnan(paired_difference([-1.0, 1.0], [0.0, 1.0]).relative_percent)


@settings(deadline=None, max_examples=60)
@given(st.lists(eighths, min_size=1, max_size=9))
def test_the_sign_flip_p_is_the_share_of_all_assignments(differences: list[float]) -> None:
    assert sign_flip_p(differences) == flipped_p_by_loops(differences)


@pytest.mark.parametrize("n", [20, 21, 37])
def test_up_to_twenty_are_exact_and_more_are_sampled(n: int) -> None:
    differences = np.random.default_rng(n).integers(-9, 12, size=n).tolist()
    exact = flipped_p_by_counting(differences)
    assert 0.001 < exact < 0.999
    deviation = math.sqrt(exact * (1 - exact) / DRAWS) if n > 20 else 1e-12
    assert sign_flip_p(differences) == pytest.approx(exact, abs=4 * deviation)


def test_a_sampled_p_value_is_never_zero_and_always_the_same() -> None:
    baseline = np.linspace(1, 2, 60)
    result = paired_difference(baseline, baseline - np.linspace(0.1, 0.2, 60))
    assert result.p_value == result.smallest_p == 1 / (DRAWS + 1)
    assert sign_flip_p(np.zeros(60)) == 1.0
    differences = np.random.default_rng(0).normal(size=60)
    assert sign_flip_p(differences) == sign_flip_p(differences)


def test_a_test_that_was_not_made_does_not_count() -> None:
    adjusted = holm([math.nan, 0.02, 0.01, math.nan])
    assert np.isnan(adjusted[[0, 3]]).all()
    assert adjusted[[1, 2]] == pytest.approx(holm([0.02, 0.01]))
    assert np.isnan(holm([math.nan])).all()
    assert holm([]).shape == (0,)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 64).map(lambda number: number / 64), min_size=1, max_size=8))
def test_holm_is_its_statement(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    assert adjusted.tolist() == holm_by_its_statement(p_values)
    assert (adjusted >= p_values).all()
    assert (np.diff(adjusted[np.argsort(p_values)]) >= 0).all()


@pytest.mark.parametrize(
    ("ends", "p", "better", "said"),
    [
        ((-0.15, -0.05), 0.049, "lower", "better"),
        ((0.05, 0.15), 0.049, "lower", "worse"),
        ((0.05, 0.15), 0.049, "higher", "better"),
        ((-0.15, -0.05), 0.049, "higher", "worse"),
        ((-0.15, -0.05), 0.049, "", "lower"),
        ((-0.15, -0.05), 0.05, "lower", "not significant"),
        ((0.05, 0.15), math.nan, "lower", "not significant"),
        ((-0.15, 0.05), 0.001, "lower", "not resolved"),
        ((math.nan, math.nan), 0.001, "lower", "not resolved"),
    ],
)
def test_one_rule_decides_what_is_said(
    ends: tuple[float, float], p: float, better: str, said: str
) -> None:
    low, high = ends
    found = MeanDifference(mean=(low + high) / 2, low=low, high=high, confidence=0.95, p_value=0.5)
    assert verdict(found, p, better) == said


@settings(deadline=None)
@given(
    st.lists(st.tuples(eighths, eighths), min_size=2, max_size=12),
    st.integers(1, 50),
    st.integers(50, 500),
)
def test_fold_difference_is_the_corrected_resampled_t_test(
    pairs: list[tuple[float, float]], test: int, train: int
) -> None:
    """Nadeau & Bengio 2003, section 3.2, written down once more."""
    differences = [after - before for before, after in pairs]
    n = len(differences)
    mean = sum(differences) / n
    variance = sum((one - mean) ** 2 for one in differences) / (n - 1)
    found = fold_difference(*zip(*pairs, strict=True), train=train, test=test)
    assert found.folds == n
    assert found.mean == pytest.approx(mean)
    error = math.sqrt((1 / n + test / train) * variance)
    assert found.standard_error == pytest.approx(error)
    if variance == 0:
        assert math.isnan(found.p_value)
        assert not found.resolved
        return
    distribution = stats.t(n - 1, loc=mean, scale=error)
    assert (found.low, found.high) == pytest.approx(distribution.interval(0.95))
    assert found.p_value == pytest.approx(2 * stats.t.sf(abs(mean) / error, n - 1))
    assert found.resolved == (found.p_value < 0.05)


def test_fold_difference_keeps_its_level_where_training_sets_overlap() -> None:
    """A plain t-test of such folds finds a difference that is none far too often."""
    generator = np.random.default_rng(0)
    corrected = plain = 0
    for _ in range(400):
        # Ten repeats of five folds of differences with a mean of their own: what the correction
        # is for is that this mean is common to all folds, whose training sets overlap.
        shared = generator.normal(scale=0.5)
        differences = shared + generator.normal(size=50)
        corrected += fold_difference(np.zeros(50), differences, train=80, test=20).resolved
        plain += stats.ttest_1samp(differences, 0).pvalue < 0.05
    assert plain > 0.4 * 400
    assert corrected < 0.08 * 400


def test_the_jackknife_of_a_mean_is_the_paired_t_test() -> None:
    losses = np.random.default_rng(0).normal([[0.3], [0]], 1, (2, 40))
    found = jackknifed(lambda rows: float(np.subtract(*losses[:, rows].mean(axis=1))), 40)
    other = stats.ttest_rel(*losses)
    assert found.mean == pytest.approx(np.subtract(*losses.mean(axis=1)))
    assert found.p_value == pytest.approx(other.pvalue)
    ends = other.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high))


def delong(labels: np.ndarray, *scores: np.ndarray) -> tuple[float, float]:
    """Difference of two areas and its standard error, as DeLong et al. (1988) by loops."""
    positives, negatives = np.flatnonzero(labels == 1), np.flatnonzero(labels == 0)
    wins = [s[positives][:, None] > s[negatives] for s in scores]
    difference = wins[1].astype(float) - wins[0]
    parts = (difference.mean(axis=axis) for axis in (0, 1))
    variance = sum(part.var(ddof=1) / len(part) for part in parts)
    return difference.mean(), math.sqrt(variance)


def test_the_jackknife_of_an_area_is_nearly_the_test_of_delong() -> None:
    random = np.random.default_rng(0)
    labels = (random.random(800) < 0.3).astype(float)
    scores = labels + random.standard_normal((2, 800)) * [[1.0], [1.3]]

    def difference(rows: np.ndarray) -> float:
        areas = (METRICS["auroc"].of(labels[rows], one[rows]) for one in scores)
        return -float(np.subtract(*areas))

    found, (mean, error) = jackknifed(difference, 800), delong(labels, *scores)
    assert found.mean == pytest.approx(mean)
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.25)


def test_what_is_undefined_without_a_part_is_not_resolved() -> None:
    found = jackknifed(lambda rows: 1.0 if rows[0] else math.nan, 30)
    assert not found.resolved
    assert math.isnan(found.p_value)
    assert not jackknifed(lambda rows: 1.0, 1).resolved


SIX = ("shared-ln", "shared-bn", "ln+ln", "ln+bn", "bn+ln", "bn+bn")
SEEDS = 5


def of_norms(norms: tuple[str, ...], seed: int = 0) -> dict[str, dict[int, float]]:
    """Test metrics in which seeds differ by more than norms do."""
    random = np.random.default_rng(seed)
    shared = random.normal(1, 0.3, SEEDS)
    return {norm: dict(enumerate(shared + random.normal(0, 0.1, SEEDS))) for norm in norms}


def column(values: dict[int, float]) -> np.ndarray:
    return np.array([*values.values()])


def test_effects_of_factors_by_hand() -> None:
    tests = of_norms(SIX)
    y = {norm: column(values) for norm, values in tests.items()}
    separate_ln, separate_bn = y["ln+ln"] - y["shared-ln"], y["bn+bn"] - y["shared-bn"]
    expected = {
        "BatchNorm on the atoms": ((y["ln+bn"] - y["ln+ln"]) + (y["bn+bn"] - y["bn+ln"])) / 2,
        "BatchNorm on [CLS]": ((y["bn+ln"] - y["ln+ln"]) + (y["bn+bn"] - y["ln+bn"])) / 2,
        "interaction of the two": (y["bn+bn"] - y["bn+ln"]) - (y["ln+bn"] - y["ln+ln"]),
        "separation of LayerNorm": separate_ln,
        "separation of BatchNorm": separate_bn,
        "separation, the same kind on both": (separate_ln + separate_bn) / 2,
        "separation, all six arms": (y["ln+ln"] + y["ln+bn"] + y["bn+ln"] + y["bn+bn"]) / 4
        - (y["shared-ln"] + y["shared-bn"]) / 2,
    }
    found = norm_effects(tests)
    assert [*found] == [*expected]
    for one, by_seed in zip(found.values(), expected.values(), strict=True):
        ends = stats.ttest_1samp(by_seed, 0).confidence_interval(0.95)
        flipped = stats.permutation_test(
            (by_seed,), np.mean, permutation_type="samples", n_resamples=np.inf
        )
        assert one.seeds == SEEDS
        assert one.mean == pytest.approx(by_seed.mean())
        assert (one.low, one.high) == pytest.approx(tuple(ends))
        assert one.p_value == pytest.approx(flipped.pvalue)


def test_only_seeds_that_all_arms_of_an_effect_have_count() -> None:
    y = of_norms(SIX)
    for seed in (1, 2, 3):
        del y["shared-ln"][seed]
    y["ln+bn"] = {}
    found = norm_effects(y)
    assert [*found] == [
        "separation of LayerNorm",
        "separation of BatchNorm",
        "separation, the same kind on both",
    ]
    by_seed = (y["ln+ln"][seed] - y["shared-ln"][seed] for seed in (0, 4))
    assert found["separation of LayerNorm"].mean == pytest.approx(sum(by_seed) / 2)
    assert [one.seeds for one in found.values()] == [2, SEEDS, 2]
    assert norm_effects({norm: y[norm] for norm in ("shared-ln", "bn+ln", "bn+bn")}) == {}
