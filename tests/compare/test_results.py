"""results.json: what is missing, what is null, which arm comes first, and what is compared."""

import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from graphormer_sepnorm.compare.geometry import LayerGeometry
from graphormer_sepnorm.compare.report import factors, notes, page, summary
from graphormer_sepnorm.compare.results import ArmResult, Results, RunResult, collect
from graphormer_sepnorm.compare.statistics import against, holm, norm_effects, verdict
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import read_json, typed, write_json
from graphormer_sepnorm.graphs.task import Task

STORED = Path(__file__).parents[2] / "docs" / "experiments" / "compare"
NAN = math.nan


def of_tests(baseline: str, **tests: tuple[float, ...]) -> Results:
    """Arms with these metrics by seed; 0: that run is missing."""

    def run(name: str, seed: int, value: float) -> RunResult:
        metrics = {"validation": 1 + value, "test": value}
        status = "finished" if value else "missing"
        return RunResult(seed, status, directory=f"{name}/seed{seed}", **metrics)

    arms = {
        name: tuple(run(name, *one) for one in enumerate(values)) for name, values in tests.items()
    }
    task = Task("regression", ("y",), ("",), "mae")
    return Results(
        *("mine", "f", {"test": None}, task, (0, 1, 2), baseline, True),
        arms=tuple(ArmResult(name, {"model.norm": name}, 1, runs) for name, runs in arms.items()),
    )


def test_what_is_written_is_read(tmp_path: Path) -> None:
    results = of_tests("b", a=(0.5, 0.6, 0.7), b=(0.4, 0.45, 0.66))
    assert Results.read(tmp_path) is None
    results.write(tmp_path)
    plain = read_json(tmp_path / "results.json")
    assert plain is not None
    (stored,), ((arm, one),) = plain["comparisons"], results.comparisons.items()
    assert (stored["arm"], stored["percent"]) == (arm, [*one.percent])
    assert (stored["verdict"], stored["p_value"]) == (verdict(one, "lower"), one.p_value)
    assert repr(Results.read(tmp_path)) == repr(results)
    write_json(tmp_path / "results.json", plain | {"format_version": 1})
    with pytest.raises(DataError, match="format 1"):
        Results.read(tmp_path)


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


def test_arms_are_compared_by_the_errors_of_the_runs_that_they_have() -> None:
    results = of_tests("b", a=(0.4, 0.5, 0), b=(0.5, 0.7, 9.0), c=(0, 0, 0), d=(0.1, NAN, 0.2))
    assert [arm.name for arm in results.arms] == ["b", "a", "c", "d"]
    logs = {"b": {0: 0.5, 1: 0.7, 2: 9.0}, "a": {0: 0.4, 1: 0.5}}
    logs = {arm: {s: math.log(v) for s, v in own.items()} for arm, own in logs.items()}
    assert results.errors == logs | {"c": {}, "d": {}}
    assert results.comparisons == against(logs, "b")
    assert "Not compared: d," in " ".join(notes(results))
    areas = replace(results, task=Task("binary", ("y",), ("",), "auroc"))
    assert areas.errors["a"] == {0: math.log1p(-0.4), 1: math.log1p(-0.5)}


@pytest.mark.parametrize("name", ["zinc-subset", "factorial", "published-size", "esol"])
def test_stored_comparisons_are_read_and_give_the_statistics_that_were_stored(name: str) -> None:
    plain = read_json(STORED / name / "results.json")
    results = Results.read(STORED / name)
    assert plain is not None
    assert results is not None
    for (arm, one), stored in zip(results.comparisons.items(), plain["comparisons"], strict=True):
        assert (arm, verdict(one, "lower")) == (stored["arm"], stored["verdict"])
        assert vars(one) == pytest.approx({name: stored[name] for name in vars(one)}, rel=1e-6)
    assert f"{summary(results)}\n" == (STORED / name / "summary.md").read_text()


def test_effects_of_a_factorial_stand_in_the_page_and_in_the_summary() -> None:
    arms = {"sharenorm": (1.0, 2.0, 3.0), "shared-bn": (1.1, 2.3, 3.1)}
    arms |= {"LN+LN": (0.9, 1.8, 3.2), "bn+bn": (1.3, 2.1, 3.3)}
    results = of_tests("sharenorm", **arms)
    deep = ArmResult("deep", {"model.norm": "bn+bn", "model.layers": "3"}, 1, results.arms[0].runs)
    results = replace(results, arms=(*results.arms, deep))  # no cell of the factorial
    names = ("shared-ln", "shared-bn", "ln+ln", "bn+bn")
    logs = [dict(enumerate(map(math.log, y))) for y in arms.values()]
    expected = norm_effects(dict(zip(names, logs, strict=True)))
    found = results.effects()
    assert {name: one for name, one, _ in found} == expected
    assert [p for *_, p in found] == holm([one.p_value for one in expected.values()]).tolist()
    html, markdown = page(results), summary(results)
    for row, (name, one, _) in zip(factors(results)[1:], found, strict=True):
        assert row[:2] == [name, f"{one.percent[0]:+.1f}".replace("-", "\N{MINUS SIGN}")]
        assert f"<td>{row[2]}</td>" in html
        assert row[2] in markdown
    without = dict.fromkeys(("shared-ln", "bn+ln", "bn+bn"), arms["bn+bn"])
    assert of_tests("shared-ln", **without).effects() == []


def test_a_stored_comparison_is_reported_without_its_runs(tmp_path: Path) -> None:
    shutil.copytree(STORED / "esol", tmp_path / "esol")
    assert collect(tmp_path / "esol") is not None
