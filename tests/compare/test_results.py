"""results.json: what is lacking, what is null, which arm comes first, and what is compared."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from graphormer_sepnorm.compare.model_geometry import CloudGeometry
from graphormer_sepnorm.compare.results import ArmResult, Results, RunResult
from graphormer_sepnorm.files import read_json, typed
from graphormer_sepnorm.graphs.task import Task

STORED = Path(__file__).parents[2] / "docs" / "experiments" / "compare"
NAN = math.nan


def of_tests(baseline: str, **tests: tuple[float, ...]) -> Results:
    """Arms with these metrics by seed; 0: that run is missing."""
    arms = {
        name: tuple(
            RunResult(seed, "finished" if value else "missing", validation=1 + value, test=value)
            for seed, value in enumerate(values)
        )
        for name, values in tests.items()
    }
    task = Task("regression", ("y",), ("",), "mae")
    return Results(
        *("mine", "f", {"test": None}, task, "mae", "lower", "", (), (0, 1, 2), baseline, True),
        arms=tuple(ArmResult(name, {}, 1, runs) for name, runs in arms.items()),
    )


def test_what_is_written_is_read(tmp_path: Path) -> None:
    results = replace(of_tests("b", a=(0.5, 0.6, 0.7), b=(0.4, 0.45, 0.66)), command=("x", "y"))
    assert Results.read(tmp_path) is None
    results.write(tmp_path)
    plain = read_json(tmp_path / "results.json")
    assert plain is not None
    (kept,), (one,) = plain["comparisons"], results.comparisons
    assert one.test is not None
    assert kept["test"]["resolved"] is one.test.resolved
    assert kept["holm_p"] == one.holm_p
    assert repr(Results.read(tmp_path)) == repr(results)


def test_null_is_nan_and_what_is_lacking_has_its_default() -> None:
    run = {"seed": 3, "status": "failed", "error": "why", "steps": None, "curve": None, "new": 1}
    curve = [{"epoch": 1, "step": 5, "validation": 0.5}, {"epoch": 2, "step": 9}]
    cloud = {"layer": "output", "what": "atoms", "log_singular_values": [1.5, None]}
    other = {"seed": 4, "status": "finished", "test": 0.5, "curve": curve, "geometry": [cloud]}
    arm = typed(ArmResult, {"name": "a", "options": {}, "parameters": None, "runs": [run, other]})
    first, second = arm.runs
    assert math.isnan(arm.parameters)
    assert (first.curve, first.geometry, first.error) == ((), (), "why")
    assert math.isnan(first.steps)
    assert math.isnan(first.test)
    assert math.isnan(second.curve[0].train_loss)
    assert second.curve[0].validation == 0.5
    assert arm.finished == [second]
    assert arm.tests == {4: 0.5}
    assert arm.values("test").tolist() == [0.5]
    assert arm.values("validation").tolist() == []
    (found,) = second.geometry
    assert repr(found) == repr(
        CloudGeometry("output", "atoms", log_singular_values=(1.5, math.nan))
    )


def test_differences_are_treatment_minus_baseline_over_the_seeds_that_both_have() -> None:
    results = of_tests("b", a=(0.4, 0.5, 0), b=(0.5, 0.7, 9.0), c=(0, 0, 0))
    assert [arm.name for arm in results.arms] == ["b", "a", "c"]
    (found,) = results.comparisons
    assert (found.arm, found.baseline, found.seeds) == ("a", "b", (0, 1))
    assert found.test is not None
    assert found.validation is not None
    assert found.test.mean == pytest.approx(-0.15)
    assert found.validation.mean == pytest.approx(-0.15)
    assert found.test.baseline_mean == pytest.approx(0.6)


def test_a_metric_that_is_undefined_is_no_difference_and_no_test_to_adjust_for() -> None:
    results = of_tests(
        "a", a=(0.5, 0.6, 0.7), b=(0.3, 0.5, 0.65), c=(0.4, NAN, 0.5), d=(0.6, 0.5, 0.8)
    )
    better, undefined, worse = results.comparisons
    assert (undefined.test, undefined.validation, undefined.verdict) == (None, None, "")
    assert results.comparison("c") is None
    assert math.isnan(undefined.holm_p)
    assert better.test is not None
    assert worse.test is not None
    assert better.test.p_value == better.smallest_holm_p / 2 == 0.25
    assert better.holm_p == 0.5  # the smaller of two p-values, not of three
    assert worse.holm_p == max(0.5, worse.test.p_value)


@pytest.mark.parametrize("name", ["zinc-subset", "factorial", "published-size", "esol"])
def test_stored_comparisons_are_read_and_give_the_statistics_that_were_stored(name: str) -> None:
    plain = read_json(STORED / name / "results.json")
    results = Results.read(STORED / name)
    assert plain is not None
    assert results is not None
    for one, kept in zip(results.comparisons, plain["comparisons"], strict=True):
        assert one.holm_p == pytest.approx(kept["holm_p"])
        for split in ("validation", "test"):
            found = vars(getattr(one, split))
            expected = {key: value for key, value in kept[split].items() if key != "resolved"}
            assert found == pytest.approx(expected)
