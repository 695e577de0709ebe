"""results.json as a report reads it: what is lacking, what is null, and which arm comes first."""

from __future__ import annotations

import math
from dataclasses import asdict

import pytest

from graphormer_sepnorm.compare.arm_comparisons import ArmComparison
from graphormer_sepnorm.compare.model_geometry import CloudGeometry
from graphormer_sepnorm.compare.results_file import ArmResult, Results, typed
from graphormer_sepnorm.compare.roc_statistics import AreaTests, delong
from graphormer_sepnorm.compare.statistics import paired_difference, paired_errors
from graphormer_sepnorm.files import read_json, write_json

AREAS = delong([0, 0, 1, 1, 0, 1], [1, 3, 2, 5, 2, 4], [1, 2, 3, 4, 2, 6])


@pytest.mark.parametrize(
    "per_molecule",
    [None, paired_errors([0.1, 0.2, 0.4], [0.2, 0.1, 0.3]), AreaTests(AREAS, AREAS, 3, 0.25)],
)
def test_what_is_written_is_read(per_molecule, tmp_path) -> None:
    difference = paired_difference([0.5, 0.6, 0.7], [0.4, 0.45, 0.66])
    one = ArmComparison("a", "b", (0, 1, 2), None, difference, per_molecule, -1.5, 0.25, 0.25)
    write_json(tmp_path / "one.json", one.to_plain())
    plain = read_json(tmp_path / "one.json")
    assert plain is not None
    assert plain["test"]["resolved"] is difference.resolved
    assert typed(ArmComparison, plain) == one


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
    arms = [{"name": name, "options": {}, "parameters": 1, "runs": []} for name in "abc"]
    task = {"kind": "binary", "targets": ["x"], "units": [""], "metric": "auroc"}
    plain = dict.fromkeys(("dataset", "dataset_fingerprint", "metric", "better", "unit"), "")
    plain |= {"molecules": {"test": None}, "task": task, "command": [], "seeds": [1], "arms": arms}
    results = Results.from_plain(plain | {"baseline": "b", "complete": True, "comparisons": []})
    assert [arm.name for arm in results.arms] == ["b", "a", "c"]
    assert results.task.targets == ("x",)
    assert (results.molecules, results.layers, results.made) == ({"test": None}, [], [])
    assert asdict(results)["seeds"] == (1,)
