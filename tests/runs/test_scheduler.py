"""Processes of many runs, tried with a program that pretends to train."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from graphormer_sepnorm.config import FitConfig, TrainerConfig
from graphormer_sepnorm.runs import scheduler
from graphormer_sepnorm.runs.directory import Record
from graphormer_sepnorm.runs.locks import locked
from graphormer_sepnorm.runs.plan import RunSpec
from graphormer_sepnorm.runs.scheduler import Display, Scheduler, environments, last_line

REPOSITORY = Path(__file__).parents[2]
# What it does stands in a file next to the run.
PROGRAM = """
import json, os, pathlib, signal, sys, time
import yaml
from graphormer_sepnorm.process import end_with_the_command
end_with_the_command()
words = sys.argv[1:]
resumed = words[0] == "--resume"
run = pathlib.Path(words[1] if resumed else yaml.safe_load(open(words[1]))["output"])
checkpoints = run / "checkpoints"
checkpoints.mkdir(parents=True, exist_ok=resumed)
do = run.with_name(run.name + ".do").read_text()
if not resumed:
    (run / "config.yaml").write_text(pathlib.Path(words[1]).read_text())
began = time.time()
print("continued" if resumed else "begun")

def save(*_):
    (checkpoints / "last.ckpt").write_text("saved")
    print("interrupted, saved")
    if do == "stay":
        (run / "asked").touch()
    else:
        sys.exit(130)

signal.signal(signal.SIGTERM, save)
if do == "fail":
    (checkpoints / "last.ckpt").write_text("saved")
    sys.exit("\\n  it cannot be done  \\n\\n")
if do == "die":
    os.kill(os.getpid(), signal.SIGKILL)
if do in ("hang", "stay") or (do == "hang once" and not resumed):
    (run / "at work").touch()
    while True:
        time.sleep(0.05)
time.sleep(0.2)
names = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "GRAPHORMER_ENDS_WITH_STDIN",
         "GRAPHORMER_KILLED_BY_ITS_COMMAND")
environment = {name: os.environ.get(name) for name in names}
result = {"best_validation_mae": 0.5, "test_mae": 0.25, "environment": environment,
          "began": began, "ended": time.time(), "words": words}
(run / "summary.json").write_text(json.dumps(result))
"""


class Events(Display):
    """A display that remembers what it says."""

    def __init__(self, specs: Sequence[RunSpec]) -> None:
        self.events: list[str] = []
        super().__init__(specs, "mae")

    def say(self, line: str) -> None:
        self.events.append(re.split(r" \(|, then", line)[0])


class Workplace:
    """A directory with runs, each told what to do."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        program = directory / "program.py"
        program.write_text(PROGRAM)
        scheduler.FIT = (sys.executable, str(program))

    def run(self, arm: str, seed: int = 0, do: str = "work") -> RunSpec:
        directory = self.directory / arm / f"seed{seed}"
        directory.parent.mkdir(exist_ok=True)
        directory.with_name(f"{directory.name}.do").write_text(do)
        return RunSpec(f"{arm} {seed}", FitConfig(seed_everything=seed), directory, arm)

    def done(self, arm: str) -> RunSpec:
        """A run that is finished."""
        run = self.run(arm)
        run.directory.mkdir(parents=True)
        run.files.summary_file.write_text(json.dumps({"best_validation_mae": 0.5, "test_mae": 1}))
        return run

    def train(
        self, runs: Sequence[RunSpec], slots: Sequence[Mapping[str, str]] = ()
    ) -> tuple[bool, list[str]]:
        display = Events(runs)
        with locked(self.directory) as lock:
            unfinished = [run for run in runs if not run.finished]
            whole = Scheduler(unfinished, slots or environments(1, 1), display, lock).run()
        return whole, display.events


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workplace]:
    monkeypatch.setattr(scheduler, "FIT", ())  # and put back
    return Workplace(tmp_path)


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


def test_runs_in_order_and_side_by_side(workplace: Workplace) -> None:
    runs = [workplace.run(arm, seed) for seed in (0, 1) for arm in ("a", "b")]
    whole, events = workplace.train(runs, environments(2, 3, ["6", "7"]))
    assert whole
    started = [event for event in events if event.endswith("started")]
    assert started == [f"{run.name}: started" for run in runs]
    found = [run.files.summary() for run in runs]
    for one in found:
        together = [o for o in found if o["began"] < one["ended"] and one["began"] < o["ended"]]
        gpus = {other["environment"]["CUDA_VISIBLE_DEVICES"] for other in together}
        assert len(gpus) == len(together)
        assert one["environment"]["OMP_NUM_THREADS"] == "3"
        # Processes that a run starts are not told to end with its standard input, but that
        # somebody else kills them.
        assert one["environment"]["GRAPHORMER_ENDS_WITH_STDIN"] is None
        assert one["environment"]["GRAPHORMER_KILLED_BY_ITS_COMMAND"] == "1"
    assert runs[0].log.read_text() == "begun\n"
    options = yaml.safe_load(runs[2].config_file.read_text())
    expected = runs[2].config.with_options({"output": str(runs[2].directory)})
    assert FitConfig.from_plain(options) == expected


def test_failure_stops_no_other_run_and_is_tried_again_on_the_next_start(workplace):
    bad, dead = workplace.run("bad", do="fail"), workplace.run("dead", do="die")
    runs = [bad, dead, workplace.run("good"), workplace.done("ready")]
    whole, events = workplace.train(runs)
    assert whole
    assert [event for event in events if "started" not in event] == [
        "1 of 4 runs are finished already",
        "bad 0: failed, it cannot be done",
        "dead 0: failed, killed by SIGKILL",
        "good 0: finished",
    ]
    assert bad.failure.read_text() == "it cannot be done\n"
    assert dead.failure.read_text() == "killed by SIGKILL\n"
    assert not runs[2].failure.exists()
    bad.directory.with_name("seed0.do").write_text("work")  # fixed, and its data have moved
    moved = bad.config.with_options({"data.root": "there", "data.batch_size": 8})
    runs[0] = RunSpec(bad.name, moved, bad.directory, bad.arm)
    (dead.directory / "left").touch()
    _, events = workplace.train(runs)
    assert "bad 0: finished" in events
    assert bad.files.summary()["words"] == ["--resume", str(bad.directory), "--data.root=there"]
    # It had saved, so it went on; the other had not, and began with an empty directory.
    assert bad.log.read_text().splitlines()[-1] == "continued"
    assert not bad.failure.exists()
    assert dead.log.read_text().count("begun") == 2
    assert not (dead.directory / "left").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_interruption_lets_the_processes_save(number: int, workplace: Workplace) -> None:
    # In the background SIGINT is ignored, and stays so.
    signal.signal(number, signal.default_int_handler)
    runs = [workplace.run("a", do="hang once"), workplace.run("b")]
    thread = when((runs[0].directory / "at work").exists, lambda: os.kill(os.getpid(), number))
    whole, events = workplace.train(runs)
    thread.join()
    assert signal.getsignal(number) == signal.default_int_handler
    assert not whole
    assert events == ["a 0: started", "saving", "a 0: stopped"]
    assert last_line(runs[0].log) == "interrupted, saved"
    assert not runs[0].failure.exists()
    whole, _ = workplace.train(runs)
    assert whole
    assert [run.files.summary()["words"] for run in runs] == [
        ["--resume", str(runs[0].directory)],
        ["-c", str(runs[1].config_file)],
    ]


@pytest.mark.parametrize("quick", [False, True])
def test_second_interruption_ends_at_once(quick: bool, workplace: Workplace) -> None:
    run = workplace.run("a", do="stay")  # it does not end when it is asked to
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        if quick:  # two of one kind may arrive as one
            os.kill(os.getpid(), signal.SIGINT)
        else:
            asked = (run.directory / "asked").exists
            when(asked, lambda: os.kill(os.getpid(), signal.SIGTERM))

    when((run.directory / "at work").exists, interrupt)
    whole, events = workplace.train([run])
    assert not whole
    assert events[-1] == "a 0: stopped"


def test_an_ensemble_that_is_a_fold_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch system asks it, and the command that started it asks it once more."""
    one = Scheduler([], [], Events([]), 0)
    one._stop(signal.SIGTERM, None)
    monkeypatch.setenv("GRAPHORMER_KILLED_BY_ITS_COMMAND", "1")
    one._stop(signal.SIGTERM, None)
    assert one._asked == 1
    monkeypatch.delenv("GRAPHORMER_KILLED_BY_ITS_COMMAND")
    one._stop(signal.SIGTERM, None)
    assert one._asked == 2


def test_a_process_that_cannot_be_started_stops_no_other_run(workplace, monkeypatch):
    start, failures = subprocess.Popen, [OSError(12, "Cannot allocate memory")]

    def popen(*arguments, **options):
        if failures:
            raise failures.pop()
        return start(*arguments, **options)

    monkeypatch.setattr(scheduler.subprocess, "Popen", popen)
    whole, events = workplace.train([workplace.run("a"), workplace.run("b")])
    assert whole
    assert events[:2] == ["a 0: started", "a 0: failed, it cannot be started"]
    assert events[2:] == ["b 0: started", "b 0: finished"]


def test_killed_command_takes_its_processes_along(workplace: Workplace) -> None:
    run = workplace.run("a", do="hang")
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from pathlib import Path\n"
        "from test_scheduler import Workplace\n"
        f"here = Workplace(Path({str(workplace.directory)!r}))\n"
        "here.train([here.run('a', do='hang')])\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen([sys.executable, "-c", code], env=environment) as command:
        when((run.directory / "at work").exists, command.kill).join()
    assert command.returncode == -signal.SIGKILL
    # The process held on to the lock, so a new command waits until it is gone.
    with locked(workplace.directory, patience=60):
        pass
    # It had no time to save.
    assert last_line(run.log) == "begun"
    assert not run.begun


def test_slots_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def slots(jobs: int | None, runs: int, **trainer: str) -> tuple[list[str], int]:
        return scheduler.slots(jobs, TrainerConfig(**trainer), runs)

    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert slots(None, 8) == (["0", "1", "2"], 3)
    assert slots(4, 8) == (["0", "1", "2"], 4)
    assert slots(None, 2) == (["0", "1", "2"], 2)
    # A run that takes two has them all.
    assert slots(None, 8, accelerator="gpu", devices="2") == ([], 1)
    monkeypatch.setattr(scheduler, "cores", lambda: 6)
    assert slots(None, 8, accelerator="cpu") == ([], 6)
    for jobs, own in ((1, 6), (2, 1)):  # what a process starts that is one of several
        with monkeypatch.context() as patch:
            for name, value in environments(jobs, 1)[0].items():
                patch.setenv(name, value)
            assert slots(None, 8, accelerator="cpu") == ([], own)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,6,7")
    assert slots(None, 8) == (["5", "6", "7"], 3)
    given = [one["CUDA_VISIBLE_DEVICES"] for one in environments(3, 1, ["4", "5"])]
    assert given == ["4", "5", "4"]


@pytest.mark.parametrize(
    ("wanted", "of_comparisons", "of_members"), [("", [8, 2, 1], "2"), ("6", [6, 6, 6], "1")]
)
def test_threads_of_processes(wanted, of_comparisons, of_members, workplace, monkeypatch):
    """A comparison's runs have what the user says; members share what their ensemble has."""
    monkeypatch.setattr(scheduler, "cores", lambda: 8)
    monkeypatch.setenv("OMP_NUM_THREADS", wanted)
    assert [scheduler.threads_of_runs(jobs) for jobs in (1, 3, 16)] == of_comparisons
    runs = [workplace.done("a"), *(workplace.run(arm) for arm in "bcd")]
    with locked(workplace.directory) as lock:
        assert scheduler.train(runs, metric="mae", lock=lock, jobs=4)
    assert runs[2].files.summary()["environment"]["OMP_NUM_THREADS"] == of_members


def test_a_line_in_a_terminal(workplace: Workplace, monkeypatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    now = [1000.0]
    monkeypatch.setattr(scheduler.time, "monotonic", lambda: now[0])
    config = FitConfig(trainer=TrainerConfig(max_epochs=2))
    runs = [replace(workplace.run(arm), config=config) for arm in "abc"]
    runs[0].directory.mkdir(parents=True)
    display = Display([*runs, workplace.done("d")], "mae", "networks")
    lines = []

    def look(seconds: float, rows: str = "") -> None:
        now[0] += seconds
        with runs[0].files.metrics_file.open("a") as file:
            file.write(rows)
        display.refresh()
        lines.append(capsys.readouterr().err.rpartition("\r\x1b[K")[2])

    for run in runs[:2]:
        display.started(run)
    look(5)
    known = {"dataset": "d", "dataset_fingerprint": "f", "metric": "mae", "seed": 0, "sessions": []}
    runs[0].files.write_record(Record(**known, planned_steps=48))
    look(15, "epoch,step,train_loss_step\n0,12,1.0\n")  # a quarter of one of three, in 20 s
    look(20, "1,24,0.5\n2,")  # the last row is being written
    display.ended(runs[1], "a\x1b[1mline", failed=True)
    assert capsys.readouterr().err.endswith("b 0: a [1mline\n")
    display.started(runs[2])
    display.ended(runs[2], "stopped")
    look(0)  # what failed is not waited for, what was stopped is
    display.started(runs[2])
    display.ended(runs[2], "failed", failed=True)
    look(1, "48,0.5\n")  # all steps are taken, and it is tested
    runs[0].files.write_summary({})
    display.finished(runs[0], 150)
    display.close()
    lines += [capsys.readouterr().err.rpartition("\r\x1b[K")[2]]
    first, last = (f"networks 1 of 4 · epoch {epoch} of 2" for epoch in (1, 2))
    timed = [f"{first} · 0:03:40 left", *(f"{last} · 0:0{left} left" for left in ("3:20", "2:00"))]
    assert lines == ["networks 1 of 4", *timed, last, "networks 2 of 4\n"]
