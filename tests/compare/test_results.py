"""results.json: what is missing, what is null, which arm comes first, and what is compared."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from graphormer_sepnorm.compare.geometry import LayerGeometry
from graphormer_sepnorm.compare.report import factors, page, summary
from graphormer_sepnorm.compare.results import ArmResult, Results, RunResult
from graphormer_sepnorm.compare.statistics import holm, norm_effects
from graphormer_sepnorm.files import read_json, typed
from graphormer_sepnorm.graphs.task import Task

STORED = Path(__file__).parents[2] / "docs" / "experiments" / "compare"
NAN = math.nan


def of_tests(baseline: str, **tests: tuple[float, ...]) -> Results:
    """Arms with these metrics by seed; 0: that run is missing."""
    arms = {
        name: tuple(
            RunResult(
                seed,
                "finished" if value else "missing",
                directory=f"{name}/seed{seed}",
                validation=1 + value,
                test=value,
            )
            for seed, value in enumerate(values)
        )
        for name, values in tests.items()
    }
    task = Task("regression", ("y",), ("",), "mae")
    return Results(
        *("mine", "f", {"test": None}, task, "mae", "lower", "", (), (0, 1, 2), baseline, True),
        arms=tuple(ArmResult(name, {"model.norm": name}, 1, runs) for name, runs in arms.items()),
    )


def test_what_is_written_is_read(tmp_path: Path) -> None:
    results = replace(of_tests("b", a=(0.5, 0.6, 0.7), b=(0.4, 0.45, 0.66)), command=("x", "y"))
    assert Results.read(tmp_path) is None
    results.write(tmp_path)
    plain = read_json(tmp_path / "results.json")
    assert plain is not None
    (stored,), (one,) = plain["comparisons"], results.comparisons
    assert one.test is not None
    assert stored["test"]["resolved"] is one.test.resolved
    assert stored["holm_p"] == one.holm_p
    assert repr(Results.read(tmp_path)) == repr(results)


def test_null_is_nan_and_what_is_lacking_has_its_default() -> None:
    run = {"seed": 3, "status": "failed", "error": "why", "steps": None, "curve": None, "new": 1}
    curve = [{"epoch": 1, "step": 5, "validation": 0.5}, {"epoch": 2, "step": 9}]
    cloud = {"layer": "output", "uniformity": None, "effective_rank": 2.5}
    other = {"seed": 4, "status": "finished", "test": 0.5, "curve": curve, "geometry": [cloud]}
    arm = typed(ArmResult, {"name": "a", "options": {}, "parameters": None, "runs": [run, other]})
    first, second = arm.runs
    assert (first.curve, first.geometry, first.error) == ((), (), "why")
    nothing = arm.parameters, first.steps, first.test, second.curve[0].train_loss
    assert all(map(math.isnan, nothing))
    assert second.curve[0].validation == 0.5
    assert (arm.finished, arm.tests) == ([second], {4: 0.5})
    assert [arm.values(name).tolist() for name in ("test", "validation")] == [[0.5], []]
    (found,) = second.geometry
    expected = LayerGeometry("output", effective_rank=2.5)
    assert repr(found) == repr(expected)


def test_differences_are_treatment_minus_baseline_over_the_seeds_that_both_have() -> None:
    results = of_tests("b", a=(0.4, 0.5, 0), b=(0.5, 0.7, 9.0), c=(0, 0, 0))
    assert [arm.name for arm in results.arms] == ["b", "a", "c"]
    (found,) = results.comparisons
    assert (found.arm, found.baseline, found.seeds) == ("a", "b", (0, 1))
    assert found.test is not None
    assert (found.test.mean, found.test.baseline_mean) == pytest.approx((-0.15, 0.6))


def test_a_metric_that_is_undefined_is_no_difference_and_no_test_to_adjust_for() -> None:
    results = of_tests(
        "a", a=(0.5, 0.6, 0.7), b=(0.3, 0.5, 0.65), c=(0.4, NAN, 0.5), d=(0.6, 0.5, 0.8)
    )
    better, undefined, worse = results.comparisons
    assert (undefined.test, undefined.verdict, results.comparison("c")) == (None, "", None)
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
    for one, stored in zip(results.comparisons, plain["comparisons"], strict=True):
        assert one.holm_p == pytest.approx(stored["holm_p"])
        expected = {key: value for key, value in stored["test"].items() if key != "resolved"}
        assert vars(one.test) == pytest.approx(expected)
    assert f"{summary(results)}\n" == (STORED / name / "summary.md").read_text()


def test_effects_of_a_factorial_stand_in_the_page_and_in_the_summary() -> None:
    arms = {"sharenorm": (1.0, 2.0, 3.0), "shared-bn": (1.1, 2.3, 3.1)}
    arms |= {"LN+LN": (0.9, 1.8, 3.2), "bn+bn": (1.3, 2.1, 3.3)}
    results = of_tests("sharenorm", **arms)
    deep = ArmResult("deep", {"model.norm": "bn+bn", "model.layers": "3"}, 1, results.arms[0].runs)
    results = replace(results, arms=(*results.arms, deep))  # no cell of the factorial
    names = ("shared-ln", "shared-bn", "ln+ln", "bn+bn")
    expected = norm_effects(
        {norm: dict(enumerate(y)) for norm, y in zip(names, arms.values(), strict=True)}
    )
    found = results.effects()
    assert {name: one for name, one, _ in found} == expected
    assert [p for *_, p in found] == holm([one.p_value for one in expected.values()]).tolist()
    html, markdown = page(results), summary(results)
    for row, (name, one, _) in zip(factors(results)[1:], found, strict=True):
        value = f"{one.mean:+.3f}".replace("-", "\N{MINUS SIGN}")
        assert row[:3] == [name, "3", value]
        assert f"<td>{row[3]}</td>" in html
        assert row[3] in markdown
    assert of_tests("shared-ln", **{name: arms["bn+bn"] for name in SEPARATE[:3]}).effects() == []


SEPARATE = ("shared-ln", "bn+ln", "bn+bn", "ln+ln")
