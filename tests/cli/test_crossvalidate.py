"""The command train.py crossvalidate: its folds, what it leaves, and what it refuses."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from graphormer_sepnorm.compare.fold_results import simple_models
from scipy import stats
from tiny_run import TINY, read_csv, refused, sample_table, summary

from graphormer_sepnorm.cli.train import main
from graphormer_sepnorm.compare import fold_results
from graphormer_sepnorm.config import save_config
from graphormer_sepnorm.runs import scheduler
from graphormer_sepnorm.runs.plan import RunSpec

ROWS = 60
REAL_TRAIN: Callable[..., bool] = scheduler.train


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = sample_table(tmp_path_factory.mktemp("crossvalidate") / "mine.csv", ROWS)
    with path.open("a") as file:
        file.write("not a molecule,1\n")
    return path


def options(table: Path) -> list[str]:
    return [
        "-c",
        "table_regression",
        *(option for option in TINY if "max_" not in option),
        "--trainer.max_steps=1",
        "--trainer.max_epochs=-1",
        "--data.units=[furlong]",
        "--data.table",
        str(table),
        "--data.root",
        str(table.parent / "root"),
    ]


@pytest.fixture(scope="module")
def trained() -> Iterator[list[str]]:
    """Names of the runs that were trained, in this process instead of one each."""
    names: list[str] = []

    def train(specs: Sequence[RunSpec], **_: Any) -> bool:
        for spec in specs:
            if not spec.finished:
                names.append(spec.name)
                spec.config_file.parent.mkdir(parents=True, exist_ok=True)
                own = spec.config.with_options({"output": str(spec.directory)})
                save_config(own, spec.config_file)
                assert main(["fit", "-c", str(spec.config_file)]) == 0
        return True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduler, "train", train)
        yield names


@pytest.fixture(scope="module")
def whole(table: Path, trained: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cross-validation that has ended."""
    directory = tmp_path_factory.mktemp("whole") / "out"
    assert crossvalidate(directory, *options(table), "--folds", "3", "--data.split=random") == 0
    return directory


@pytest.fixture
def copied(whole: Path, trained: list[str], tmp_path: Path) -> Path:
    """A copy of it, to be changed."""
    shutil.copytree(whole, tmp_path / "out")
    trained.clear()
    return tmp_path / "out"


def crossvalidate(directory: Path, *words: str) -> int:
    return main(["crossvalidate", *words, "-o", str(directory), "--jobs", "1"])


def test_the_picture_is_of_every_row_once(
    copied: Path, trained: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[Any, ...]] = []
    monkeypatch.setattr(fold_results, "draw_predictions", lambda *given: drawn.append(given))
    assert crossvalidate(copied) == 0
    rows = read_csv(copied / "out_of_fold.csv")
    ((path, task, labels, predictions),) = drawn
    assert path == copied / "out_of_fold.png"
    (target,) = task.targets
    for of, values in (("label", labels), ("pred", predictions)):
        expected = [float(row[f"{of}_{target}"]) for row in rows]
        assert sorted(values[:, 0]) == sorted(expected)
    pairs = {(float(row[f"label_{target}"]), float(row[f"pred_{target}"])) for row in rows}
    assert set(zip(labels[:, 0], predictions[:, 0], strict=True)) == pairs


def test_each_fold_is_a_run_and_every_row_is_predicted_once(whole: Path) -> None:
    rows = read_csv(whole / "out_of_fold.csv")
    target = "penalised_logp"
    own_columns = ["row", "smiles", *(f"{of}_{target}" for of in ("label", "pred", "low", "high"))]
    assert list(rows[0]) == [*own_columns, "repeat", "fold"]
    assert (whole / "out_of_fold.png").read_bytes().startswith(b"\x89PNG")
    assert [int(row["row"]) for row in rows] == list(range(1, ROWS + 1))
    for fold in range(3):
        run = whole / "repeat0" / f"fold{fold}"
        own = read_csv(run / "test_predictions.csv")
        assert [row for row in rows if row["fold"] == str(fold)] == [
            {name: row[name] for name in own_columns} | {"repeat": "0", "fold": str(fold)}
            for row in own
        ]
        splits = Counter(row["split"] for row in read_csv(run / "splits.csv"))
        assert splits == {"train": 36, "validation": 4, "test": 20}

    folds = read_csv(whole / "folds.csv")
    assert [(row["repeat"], row["fold"]) for row in folds] == [("0", "0"), ("0", "1"), ("0", "2")]
    assert {row["train_molecules"] for row in folds} == {"36"}
    for row in folds:
        found = summary(whole / "repeat0" / f"fold{row['fold']}")
        for name in ("mae", "rmse", "r2", "spearman"):
            assert float(row[f"test_{name}"]) == found[f"test_{name}"]

    kept = summary(whole)
    (network,) = kept["networks"]
    errors = [float(row["test_mae"]) for row in folds]
    assert network["metrics"]["mae"] == pytest.approx(
        {"mean": np.mean(errors), "sd": np.std(errors, ddof=1), "folds": 3}
    )
    labels, predictions = (
        np.array([float(row[f"{of}_{target}"]) for row in rows]) for of in ("label", "pred")
    )
    assert network["out_of_fold"]["mae"] == pytest.approx(np.abs(labels - predictions).mean())
    inside = [summary(whole / "repeat0" / f"fold{fold}")["confidence"] for fold in range(3)]
    mean = np.mean([one["inside_50"] for one in inside])
    assert network["confidence"]["inside_50"] == pytest.approx(mean)
    assert "inside_95" not in network["confidence"]  # four molecules cannot tell
    assert kept["task"]["units"] == ["furlong"]
    assert kept["folds_finished"] == 3
    assert kept["baselines"] == kept["differences"] == []
    assert kept["command"][2] == "crossvalidate"
    assert "--arms" not in kept["command"]


def test_a_checkpoint_knows_its_fold(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = whole / "repeat0" / "fold2"
    assert main(["test", str(run)]) == 0
    said = dict(
        line.split() for line in capsys.readouterr().out.splitlines() if line[:5] == "test_"
    )
    assert float(said["test_mae"]) == pytest.approx(summary(run)["test_mae"], rel=1e-4)


def test_only_what_is_missing_is_trained(copied: Path, trained: list[str], capsys) -> None:
    before = {name: (copied / name).read_text() for name in ("folds.csv", "out_of_fold.csv")}
    shutil.rmtree(copied / "repeat0" / "fold1")
    (copied / "folds.csv").unlink()
    assert crossvalidate(copied) == 0
    assert trained == ["repeat 0 fold 1"]
    # The same seed, the same fold: the same numbers.
    assert {name: (copied / name).read_text() for name in before} == before
    said = capsys.readouterr().out
    assert "mine: 3 folds (random), 1 repeat" in said
    assert "MAE (furlong)" in said
    assert "all molecules, out of fold" in said


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[RunSpec]:
    """What would have been trained."""
    specs: list[RunSpec] = []

    def train(asked: Sequence[RunSpec], **_: Any) -> bool:
        specs[:] = asked
        return False

    monkeypatch.setattr(scheduler, "train", train)
    return specs


def test_folds_may_be_ensembles(table: Path, tmp_path: Path, planned: list[RunSpec]) -> None:
    words = [*options(table), "--ensemble=2", "--ensemble_by=folds", "--folds=2"]
    assert crossvalidate(tmp_path, *words) == 130
    assert [spec.config.ensemble_by for spec in planned] == ["folds", "folds"]
    assert [spec.fold for spec in planned] == [0, 1]


def test_an_ensemble_has_no_record_of_its_own(copied: Path) -> None:
    """Its members have."""
    for fold in range(3):
        (copied / "repeat0" / f"fold{fold}" / "run.json").unlink()
    before = (copied / "folds.csv").read_text()
    (copied / "folds.csv").unlink()
    assert crossvalidate(copied) == 0
    assert (copied / "folds.csv").read_text() == before


def test_repeats_and_arms_are_planned(table: Path, tmp_path: Path, planned: list[RunSpec]) -> None:
    words = ["--folds=2", "--arms=sharenorm,bn+bn", "--seed_everything=3", "--data.split_seed=7"]
    assert crossvalidate(tmp_path, *options(table), *words) == 130
    assert len(planned) == 4
    assert crossvalidate(tmp_path, "--repeats", "2", "--arms", "sepnorm") == 130
    assert len(planned) == 12
    last = planned[-1]
    assert (last.arm, last.repeat, last.fold, last.seed) == ("sepnorm", 1, 1, 4)
    assert last.config.data.split_seed == 8
    assert last.directory == tmp_path / "sepnorm" / "repeat1" / "fold1"


def test_repeats_are_added_with_other_folds_and_seeds(copied: Path, trained: list[str]) -> None:
    assert crossvalidate(copied, "--repeats", "2") == 0
    assert trained == [f"repeat 1 fold {fold}" for fold in range(3)]
    rows = read_csv(copied / "out_of_fold.csv")
    places = [{row["row"]: row["fold"] for row in rows if row["repeat"] == n} for n in "01"]
    assert [len(place) for place in places] == [ROWS, ROWS]
    assert len(rows) == 2 * ROWS
    assert places[0] != places[1]
    configuration = yaml.safe_load((copied / "repeat1" / "fold2" / "config.yaml").read_text())
    assert configuration["seed_everything"] == configuration["data"]["split_seed"] == 1
    assert summary(copied)["networks"][0]["metrics"]["mae"]["folds"] == 6


def give_baselines(directory: Path, better_by: Sequence[float]) -> None:
    """Write simple models into the runs: one that is so much better, one without a number."""
    for fold, less in enumerate(better_by):
        file = directory / "repeat0" / f"fold{fold}" / "summary.json"
        content = json.loads(file.read_text())
        content["baselines"] = [
            {"name": "forest", "validation": {}, "test": {"mae": content["test_mae"] - less}},
            {"name": "nothing", "validation": {}, "test": {"mae": None}},
        ]
        file.write_text(json.dumps(content))


def test_a_class_that_a_fold_lacks_is_judged_by_the_others(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for fold, ones in enumerate((0.8, None, 0.5)):
        file = copied / "repeat0" / f"fold{fold}" / "summary.json"
        content = json.loads(file.read_text())
        names = ("calibration_error", "calibration_error_before", "sets_90_hold_0")
        content["confidence"] = dict.fromkeys(names, 0.25) | {"sets_90_hold_1": ones}
        file.write_text(json.dumps(content))
    assert main(["crossvalidate", "-o", str(copied)]) == 0
    out = capsys.readouterr().out
    assert "0.250" in out
    assert "65 % of" in out


@pytest.mark.parametrize(
    ("better_by", "verdict"),
    [
        ([0.5, 0.6, 0.4], "worse"),
        ([-0.5, -0.6, -0.4], "better"),
        ([0.5, -0.6, 0.4], "not resolved"),
        ([0.5, 0.5, 0.5], "not resolved"),
    ],
)
def test_simple_models_beside_it(
    copied: Path, better_by: list[float], verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    give_baselines(copied, better_by)
    assert crossvalidate(copied) == 0
    (line,) = (one for one in capsys.readouterr().out.splitlines() if " against forest" in one)
    assert line.endswith(verdict)
    kept = summary(copied)
    assert [one["name"] for one in kept["baselines"]] == ["forest"]
    assert "forest: test_mae" in read_csv(copied / "folds.csv")[0]
    (difference,) = kept["differences"]
    found = difference["metrics"]["mae"]
    assert found["verdict"] == verdict
    assert found["mean"] == pytest.approx(np.mean(better_by))
    if len(set(better_by)) > 1:
        error = math.sqrt(np.var(better_by, ddof=1) * (1 / 3 + 20 / 36))
        p = 2 * stats.t.sf(abs(np.mean(better_by)) / error, 2)
        assert found["p_value"] == pytest.approx(p, rel=1e-4)
    else:
        assert found["p_value"] is None


@pytest.mark.parametrize("lacking", [1, 3])
def test_a_simple_model_that_lacks_a_target_is_not_compared(copied: Path, lacking: int) -> None:
    """Its metrics are means over other targets."""
    give_baselines(copied, [0.5, 0.6, 0.4])
    for fold in range(lacking):
        file = copied / "repeat0" / f"fold{fold}" / "summary.json"
        content = json.loads(file.read_text())
        content["baselines"][0]["comparable"] = False
        file.write_text(json.dumps(content))
    assert crossvalidate(copied) == 0
    kept = summary(copied)
    assert [one["metrics"]["mae"]["folds"] for one in kept["differences"]] == [2] * (lacking == 1)
    assert [one["name"] for one in kept["baselines"]] == ["forest"] * (lacking == 1)
    assert all(row["forest: test_mae"] for row in read_csv(copied / "folds.csv"))


def test_folds_of_two_states_of_a_table_are_no_result(
    copied: Path, trained: list[str], capsys
) -> None:
    file = copied / "repeat0" / "fold1" / "data_report.json"
    report = json.loads(file.read_text())
    report["sha256"] = ["0" * 64]
    file.write_text(json.dumps(report))
    before = (copied / "folds.csv").read_bytes()
    (copied / "folds.csv").write_bytes(b"as it was")
    said = refused(capsys, main, "crossvalidate", "-o", copied)
    assert "different data" in said
    assert (copied / "folds.csv").read_bytes() == b"as it was" != before


def test_arms_have_the_same_folds(
    table: Path, trained: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained.clear()
    words = ["--folds", "2", "--arms", "sharenorm,bn+bn"]
    assert crossvalidate(tmp_path / "out", *options(table), *words) == 0
    assert trained == [f"{arm} repeat 0 fold {n}" for n in (0, 1) for arm in ("sharenorm", "bn+bn")]
    said = capsys.readouterr().out
    assert "bn+bn against sharenorm" in said
    rows = read_csv(tmp_path / "out" / "out_of_fold.csv")
    assert [row["arm"] for row in rows] == ["bn+bn"] * ROWS + ["sharenorm"] * ROWS
    places = [(row["row"], row["fold"]) for row in rows]
    assert places[:ROWS] == places[ROWS:]
    runs = [tmp_path / "out" / arm / "repeat0" / "fold1" for arm in ("sharenorm", "bn+bn")]
    assert [summary(run)["norm"] for run in runs] == ["shared-ln", "bn+bn"]
    assert "--arms sharenorm,bn+bn --folds 2" in " ".join(summary(tmp_path / "out")["command"])


# Takes a finished run from the folder beside it, or fails where there is none.
PROGRAM = """
import pathlib, shutil, sys, yaml
options = yaml.safe_load(open(sys.argv[2]))
run = pathlib.Path(options["output"])
template = pathlib.Path(sys.argv[0]).parent / "out" / "repeat0" / run.name
if not template.is_dir():
    sys.exit("it cannot be done")
shutil.copytree(template, run)
"""


def test_folds_are_processes_and_one_that_fails_leaves_the_others(
    table: Path,
    copied: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    monkeypatch.setattr(scheduler, "FIT", (sys.executable, str(program)))
    monkeypatch.setattr(scheduler, "train", REAL_TRAIN)
    shutil.move(copied / "repeat0" / "fold1", tmp_path / "aside")
    words = [*options(table), "--data.split=random"]
    directory = tmp_path / "again"
    assert crossvalidate(directory, *words, "--folds", "3") == 1
    out, error = capsys.readouterr()
    assert "repeat 0 fold 1: failed, it cannot be done" in error
    assert "1 of 3 runs have failed: repeat 0 fold 1;" in error
    assert f"crossvalidate -o {directory}" in error
    assert "3 folds (random), 1 repeat; 2 of 3 are finished" in out
    assert "out of fold" not in out  # not all molecules are
    assert len(read_csv(directory / "out_of_fold.csv")) == 40
    shutil.move(tmp_path / "aside", copied / "repeat0" / "fold1")
    assert crossvalidate(directory) == 0
    out, error = capsys.readouterr()
    assert "2 of 3 runs are finished already" in error
    assert error.count("started") == 1
    assert len(read_csv(directory / "out_of_fold.csv")) == ROWS


def test_a_directory_goes_on_as_it_was_begun(
    table: Path, tmp_path: Path, planned: list[RunSpec], capsys: pytest.CaptureFixture[str]
) -> None:
    out, same = tmp_path / "out", [*options(table), "--data.split=random"]
    assert crossvalidate(out, *same, "--folds=3") == 130
    for words, named in (
        (["--folds", "4"], "--folds is 4 here and 3"),
        (["--arms", "sepnorm,sharenorm"], "--arms"),
        ([*same, "--seed_everything", "5"], "--seed_everything is 5 here and 0"),
        ([*same, "--data.split_seed", "5"], "--data.split_seed is 5 here and 0"),
        (["--model.layers", "3"], "--model.layers is 3 here and 2"),
    ):
        assert named in refused(capsys, main, "crossvalidate", "-o", out, *words)
    before = (out / "crossvalidation.yaml").read_text()
    assert crossvalidate(out, *same) == 130
    assert (out / "crossvalidation.yaml").read_text() == before
    # As if the file itself had been changed.
    (tmp_path / "new").mkdir()
    other = sample_table(tmp_path / "new" / "mine.csv", ROWS - 1)
    assert "other data" in refused(capsys, main, "crossvalidate", "-o", out, "--data.table", other)
    assert (out / "crossvalidation.yaml").read_text() == before


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([], "-o/--output"),
        (["-o", "x", "--folds", "1"], "--folds is 1"),
        (["-o", "x", "--repeats", "0"], "--repeats is 0"),
        (["-o", "x", "--data.folds", "4"], "--data.folds"),
        (["-o", "x", "--resume=r"], "--resume"),
        (["-o", "x", "--fold", "4"], "--fold"),
        (["-o", "x", "-c", "quickstart"], "--data.table"),
        (["-o", "x"], "which data"),
        (["-o", "x", "TABLE", "--folds", "99"], "99 folds"),
        (["-o", "x", "TABLE", "--data.split_column=a"], "--data.split"),
        (["-o", "x", "TABLE", "--model.layer", "2"], "--model.layer"),
        (["-o", "x", "TABLE", "-c", "folds.yaml"], "data.folds"),
        (["-o", "x", "TABLE", "--arms", "arms.yaml"], "--data.split_seed"),
    ],
)
@pytest.mark.usefixtures("nothing_starts")
def test_mistakes(
    words: list[str],
    named: str,
    table: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "arms.yaml").write_text("a: {data.split_seed: 1}\nb: {model.norm: sepnorm}\n")
    (tmp_path / "folds.yaml").write_text("data: {folds: 10, fold: 0}\n")
    given = [one for word in words for one in (options(table) if word == "TABLE" else [word])]
    assert named in refused(capsys, main, "crossvalidate", *given)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        ({}, {}),
        (
            {"baselines": [{"name": "a", "test": {"mae": 1.0, "r2": 0.5, "other": None}}]},
            {"a": {"mae": 1.0, "r2": 0.5}},
        ),
        ({"baselines": [{"name": "a", "test": {"mae": None}}]}, {}),
        (
            {"network": {"test_mae": 0.5, "best_validation_mae": 0.4}},
            {"network alone": {"mae": 0.5}},
        ),
    ],
)
def test_what_a_run_recorded_beside_its_network(
    recorded: dict[str, Any], expected: dict[str, dict[str, float]]
) -> None:
    assert simple_models(recorded) == expected
