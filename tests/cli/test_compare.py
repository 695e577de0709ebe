"""The command train.py compare: runs, continuing, failures, and what it refuses."""

import contextlib
import io
import json
import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import Mock

import pytest
import yaml
from reference.processes import finish
from tiny_run import on_table, refused, sample_table, start, stop, summary

from graphormer_sepnorm.cli.compare import parse_seeds
from graphormer_sepnorm.cli.train import main
from graphormer_sepnorm.errors import ConfigError, DataError
from graphormer_sepnorm.runs import scheduler
from graphormer_sepnorm.runs.plan import COMPARISON, Plan, RunSpec

STEPS = 24
MAKE_REPORT = "graphormer_sepnorm.cli.compare.make_report"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sample_table(tmp_path_factory.mktemp("compare") / "mine.csv", 100)


def options(table: Path) -> list[str]:
    return [
        *(option for option in on_table(table) if "baselines" not in option),
        *("--data.split", "random", "--data.batch_size", "16", "--model.dropout", "0.1"),
        *("--trainer.max_steps", str(STEPS), "--ema_decay", "0.9"),
        *("--checkpoint_minutes", "0.0001", "--data.units=[furlong]"),
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


def kill_after_saving(directory: Path, run: str, *arguments: str) -> None:
    """Start the command in a process of its own and kill it once a run has saved something."""
    process = start("compare", *arguments, "-o", str(directory), "--jobs", "1")
    stop(process, directory / run, 0, signal.SIGKILL)
    assert finish(process)[0] == -signal.SIGKILL
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
    assert (straight.directory / "summary.md").read_text().strip() in straight.out
    run = straight.directory / "sepnorm" / "seed1"
    words = json.loads((run / "run.json").read_text())["sessions"][0]["command"]
    assert words == ["train.py", "fit", "-c", f"{run}.yaml"]
    assert yaml.safe_load(run.with_name("seed1.yaml").read_text())["seed_everything"] == 1
    assert "test MAE" in run.with_name("seed1.log").read_text()


@pytest.mark.slow
def test_results_are_those_of_the_runs(straight: Compared, table: Path) -> None:
    results = straight.results
    assert results["complete"] is True
    assert results["molecules"] == {"train": 80, "validation": 10, "test": 10}
    assert {arm["selected_on"] for arm in results["arms"]} == {"validation_mae"}
    assert (results["task"]["metric"], results["baseline"]) == ("mae", "sharenorm")
    seen = set()
    for arm in results["arms"]:
        for run in arm["runs"]:
            directory = straight.directory / run["directory"]
            came_to = summary(directory)
            assert run["status"] == "finished"
            assert run["test"] == came_to["test_mae"]
            assert run["validation"] == came_to["best_validation_mae"]
            assert arm["parameters"] == came_to["parameters"]
            assert run["steps"] == STEPS
            layers = ["layer 1", "layer 2", "output"]
            assert [one["layer"] for one in run["geometry"]] == layers
            # The best validation is one of the curve.
            assert run["validation"] in [point.get("validation") for point in run["curve"]]
            seen.add((run["test"], run["validation"]))
    assert len(seen) == 4


def repeatable(compared: Compared) -> dict:
    """The results without times, which are never the same."""
    results = compared.results
    for name in ("environment", "environments_differ"):
        del results[name]
    for arm in results["arms"]:
        for run in arm["runs"]:
            for name in ("seconds", "ms_per_step"):
                assert run.pop(name) > 0
    return results


@pytest.mark.slow
def test_killed_comparison_gives_the_report_of_one_that_was_not(straight, killed):
    assert killed.status == 0, killed.err
    first, second, *_ = killed.err.splitlines()
    assert (first, second) == ("1 of 4 runs are finished already", "sepnorm seed 0: continued")
    for run in ("sharenorm/seed0", "sepnorm/seed0"):
        record = json.loads((killed.directory / run / "run.json").read_text())
        assert [session["end"] for session in record["sessions"]] == [None, "trained"]
        steps = [session["from_step"] for session in record["sessions"]]
        assert 0 == steps[0] < steps[1] < STEPS
    assert repeatable(killed) == repeatable(straight)


@pytest.mark.slow
def test_arm_that_fails_leaves_the_others_alone(failed: Compared) -> None:
    assert failed.status == 1
    log = failed.directory / "hot" / "seed0.log"
    lines = failed.err.splitlines()
    assert lines[0] == "4 of 6 runs are finished already"
    assert lines[2] == f"hot seed 0: failed, {log.read_text().splitlines()[-1]} ({log})"
    assert "train.py: training diverged at step " in lines[2]
    assert lines[-1].startswith("train.py: 2 of 6 runs have failed: hot seed 0, hot seed 1;")
    assert lines[-1].endswith(f"python train.py compare -o '{failed.directory}'")
    results = failed.results
    assert results["complete"] is False
    assert [arm["name"] for arm in results["arms"]] == ["sharenorm", "sepnorm", "hot"]
    for run in results["arms"][2]["runs"]:
        assert (run["status"], run["test"]) == ("failed", None)
        assert run["error"].startswith("train.py: training diverged")


@pytest.mark.usefixtures("nothing_starts")
def test_a_report_that_cannot_be_made_hides_no_failures(table, tmp_path, monkeypatch):
    def fail(specs: Sequence[RunSpec], **_: object) -> bool:
        for spec in specs:
            if not spec.finished:
                spec.failure.parent.mkdir(exist_ok=True)
                spec.failure.write_text("it cannot be done\n")
        return True

    monkeypatch.setattr(scheduler, "train", fail)
    monkeypatch.setattr(MAKE_REPORT, Mock(side_effect=DataError("something is damaged")))
    assert compare(tmp_path / "out", *options(table), *ARMS, "--seeds", "0").status == 1
    run = tmp_path / "out" / "sharenorm" / "seed0"
    run.mkdir(parents=True)
    (run / "summary.json").write_text("{}")
    done = compare(tmp_path / "out")
    assert done.status == 1
    first, second = done.err.splitlines()
    assert first == "train.py: something is damaged"
    assert second.startswith("train.py: 1 of 2 runs have failed: sepnorm seed 0;")


@pytest.mark.usefixtures("nothing_starts")
def test_runs_of_which_no_options_are_known_are_not_taken(table: Path, tmp_path, capsys) -> None:
    run = tmp_path / "out" / "sepnorm" / "seed0"
    run.mkdir(parents=True)
    (run / "summary.json").write_text("{}")  # an ensemble has no run.json
    given = [*options(table), *ARMS, "--seeds", "0", "-o", tmp_path / "out"]
    said = refused(capsys, main, "compare", *map(str, given))
    assert str(run) in said
    assert "compare.yaml" in said
    assert not (tmp_path / "out" / "compare.yaml").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_starts")
def test_report_is_made_again_without_checkpoints_and_runs(straight, tmp_path):
    place = shutil.copytree(straight.directory, tmp_path / "out")
    assert compare(place).status == 0
    before = [(place / name).read_bytes() for name in ("summary.md", "results.json")]
    (place / "results.json").unlink()
    for path in list(place.rglob("checkpoints")):
        shutil.rmtree(path)
    assert compare(place).status == 0
    assert [(place / name).read_bytes() for name in ("summary.md", "results.json")] == before
    for arm in ("sharenorm", "sepnorm"):  # and without the runs
        shutil.rmtree(place / arm)
    assert main(["compare", "--report-only", "-o", str(place)]) == 0
    assert [(place / name).read_bytes() for name in ("summary.md", "results.json")] == before


@pytest.mark.slow
def test_interrupted_report(straight: Compared, capsys, monkeypatch) -> None:
    monkeypatch.setattr(MAKE_REPORT, Mock(side_effect=KeyboardInterrupt))
    assert main(["compare", "-o", str(straight.directory)]) == 130
    assert f"python train.py compare -o {straight.directory}" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_starts")
def test_other_data_are_refused(table: Path, straight: Compared, capsys) -> None:
    before = table.read_text()
    table.write_text(before + "\nCCCCO,1.0")
    try:
        seed = ["--seeds", "7", "-o", str(straight.directory)]
        assert "other data" in refused(capsys, main, "compare", *seed)
        analyzed = ["--report-only", "-o", str(straight.directory)]
        assert "other data" in refused(capsys, main, "compare", *analyzed)
    finally:
        table.write_text(before)


@pytest.fixture
def begun(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A comparison that was stopped at once."""
    monkeypatch.setattr(scheduler.Scheduler, "run", lambda self: False)
    assert compare(tmp_path / "out", *options(table), *ARMS, *SEEDS).status == 130
    return tmp_path / "out"


def test_a_comparison_goes_on_with_more_and_with_data_elsewhere(begun, table, tmp_path, capsys):
    stored = begun / COMPARISON
    before = stored.read_text()
    for words in (["--data.batch_size=16"], options(table)):  # the same in other words
        assert compare(begun, *words).status == 130
        assert stored.read_text() == before
    said = refused(capsys, main, "compare", "--model.layers=3", "--arms", "bn+ln", "-o", begun)
    assert "'sepnorm' and 'bn+ln'" in said  # first of all
    said = refused(capsys, main, "compare", "--model.layers=3", "-o", begun)
    assert "--model.layers is 3 here and 2" in said
    other = sample_table(tmp_path / "other.csv", 100)
    said = refused(capsys, main, "compare", "--data.table", other, "-o", begun)
    assert f"--data.table is {other} here" in said
    (tmp_path / "new").mkdir()  # another machine, or the next job of a cluster
    moved = shutil.copy(table, tmp_path / "new")
    words = ["--data.root", str(tmp_path / "new"), f"--data.table={moved}"]
    words += ["--seeds", "1-3", "--arms", "bn+bn", "--baseline", "bn+bn"]
    assert compare(begun, *words).status == 130
    plan = Plan.read(stored)
    assert plan is not None
    assert (plan.base.data.root, plan.base.data.table) == (str(tmp_path / "new"), str(moved))
    assert (plan.seeds, plan.baseline) == ((0, 1, 2, 3), "bn+bn")
    assert [arm.name for arm in plan.arms] == ["sharenorm", "sepnorm", "bn+bn"]
    before = stored.read_text()
    assert compare(begun).status == 130  # and it is known from now on
    assert stored.read_text() == before


BOTH = "--arms sharenorm,sepnorm"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        *(("", "--arms"), ("--arm a,b", "'--arms'"), ("--seed 0", "'--seeds'")),
        ("--arms sepnorm", "--arms"),
        (f"{BOTH} --seeds 0-", "--seeds"),
        (f"{BOTH} --seeds 4294967296", "--seed_everything is 4294967296"),
        (f"{BOTH} --jobs 0", "--jobs is 0"),
        (f"{BOTH} --baseline ln", "--baseline ln"),
        (f"{BOTH} --ensemble-by folds", "--ensemble_by"),
        (f"{BOTH} --baselines true", "--baselines is decided by the subcommand"),
        ("--arms {other} -c table_regression --data.table {table}", "arms 'a' and 'b' have diff"),
        ("--arms {same} -c table_regression --data.table {table}", "arms 'b' and 'c' are the same"),
        ("--arms {kept} -c quickstart", "'b': --keep"),
        (f"{BOTH} NO ROOT", "-c quickstart"),
        ("--report-only NO ROOT", "no comparison"),
        ("--report-only --model.layers=3", "--report-only"),
    ],
)
@pytest.mark.usefixtures("nothing_starts")
def test_mistakes_are_one_line_and_nothing_is_started(
    words: str, named: str, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {
        "other": "a:\nb: {data: {split_fractions: [0.6, 0.2, 0.2]}}\n",
        "same": "a: {model.dropout: 0.3}\nb: {model.dropout: 0.10, model.learning_rate: 1e-3}\n"
        "c: {model: {learning_rate: 0.0010, dropout: .1}}\n",
        "kept": "a:\nb: {keep: none}\n",
    }
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    places = {name: tmp_path / f"{name}.yaml" for name in files}
    given = words.removesuffix(" NO ROOT").format(**places, table=table).split()
    given += [] if "NO ROOT" in words else ["--data.root", str(table.parent / "root")]
    output = tmp_path / "out"
    assert named in refused(capsys, main, "compare", *given, "-o", output)
    assert not output.exists()


@pytest.mark.parametrize(
    ("text", "seeds"), [("3", (3,)), ("0-2", (0, 1, 2)), ("5, 0-1", (5, 0, 1)), ("0-1,00", (0, 1))]
)
def test_seeds(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds
    for wrong in ("", "-1", "1-", "2-1,", "a", "3-1", "²"):
        with pytest.raises(ConfigError, match="--seeds"):
            parse_seeds(wrong)
