"""What of the folds of several arms is compared with what, and what counts of unfinished ones."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from graphormer_sepnorm.compare.fold_results import _trained_and_tested, collect, results_text

from graphormer_sepnorm.compare import fold_results
from graphormer_sepnorm.config import FitConfig
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.runs.plan import ONE_MODEL, Arm, CrossValidation, RunSpec


@pytest.mark.parametrize(
    ("options", "own", "trained"),
    [
        ({"ensemble": 5, "ensemble_by": "folds"}, {}, 85),
        ({"ensemble": 5, "ensemble_by": "folds"}, {"ensemble": 1}, 75),
        ({"ensemble": 5, "ensemble_by": "seeds"}, {}, 75),
        ({"ensemble": 1, "ensemble_by": "folds"}, {}, 75),
        ({}, {}, 75),
    ],
)
def test_where_members_have_folds_the_validation_split_is_trained_on(
    options: dict[str, Any], own: dict[str, int], trained: float
) -> None:
    sizes = [
        {"train": 70, "validation": 10, "test": 20},
        {"train": 80, "validation": 10, "test": 10},
    ]
    found = _trained_and_tested(
        SimpleNamespace(configuration=options),
        Arm("arm", own),
        sizes,
    )
    assert found == (trained, 15)


NORMS = (Arm("sharenorm", {"model.norm": "sharenorm"}), Arm("sepnorm", {"model.norm": "sepnorm"}))
ROWS = ((2, 3, 11), (1, 4, 5, 6, 7, 8, 9, 10, 12))  # of the table, that each fold tests


def planned(arms: tuple[Arm, ...], repeats: int) -> CrossValidation:
    return CrossValidation(FitConfig(), arms, tuple(range(repeats)), arms[0].name, folds=2)


def finish(run: RunSpec, error: float, data: str = "a", **simple: float) -> None:
    """Write what a run leaves that is wrong by so much, and says that a share of as much is in.

    `simple` are how much larger the errors of simple models are.
    """
    run.directory.mkdir(parents=True, exist_ok=True)
    rows = ROWS[run.fold]
    sizes = {"train": 20, "validation": 4, "test": len(rows)}
    targets = [{"name": "y", "unit": ""}]
    report = {"kind": "regression", "name": "mine", "targets": targets, "splits": sizes}
    run.files.data_report_file.write_text(json.dumps(report | {"sha256": ["a"]}))
    came_to: dict[str, Any] = {"norm": run.arm, "dataset_fingerprint": data, "test_mae": error}
    came_to["confidence"] = {"inside_90": error}
    came_to["baselines"] = [
        {"name": name, "validation": {}, "test": {"mae": error + by}} for name, by in simple.items()
    ]
    came_to["test_spearman"] = None if error > 0.5 else 0.5
    run.files.summary_file.write_text(json.dumps(came_to))
    lines = [f"{row},{'C' * row},{row},{row + error}" for row in rows]
    run.files.test_predictions_file.write_text("\n".join(["row,smiles,label_y,pred_y", *lines]))


def test_a_repeat_that_is_not_whole_counts_by_its_folds_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, drawn = planned(ONE_MODEL, repeats=2), []
    monkeypatch.setattr(fold_results, "draw_predictions", lambda *given: drawn.append(given))
    runs = plan.runs(tmp_path)
    for run, error in zip(runs, (0.1, 0.2, 0.6), strict=False):
        finish(run, error)
    found = collect(plan, runs, tmp_path)
    assert (found["folds_finished"], found["runs"], found["repeats"]) == (3, 4, 2)
    (network,) = found["networks"]
    assert network["metrics"]["mae"]["mean"] == pytest.approx(0.3)
    assert network["metrics"]["mae"]["folds"] == 3
    assert network["metrics"]["spearman"] == {
        "mean": 0.5,
        "sd": 0.0,
        "folds": 2,
    }  # undefined on one
    # By molecules: of three, nine and three.
    assert network["out_of_fold"]["mae"] == pytest.approx((3 * 0.1 + 9 * 0.2) / 12)
    assert network["confidence"]["inside_90"] == pytest.approx((3 * 0.1 + 9 * 0.2 + 3 * 0.6) / 15)
    text = " ".join(results_text(found).split())
    assert "0.5000 ± 0.0000 (2)" in text
    assert "3 of 4" in text
    with (tmp_path / "out_of_fold.csv").open(newline="") as file:
        places = [(row["repeat"], int(row["row"])) for row in csv.DictReader(file)]
    assert places == [("0", row) for row in range(1, 13)] + [("1", row) for row in ROWS[0]]
    ((_, _, labels, _),) = drawn
    assert sorted(labels[:, 0]) == list(range(1, 13))


def test_a_fold_counts_when_all_arms_have_it_with_the_same_data(tmp_path: Path) -> None:
    plan = planned(NORMS, repeats=1)
    runs = plan.runs(tmp_path)
    for run, error in zip(runs, (0.3, 0.1, 9.0), strict=False):
        finish(run, error)
    found = collect(plan, runs, tmp_path)
    assert found["folds_finished"] == 1
    means = [network["metrics"]["mae"]["mean"] for network in found["networks"]]
    assert means == pytest.approx([0.3, 0.1])
    assert found["differences"][0]["metrics"]["mae"]["mean"] == pytest.approx(-0.2)
    (kept,) = json.loads((tmp_path / "summary.json").read_text())["differences"]
    assert (kept["metrics"]["mae"]["resolved"], kept["metrics"]["mae"]["p_value"]) == (False, None)
    finish(runs[-1], 0.1, data="b")
    with pytest.raises(DataError, match="different data"):
        collect(plan, runs, tmp_path)


def test_simple_models_stand_beside_the_network_of_their_arm(tmp_path: Path) -> None:
    plan = planned(NORMS, repeats=1)
    runs = plan.runs(tmp_path)
    for run, error in zip(runs, (0.3, 0.1, 0.31, 0.12), strict=True):
        finish(run, error, forest=0.1 if run.fold else 0.11)
        if run.arm == "sepnorm":  # a blend
            edit(run.files.summary_file, network={"test_mae": error + 0.02})
    found = collect(plan, runs, tmp_path)
    means = {
        (one["model"], one["baseline"]): (
            one["metrics"]["mae"]["mean"],
            one["metrics"]["mae"]["verdict"],
        )
        for one in found["differences"]
    }
    assert means == {
        ("sepnorm", "sharenorm"): (pytest.approx(-0.195), "better"),
        ("sharenorm", "forest, sharenorm"): (pytest.approx(-0.105), "better"),
        ("sepnorm", "forest, sepnorm"): (pytest.approx(-0.105), "better"),
        ("sepnorm", "network alone, sepnorm"): (pytest.approx(-0.02), "not resolved"),
    }
    assert [one["name"] for one in found["baselines"]] == [
        "forest, sharenorm",
        "network alone, sepnorm",
        "forest, sepnorm",
    ]
    assert "sepnorm against forest, sepnorm" in results_text(found)


def edit(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_a_table_that_has_changed_between_folds_is_refused(tmp_path: Path) -> None:
    plan = planned(ONE_MODEL, repeats=1)
    runs = plan.runs(tmp_path)
    for run in runs:
        finish(run, 0.1)
    edit(runs[1].files.data_report_file, sha256=["b"])
    with pytest.raises(DataError, match="different data"):
        collect(plan, runs, tmp_path)


def test_a_model_of_fewer_targets_is_recorded_and_compared_with_nothing(tmp_path: Path) -> None:
    plan = planned(ONE_MODEL, repeats=1)
    runs = plan.runs(tmp_path)
    for run, error in zip(runs, (0.1, 0.2), strict=True):
        finish(run, error)
        both = [
            {"name": name, "test": {"mae": 0.05}, "validation": {}, "comparable": name == "forest"}
            for name in ("forest", "boosting")
        ]
        edit(run.files.summary_file, baselines=both)
    found = collect(plan, runs, tmp_path)
    assert [one["name"] for one in found["baselines"]] == ["forest"]
    assert [one["baseline"] for one in found["differences"]] == ["forest"]
    assert "boosting: test_mae" in (tmp_path / "folds.csv").read_text().splitlines()[0]
