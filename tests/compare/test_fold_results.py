"""What of the folds of several arms is compared with what, and what counts of unfinished ones."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from graphormer_sepnorm.compare import fold_results
from graphormer_sepnorm.compare.fold_results import (
    Difference,
    FoldResults,
    ModelResult,
    Spread,
    _columns,
    _differences,
    _simple,
    _trained_and_tested,
    collect,
)
from graphormer_sepnorm.compare.fold_text import results_text
from graphormer_sepnorm.compare.statistics import fold_difference
from graphormer_sepnorm.config import FitConfig
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.runs.directory import Record
from graphormer_sepnorm.runs.plan import ONE_MODEL, Arm, CrossValidation, RunSpec

BLENDS = {"sharenorm": 0.52, "sepnorm": 0.72}
ALONE = {"sharenorm": 0.62, "sepnorm": 0.80}
NOISE = np.array([0.0, 0.01, -0.01])


def folds(arm: str) -> Any:
    return [
        SimpleNamespace(
            network=arm,
            test={"mae": BLENDS[arm] + noise},
            simple={"network alone": {"mae": ALONE[arm] + noise}, "forest": {"mae": 0.7 + noise}},
        )
        for noise in NOISE.tolist()
    ]


@pytest.mark.parametrize("arms", [["sharenorm"], ["sharenorm", "sepnorm"]])
def test_a_blend_stands_beside_the_network_that_is_in_it(arms: list[str]) -> None:
    of_arms = [folds(arm) for arm in arms]
    networks = {
        arm: _columns([one.test for one in own]) for arm, own in zip(arms, of_arms, strict=True)
    }
    found = {
        (one.model, one.baseline): one.metrics["mae"].mean
        for one in _differences(networks, _simple(of_arms), dict.fromkeys(arms, (90.0, 10.0)))
    }
    alone = {arm: f"network alone, {arm}" if len(arms) > 1 else "network alone" for arm in arms}
    expected = {(arm, alone[arm]): BLENDS[arm] - ALONE[arm] for arm in arms}
    expected |= {(arm, "forest"): BLENDS[arm] - 0.7 for arm in arms}
    if len(arms) > 1:
        expected["sepnorm", "sharenorm"] = 0.2
    assert found == pytest.approx(expected)


def test_trees_that_had_other_molecules_stand_beside_their_own_network() -> None:
    """Members with folds, and their trees, are trained on the validation split, too."""
    of_arms = [folds("sharenorm"), folds("sepnorm")]
    for one in of_arms[1]:
        one.simple["forest"]["mae"] -= 0.1
    networks = {own[0].network: _columns([one.test for one in own]) for own in of_arms}
    molecules = {"sharenorm": (70.0, 20.0), "sepnorm": (80.0, 20.0)}
    found = _differences(networks, _simple(of_arms), molecules)
    assert {(one.model, one.baseline) for one in found if "forest" in one.baseline} == {
        ("sharenorm", "forest, sharenorm"),
        ("sepnorm", "forest, sepnorm"),
    }
    # An arm without trees is held against those of the other one, which it would have had.
    for one in of_arms[0]:
        del one.simple["forest"]
    found = _differences(networks, _simple(of_arms), molecules)
    against = {one.model: one.metrics["mae"].mean for one in found if one.baseline == "forest"}
    assert against == pytest.approx({"sharenorm": 0.52 - 0.6, "sepnorm": 0.72 - 0.6})


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
        [SimpleNamespace(molecules=one) for one in sizes],
    )
    assert found == (trained, 15)


NORMS = (Arm("sharenorm", {"model.norm": "sharenorm"}), Arm("sepnorm", {"model.norm": "sepnorm"}))
ROWS = ((2, 3, 11), (1, 4, 5, 6, 7, 8, 9, 10, 12))  # of the table, that each fold tests


def planned(arms: tuple[Arm, ...], repeats: int) -> CrossValidation:
    return CrossValidation(FitConfig(), arms, tuple(range(repeats)), arms[0].name, folds=2)


def finish(run: RunSpec, error: float, data: str = "a") -> None:
    """Write what a run leaves that is wrong by so much, and says that a share of as much is in."""
    run.directory.mkdir(parents=True)
    rows = ROWS[run.fold]
    sizes = {"train": 20, "validation": 4, "test": len(rows)}
    targets = [{"name": "y", "unit": ""}]
    report = {"kind": "regression", "name": "mine", "targets": targets, "splits": sizes}
    run.files.data_report_file.write_text(json.dumps(report))
    record = Record(
        dataset="mine", dataset_fingerprint=data, metric="mae", seed=run.seed, sessions=[]
    )
    run.files.write_record(record)
    came_to = {"norm": run.arm, "test_mae": error, "confidence": {"inside_90": error}}
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
    assert (found.folds_finished, found.runs, found.repeats) == (3, 4, 2)
    (network,) = found.networks
    assert network.metrics["mae"].mean == pytest.approx(0.3)
    assert network.metrics["mae"].folds == 3
    assert network.metrics["spearman"] == Spread(0.5, 0.0, 2)  # undefined on one
    # By molecules: of three, nine and three.
    assert network.out_of_fold["mae"] == pytest.approx((3 * 0.1 + 9 * 0.2) / 12)
    assert network.confidence["inside_90"] == pytest.approx((3 * 0.1 + 9 * 0.2 + 3 * 0.6) / 15)
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
    assert found.folds_finished == 1
    means = [network.metrics["mae"].mean for network in found.networks]
    assert means == pytest.approx([0.3, 0.1])
    assert found.differences[0].metrics["mae"].mean == pytest.approx(-0.2)
    (kept,) = json.loads((tmp_path / "summary.json").read_text())["differences"]
    assert kept["metrics"]["mae"]["resolved"] is False
    finish(runs[-1], 0.1, data="b")
    with pytest.raises(DataError, match="the arms of repeat 0 fold 1 had different data"):
        collect(plan, runs, tmp_path)


@pytest.mark.parametrize(
    ("kind", "metric", "said"),
    [
        ("binary", "auroc", "b is better than a: AUROC 0.1033 higher, 95% interval"),
        ("regression", "mae", "b is worse than a: MAE 0.1033 higher, 95% interval"),
    ],
)
def test_what_is_better_is_said_by_the_metric(kind: Any, metric: str, said: str) -> None:
    found = fold_difference([0.6, 0.62, 0.61], [0.7, 0.73, 0.71], train=80, test=20)
    results = FoldResults(
        command=[],
        dataset="mine",
        task=Task(kind, ("y",), ("m",), metric),
        split="random",
        split_seed=0,
        seeds=(0, 1),
        folds=3,
        repeats=2,
        folds_finished=3,
        runs=12,
        networks=[
            ModelResult("a", {metric: Spread(0.61, 0.01, 2)}),
            ModelResult("b", {metric: Spread(0.7, 0.02, 3)}, {}, {"inside_90": 0.9, "width_90": 2}),
        ],
        baselines=[],
        differences=[Difference("b", "a", {metric: found})],
    )
    text = " ".join(results_text(results).split())
    assert said in text
    assert "2 repeats; 3 of 6 are finished" in text
    assert "a 0.6100 ± 0.0100 (2) b 0.7000 ± 0.0200" in text
    assert "(n): over n folds; in the others it is undefined" in text
    assert "0.0200 (3)" not in text
    assert "90 % are 2 m wide on average" in text


def test_networks_alone_that_came_out_the_same_are_still_those_of_their_arms() -> None:
    of_arms = [folds("sharenorm"), folds("sepnorm")]
    for one, other in zip(*of_arms, strict=True):
        other.simple["network alone"] = dict(one.simple["network alone"])
    found = {(one.name, one.network) for one in _simple(of_arms)}
    alone = {(f"network alone, {arm}", arm) for arm in ("sharenorm", "sepnorm")}
    assert found == alone | {("forest", "")}


def edit(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_a_row_that_two_folds_of_a_repeat_tested_is_refused(tmp_path: Path) -> None:
    plan = planned(ONE_MODEL, repeats=2)
    runs = plan.runs(tmp_path)
    for run in runs:
        finish(run, 0.1)  # of two repeats: each row stands there once in each
    collect(plan, runs, tmp_path)
    with runs[1].files.test_predictions_file.open("a") as file:
        file.write("\n11,C,11,11")
    with pytest.raises(DataError, match="row 11 was tested by two folds of repeat 0"):
        collect(plan, runs, tmp_path)


def test_a_table_that_has_changed_between_folds_is_refused(tmp_path: Path) -> None:
    plan = planned(ONE_MODEL, repeats=1)
    runs = plan.runs(tmp_path)
    for run, digest in zip(runs, ("a", "b"), strict=True):
        finish(run, 0.1)
        edit(run.files.data_report_file, sha256=[digest])
    with pytest.raises(DataError, match="the table has changed between folds"):
        collect(plan, runs, tmp_path)
    edit(runs[1].files.data_report_file, sha256=[])  # an older run did not record it
    assert collect(plan, runs, tmp_path).folds_finished == 2


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
    assert [one.name for one in found.baselines if one.metrics] == ["forest"]
    assert [one.baseline for one in found.differences] == ["forest"]
    assert "boosting: test_mae" in (tmp_path / "folds.csv").read_text().splitlines()[0]
