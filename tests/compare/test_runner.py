"""Processes of a comparison, tried with a program that pretends to train."""

from __future__ import annotations

import dataclasses
import fcntl
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from reference.processes import Forked
from rich.console import Console

from graphormer_sepnorm.compare.arms import parse_arms
from graphormer_sepnorm.compare.comparison import Comparison
from graphormer_sepnorm.compare.process_lifetime import locked
from graphormer_sepnorm.compare.progress import Display, Reached, choose_display, reached
from graphormer_sepnorm.compare.runner import (
    Run,
    Runner,
    environments,
    last_line,
)
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.runs.directory import Record, Session

REPOSITORY = Path(__file__).parents[2]

# What it does is told by --do, which a run that is continued finds in its directory.
PROGRAM = """
import json, os, pathlib, signal, sys, time
from graphormer_sepnorm.compare.process_lifetime import end_with_the_command
end_with_the_command()
words = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
resumed = sys.argv[1] == "--resume"
run = pathlib.Path(sys.argv[2] if resumed else words["--output"])
checkpoints = run / "checkpoints"
checkpoints.mkdir(parents=True, exist_ok=resumed)
do = (run / "do").read_text() if resumed else words["--do"]
(run / "do").write_text(do)
began = time.time()
print("continued" if resumed else "begun")

def save(*_):
    (checkpoints / "last.ckpt").write_text("saved")
    print("interrupted, saved")
    sys.exit(130)

signal.signal(signal.SIGTERM, save)
if do == "fail":
    (checkpoints / "last.ckpt").write_text("saved")
    sys.exit("\\n  it cannot be done  \\n\\n")
if do == "die":
    os.kill(os.getpid(), signal.SIGKILL)
if do == "hang" or (do == "hang once" and not resumed):
    (run / "at work").touch()
    while True:
        time.sleep(0.05)
time.sleep(0.2)
names = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "GRAPHORMER_ENDS_WITH_STDIN",
         "GRAPHORMER_KILLED_BY_ITS_COMMAND")
environment = {name: os.environ.get(name) for name in names}
result = {"best_validation_mae": 0.5, "test_mae": 0.25, "environment": environment,
          "began": began, "ended": time.time(), "words": sys.argv[1:]}
(run / "summary.json").write_text(json.dumps(result))
"""


# Several runs in a process, each the program above; it ends as the last one of them does.
class Events(Display):
    """A display that remembers what it was told."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def started(self, run: Run) -> None:
        self.events.append(f"started {run.name}")

    def finished(self, run: Run, seconds: float) -> None:
        self.events.append(f"finished {run.name}")

    def failed(self, run: Run, why: str) -> None:
        self.events.append(f"failed {run.name}: {why}")

    def stopping(self, running: Sequence[Run]) -> None:
        self.events.append(f"stopping {', '.join(run.name for run in running)}")

    def stopped(self, run: Run) -> None:
        self.events.append(f"stopped {run.name}")

    def refresh(self) -> None: ...

    def close(self) -> None:
        self.events.append("closed")


class Workplace:
    """A directory with runs, each told what to do."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.program = directory / "program.py"
        self.program.write_text(PROGRAM)

    def run(self, arm: str, seed: int = 0, do: str = "work") -> Run:
        place = self.directory / arm / f"seed{seed}"
        words = (f"--do={do}", f"--output={place}")
        return Run(arm, seed, place, words, again=("--data.root=there",))

    def done(self, arm: str, **summary: float) -> Run:
        """A run that is finished."""
        run = self.run(arm)
        run.directory.mkdir(parents=True)
        (run.directory / "summary.json").write_text(json.dumps(summary))
        return run

    def train(
        self,
        runs: Sequence[Run],
        places: Sequence[Mapping[str, str]] = ({},),
    ) -> tuple[bool, list[str]]:
        display = Events()
        with locked(self.directory) as lock:
            program = (sys.executable, str(self.program))
            whole = Runner(runs, places, display, lock, program).run()
        return whole, display.events


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path)


def summary(run: Run) -> dict:
    return json.loads((run.directory / "summary.json").read_text())


def when(condition: Callable[[], bool], then: Callable[[], object]) -> threading.Thread:
    """Do something in another thread once a condition holds."""

    def wait() -> None:
        end = time.monotonic() + 120
        while not condition() and time.monotonic() < end:
            time.sleep(0.02)
        then()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_runs_are_planned_seed_by_seed(tmp_path: Path) -> None:
    arms = parse_arms("sharenorm,bn+bn")
    comparison = Comparison(("-c", "quickstart"), arms, (3, 1), "sharenorm")
    runs = comparison.runs(tmp_path)
    assert [run.name for run in runs] == [
        "sharenorm seed 3",
        "bn+bn seed 3",
        "sharenorm seed 1",
        "bn+bn seed 1",
    ]
    place = tmp_path / "bn+bn" / "seed1"
    # What is given for all arms stands first, so that those of an arm win.
    assert runs[3].arguments == (
        "-c",
        "quickstart",
        "--model.norm=bn+bn",
        "--ensemble=1",
        "--keep=none",
        "--baselines=false",
        "--seed_everything=1",
        f"--output={place}",
    )
    assert runs[3].log == tmp_path / "bn+bn" / "seed1.log"
    blended = dataclasses.replace(comparison, configuration={"blend": True})
    assert "--blend=false" in blended.runs(tmp_path)[3].arguments


def test_runs_begin_with_copies_of_configuration_files(tmp_path: Path) -> None:
    words = ("-c", "quickstart", "--model.layers", "2", "--config=a/mine.yaml", "-c", "a/other")
    comparison = Comparison(words, parse_arms("sharenorm,bn+bn"), (3,), "sharenorm")
    assert comparison.words_in(tmp_path) == words
    copies = comparison.copies(tmp_path)
    assert [file for file, _ in copies] == ["quickstart", "a/mine.yaml", "a/other"]
    for _, copy in copies[:2]:
        copy.parent.mkdir(parents=True)
        copy.touch()
    first, second = (str(copy) for _, copy in copies[:2])
    expected = ("-c", first, "--model.layers", "2", "-c", second, "-c", "a/other")
    assert comparison.words_in(tmp_path) == expected
    assert comparison.runs(tmp_path)[0].arguments[: len(expected)] == expected
    assert [Path(first).name, Path(second).name] == ["quickstart.yaml", "mine.yaml"]


def test_gpus_are_given_in_turn() -> None:
    assert [place["OMP_NUM_THREADS"] for place in environments(2, 3)] == ["3", "3"]
    places = environments(3, 1, ["4", "5"])
    assert [place["CUDA_VISIBLE_DEVICES"] for place in places] == ["4", "5", "4"]
    assert {place["OMP_NUM_THREADS"] for place in places} == {"1"}


def test_runs_in_order_and_side_by_side(workplace: Workplace) -> None:
    runs = [workplace.run(arm, seed) for seed in (0, 1) for arm in ("a", "b")]
    places = environments(2, 1, ["6", "7"])
    whole, events = workplace.train(runs, places)
    assert whole
    started = [event for event in events if event.startswith("started")]
    assert started == [f"started {run.name}" for run in runs]
    assert sum(event.startswith("finished") for event in events) == 4
    found = [summary(run) for run in runs]
    for one in found:
        together = [o for o in found if o["began"] < one["ended"] and one["began"] < o["ended"]]
        assert len({other["environment"]["CUDA_VISIBLE_DEVICES"] for other in together}) == len(
            together
        )
        # Processes that a run starts are not told to end with its standard input, but that
        # somebody else kills them.
        assert one["environment"]["GRAPHORMER_ENDS_WITH_STDIN"] is None
        assert one["environment"]["GRAPHORMER_KILLED_BY_ITS_COMMAND"] == "1"
    assert found[0]["ended"] > found[1]["began"]
    assert runs[0].log.read_text() == "begun\n"


def test_failure_stops_no_other_run_and_is_tried_again_on_the_next_start(
    workplace: Workplace,
) -> None:
    runs = [
        workplace.run("bad", do="fail"),
        workplace.run("dead", do="die"),
        workplace.run("good"),
        workplace.done("ready"),
    ]
    whole, events = workplace.train(runs)
    assert whole
    assert events == [
        "started bad seed 0",
        "failed bad seed 0: it cannot be done",
        "started dead seed 0",
        "failed dead seed 0: killed by SIGKILL",
        "started good seed 0",
        "finished good seed 0",
        "closed",
    ]
    assert last_line(runs[0].log) == "it cannot be done"
    assert last_line(runs[1].log) == "killed by SIGKILL"
    assert [path.name for path in runs[3].directory.iterdir()] == ["summary.json"]
    before = (runs[2].directory / "summary.json").stat().st_mtime_ns
    (runs[0].directory / "do").write_text("work")  # mended
    (runs[1].directory / "left").touch()
    _, events = workplace.train(runs)
    assert events == [
        "started bad seed 0",
        "finished bad seed 0",
        "started dead seed 0",
        "failed dead seed 0: killed by SIGKILL",
        "closed",
    ]
    # It had saved, so it went on; the other had not, and began with an empty directory.
    assert runs[0].log.read_text().splitlines()[-1] == "continued"
    assert runs[1].log.read_text().count("begun") == 2
    assert not (runs[1].directory / "left").exists()
    assert (runs[2].directory / "summary.json").stat().st_mtime_ns == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interruption_lets_the_processes_save(number: int, workplace: Workplace) -> None:
    # In the background SIGINT is ignored, and stays so.
    before = signal.signal(number, signal.default_int_handler)
    runs = [workplace.run("a", do="hang once"), workplace.run("b")]
    try:
        thread = when((runs[0].directory / "at work").exists, lambda: os.kill(os.getpid(), number))
        whole, events = workplace.train(runs)
        thread.join()
        assert signal.getsignal(number) == signal.default_int_handler
    finally:
        signal.signal(number, before)
    assert not whole
    assert events == ["started a seed 0", "stopping a seed 0", "stopped a seed 0", "closed"]
    assert last_line(runs[0].log) == "interrupted, saved"
    whole, events = workplace.train(runs)
    assert whole
    assert all(run.finished for run in runs)
    assert "continued" in runs[0].log.read_text()
    goes_on = ["--resume", str(runs[0].directory), "--data.root=there"]
    assert [summary(run)["words"] for run in runs] == [goes_on, [*runs[1].arguments]]


@pytest.mark.parametrize("quick", [False, True])
def test_second_interruption_ends_at_once(quick: bool, workplace: Workplace) -> None:
    run = workplace.run("a", do="hang")
    # A process that does not end when it is asked to.
    text = workplace.program.read_text().replace("sys.exit(130)", "(run / 'asked').touch()")
    workplace.program.write_text(text)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:

        def interrupt() -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            if quick:  # two of one kind may arrive as one
                os.kill(os.getpid(), signal.SIGINT)
            else:
                asked = (run.directory / "asked").exists
                when(asked, lambda: os.kill(os.getpid(), signal.SIGTERM))

        when((run.directory / "at work").exists, interrupt)
        whole, events = workplace.train([run])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not whole
    assert events[-2:] == ["stopped a seed 0", "closed"]


def test_an_ensemble_that_is_a_fold_is_asked_once(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch system asks it, and the command that started it asks it once more."""
    runner = Runner([], [], Events(), 0)
    runner._stop(signal.SIGTERM, None)
    monkeypatch.setenv("GRAPHORMER_KILLED_BY_ITS_COMMAND", "1")
    runner._stop(signal.SIGTERM, None)
    assert runner._asked == 1
    monkeypatch.delenv("GRAPHORMER_KILLED_BY_ITS_COMMAND")
    runner._stop(signal.SIGTERM, None)
    assert runner._asked == 2


def test_a_run_is_said_to_start_before_it_can_have_left_anything(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, order = subprocess.Popen, []

    def popen(*arguments, **options):
        order.append("process")
        return real(*arguments, **options)

    monkeypatch.setattr("graphormer_sepnorm.compare.runner.subprocess.Popen", popen)
    monkeypatch.setattr(Events, "started", lambda self, run: order.append(run.name))
    workplace.train([workplace.run("a")])
    assert order == ["a seed 0", "process"]


def test_a_process_that_cannot_be_started_stops_no_other_run(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [workplace.run("a"), workplace.run("b")]
    real, started = subprocess.Popen, []

    def popen(*arguments, **options):
        started.append(arguments)
        if len(started) == 1:
            raise OSError(12, "Cannot allocate memory")
        return real(*arguments, **options)

    monkeypatch.setattr("graphormer_sepnorm.compare.runner.subprocess.Popen", popen)
    whole, events = workplace.train(runs)
    assert whole
    assert events == [
        "started a seed 0",
        "failed a seed 0: it cannot be started (Cannot allocate memory)",
        "started b seed 0",
        "finished b seed 0",
        "closed",
    ]


def test_one_command_at_work(tmp_path: Path) -> None:
    said = "another command is at work in"
    with locked(tmp_path), pytest.raises(ConfigError, match=said):
        locked(tmp_path, patience=0.2).__enter__()
    with locked(tmp_path, patience=0.2):
        pass


def test_killed_command_takes_its_processes_along(workplace: Workplace) -> None:
    run = workplace.run("a", do="hang")
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from pathlib import Path\n"
        "from test_runner import Workplace\n"
        f"place = Workplace(Path({str(workplace.directory)!r}))\n"
        "place.train([place.run('a', do='hang')])\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with Forked([sys.executable, "-c", code], env=environment) as command:
        when((run.directory / "at work").exists, command.kill).join()
    assert command.returncode == -signal.SIGKILL
    # The process held on to the lock, so a new command waits until it is gone.
    with locked(workplace.directory, patience=60):
        pass
    # It had no time to save.
    assert last_line(run.log) == "begun"
    assert not (run.directory / "checkpoints" / "last.ckpt").exists()


def test_lock_is_held_by_the_processes_too(tmp_path: Path) -> None:
    with locked(tmp_path) as lock:
        orphan = subprocess.Popen(["sleep", "60"], pass_fds=(lock,))
    try:
        with pytest.raises(ConfigError):
            locked(tmp_path, patience=0).__enter__()
    finally:
        orphan.kill()
        orphan.wait()
    with (tmp_path / ".lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.fixture
def half_way(workplace: Workplace) -> Run:
    """A run that has taken 40 of its 100 steps, 10 of them in an earlier session."""
    run = workplace.run("a")
    run.directory.mkdir(parents=True)
    rows = ["epoch,step,train_loss_step,validation_mae", "0,9,1.0,", "0,9,,0.8", "1,24,,0.6"]
    (run.directory / "metrics.csv").write_text("\n".join([*rows, "2,39,,0.7"]))
    started = "2026-01-01T00:00:00+00:00"
    sessions = [
        Session(started=started, to_step=10, command=[]),
        Session(started=started, from_step=10, to_step=35, command=[]),
    ]
    record = Record(dataset="a", dataset_fingerprint="b", metric="mae", seed=0, sessions=sessions)
    run.files.write_record(record)
    return run


def test_progress_is_read_from_the_run(half_way: Run, tmp_path: Path) -> None:
    assert reached(half_way.directory, "mae") == Reached(40, 0.7, 0.6)
    assert reached(half_way.directory, "auroc").step == 40
    assert repr(reached(tmp_path / "nowhere", "mae")) == repr(Reached())
    # A file that is being written is not an error.
    metrics = half_way.directory / "metrics.csv"
    metrics.write_text("epoch,step\n0,")
    os.utime(metrics, (0, 0))  # another time, however coarse the clock of the disk is
    assert reached(half_way.directory, "mae").step == 35


def test_an_ensemble_is_as_far_as_its_members(half_way: Run, tmp_path: Path) -> None:
    for seed in (3, 4):
        shutil.copytree(half_way.directory, tmp_path / "fold0" / "members" / f"seed{seed}")
    (tmp_path / "fold0" / "members" / "seed3.log").touch()
    assert reached(tmp_path / "fold0", "mae").step == 80


def test_bars_in_a_terminal(workplace: Workplace, half_way: Run) -> None:
    waiting = [workplace.run(arm, seed) for arm in ("b", "c") for seed in range(4)]
    done = workplace.done("d")
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, height=9, color_system=None)
    steps = dict.fromkeys("abcd", 100)
    bars = Display([half_way, *waiting, done], "mae", steps, console, bars=True)
    bars.started(half_way)
    for run in waiting[:2]:
        bars.started(run)
    bars.stopped(waiting[1])
    bars.failed(waiting[0], f"a\x1b[1mline [of] {'many ' * 30}words")
    said = f"b seed 0: failed, a [1mline [of] {'many ' * 30}words ({waiting[0].log})\n"
    assert said in out.getvalue()  # above the bars, on one line
    out.truncate(out.seek(0))
    metrics = half_way.directory / "metrics.csv"
    for number, row in enumerate(["3,49,,0.65", "4,59,,0.5"]):
        metrics.write_text(f"{metrics.read_text()}\n{row}")
        os.utime(metrics, (number, number))
        bars.refresh()
    bars.close()
    said = re.sub("\x1b[^a-zA-Z]*[a-zA-Z]", "", out.getvalue())
    *_, of_all, of_run = (line.strip() for line in re.split("[\r\n]+", said.strip()))
    left = r"\d:\d\d:\d\d"
    # What failed and what was finished earlier is not waited for; what was stopped goes on later.
    assert re.fullmatch(rf"1 of 10 runs finished +\S+ +260/1000 +{left}", of_all)
    values = r"validation MAE 0\.5000, best 0\.5000"
    assert re.fullmatch(rf"a seed 0 +\S+ +60/100 +{values} +{left}", of_run)


def test_lines_elsewhere(workplace: Workplace, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = workplace.run("a"), workplace.run("b")
    done = workplace.done("c")
    lines = choose_display([good, bad, done], "mae", dict.fromkeys("abc", 100))
    lines.started(good)
    lines.started(bad)
    lines.refresh()
    workplace.done("a", best_validation_mae=0.5, test_mae=0.25)
    lines.finished(good, 61)
    lines.failed(bad, "a\x1b[1mline")
    lines.close()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "1 of 3 runs are finished already",
        "a seed 0: started",
        "b seed 0: started",
        "a seed 0: finished (2 of 3), validation MAE 0.5000, test MAE 0.2500, 0:01:01",
        f"b seed 0: failed, a [1mline ({bad.log})",
    ]
