"""The command train.py compare: runs, continuing, failures, and what it refuses."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import yaml
from reference.processes import REPOSITORY, Forked
from sklearn.metrics import roc_auc_score
from tiny_run import TINY, read_csv, refused, sample_rows, sample_table, summary, write_csv

from graphormer_sepnorm.baselines import fit as baselines
from graphormer_sepnorm.baselines.evaluation import baselines_of
from graphormer_sepnorm.cli import comparison_job, fit_check, many_runs
from graphormer_sepnorm.cli.train import main
from graphormer_sepnorm.compare import runner
from graphormer_sepnorm.compare.arms import Arm, parse_arms
from graphormer_sepnorm.compare.comparison import Comparison
from graphormer_sepnorm.compare.model_geometry import geometry_of
from graphormer_sepnorm.compare.report.numbers import plain
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.errors import ConfigError, DataError
from graphormer_sepnorm.inference.predictor import Predictor

STEPS = 24


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The directories that would have been reported on."""
    directories: list[Path] = []

    def note(directory: Path, baseline: str | None = None) -> None:
        directories.append(directory)

    monkeypatch.setattr(comparison_job, "make_report", note)
    return directories


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sample_table(tmp_path_factory.mktemp("compare") / "mine.csv", 100)


def options(table: Path) -> list[str]:
    return [
        "-c",
        "table_regression",
        *(option for option in TINY if "max_" not in option),
        "--data.table",
        str(table),
        "--data.root",
        str(table.parent / "root"),
        "--data.split",
        "random",
        "--data.batch_size",
        "16",
        "--model.dropout",
        "0.1",
        "--trainer.max_steps",
        str(STEPS),
        "--trainer.max_epochs",
        "-1",
        "--checkpoint_minutes",
        "0.0001",
        "--ema_decay",
        "0.9",
        "--data.units=[furlong]",
    ]


@dataclass(frozen=True)
class Compared:
    """A comparison that has ended."""

    directory: Path
    status: int
    out: str
    err: str

    @property
    def results(self) -> dict:
        return json.loads((self.directory / "results.json").read_text())


def compare(directory: Path, *arguments: str, threads: str = "1") -> Compared:
    out, err = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.setenv("OMP_NUM_THREADS", threads)
        status = main(["compare", *arguments, "-o", str(directory), "--jobs", "1"])
    return Compared(directory, status, out.getvalue(), err.getvalue())


ARMS = ("--arms", "sharenorm,sepnorm")
SEEDS = ("--seeds", "0,1")


@pytest.fixture(scope="module")
def straight(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Compared:
    """Two arms with two seeds, not interrupted."""
    directory = tmp_path_factory.mktemp("straight") / "out"
    return compare(directory, *options(table), *ARMS, *SEEDS)


def saved(directory: Path) -> int:
    """When a run saved its newest checkpoint; 0 before the first."""
    last = directory / "checkpoints" / "last.ckpt"
    return last.stat().st_mtime_ns if last.exists() else 0


def kill_after_saving(directory: Path, run: str, *arguments: str) -> None:
    """Start the command in a process of its own and kill it once a run has saved something."""
    before = saved(directory / run)
    with Forked(
        [
            sys.executable,
            str(REPOSITORY / "train.py"),
            "compare",
            *arguments,
            "-o",
            str(directory),
            "--jobs",
            "1",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as process:
        end = time.monotonic() + 200
        while saved(directory / run) == before:
            assert process.poll() is None, process.communicate()[1].decode()
            assert time.monotonic() < end
            time.sleep(0.005)
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (directory / run / "summary.json").exists()


@pytest.fixture(scope="module")
def killed(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Compared:
    """The same, killed twice and then continued."""
    directory = tmp_path_factory.mktemp("killed") / "my runs"
    arguments = [*options(table), *ARMS, *SEEDS]
    kill_after_saving(directory, "sharenorm/seed0", *arguments)
    kill_after_saving(directory, "sepnorm/seed0", *arguments)
    # With other threads sums are added up in another order: those of the beginning are kept.
    return compare(directory, threads="2")


@pytest.fixture(scope="module")
def failed(killed: Compared, tmp_path_factory: pytest.TempPathFactory) -> Compared:
    """An arm is added, and its training diverges: after a step the loss is no number any more."""
    arms = tmp_path_factory.mktemp("failed") / "arms.yaml"
    arms.write_text("hot: {model: {learning_rate: 1e30, warmup_steps: 1}}\n")
    return compare(killed.directory, "--arms", str(arms))


@pytest.mark.slow
def test_comparison_leaves_a_run_for_each_arm_and_seed(straight: Compared) -> None:
    assert straight.status == 0, straight.err
    lines = straight.err.splitlines()
    assert [line for line in lines if line.endswith(": started")] == [
        f"{arm} seed {seed}: started" for seed in (0, 1) for arm in ("sharenorm", "sepnorm")
    ]
    assert len(lines) == 8
    assert straight.err.isascii()
    said = straight.out.splitlines()
    assert plain((straight.directory / "summary.md").read_text()).strip() in straight.out
    assert said[-1] == f"report  {straight.directory / 'report.html'}"
    run = straight.directory / "sepnorm" / "seed1"
    words = json.loads((run / "run.json").read_text())["sessions"][0]["command"]
    assert words[:2] == ["train.py", "fit"]
    assert "--seed_everything=1" in words
    assert "test MAE" in run.with_name("seed1.log").read_text()


@pytest.mark.slow
def test_results_are_those_of_the_runs(straight: Compared, table: Path) -> None:
    results = straight.results
    assert results["complete"] is True
    assert results["molecules"] == {"train": 80, "validation": 10, "test": 10}
    assert {arm["selected_on"] for arm in results["arms"]} == {"validation_mae"}
    assert (results["metric"], results["better"], results["baseline"]) == (
        "mae",
        "lower",
        "sharenorm",
    )
    seen = set()
    for arm in results["arms"]:
        for run in arm["runs"]:
            directory = straight.directory / run["directory"]
            came_to = summary(directory)
            assert run["status"] == "finished"
            assert run["test"] == came_to["test_mae"]
            assert run["validation"] == came_to["best_validation_mae"]
            assert arm["parameters"] == came_to["parameters"]
            assert run["steps"] == STEPS == run["curve"][-1]["step"]
            # The best validation is one of the curve.
            assert run["validation"] in [point.get("validation") for point in run["curve"]]
            seen.add((run["test"], run["validation"]))
    assert len(seen) == 4


@pytest.mark.slow
def test_predictions_are_the_mean_over_seeds_of_predict(straight: Compared, table: Path) -> None:
    rows = read_csv(straight.directory / "predictions.csv")
    assert [row["number"] for row in rows] == [str(n) for n in range(10)]
    smiles = [row["smiles"] for row in rows]
    targets = np.array([float(row["target"]) for row in rows])
    for arm in ("sharenorm", "sepnorm"):
        runs = [straight.directory / arm / f"seed{seed}" for seed in (0, 1)]
        values = np.stack([Predictor.load(run).predict(smiles).values[:, 0] for run in runs])
        shown = [float(row[f"pred_{arm}"]) for row in rows]
        assert shown == pytest.approx(values.mean(axis=0), rel=1e-4, abs=1e-4)
        # What is shown of a run beside it is of the same checkpoint.
        (entry,) = (one for one in straight.results["arms"] if one["name"] == arm)
        errors = np.abs(values - targets).mean(axis=1)
        assert errors == pytest.approx([run["test"] for run in entry["runs"]], abs=1e-4)


@pytest.mark.slow
def test_geometry_is_that_of_the_best_checkpoints(straight: Compared) -> None:
    for arm in straight.results["arms"]:
        for run in arm["runs"]:
            places = [(one["layer"], one["what"]) for one in run["geometry"]]
            assert places == [
                (layer, what)
                for layer in ("layer 1", "layer 2", "output")
                for what in ("graph token", "atoms")
            ]
            for one in run["geometry"]:
                assert one["uniformity_floor"] - 0.3 < one["uniformity"] <= 0
                assert 1 <= one["effective_rank"] <= 16
                first_output = one["layer"] == "output" and run["seed"] == 0
                assert (one["histogram"] is not None) == first_output
                if one["what"] == "graph token":
                    assert set(one["probes"]) == {"atoms", "rings", "target"}
                    assert -1 <= one["cosine_to_atoms"] <= 1


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    """Two binary targets, of which some labels are missing, with one seed; the second arm is the
    baseline."""
    directory = tmp_path_factory.mktemp("binary")
    values = [(smiles, float(value)) for smiles, value in sample_rows(100)]
    rows = [
        (smiles, "" if n % 7 == 3 else int(value > 0), int(value > 1))
        for n, (smiles, value) in enumerate(values)
    ]
    path = write_csv(directory / "hits.csv", [("smiles", "active", "toxic"), *rows])
    left_out = ("-c", "table_regression", "--data.units=[furlong]")
    given = [option for option in options(path) if option not in left_out]
    return compare(
        directory / "out",
        "-c",
        "table_classification",
        *given,
        "--data.target_columns",
        "[active, toxic]",
        "--data.split_fractions",
        "[0.6, 0.1, 0.3]",
        *ARMS,
        "--seeds",
        "3",
        "--baseline",
        "sepnorm",
    )


@pytest.mark.slow
def test_binary_targets_with_one_seed(binary: Compared) -> None:
    assert binary.status == 0, binary.err
    results = binary.results
    assert (results["metric"], results["better"], results["baseline"]) == (
        "auroc",
        "higher",
        "sepnorm",
    )
    (comparison,) = results["comparisons"]
    assert (comparison["arm"], comparison["seeds"]) == ("sharenorm", [3])
    test = comparison["test"]
    assert (test["low"], test["high"], test["p_value"], test["resolved"]) == (None, None, 1, False)
    rows = read_csv(binary.directory / "predictions.csv")
    assert len(rows) == 30
    known = [row for row in rows if row["target:active"]]
    assert 20 < len(known) < 30
    truth = [float(row["target:active"]) for row in known]
    areas = {
        arm: roc_auc_score(truth, [float(row[f"pred_{arm}:active"]) for row in known])
        for arm in ("sharenorm", "sepnorm")
    }
    # The run's own metric is the mean over both targets.
    second = [float(row["target:toxic"]) for row in rows]
    for arm in results["arms"]:
        scores = [float(row[f"pred_{arm['name']}:toxic"]) for row in rows]
        expected = (areas[arm["name"]] + roc_auc_score(second, scores)) / 2
        assert arm["runs"][0]["test"] == pytest.approx(expected, abs=1e-7)


def repeatable(compared: Compared) -> dict:
    """The results without times, which are never the same."""
    results = compared.results
    for name in ("environment", "environments_differ"):
        del results[name]
    for arm in results["arms"]:
        for run in arm["runs"]:
            for name in ("seconds", "training_seconds", "graphs_per_second", "ms_per_step"):
                assert run.pop(name) > 0
    return results


@pytest.mark.slow
def test_killed_comparison_gives_the_report_of_one_that_was_not(
    straight: Compared, killed: Compared
) -> None:
    assert killed.status == 0, killed.err
    assert killed.err.splitlines()[:2] == [
        "1 of 4 runs are finished already",
        "sepnorm seed 0: continued",
    ]
    for run in ("sharenorm/seed0", "sepnorm/seed0"):
        record = json.loads((killed.directory / run / "run.json").read_text())
        assert [session["end"] for session in record["sessions"]] == [None, "trained"]
        steps = [session["from_step"] for session in record["sessions"]]
        assert 0 == steps[0] < steps[1] < STEPS
    assert repeatable(killed) == repeatable(straight)
    name = "predictions.csv"
    assert (killed.directory / name).read_bytes() == (straight.directory / name).read_bytes()


@pytest.mark.slow
def test_what_was_asked_is_kept(straight: Compared, table: Path) -> None:
    kept = yaml.safe_load((straight.directory / "compare.yaml").read_text())
    assert kept["base_options"] == options(table)
    assert kept["arms"] == {
        "sharenorm": {"model.norm": "sharenorm"},
        "sepnorm": {"model.norm": "sepnorm"},
    }
    assert kept["seeds"] == [0, 1]
    assert kept["baseline"] == "sharenorm"
    assert kept["configuration"]["model"]["layers"] == 2
    assert kept["threads"] == 1
    assert kept["dataset_fingerprint"] == straight.results["dataset_fingerprint"]


@pytest.mark.slow
def test_arm_that_fails_leaves_the_others_alone(failed: Compared) -> None:
    assert failed.status == 1
    log = failed.directory / "hot" / "seed0.log"
    lines = failed.err.splitlines()
    assert lines[0] == "4 of 6 runs are finished already"
    assert lines[2] == f"hot seed 0: failed, {log.read_text().splitlines()[-1]} ({log})"
    assert "train.py: training diverged at step " in lines[2]
    assert lines[-1] == (
        "train.py: 2 of 6 runs have failed: hot seed 0, hot seed 1; to try them again: "
        f"python train.py compare -o '{failed.directory}'"
    )
    results = failed.results
    assert results["complete"] is False
    assert [arm["name"] for arm in results["arms"]] == ["sharenorm", "sepnorm", "hot"]
    for run in results["arms"][2]["runs"]:
        assert (run["status"], run["test"]) == ("failed", None)
        assert run["error"].startswith("train.py: training diverged")
    text = (failed.directory / "summary.md").read_text()
    assert "4 of 6 runs" in text
    assert "hot seed 0 failed: train.py: training diverged" in text


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not finished fails at once."""

    def fail(runs: Sequence[runner.Run], *others: object) -> bool:
        for run in runs:
            if not run.finished:
                run.failure.parent.mkdir(exist_ok=True)
                run.failure.write_text("it cannot be done\n")
        return True

    monkeypatch.setattr(many_runs, "train", fail)


@pytest.mark.slow
@pytest.mark.usefixtures("failing")
def test_a_finished_run_that_was_deleted_and_fails_is_a_failure(
    straight: Compared, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = shutil.copytree(straight.directory, tmp_path / "out")
    shutil.rmtree(place / "sepnorm" / "seed1")
    failed = compare(place)
    assert (failed.status, failed.err) == (
        1,
        "train.py: 1 of 4 runs have failed: sepnorm seed 1; to try them again: python train.py "
        f"compare -o {place}\n",
    )
    assert failed.results["complete"] is False
    run = failed.results["arms"][1]["runs"][1]
    assert (run["status"], run["error"], run["test"]) == ("failed", "it cannot be done", None)
    assert "3 of 4 runs" in (place / "summary.md").read_text()
    # All of them: the report stays that of the ones that were.
    before = (place / "results.json").read_bytes()
    for arm in ("sharenorm", "sepnorm"):
        shutil.rmtree(place / arm)
    failed = compare(place)
    assert failed.status == 1
    assert "train.py: 4 of 4 runs have failed: sharenorm seed 0, " in failed.err
    assert main(["compare", "--report-only", "-o", str(place)]) == 0
    assert "3 of 4 runs" in (place / "summary.md").read_text()
    assert (place / "results.json").read_bytes() == before


@pytest.mark.usefixtures("failing", "nothing_starts")
def test_a_report_that_cannot_be_made_does_not_hide_failures(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(*arguments: object) -> None:
        raise DataError("something is damaged")

    monkeypatch.setattr(comparison_job, "make_report", damaged)
    assert compare(tmp_path / "out", *options(table), *ARMS, "--seeds", "0").status == 1
    run = tmp_path / "out" / "sharenorm" / "seed0"
    run.mkdir(parents=True)
    (run / "summary.json").write_text("{}")
    done = compare(tmp_path / "out")
    assert done.status == 1
    first, second = done.err.splitlines()
    assert first == "train.py: something is damaged"
    assert second.startswith("train.py: 1 of 2 runs have failed: sepnorm seed 0; to try them again")


@pytest.mark.slow
def test_nothing_is_left_to_do(
    straight: Compared, table: Path, reports: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    files = [path for path in straight.directory.glob("*/*/**/*") if path.is_file()]
    before = {path: path.stat().st_mtime_ns for path in files}
    # The same in other words, a seed less: what is there is the comparison.
    same = [option.replace("--model.layers=2", "--model.layers=02") for option in options(table)]
    arguments = ["--arms=sharenorm,sepnorm", "--seeds", "1", "--baseline", "sepnorm"]
    assert main(["compare", *same, *arguments, "-o", str(straight.directory)]) == 0
    assert capsys.readouterr().err == ""
    assert reports == [straight.directory]
    assert {path: path.stat().st_mtime_ns for path in files} == before
    kept = yaml.safe_load((straight.directory / "compare.yaml").read_text())
    assert (kept["baseline"], kept["seeds"]) == ("sepnorm", [0, 1])


@pytest.mark.usefixtures("nothing_starts")
def test_runs_of_which_no_options_are_known_are_not_taken(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "out" / "sepnorm" / "seed0"
    run.mkdir(parents=True)
    (run / "summary.json").write_text("{}")  # an ensemble has no run.json
    given = [*options(table), *ARMS, "--seeds", "0", "-o", tmp_path / "out"]
    assert refused(capsys, main, "compare", *map(str, given)) == (
        f"train.py: there is a run in {run}, and no compare.yaml in {tmp_path / 'out'} says with "
        "which options: put that back, or begin in another directory\n"
    )
    assert not (tmp_path / "out" / "compare.yaml").exists()


@pytest.mark.slow
def test_report_is_made_again_without_the_runs(straight: Compared, tmp_path: Path) -> None:
    for name in ("compare.yaml", "results.json", "predictions.csv"):
        shutil.copy(straight.directory / name, tmp_path)
    assert main(["compare", "--report-only", "-o", str(tmp_path)]) == 0
    for name in ("summary.md", "results.json"):
        assert (tmp_path / name).read_bytes() == (straight.directory / name).read_bytes()


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize("gone", ["checkpoints", "best.ckpt"])
def test_report_is_made_again_without_the_checkpoints(
    gone: str, straight: Compared, tmp_path: Path
) -> None:
    place = shutil.copytree(straight.directory, tmp_path / "out")
    assert compare(place).status == 0
    before = [(place / name).read_bytes() for name in ("summary.md", "results.json")]
    (place / "results.json").unlink()
    for path in list(place.rglob(gone)):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert compare(place).status == 0
    assert [(place / name).read_bytes() for name in ("summary.md", "results.json")] == before


@pytest.mark.slow
def test_simple_models_are_computed_once_for_all_runs(
    straight: Compared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "asked"
    shutil.copytree(straight.directory, place)
    assert "baselines" not in straight.results  # not asked for
    assert "Morgan" not in (place / "sepnorm" / "seed0.log").read_text()
    kept = place / "compare.yaml"
    kept.write_text(kept.read_text().replace("baselines: false", "baselines: true"))
    monkeypatch.setitem(baselines.BOOSTED, "regression", 5)
    monkeypatch.setitem(baselines.FOREST, "regression", 3)
    monkeypatch.setattr(baselines, "MOST_MOLECULES", 200)
    assert main(["compare", "--report-only", "-o", str(place)]) == 0
    results = json.loads((place / "results.json").read_text())
    trees = results["baselines"][2]
    assert trees["name"] == "gradient boosting on Morgan fingerprints and descriptors"
    config = yaml.safe_load((place / "sepnorm" / "seed0" / "config.yaml").read_text())
    data = MoleculeDataModule(**config["data"])
    expected = baselines_of(data, ["boosting"]).baselines[0].by("mae")
    assert trees == pytest.approx(expected)
    assert f"{trees['name']} " in (place / "summary.md").read_text()

    def again(*arguments: object) -> None:
        raise AssertionError("they are in results.json")

    monkeypatch.setattr("graphormer_sepnorm.baselines.fit.fit_baselines", again)
    assert main(["compare", "--report-only", "-o", str(place)]) == 0
    assert json.loads((place / "results.json").read_text()) == results


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_starts")
def test_what_chose_the_checkpoints_is_told_of_each_arm(straight: Compared, tmp_path: Path) -> None:
    place = shutil.copytree(straight.directory, tmp_path / "out")
    for record in (place / "sepnorm").glob("*/run.json"):  # as if it had {metric: last}
        record.write_text(record.read_text().replace("validation_mae", "step"))
    again = ["compare", "--report-only", "--baseline", "sharenorm", "-o", str(place)]
    assert main(again) == 0
    results = json.loads((place / "results.json").read_text())
    assert [arm["selected_on"] for arm in results["arms"]] == ["validation_mae", "step"]


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_starts")
def test_report_only_analyses_runs_where_they_were_told_to_train(
    straight: Compared, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(straight.directory.rglob("*"))
    accelerators: list[object] = []

    def noted(*arguments: object, **options: object) -> object:
        accelerators.append(options["accelerator"])
        return geometry_of(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("graphormer_sepnorm.compare.results.geometry_of", noted)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert main(["compare", "--report-only", "-o", str(straight.directory)]) == 0
    assert accelerators == ["cpu"] * 4
    assert sorted(straight.directory.rglob("*")) == before


@pytest.mark.slow
def test_interrupted_report(straight: Compared, capsys, monkeypatch) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(comparison_job, "make_report", interrupt)
    assert main(["compare", "-o", str(straight.directory)]) == 130
    assert capsys.readouterr().err == (
        "train.py: interrupted, 4 of 4 runs are finished; for the report on them: python train.py "
        f"compare -o {straight.directory} --report-only\n"
    )


@pytest.mark.parametrize("words", ["--report-only", "--seeds 9"])
@pytest.mark.usefixtures("nothing_starts")
def test_comparison_of_another_version_is_refused(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = "format_version: 2\narms: {}\n"
    (tmp_path / "compare.yaml").write_text(content)
    assert "compare.yaml is of format 2" in refused(
        capsys, main, "compare", *words.split(), "-o", str(tmp_path)
    )
    assert (tmp_path / "compare.yaml").read_text() == content


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_starts")
def test_other_data_are_refused(
    table: Path, straight: Compared, capsys: pytest.CaptureFixture[str]
) -> None:
    before = table.read_text()
    table.write_text(before + "\nCCCCO,1.0")
    try:
        seed = ["--seeds", "7", "-o", str(straight.directory)]
        assert "was begun with other data" in refused(capsys, main, "compare", *seed)
        analysed = ["--report-only", "-o", str(straight.directory)]
        assert "was trained on other data" in refused(capsys, main, "compare", *analysed)
    finally:
        table.write_text(before)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--model.layers=3", "--model.layers is 3 here and 2 in compare.yaml; leave them out"),
        ("--early_stopping 3", "--early_stopping is 3 here and 0 in compare.yaml"),
        ("--arms sepnorm,bn+ln", "arms 'sepnorm' and 'bn+ln' are the same"),
        ("--arms bn+ln", "arms 'sepnorm' and 'bn+ln' are the same"),
        ("--baseline sepnrom", "--baseline sepnrom is no arm (did you mean 'sepnorm'?)"),
    ],
)
@pytest.mark.usefixtures("nothing_starts")
def test_other_options_in_the_same_directory(
    words: str, said: str, straight: Compared, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (straight.directory / "compare.yaml").read_text()
    given = [*options(table), *words.split(), "-o", str(straight.directory)]
    assert said in refused(capsys, main, "compare", *given)
    assert (straight.directory / "compare.yaml").read_text() == before


@pytest.fixture
def begun(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A comparison that was stopped at once."""
    monkeypatch.setattr(runner.Runner, "run", lambda self: False)
    assert compare(tmp_path / "out", *options(table), *ARMS, *SEEDS).status == 130
    return tmp_path / "out"


@pytest.mark.parametrize(
    ("words", "differs"),
    [
        ("--trainer.max_epochs 3", "--trainer.max_epochs is 3 here and -1"),
        ("--data.batch_size=32 --seeds 5", "--data.batch_size is 32 here and 16"),
        (
            "--model.layers=3 --model.dropout 0",
            "--model.layers is 3 here and 2 in compare.yaml; --model.dropout is 0.0 here and 0.1",
        ),
    ],
)
def test_an_option_that_is_given_later_is_all_that_differs(
    words: str, differs: str, begun: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (begun / "compare.yaml").read_text()
    assert refused(capsys, main, "compare", *words.split(), "-o", begun) == (
        f"train.py: {begun} was begun with other options: {differs} in compare.yaml; leave them "
        "out to continue, or begin in another directory\n"
    )
    assert (begun / "compare.yaml").read_text() == before


def test_an_option_that_is_given_again_continues(begun: Path) -> None:
    before = (begun / "compare.yaml").read_text()
    assert compare(begun, "--data.batch_size=16").status == 130
    assert (begun / "compare.yaml").read_text() == before


@pytest.mark.parametrize("words", [["--data.root", "new"], ["--data.root=new"]])
def test_data_may_lie_elsewhere_later(words: list[str], begun: Path, tmp_path: Path) -> None:
    """On another machine, or in the next job of a cluster."""
    first = Comparison.read(begun)
    assert first is not None
    new = str(tmp_path / "new")
    assert compare(begun, *(word.replace("new", new) for word in words)).status == 130
    moved = Comparison.read(begun)
    assert moved is not None
    roots = [word for word in moved.base_options if new in word or "data.root" in word]
    assert roots == [f"--data.root={new}"]
    assert all(run.again == (f"--data.root={new}",) for run in moved.runs(begun))
    assert moved.configuration["data"] == {**first.configuration["data"], "root": new}
    before = (begun / "compare.yaml").read_text()
    assert compare(begun).status == 130  # and it is known from now on
    assert (begun / "compare.yaml").read_text() == before


def test_an_arm_may_have_a_data_root_of_its_own(begun: Path) -> None:
    comparison = Comparison.read(begun)
    assert comparison is not None
    arm = Arm("there", {"data.root": "there"})
    assert comparison.again(arm) == ("--data.root=there",)


BOTH = "--arms sharenorm,sepnorm"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "compare needs --arms"),
        ("--arms sepnorm", "--arms names one arm"),
        ("--arms sepnorm,sepnrom", "unknown norm 'sepnrom' (did you mean 'sepnorm'?)"),
        (f"{BOTH} --seeds 0,1,0", "--seeds '0,1,0': 0 is there twice"),
        (f"{BOTH} --seeds 0,00", "--seeds '0,00': 0 is there twice"),
        (f"{BOTH} --seeds 0-3", "'0-3' is no seed"),
        (f"{BOTH} --seeds=-1", "'-1' is no seed"),
        (f"{BOTH} --jobs 0", "--jobs is 0: it must be 1 or more"),
        (f"{BOTH} --jobs two", "invalid int value: 'two'; see train.py compare --help"),
        (f"{BOTH} --baseline ln", "--baseline ln is no arm"),
        (f"{BOTH} --seed 3", "unknown option --seed (did you mean '--seeds'?)"),
        (f"{BOTH} --seed_everything 3", "--seed_everything is not for compare: the seeds are"),
        (f"{BOTH} --keep all", "--keep is not for compare: what a checkpoint keeps"),
        (f"{BOTH} --ckpt_path=x", "is not for compare: all arms start from"),
        (f"{BOTH} --resume x", "--resume is not for compare: start the same command again"),
        (f"{BOTH} --ensemble_by folds", "--ensemble_by is not for compare: each run is a single"),
        (f"{BOTH} --model.layer 3", "unknown option --model.layer (did you mean '--model.layers'"),
        (f"{BOTH} --model.layers three", "--model.layers: Expected a <class 'int'>"),
        (f"{BOTH} --data.batch_size 1", "train.py: --data.batch_size is 1"),
        (f"{BOTH} -c nowhere.yaml", "configuration file nowhere.yaml does not exist"),
        (f"{BOTH} --data.table nowhere.csv", "nowhere.csv"),
        ("--arms {arms}", "arm 'b': unknown option --model.widht (did you mean '--model.width'?)"),
        ("--arms {other} -c table_regression --data.table {table}", "arms 'a' and 'b' have diff"),
        ("--arms {same} -c table_regression --data.table {table}", "arms 'b' and 'c' are the same"),
        (BOTH, "train.py: which data? Give a configuration, for example -c quickstart"),
        ("--arms {wrong} -c quickstart", "arm 'b': --early_stopping is -1: it must be 0 or more"),
        (f"{BOTH} -c quickstart --trainer.limit_test_batches 0", "limit_test_batches 0: a run e"),
        (f"{BOTH} -c {{resumed}}", "stands in a configuration, and every run starts from the"),
        ("--report-only", "there is no comparison in"),
        ("--report-only --model.layers=3", "--report-only trains nothing: leave --model.layers=3"),
    ],
)
@pytest.mark.usefixtures("nothing_starts")
def test_mistakes_are_one_line_and_nothing_is_started(
    words: str, said: str, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "arms.yaml").write_text("a: {}\nb: {model.widht: 8}\n")
    (tmp_path / "other.yaml").write_text("a:\nb: {data: {split_fractions: [0.6, 0.2, 0.2]}}\n")
    (tmp_path / "same.yaml").write_text(
        "a:\nb: {model.dropout: 0.10, model.learning_rate: 1e-3, trainer.deterministic: True}\n"
        "c: {model: {learning_rate: 0.0010, dropout: .1}, trainer: {deterministic: true}}\n"
    )
    (tmp_path / "wrong.yaml").write_text("a:\nb: {early_stopping: -1}\n")
    (tmp_path / "resumed.yaml").write_text("ckpt_path: x.ckpt\ndata: {dataset: sample}\n")
    names = ("arms", "other", "same", "wrong", "resumed")
    places = {name: tmp_path / f"{name}.yaml" for name in names}
    words = words.format(**places, table=table)
    output = tmp_path / "out"
    bare = "report-only" in words or words == BOTH
    root = [] if bare else ["--data.root", str(table.parent / "root")]
    assert said in refused(capsys, main, "compare", *words.split(), *root, "-o", str(output))
    assert not output.exists()


def test_directory_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert "compare needs -o DIR" in refused(capsys, main, "compare", *BOTH.split())


@pytest.fixture(scope="module")
def fit_options() -> fit_check.FitOptions:
    return fit_check.FitOptions([])


def test_an_arm_may_have_callbacks(tmp_path: Path) -> None:
    (tmp_path / "arms.yaml").write_text(
        "a:\nb: {trainer: {callbacks: [{class_path: lightning.pytorch.callbacks.Timer,"
        " init_args: {duration: '00:00:01:00'}}]}}\n"
    )
    _, arm = parse_arms(str(tmp_path / "arms.yaml"))
    found, _ = fit_check.FitOptions(["-c", "quickstart"]).check(arm, ensembles=False)
    (callback,) = found.trainer.callbacks
    assert callback.class_path == "lightning.pytorch.callbacks.Timer"
    assert callback.init_args.duration == "00:00:01:00"


def test_arms_are_told_apart_by_the_options_that_they_come_to(tmp_path: Path) -> None:
    (tmp_path / "arms.yaml").write_text(
        "nothing:\ndeep: {model.layers: 5}\ndefault: {model.layers: 4}\nnorm: {model.norm: BN+LN}\n"
    )
    arms = parse_arms(str(tmp_path / "arms.yaml"))
    base = ["-c", "quickstart", "--model.norm=sepnorm"]
    same = fit_check.check_fit(base, arms, prepare=False).same
    assert same == (("nothing", "default"), ("nothing", "norm"))


@pytest.mark.parametrize(
    ("trainer", "batches", "steps"),
    [
        ("max_steps=7", 3, 7),
        ("max_steps=7,max_epochs=2", 3, 6),
        ("max_epochs=2", 3, 6),
        ("max_epochs=-1,max_steps=50", 3, 50),
        ("", 3, 3000),
        ("max_epochs=2,accumulate_grad_batches=2", 3, 4),
        ("max_epochs=2,limit_train_batches=2", 3, 4),
        ("max_epochs=2,limit_train_batches=2.0", 3, 4),
        ("max_epochs=2,limit_train_batches=0.5", 8, 8),
    ],
)
def test_steps_are_foreseen(
    trainer: str, batches: int, steps: int, fit_options: fit_check.FitOptions
) -> None:
    given = [f"--trainer.{option}" for option in trainer.split(",") if option]
    parsed = fit_options.parser.parse_args(["fit", *given]).fit.trainer
    assert fit_check.planned_steps(parsed, batches, parsed.max_epochs) == steps


def test_a_directory_is_changed_only_by_who_knows_what_is_in_it(tmp_path: Path) -> None:
    arms = parse_arms("sharenorm,sepnorm")
    plan = Comparison(("-c", "quickstart"), arms, seeds=(0,), baseline=arms[0].name)
    more, out = dataclasses.replace(plan, seeds=(0, 1)), tmp_path / "out"
    many_runs.keep("compare", plan, None, out)
    for kept in (None, more):  # as another command found it
        with pytest.raises(ConfigError, match="another command has changed what is compared in"):
            many_runs.keep("compare", more, kept, out)
        assert Comparison.read(out) == plan
    many_runs.keep("compare", more, plan, out)
    assert Comparison.read(out) == more
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot make .*file/out \(Not a directory\)"):
        many_runs.keep("compare", plan, None, tmp_path / "file" / "out")
    (tmp_path / "b" / "compare.yaml").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"cannot write into .*/b \(Is a directory\)"):
        many_runs.keep("compare", plan, None, tmp_path / "b")


def test_places_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def places(jobs: int | None, runs: int, *devices: str) -> tuple[list[str], int]:
        accelerator, number = devices or ("auto", "auto")
        return runner.places(jobs, (accelerator, number), runs)

    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert places(None, 8) == (["0", "1", "2"], 3)
    assert places(4, 8) == (["0", "1", "2"], 4)
    assert places(None, 2) == (["0", "1", "2"], 2)
    # A run that takes two has them all before it.
    assert places(None, 8, "gpu", "2") == ([], 1)
    monkeypatch.setattr(runner, "cores", lambda: 6)
    assert places(None, 8, "cpu", "auto") == ([], 6)
    for jobs, own in ((1, 6), (2, 1)):  # what a process starts that is one of several
        with monkeypatch.context() as patch:
            for name, value in runner.environments(jobs, 1)[0].items():
                patch.setenv(name, value)
            assert places(None, 8, "cpu", "auto") == ([], own)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,6,7")
    assert places(None, 8) == (["5", "6", "7"], 3)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    assert places(2, 8) == ([], 2)


def test_threads_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_runs, "cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert [many_runs.threads_of_runs(jobs) for jobs in (1, 3, 16)] == [8, 2, 1]
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert many_runs.threads_of_runs(3) == 5
