"""The quality of intervals and probabilities: against counts by hand."""

import numpy as np
import pytest

from graphormer_sepnorm.uncertainty.calibration import Calibration, Map
from graphormer_sepnorm.uncertainty.conformal import LEVELS
from graphormer_sepnorm.uncertainty.quality import (
    evaluate_intervals,
    evaluate_probabilities,
    in_words,
    summarized,
)

CALIBRATED = np.array([0.05, 0.05, 0.5, 0.95, 0.05, 0.95])


def evaluated(labels: list[int]) -> dict[str, float]:
    """Of nine unseen molecules of each class: none is as unlike it as those at the other end."""
    nine = np.arange(1, 10) / 10
    calibration = Calibration(Map(), nine, nine, (9, 9))
    given = np.array(labels), CALIBRATED / 2, CALIBRATED, calibration, "temperature"
    found = evaluate_probabilities(*given)
    assert (found["labels"], found["map"]) == (6, "temperature")
    return summarized([found])


def test_sets_of_classes_are_counted_for_each_class() -> None:
    values = evaluated([0, 0, 0, 0, 1, 1])
    # Of class 0 the sets of the first three have it, of class 1 only that of the last.
    assert (values["sets_80_hold_0"], values["sets_80_hold_1"]) == (0.75, 0.5)
    # One class each, but for the third, which may be of both.
    assert values["sets_80_classes"] == pytest.approx(7 / 6)
    # Nine are enough to leave a class out at level 0.9, and too few at 0.95.
    assert (values["sets_95_hold_0"], values["sets_95_classes"]) == (1, 2)
    # A class that is not there has no share.
    values = evaluated([0] * 6)
    assert np.isnan(values["sets_90_hold_1"])
    assert in_words(values).endswith("% of class 0, - % of class 1")


def test_probabilities_are_evaluated_before_and_after_calibration() -> None:
    values = evaluated([0, 0, 0, 1, 1, 1])
    # Six molecules, each a bin of its own: their distances from their classes, without chance.
    for name, one in (("", CALIBRATED), ("_before", CALIBRATED / 2)):
        raw = np.abs(one - [0, 0, 0, 1, 1, 1]).mean()
        by_chance = np.sqrt(2 / np.pi * one * (1 - one)).mean()
        error = values[f"calibration_error{name}"]
        assert error == pytest.approx(max(0, raw**2 - by_chance**2) ** 0.5)
    by_chance = np.sqrt(2 / np.pi * CALIBRATED * (1 - CALIBRATED)).mean()
    assert values["calibration_error_by_chance"] == pytest.approx(by_chance)


def test_intervals_are_evaluated_by_hand() -> None:
    errors, expected = np.array([4.0, -1.0, 2.0, -3.0]), np.array([4.0, 2.0, 1.0, 3.0])
    half = {0.5: np.array([2.0, 2.0, 2.0, 3.0]), 0.9: np.array([9.0, np.nan, 9.0, 9.0])}
    ends = {level: (-one, one) for level, one in half.items()}
    found = evaluate_intervals(errors, np.zeros(4), expected, ends, np.full((4, 2), np.nan))
    assert (found["labels"], found["levels"]) == (4, [0.5, 0.9])
    np.testing.assert_array_equal(found["inside"], [0.75, np.nan])
    np.testing.assert_array_equal(found["widths"], [4.5, np.nan])
    assert found["rank_correlation"] == pytest.approx(0.8)


def test_open_ends_and_bounds_that_contradict_them_are_counted() -> None:
    """Two labels, four bounds: at least 5 twice, at most 1, at most -5."""
    labels = np.array([0.0, 3.0, *[np.nan] * 4])
    bounds = np.array([[np.nan] * 2] * 2 + [[5, np.nan]] * 2 + [[np.nan, 1], [np.nan, -5]])
    low = np.array([-1.0, 1, 0, 0, -np.inf, -np.inf])
    high = np.array([1.0, 2, 4, np.inf, 9, -3])
    ends = dict.fromkeys(LEVELS, (low, high))
    found = evaluate_intervals(labels, np.zeros(6), np.ones(6), ends, bounds)
    assert (found["labels"], found["inside"]) == (2, [0.5] * 4)
    assert (found["bounds"], found["contradicted"]) == (4, [1] * 4)
    assert found["widths"] == [pytest.approx((2 + 1 + 4) / 3)] * 4
    assert found["open"] == [0.5] * 4
    assert in_words(summarized([found])).endswith("; 1 of 4 bounds contradict theirs")


def test_widths_of_several_targets_have_no_mean() -> None:
    one = {"labels": 9, "rank_correlation": 0.5, "bounds": 0, "open": [0.0] * 4}
    one |= {"inside": [0.5, 0.8, 0.9, 1.0], "widths": [1.0, 2.0, 3.0, 4.0]}
    both = one | {"inside": [0.7, 0.8, 1.0, 1.0]}
    assert in_words(summarized([one]), "m").endswith("those of 90 % are 3.000 m wide on average")
    assert in_words(summarized([one, both])).endswith("cover 60, 80, 95, 100 % of the test labels")
