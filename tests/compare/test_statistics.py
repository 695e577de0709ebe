"""Comparisons of arms, folds and molecules, against scipy, simulation, literal restatements."""

import itertools
import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike
from scipy import stats

from graphormer_sepnorm.compare.arms import least_seeds
from graphormer_sepnorm.compare.statistics import (
    DRAWS,
    MeanDifference,
    against,
    chances,
    contrast,
    fold_difference,
    holm,
    log_errors,
    norm_effects,
    pooled,
    power,
    sign_flip_p,
    verdict,
)

# Whole numbers over 8 are exact in float64, so that a literal restatement has the same ties.
eighths = st.integers(-40, 40).map(lambda number: number / 8)


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


def by_seed(*columns: ArrayLike) -> dict[str, dict[int, float]]:
    """Arms a, b, c ... with these values by seed."""
    return {
        name: dict(enumerate(np.asarray(one, float).tolist()))
        for name, one in zip("abcdef", columns, strict=False)
    }


def test_errors_are_compared_by_their_logarithms() -> None:
    assert log_errors([1, math.e], higher_is_better=False) == pytest.approx([0, 1])
    assert log_errors([0.75, 0.5], higher_is_better=True) == pytest.approx(np.log([0.25, 0.5]))
    assert np.isnan(log_errors([0, -1, math.nan], higher_is_better=False)).all()
    assert np.isnan(log_errors([1, math.nan], higher_is_better=True)).all()
    halved = against(by_seed([0.0, 0.1], np.log(0.5) + np.array([0.0, 0.1])), "a")["b"]
    assert halved.percent[0] == pytest.approx(-50)


def test_dunnett_of_one_arm_is_the_t_test_of_two_samples() -> None:
    random = np.random.default_rng(1)
    one, other = random.normal(0, 1, 5), random.normal(20, 1, 7)
    [found] = against(by_seed(one, other), "a").values()
    expected = stats.ttest_ind(other, one)
    assert found.mean == pytest.approx(other.mean() - one.mean())
    assert found.p_value == pytest.approx(expected.pvalue, rel=1e-3)
    ends = expected.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high), rel=1e-4)
    assert found.sd == pytest.approx(math.sqrt((4 * one.var(ddof=1) + 6 * other.var(ddof=1)) / 10))


@pytest.mark.parametrize("sizes", [(3, 3, 3), (6, 4, 5, 6, 3), (4, 1, 9)])
def test_dunnett_is_that_of_scipy(sizes: tuple[int, ...]) -> None:
    random = np.random.default_rng(sum(sizes))
    columns = [random.normal(0.4 * at, 1, size) for at, size in enumerate(sizes)]
    found = against(by_seed(*columns), "a")
    # Which samples: its numbers are right to three digits.
    with warnings.catch_warnings(action="ignore"):
        expected = stats.dunnett(*columns[1:], control=columns[0], rng=np.random.default_rng(0))
    p_values = [one.p_value for one in found.values()]
    assert p_values == pytest.approx(expected.pvalue.tolist(), abs=2e-3)
    ends = expected.confidence_interval(0.95)
    assert [one.low for one in found.values()] == pytest.approx(ends.low.tolist(), abs=0.03)
    assert [one.high for one in found.values()] == pytest.approx(ends.high.tolist(), abs=0.03)


def test_of_one_run_each_nothing_is_known() -> None:
    one, fold = against(by_seed([0.5], [0.25]), "a")["b"], fold_difference([0.5], [0.25], 80, 20)
    for found in (one, fold):
        assert found.mean == -0.25
        assert math.isnan(found.low)
        assert math.isnan(found.p_value)
        assert verdict(found, "lower") == "not significant"
    assert one.signs_p == one.smallest_signs_p == 1
    assert against(by_seed([0.5], [0.25]) | {"c": {}}, "a").keys() == {"b"}
    assert against({"a": {}, "b": {0: 1.0}}, "a") == {}


@pytest.mark.parametrize(("seeds", "smallest"), [(2, 0.5), (4, 0.125), (6, 0.03125)])
def test_the_smallest_p_of_signs_is_reached_where_all_seeds_agree(seeds, smallest):
    baseline = np.linspace(0.30, 0.31, seeds)
    found = against(by_seed(baseline, baseline - np.geomspace(0.01, 0.02, seeds)), "a")["b"]
    assert found.signs_p == found.smallest_signs_p == smallest


def test_signs_are_those_of_the_seeds_that_both_have() -> None:
    values = {"a": {0: 1.0, 1: 2.0, 5: 9.0}, "b": {1: 2.5, 0: 1.25, 7: 0.0}}
    assert against(values, "a")["b"].signs_p == flipped_p_by_counting([1, 2])
    apart = against({"a": {0: 1.0, 1: 2.0}, "b": {2: 2.5, 3: 1.25}}, "a")["b"]
    assert math.isnan(apart.signs_p)
    assert apart.mean == 0.375


def test_arms_that_are_equal_but_for_rounding_do_not_differ() -> None:
    found = against(by_seed([0.3, 0.6, 0.7], [0.1 + 0.2, 0.1 * 6, 0.1 * 7]), "a")["b"]
    assert found.mean == pytest.approx(0, abs=1e-15)
    assert found.signs_p == 1.0
    # The same value with every seed: no spread has been measured.
    found = against(by_seed([0.3, 0.1 + 0.2], [0.4, 0.4]), "a")["b"]
    assert found.low == found.high == pytest.approx(0.1)
    assert verdict(found, "lower") == "not significant"


def test_power_is_the_share_of_comparisons_that_find_the_change() -> None:
    random, seeds, others = np.random.default_rng(0), 5, 2
    found = 0
    for _ in range(150):
        runs = random.normal(0, 0.04, (others + 1, seeds))
        runs[1] += math.log(0.92)
        found += against(by_seed(*runs), "a")["b"].p_value < 0.05
    assert power(0.08, 0.04, seeds, others) == pytest.approx(found / 150, abs=0.12)
    assert math.isnan(power(0.08, 0.04, 1, others))
    assert math.isnan(power(0.08, math.nan, seeds, others))
    assert "one seed cannot tell" in chances(0.04, 1, others)


@pytest.mark.parametrize("others", range(1, 10))
def test_the_least_seeds_are_those_whose_signs_can_be_significant(others: int) -> None:
    least = least_seeds(others)
    assert others * 2.0 ** (1 - least) < 0.05 <= others * 2.0 ** (2 - least)


def test_pooled_settings_count_the_same_whatever_their_seeds() -> None:
    random = np.random.default_rng(0)
    settings = [by_seed(*random.normal([[0], [-0.1], [0.3]], 0.1, (3, n))) for n in (4, 6, 3)]
    del settings[0]["b"][2]  # a seed of one arm alone is no pair
    apart = {"a": {0: 1.0}, "b": {1: 2.0}}  # no pair at all
    found = pooled([*settings, by_seed([1.0, 2.0]), apart], ["a"], ["b"])
    assert found is not None
    assert (found.settings, found.pairs) == (3, 12)
    differences = [[one["b"][s] - one["a"][s] for s in one["b"]] for one in settings]
    means = [float(np.mean(one)) for one in differences]
    assert found.mean == pytest.approx(sum(means) / 3)
    left = [(means[1] + means[2]) / 2, (means[0] + means[2]) / 2, (means[0] + means[1]) / 2]
    assert found.without_one == pytest.approx((min(left), max(left)))
    # Welch and Satterthwaite, as scipy has it for the difference of two settings' means.
    two = pooled(settings[1:], ["a"], ["b"])
    assert two is not None
    other = by_seed(*(np.negative(one) for one in differences[2:]))
    welch = stats.ttest_ind(differences[1], [*other["a"].values()], equal_var=False)
    ends = welch.confidence_interval(0.95)
    assert (two.low, two.high) == pytest.approx((ends.low / 2, ends.high / 2))
    assert two.p_value == pytest.approx(welch.pvalue)
    # Signs within each seed of each setting.
    observed, reached = abs(sum(means)), 0
    for signs in itertools.product((1, -1), repeat=12):
        flipped, start = 0.0, 0
        for one in differences:
            flipped += float(np.mean(np.multiply(signs[start : start + len(one)], one)))
            start += len(one)
        reached += abs(flipped) >= observed - 1e-12
    assert found.signs_p == pytest.approx(reached / 2**12)
    assert pooled([apart], ["a"], ["b"]) is None


def test_where_a_setting_has_one_seed_the_spread_is_that_of_settings() -> None:
    differences = [0.1, -0.2, -0.3, -0.15]
    settings = [by_seed([1.0], [1 + one]) for one in differences[:3]]
    settings.append(by_seed([1.0, 2.0], [1 + differences[3] - 0.1, 2 + differences[3] + 0.1]))
    found = pooled(settings, ["a"], ["b"])
    assert found is not None
    expected = stats.ttest_1samp(differences, 0)
    assert found.p_value == pytest.approx(expected.pvalue)
    ends = expected.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high))
    one = pooled(settings[:1], ["a"], ["b"])
    assert one is not None
    assert math.isnan(one.p_value)
    assert verdict(one, "lower") == "not significant"


def test_a_contrast_is_that_of_a_linear_model() -> None:
    random = np.random.default_rng(0)
    values = by_seed(*(random.normal(0, 1, n) for n in (3, 4, 5, 6)))
    found = contrast(values, ["a"], ["b", "c"], times=2)
    y = np.concatenate([[*of_seed.values()] for of_seed in values.values()])
    design = np.repeat(np.eye(4), [3, 4, 5, 6], axis=0)
    weights = 2 * np.array([-1, 0.5, 0.5, 0])
    means = np.linalg.lstsq(design, y, rcond=None)[0]
    variance = ((y - design @ means) ** 2).sum() / 14
    error = math.sqrt(variance * weights @ np.linalg.inv(design.T @ design) @ weights)
    assert found.mean == pytest.approx(weights @ means)
    assert found.p_value == pytest.approx(2 * stats.t.sf(abs(found.mean) / error, 14))
    ends = stats.t(14, loc=found.mean, scale=error).interval(0.95)
    assert (found.low, found.high) == pytest.approx(ends)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(-40, 40), min_size=1, max_size=9))
def test_the_sign_flip_p_is_the_share_of_all_assignments(differences: list[int]) -> None:
    assert sign_flip_p(differences) == flipped_p_by_counting(differences)


@pytest.mark.parametrize("n", [20, 21, 37])
def test_up_to_twenty_are_exact_and_more_are_sampled(n: int) -> None:
    differences = np.random.default_rng(n).integers(-9, 12, size=n).tolist()
    exact = flipped_p_by_counting(differences)
    assert 0.001 < exact < 0.999
    deviation = math.sqrt(exact * (1 - exact) / DRAWS) if n > 20 else 1e-12
    assert sign_flip_p(differences) == pytest.approx(exact, abs=4 * deviation)


def test_a_sampled_p_value_is_never_zero_and_always_the_same() -> None:
    assert sign_flip_p(np.linspace(0.1, 0.2, 60)) == 1 / (DRAWS + 1)
    assert sign_flip_p(np.zeros(60)) == 1.0
    differences = np.random.default_rng(0).normal(size=60)
    assert sign_flip_p(differences) == sign_flip_p(differences)


def test_holm_of_the_tests_that_were_made() -> None:
    """Of four 4, 3, 2 and 1 times the p-values in ascending order, none below the one before."""
    found = holm([0.01, 0.04, 0.03, 0.005])
    assert found == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.4, 0.3]) == pytest.approx([0.6, 0.6])
    assert holm([0.9, 0.6]).tolist() == [1, 1]
    adjusted = holm([math.nan, 0.02, 0.01, math.nan])
    assert np.isnan(adjusted[[0, 3]]).all()
    assert adjusted[[1, 2]] == pytest.approx(holm([0.02, 0.01]))
    assert np.isnan(holm([math.nan])).all()
    assert holm([]).shape == (0,)


@pytest.mark.parametrize(
    ("ends", "p", "better", "said"),
    [
        ((-0.15, -0.05), 0.049, "lower", "better"),
        ((0.05, 0.15), 0.049, "lower", "worse"),
        ((0.05, 0.15), 0.049, "higher", "better"),
        ((-0.15, -0.05), 0.049, "higher", "worse"),
        ((-0.15, -0.05), 0.05, "lower", "not significant"),
        ((0.05, 0.15), math.nan, "lower", "not significant"),
        ((0.05, 0.05), 0.001, "lower", "not significant"),
        ((math.nan, math.nan), 0.001, "lower", "not significant"),
    ],
)
def test_one_rule_decides_what_is_said(ends, p, better, said):
    low, high = ends
    found = MeanDifference(mean=(low + high) / 2, low=low, high=high, p_value=p)
    assert verdict(found, better) == said


@settings(deadline=None)
@given(
    st.lists(st.tuples(eighths, eighths), min_size=2, max_size=12),
    st.integers(1, 50),
    st.integers(50, 500),
)
def test_fold_difference_is_the_corrected_resampled_t_test(pairs, test, train):
    """Nadeau & Bengio 2003, section 3.2, written down once more."""
    differences = [after - before for before, after in pairs]
    n = len(differences)
    mean = sum(differences) / n
    variance = sum((one - mean) ** 2 for one in differences) / (n - 1)
    found = fold_difference(*zip(*pairs, strict=True), train=train, test=test)
    assert found.mean == pytest.approx(mean)
    if variance == 0:
        assert math.isnan(found.p_value)
        return
    error = math.sqrt((1 / n + test / train) * variance)
    distribution = stats.t(n - 1, loc=mean, scale=error)
    assert (found.low, found.high) == pytest.approx(distribution.interval(0.95))
    assert found.p_value == pytest.approx(2 * stats.t.sf(abs(mean) / error, n - 1))


SIX = ("shared-ln", "shared-bn", "ln+ln", "ln+bn", "bn+ln", "bn+bn")
SEEDS = 5


def of_norms(norms: tuple[str, ...], seed: int = 0) -> dict[str, dict[int, float]]:
    """Test metrics in which seeds differ by more than norms do."""
    random = np.random.default_rng(seed)
    shared = random.normal(1, 0.3, SEEDS)
    return {norm: dict(enumerate(shared + random.normal(0, 0.1, SEEDS))) for norm in norms}


def test_effects_of_factors_by_hand() -> None:
    tests = of_norms(SIX)
    y = {norm: np.array([*values.values()]) for norm, values in tests.items()}
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
    for one, own in zip(found.values(), expected.values(), strict=True):
        assert one.mean == pytest.approx(own.mean())


def test_effects_of_which_an_arm_has_no_run_are_left_out() -> None:
    y = of_norms(SIX)
    for seed in (1, 2, 3):
        del y["shared-ln"][seed]
    y["ln+bn"] = {}
    found = norm_effects(y)
    *single, both = found
    assert single == ["separation of LayerNorm", "separation of BatchNorm"]
    assert both == "separation, the same kind on both"
    assert [one.smallest_signs_p for one in found.values()] == [0.5, 0.0625, 0.5]
