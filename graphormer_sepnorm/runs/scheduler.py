"""Trains many runs side by side, each a process of its own, and shows how they are doing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from graphormer_sepnorm.config import TrainerConfig, flat, save_config
from graphormer_sepnorm.errors import GraphormerError
from graphormer_sepnorm.formatting import StatusLine, clock, four_digits
from graphormer_sepnorm.metrics import METRICS
from graphormer_sepnorm.process import ENDS_WITH_STDIN, KILLED_BY_ITS_COMMAND, answered_by, cores
from graphormer_sepnorm.runs.plan import DATA_FILES, RunSpec

FIT = (sys.executable, "-m", "graphormer_sepnorm.cli.train", "fit")
_ONE_OF_SEVERAL = "GRAPHORMER_ONE_OF_SEVERAL"
_LOOK_EVERY, _SHOW_EVERY = 0.1, 2.0  # seconds


def train(
    specs: Sequence[RunSpec],
    *,
    metric: str,
    lock: int,
    jobs: int | None = None,
    threads: int | None = None,
    called: str = "runs",
) -> bool:
    """Train what is not finished; return False if that was interrupted.

    A run that fails does not stop the others: why is in its `failure`. Ctrl-C, SIGTERM and SIGHUP
    ask the processes to save and end, and wait for it; a second one ends them at once. When this
    process is killed, they are.

    Args:
        specs: All runs, in their order; those that are finished count too.
        metric: That is shown of them.
        lock: File descriptor that the processes hold on to.
        jobs: Processes side by side; None: see `slots`.
        threads: Of each on a CPU; None: an equal share of those of this process.
        called: What they are, for the line that shows how they are doing.
    """
    unfinished = [spec for spec in specs if not spec.finished]
    if not unfinished:
        return True
    # By all runs: the threads of the last ones are those of the first.
    gpus, jobs = slots(jobs, specs[0].config.trainer, len(specs))
    threads = threads or max(1, (_wanted_threads() or cores()) // jobs)
    found = environments(min(jobs, len(unfinished)), threads, gpus)
    return Scheduler(unfinished, found, Display(specs, metric, called), lock).run()


def slots(wanted: int | None, trainer: TrainerConfig, runs: int) -> tuple[list[str], int]:
    """Return the GPUs to give to processes in turn (none: all see all), and how many there are.

    Args:
        wanted: Processes side by side; None: one on each GPU, without one on each core.
        trainer: Options of a run.
        runs: No more processes than these.
    """
    import torch

    gpus: list[str] = []
    if trainer.accelerator in ("auto", "gpu", "cuda"):
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        count = torch.cuda.device_count()
        gpus = visible[:count] if len(visible) >= count else [str(n) for n in range(count)]
    if gpus and str(trainer.devices) not in ("auto", "1"):
        # A run takes several GPUs, or names its own: then runs take turns.
        return [], min(wanted or 1, runs)
    # Without a GPU one on each core: molecules make matrices so small that a second thread adds
    # little, where a second process trains as much again. One of several leaves the rest to others.
    mine = 1 if os.environ.get(_ONE_OF_SEVERAL) else len(gpus) or cores()
    return (gpus if len(gpus) > 1 else []), min(wanted or mine, runs)


def threads_of_runs(jobs: int) -> int:
    """Return the threads of each process: as the user says, or an equal share of the cores."""
    return _wanted_threads() or max(1, cores() // jobs)


def _wanted_threads() -> int:
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return int(wanted) if wanted.isdigit() else 0


def environments(jobs: int, threads: int, gpus: Sequence[str] = ()) -> list[dict[str, str]]:
    """Return what is added to the environment of each of the processes side by side.

    GPUs are given to them in turn. One of several starts no more than one process itself, as an
    ensemble that is a fold of a cross-validation.
    """
    package = Path(__file__).resolve().parents[2]
    path = os.pathsep.join(part for part in (str(package), os.environ.get("PYTHONPATH")) if part)
    common = {
        "OMP_NUM_THREADS": str(threads),
        _ONE_OF_SEVERAL: "1" if jobs > 1 else "",
        ENDS_WITH_STDIN: "1",
        "PYTHONPATH": path,
        "PYTHONSAFEPATH": "1",  # or another checkout in the working directory would come first
        "PYTHONUNBUFFERED": "1",  # so that what is printed last stands last in the log
    }
    return [
        common | ({"CUDA_VISIBLE_DEVICES": gpus[job % len(gpus)]} if gpus else {})
        for job in range(jobs)
    ]


@dataclass(frozen=True)
class _Process:
    """A process at work, its environment, and where its part of the log begins."""

    spec: RunSpec
    popen: subprocess.Popen[bytes]
    environment: Mapping[str, str]
    log_start: int
    started: float

    def kill(self) -> None:
        """End it and what it started for other devices: they are a group."""
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)


class Scheduler:
    """Trains runs that are not finished yet.

    Args:
        specs: In their order.
        environments: One for each process that runs side by side with the others.
        display: Receives the events.
        lock: File descriptor that the processes hold on to.
    """

    def __init__(
        self,
        specs: Sequence[RunSpec],
        environments: Sequence[Mapping[str, str]],
        display: Display,
        lock: int,
    ) -> None:
        self._waiting, self._free = list(specs), list(environments)
        self._display, self._lock = display, lock
        self._running: list[_Process] = []
        # How often this process was asked to stop, and how much of that its processes know.
        self._asked = self._passed_on = 0

    def run(self) -> bool:
        """Train until all runs have ended, see `train`; return False if that was interrupted."""
        shown = 0.0
        with answered_by(self._stop):
            try:
                while self._running or (self._waiting and not self._asked):
                    self._pass_on()
                    while self._waiting and not self._asked and self._free:
                        self._start(self._waiting.pop(0))
                    for process in list(self._running):
                        if process.popen.poll() is not None:
                            self._end(process)
                    if time.monotonic() - shown >= _SHOW_EVERY:
                        shown = time.monotonic()
                        self._display.refresh()
                    time.sleep(_LOOK_EVERY)
            finally:  # whatever went wrong here, no process is left behind
                for process in self._running:
                    process.kill()
                    process.popen.wait()
                self._display.close()
        return not self._asked

    def _stop(self, *_: object) -> None:
        # A batch system asks every process of a job, and the command that started this one asks it
        # once more: that is one request, and the command kills if it is asked again.
        if self._asked and KILLED_BY_ITS_COMMAND in os.environ:
            return
        self._asked += 1  # only noted: this may be in the middle of anything

    def _pass_on(self) -> None:
        if self._asked == self._passed_on:
            return
        for process in self._running:
            process.kill() if self._passed_on else process.popen.terminate()
        if not self._passed_on:
            names = ", ".join(process.spec.name for process in self._running)
            self._display.say(f"saving, then stopping: {names}; press Ctrl-C again to stop at once")
        self._passed_on += 1  # one at a time: the processes are asked before they are killed

    def _start(self, spec: RunSpec) -> None:
        self._display.started(spec)  # before there is a process: what it leaves is not continued
        try:
            words = [*FIT, *_words(spec)]
            spec.failure.unlink(missing_ok=True)
            with spec.log.open("ab") as log:
                start = log.tell()
                popen = subprocess.Popen(
                    words,
                    stdin=subprocess.PIPE,  # never written to, see ENDS_WITH_STDIN
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=os.environ | dict(self._free[0]),
                    pass_fds=(self._lock,),
                    # Ctrl-C in a terminal goes to all processes of a session: it is for this one,
                    # which asks the others once.
                    start_new_session=True,
                )
        except (OSError, GraphormerError) as error:  # no room, no memory: others go on
            self._display.ended(spec, f"failed, it cannot be started ({error})", failed=True)
            return
        environment = self._free.pop(0)
        self._running.append(_Process(spec, popen, environment, start, time.monotonic()))

    def _end(self, process: _Process) -> None:
        self._running.remove(process)
        self._free.append(process.environment)
        assert process.popen.stdin is not None
        process.popen.stdin.close()
        spec, status = process.spec, process.popen.returncode
        if spec.finished:
            self._display.finished(spec, time.monotonic() - process.started)
        elif self._passed_on:
            self._display.ended(spec, "stopped")
        else:
            # One that is killed cannot say so itself; often there was no memory left.
            why = f"killed by {signal.Signals(-status).name}" if status < 0 else f"status {status}"
            with suppress(OSError):  # its log may be gone
                why = (status >= 0 and last_line(spec.log, process.log_start)) or why
            with suppress(OSError):  # no room on the disk, which may be why it failed
                spec.failure.write_text(f"{why}\n", encoding="utf-8")
            self._display.ended(spec, f"failed, {why} ({spec.log})", failed=True)


def _words(spec: RunSpec) -> list[str]:
    """Return the arguments of ``fit``; a run that starts has its options in a file next to it."""
    if spec.begun:  # its data may have moved since
        before, now = flat(spec.files.configuration()), flat(spec.config.to_plain())
        names = [one for one in ("data.root", *DATA_FILES) if now[one] is not None]
        moved = [f"--{one}={now[one]}" for one in names if before.get(one) != now[one]]
        return ["--resume", str(spec.directory), *moved]
    # Stopped before its first checkpoint: `fit` would take another directory next to it.
    shutil.rmtree(spec.directory, ignore_errors=True)
    spec.config_file.parent.mkdir(parents=True, exist_ok=True)
    save_config(spec.config.with_options({"output": str(spec.directory)}), spec.config_file)
    return ["-c", str(spec.config_file)]


def last_line(log: Path, start: int = 0) -> str:
    """Return the last line behind a byte with something in it; empty if there is none."""
    lines = log.read_bytes()[start:].decode("utf-8", "replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _progress(spec: RunSpec) -> tuple[float, str]:
    """Return which share of its steps a run has taken, and its epoch in words."""
    with suppress(GraphormerError):  # whose word on it the run itself has
        record, rows = spec.files.record(), spec.files.metrics()
        if record and rows:
            step, epoch = (max(int(row.get(of, 0)) for row in rows) for of in ("step", "epoch"))
            share = min(1.0, step / record.planned_steps) if record.planned_steps else 0.0
            epochs = spec.config.trainer.max_epochs or -1  # -1: something else ends it
            of = f"{min(epoch + 1, epochs)} of {epochs}" if epochs > 0 else f"{epoch + 1}"
            return share, f"epoch {of}"
    return 0.0, ""


class Display:
    """Shows on stderr how runs are doing: a line for each event; in a terminal one of all at work.

    Args:
        specs: All runs, those finished earlier too.
        metric: Name of the one that is shown.
        called: What they are.
    """

    def __init__(self, specs: Sequence[RunSpec], metric: str, called: str = "runs") -> None:
        self._specs, self._metric, self._line = specs, METRICS[metric], StatusLine()
        self._called, self._began = called, time.monotonic()
        # By name, with the share of their steps that was taken when their process started.
        self._at_work: dict[str, tuple[RunSpec, float]] = {}
        self._waiting = sum(not spec.finished for spec in specs)
        self._taken = 0.0  # what processes that have ended took of the steps of their runs
        if self._waiting < len(specs):
            self.say(f"{self._done()} {called} are finished already")

    def _done(self) -> str:
        # Not of those whose end is still to be shown.
        finished = sum(one.finished for one in self._specs if one.name not in self._at_work)
        return f"{finished} of {len(self._specs)}"

    def say(self, line: str) -> None:
        """Show a line."""
        text = "".join(c if c.isprintable() else " " for c in line)
        with suppress(OSError):  # the terminal was closed: runs that save must not end for it
            self._line.clear()
            print(text, file=sys.stderr, flush=True)

    def started(self, spec: RunSpec) -> None:
        """Show that a process of the run starts."""
        self._at_work[spec.name] = spec, _progress(spec)[0]
        self._waiting -= 1
        self.say(f"{spec.name}: {'continued' if spec.begun else 'started'}")

    def finished(self, spec: RunSpec, seconds: float) -> None:
        """Show what a run has come to, and how long its process took."""
        self._taken += 1 - self._at_work.pop(spec.name)[1]
        parts, summary = [f"{spec.name}: finished ({self._done()})"], spec.files.summary() or {}
        for kind in ("best_validation", "test"):
            if (value := summary.get(f"{kind}_{self._metric.name}")) is not None:
                what = kind.removeprefix("best_")
                parts.append(f"{what} {self._metric.label} {four_digits(value)}")
        self.say(", ".join([*parts, clock(seconds)]))

    def ended(self, spec: RunSpec, how: str, failed: bool = False) -> None:
        """Show that its process is gone; what has failed is not waited for."""
        del self._at_work[spec.name]
        self._waiting += not failed
        self.say(f"{spec.name}: {how}")

    def refresh(self) -> None:
        """Show how far runs are, in a terminal; time has passed."""
        if not self._line.terminal:
            return
        parts = [f"{self._called} {self._done()}"]
        found = [(*_progress(spec), before) for spec, before in self._at_work.values()]
        epochs = [(share, epoch) for share, epoch, _ in found if epoch]
        parts += [min(epochs)[1]] if epochs else []  # of the last one
        # All that is left takes as long, for its share, as what was taken since the beginning.
        taken = self._taken + sum(share - before for share, _, before in found)
        left = self._waiting + sum(1 - share for share, *_ in found)
        if taken > 0 and left > 0:
            seconds = (time.monotonic() - self._began) * left / taken
            parts.append(f"{clock(seconds)} left")
        with suppress(OSError):
            self._line.show(" · ".join(parts))

    def close(self) -> None:
        """Leave the last state standing."""
        self.refresh()
        with suppress(OSError):
            self._line.leave()
