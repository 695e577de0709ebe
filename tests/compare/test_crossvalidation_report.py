"""What of the folds of several arms is compared with what, and what counts of unfinished ones."""

import json
from pathlib import Path
from typing import Any

import pytest
from reference.tables import read_csv

from graphormer_sepnorm.compare import folds
from graphormer_sepnorm.compare.folds import collect, results_text
from graphormer_sepnorm.compare.statistics import fold_difference
from graphormer_sepnorm.config import FitConfig
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.runs.plan import ONE_MODEL, Arm, Plan, RunSpec

NORMS = (Arm("sharenorm", {"model.norm": "sharenorm"}), Arm("sepnorm", {"model.norm": "sepnorm"}))
ROWS = ((2, 3, 11), (1, 4, 5, 6, 7, 8, 9, 10, 12))  # of the table, that each fold tests


def planned(arms: tuple[Arm, ...], repeats: int = 1, **base: Any) -> Plan:
    config = FitConfig().with_options(base)
    return Plan(config, arms, tuple(range(repeats)), arms[0].name, folds=2)


def finish(run: RunSpec, error: float, sha: str = "a", **more: Any) -> None:
    """Write what a run leaves that is wrong by so much, and whose intervals cover as much."""
    run.directory.mkdir(parents=True, exist_ok=True)
    rows = ROWS[run.fold]
    sizes = {"train": 20, "validation": 4, "test": len(rows)}
    report = {"kind": "regression", "name": "mine", "targets": [{"name": "y", "unit": ""}]}
    report |= {"splits": sizes, "sha256": [sha]}
    run.files.data_report_file.write_text(json.dumps(report))
    summary = {"norm": run.arm, "test_mae": error}
    summary["test_spearman"] = None if error > 0.5 else 0.5
    summary["uncertainty"] = {"inside_90": error, "sets_90_hold_1": 0.8 if error < 0.5 else None}
    run.files.write_summary(summary | more)
    lines = [f"{row},{'C' * row},{row},{row + error}" for row in rows]
    run.files.test_predictions_file.write_text("\n".join(["row,smiles,label_y,pred_y", *lines]))


def simple(name: str, error: float | None, comparable: bool = True) -> dict[str, Any]:
    """A baseline as a run records it."""
    return {"name": name, "validation": {}, "test": {"mae": error}, "comparable": comparable}


def test_a_repeat_that_is_not_whole_counts_by_its_folds_alone(tmp_path: Path, monkeypatch) -> None:
    plan, drawn = planned(ONE_MODEL, repeats=2), []
    monkeypatch.setattr(folds, "draw_predictions", lambda *given: drawn.append(given))
    runs = plan.runs(tmp_path)
    for run, error in zip(runs, (0.1, 0.2, 0.6), strict=False):
        finish(run, error)
    found = collect(plan, runs, tmp_path)
    assert (found["folds_finished"], found["runs"], found["repeats"]) == (3, 4, 2)
    (network,) = found["networks"]
    assert network["metrics"]["mae"]["mean"] == pytest.approx(0.3)
    assert network["metrics"]["mae"]["folds"] == 3
    # Undefined on one fold.
    assert network["metrics"]["spearman"] == {"mean": 0.5, "sd": 0.0, "folds": 2}
    # By molecules: of three, nine and three.
    assert network["out_of_fold"]["mae"] == pytest.approx((3 * 0.1 + 9 * 0.2) / 12)
    assert network["uncertainty"]["inside_90"] == pytest.approx((3 * 0.1 + 9 * 0.2 + 3 * 0.6) / 15)
    assert network["uncertainty"]["sets_90_hold_1"] == pytest.approx(0.8)  # of the folds that know
    text = " ".join(results_text(found).split())
    assert "0.5000 ± 0.0000 (2)" in text
    assert "3 of 4" in text
    rows = read_csv(tmp_path / "out_of_fold.csv")
    places = [(row["repeat"], int(row["row"])) for row in rows]
    assert places == [("0", row) for row in range(1, 13)] + [("1", row) for row in ROWS[0]]
    ((_, _, labels, _),) = drawn
    assert sorted(labels[:, 0]) == list(range(1, 13))


def test_a_fold_counts_when_all_arms_have_it_with_the_same_data(tmp_path: Path) -> None:
    plan = planned(NORMS)
    runs = plan.runs(tmp_path)
    for run, error in zip(runs, (0.3, 0.1, 9.0), strict=False):
        finish(run, error)
    found = collect(plan, runs, tmp_path)
    assert found["folds_finished"] == 1
    means = [network["metrics"]["mae"]["mean"] for network in found["networks"]]
    assert means == pytest.approx([0.3, 0.1])
    assert found["differences"][0]["metrics"]["mae"]["mean"] == pytest.approx(-0.2)
    finish(runs[-1], 0.1, sha="b")
    with pytest.raises(DataError, match="different data"):
        collect(plan, runs, tmp_path)


@pytest.mark.parametrize(
    ("better_by", "verdict"),
    [((0.5, 0.501), "worse"), ((-0.5, -0.501), "better"), ((0.5, -0.6), "not significant")],
)
@pytest.mark.parametrize("members", [1, 3])
def test_a_baseline_is_compared_by_the_corrected_test(better_by, verdict, members, tmp_path):
    plan = planned(ONE_MODEL, ensemble=members, ensemble_by="folds")
    runs = plan.runs(tmp_path)
    for run, less in zip(runs, better_by, strict=True):
        finish(run, 1.0, baselines=[simple("forest", 1.0 - less), simple("nothing", None)])
    found = collect(plan, runs, tmp_path)
    assert [one["name"] for one in found["baselines"]] == ["forest"]
    (difference,) = found["differences"]
    metric = difference["metrics"]["mae"]
    train = 20 if members == 1 else 24  # members that have folds train on the validation split too
    expected = fold_difference([1.0 - less for less in better_by], [1.0, 1.0], train, 6)
    for name in ("mean", "p_value"):
        assert metric[name] == pytest.approx(getattr(expected, name))
    assert metric["verdict"] == verdict
    (line,) = (one for one in results_text(found).splitlines() if " against forest" in one)
    assert line.endswith(verdict)


def test_baselines_stand_beside_the_network_of_their_arm(tmp_path: Path) -> None:
    plan = planned(NORMS)
    runs = plan.runs(tmp_path)
    for run, error in zip(runs, (0.3, 0.1, 0.31, 0.12), strict=True):
        forest = simple("forest", error + (0.1 if run.fold else 0.11))
        blend = {"network": {"test_mae": error + 0.02}} if run.arm == "sepnorm" else {}
        finish(run, error, baselines=[forest], **blend)
    found = collect(plan, runs, tmp_path)
    means = {
        (one["model"], one["baseline"]): one["metrics"]["mae"]["mean"]
        for one in found["differences"]
    }
    assert means == {
        ("sepnorm", "sharenorm"): pytest.approx(-0.195),
        ("sharenorm", "forest, sharenorm"): pytest.approx(-0.105),
        ("sepnorm", "forest, sepnorm"): pytest.approx(-0.105),
        ("sepnorm", "network alone, sepnorm"): pytest.approx(-0.02),
    }
    assert [one["name"] for one in found["baselines"]] == [
        "forest, sharenorm",
        "network alone, sepnorm",
        "forest, sepnorm",
    ]


@pytest.mark.parametrize("lacking", [1, 2])
def test_a_baseline_of_fewer_targets_is_recorded_and_compared_with_nothing(lacking, tmp_path):
    """Its metrics are means over other targets."""
    plan = planned(ONE_MODEL)
    runs = plan.runs(tmp_path)
    for number, run in enumerate(runs):
        finish(run, 0.1, baselines=[simple("forest", 0.05, comparable=number >= lacking)])
    found = collect(plan, runs, tmp_path)
    assert len(found["differences"]) == (lacking == 1)
    assert [one["name"] for one in found["baselines"]] == ["forest"] * (lacking == 1)
    assert all(row["forest: test_mae"] for row in read_csv(tmp_path / "folds.csv"))
