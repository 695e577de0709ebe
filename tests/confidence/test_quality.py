"""What a model says of its errors, judged: against counts by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from graphormer_sepnorm.confidence.intervals import LEVELS
from graphormer_sepnorm.confidence.probabilities import Calibration, Map
from graphormer_sepnorm.confidence.quality import (
    OfIntervals,
    in_words,
    judge_probabilities,
    summarised,
)


def judged(labels: list[int]) -> dict[str, float]:
    """Of nine unseen molecules of each class: none is as unlike it as those at the other end."""
    nine = np.arange(1, 10) / 10
    calibration = Calibration(Map(), nine, nine, (9, 9))
    said = np.array([0.05, 0.05, 0.5, 0.95, 0.05, 0.95])
    found = judge_probabilities(np.array(labels), said / 2, said, calibration, "temperature")
    assert (found.labels, found.map) == (6, "temperature")
    return summarised([found])


def test_sets_of_classes_are_counted_for_each_class() -> None:
    values = judged([0, 0, 0, 0, 1, 1])
    # Of class 0 the sets of the first three have it, of class 1 only that of the last.
    assert (values["sets_80_hold_0"], values["sets_80_hold_1"]) == (0.75, 0.5)
    # One class each, but for the third, which may be of both.
    assert values["sets_80_classes"] == pytest.approx(7 / 6)
    # Nine are enough to leave a class out at level 0.9, and too few at 0.95.
    assert (values["sets_95_hold_0"], values["sets_95_classes"]) == (1, 2)
    assert in_words(values).endswith("sets of level 90 % hold 75 % of class 0, 50 % of class 1")


def test_a_class_that_is_not_there_has_no_share() -> None:
    values = judged([0] * 6)
    assert np.isnan(values["sets_90_hold_1"])
    assert in_words(values).endswith("% of class 0, - % of class 1")


def test_widths_of_several_targets_have_no_mean() -> None:
    one = OfIntervals(9, LEVELS, (0.5, 0.8, 0.9, 1.0), (1.0, 2.0, 3.0, 4.0), 0.5, (0.1,) * 10)
    both = dataclasses.replace(one, inside=(0.7, 0.8, 1.0, 1.0))
    assert in_words(summarised([one]), "m").endswith("those of 90 % are 3 m wide on average")
    assert in_words(summarised([one, both])) == (
        "intervals of level 50, 80, 90, 95 % hold 60, 80, 95, 100 % of the test labels"
    )


def test_errors_that_calibration_leaves_alone_are_said_once() -> None:
    kept = {"calibration_error": 0.02, "calibration_error_before": 0.0201}
    assert in_words(kept).endswith("probabilities 0.020")


def test_what_an_earlier_version_kept_is_said() -> None:
    kept = {"calibration_error": 0.02, "calibration_error_before": 0.05}
    assert in_words(kept).endswith("probabilities 0.020, before calibration 0.050")
