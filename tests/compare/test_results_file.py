"""results.json as a report reads it: what is lacking, what is null, and which arm comes first."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from graphormer_sepnorm.compare.model_geometry import CloudGeometry
from graphormer_sepnorm.compare.results_file import ArmComparison, ArmResult, Results, typed
from graphormer_sepnorm.compare.roc_statistics import AreaTests, delong
from graphormer_sepnorm.compare.statistics import paired_difference, paired_errors
from graphormer_sepnorm.files import read_json

AREAS = delong([0, 0, 1, 1, 0, 1], [1, 3, 2, 5, 2, 4], [1, 2, 3, 4, 2, 6])


def of_arms(names: str, baseline: str) -> Results:
    """Results of arms that have no runs."""
    arms = [{"name": name, "options": {}, "parameters": 1, "runs": []} for name in names]
    task = {"kind": "binary", "targets": ["x"], "units": [""], "metric": "auroc"}
    plain = dict.fromkeys(("dataset", "dataset_fingerprint", "metric", "better", "unit"), "")
    plain |= {"molecules": {"test": None}, "task": task, "command": [], "seeds": [1], "arms": arms}
    return Results.from_plain(plain | {"baseline": baseline, "complete": True, "comparisons": []})


@pytest.mark.parametrize(
    "per_molecule",
    [None, paired_errors([0.1, 0.2, 0.4], [0.2, 0.1, 0.3]), AreaTests(AREAS, 3, 0.25)],
)
def test_what_is_written_is_read(per_molecule, tmp_path) -> None:
    difference = paired_difference([0.5, 0.6, 0.7], [0.4, 0.45, 0.66])
    one = ArmComparison("a", "b", (0, 1, 2), None, difference, per_molecule, -1.5, 0.25, 0.25)
    results = replace(of_arms("ab", "b"), comparisons=(one,), base_options=("-c", "quickstart"))
    assert Results.read(tmp_path) is None
    results.write(tmp_path)
    plain = read_json(tmp_path / "results.json")
    assert plain is not None
    assert plain["comparisons"][0]["test"]["resolved"] is difference.resolved
    assert Results.read(tmp_path) == results


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
    found = second.cloud("output", "atoms")
    assert found is not None
    assert repr(found) == repr(
        CloudGeometry("output", "atoms", log_singular_values=(1.5, math.nan))
    )
    assert second.cloud("output", "graph token") is None


def test_the_baseline_comes_first() -> None:
    results = of_arms("abc", "b")
    assert [arm.name for arm in results.arms] == ["b", "a", "c"]
    assert results.task.targets == ("x",)
    assert (results.molecules, results.layers, results.made) == ({"test": None}, [], [])
