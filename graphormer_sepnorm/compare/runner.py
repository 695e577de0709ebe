"""Trains the runs of a comparison, each (arm, seed) as a process of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphormer_sepnorm.compare.process_lifetime import ENDS_WITH_STDIN
from graphormer_sepnorm.process import KILLED_BY_ITS_COMMAND, STOPS, cores
from graphormer_sepnorm.runs.directory import RunDirectory

if TYPE_CHECKING:
    from graphormer_sepnorm.compare.progress import Display

FIT = (sys.executable, "-m", "graphormer_sepnorm.cli.train", "fit")
_ONE_OF_SEVERAL = "GRAPHORMER_ONE_OF_SEVERAL"
# Each run of a comparison is one network, and what it says is compared as it says it.
OF_ALL_RUNS = {"ensemble": 1, "keep": "none", "blend": False}
SINGLE = tuple(f"--{name}={OF_ALL_RUNS[name]}" for name in ("ensemble", "keep"))
# The folder of the data, which another machine, or another job, may have elsewhere.
ROOT = "data.root"
_LOOK_EVERY = 0.1  # seconds
_SHOW_EVERY = 1.0


@dataclass(frozen=True)
class Run:
    """One arm with one seed.

    Attributes:
        arm: Name of the arm.
        seed: Of initial values, order and dropout.
        directory: Where ``fit`` keeps it.
        arguments: Options of ``fit`` that begin it.
        again: Options of ``fit`` with which it goes on, beside those that it was begun with.
    """

    arm: str
    seed: int
    directory: Path
    arguments: tuple[str, ...]
    again: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def name(self) -> str:
        """How it is called in messages."""
        return f"{self.arm} seed {self.seed}"

    @property
    def files(self) -> RunDirectory:
        """What it leaves."""
        return RunDirectory(self.directory)

    @property
    def log(self) -> Path:
        """What its processes print, one after the other."""
        return self.directory.with_name(f"{self.directory.name}.log")

    @property
    def failure(self) -> Path:
        """Why its last process failed, if it did."""
        return self.directory.with_name(f"{self.directory.name}.failed")

    @property
    def finished(self) -> bool:
        """Whether it is trained and tested, and all is made that was to follow."""
        return self.files.finished

    @property
    def begun(self) -> bool:
        """Whether there is a checkpoint to continue from."""
        return self.files.resumable


def places(wanted: int | None, devices: tuple[str, str], runs: int) -> tuple[list[str], int]:
    """Return the GPUs to give to processes in turn (none: all see all), and how many there are.

    Args:
        wanted: Processes side by side; None: one on each GPU, without one on each core.
        devices: Accelerator and number of devices of a run, as the options say.
        runs: No more processes than these.
    """
    import torch

    accelerator, number = devices
    gpus: list[str] = []
    if accelerator in ("auto", "gpu", "cuda"):
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        count = torch.cuda.device_count()
        gpus = visible[:count] if len(visible) >= count else [str(n) for n in range(count)]
    if gpus and number not in ("auto", "1"):
        # A run takes several GPUs, or names its own: then runs take turns.
        return [], min(wanted or 1, runs)
    # One on each GPU. Without one, one on each core: molecules make matrices so small that a second
    # thread adds little, where a second process trains as much again.
    mine = len(gpus) or cores()
    if os.environ.get(_ONE_OF_SEVERAL):  # the others have the rest
        mine = 1
    jobs = min(wanted or mine, runs)
    return (gpus if len(gpus) > 1 else []), jobs


def environments(jobs: int, threads: int, gpus: Sequence[str] = ()) -> list[dict[str, str]]:
    """What so many processes side by side find in their environment, beside that of this one.

    Each has so many threads; GPUs are given to them in turn. One of several starts no more than one
    process itself, as an ensemble that is a fold of a cross-validation.
    """
    return [
        {"OMP_NUM_THREADS": str(threads), _ONE_OF_SEVERAL: "1" if jobs > 1 else ""}
        | ({"CUDA_VISIBLE_DEVICES": gpus[job % len(gpus)]} if gpus else {})
        for job in range(jobs)
    ]


@dataclass(frozen=True)
class _Process:
    """A process at work, its environment, and where its part of the log begins."""

    run: Run
    popen: subprocess.Popen[bytes]
    environment: Mapping[str, str]
    log_start: int
    started: float


class Runner:
    """Trains what is not finished yet.

    Args:
        runs: In their order.
        environments: One for each process that runs side by side with the others.
        display: Is told what happens, and every second that time has passed.
        lock: File descriptor that the processes hold on to.
        program: What a process is started with.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        environments: Sequence[Mapping[str, str]],
        display: Display,
        lock: int,
        program: Sequence[str] = FIT,
    ) -> None:
        self._waiting = [run for run in runs if not run.finished]
        self._free = list(environments)
        self._display = display
        self._lock = lock
        self._program = program
        self._running: list[_Process] = []
        # How often this process was asked to stop, and how much of that its processes know.
        self._asked = self._passed_on = 0

    def run(self) -> bool:
        """Train until all runs have ended; return False if that was interrupted.

        A run that fails does not stop the others. Ctrl-C, SIGTERM and SIGHUP ask the processes to
        save and end, and wait for it; a second one ends them at once.
        """
        shown = 0.0
        with self._signals():
            try:
                while self._running or (self._waiting and not self._asked):
                    self._pass_on()
                    while self._waiting and not self._asked and self._free:
                        self._try_to_start(self._waiting.pop(0))
                    for process in list(self._running):
                        if process.popen.poll() is not None:
                            self._end(process)
                    if time.monotonic() - shown >= _SHOW_EVERY:
                        shown = time.monotonic()
                        self._display.refresh()
                    time.sleep(_LOOK_EVERY)
            finally:  # whatever went wrong here, no process is left behind
                for process in self._running:
                    _kill(process.popen)
                    process.popen.wait()
                self._display.close()
        return not self._asked

    @contextmanager
    def _signals(self) -> Iterator[None]:
        previous: dict[int, Any] = {}
        for number in STOPS:
            # What is ignored stays so: SIGHUP under nohup, SIGINT in the background.
            if signal.getsignal(number) != signal.SIG_IGN:
                previous[number] = signal.signal(number, self._stop)
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _stop(self, number: int, frame: Any) -> None:
        # A batch system asks every process of a job, and the command that started this one asks it
        # once more: that is one request, and the command kills if it is asked again.
        if self._asked and KILLED_BY_ITS_COMMAND in os.environ:
            return
        # Only noted: this may be in the middle of anything.
        self._asked += 1

    def _pass_on(self) -> None:
        if self._asked == self._passed_on:
            return
        for process in self._running:
            if self._passed_on:
                _kill(process.popen)
            else:
                process.popen.terminate()
        if not self._passed_on:
            self._display.stopping([process.run for process in self._running])
        self._passed_on += 1  # one at a time: the processes are asked before they are killed

    def _try_to_start(self, run: Run) -> None:
        try:
            self._start(run)
        except OSError as error:  # no room on the disk, no memory for a process: others go on
            self._display.failed(run, f"it cannot be started ({error.strerror})")

    def _start(self, run: Run) -> None:
        environment = self._free[0]
        words = [*self._program, *_options(run)]
        self._display.started(run)  # before there is a process: what it leaves it does not continue
        run.log.parent.mkdir(parents=True, exist_ok=True)
        run.failure.unlink(missing_ok=True)
        run.log.touch()
        start = run.log.stat().st_size
        with run.log.open("ab") as log:
            popen = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,  # never written to, see process_lifetime.py
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_environment() | dict(environment),
                pass_fds=(self._lock,),
                # Ctrl-C in a terminal goes to all processes of a session: it is for this one, which
                # asks the others once.
                start_new_session=True,
            )
            self._free.pop(0)
            self._running.append(_Process(run, popen, environment, start, time.monotonic()))

    def _end(self, process: _Process) -> None:
        self._running.remove(process)
        self._free.append(process.environment)
        assert process.popen.stdin is not None
        process.popen.stdin.close()
        run, status = process.run, process.popen.returncode
        if run.finished:
            self._display.finished(run, time.monotonic() - process.started)
        elif self._passed_on:
            self._display.stopped(run)
        else:
            why = ""
            with suppress(OSError):  # no room on the disk, which may be why it failed
                if status < 0:
                    # Such a process could not say so itself; often there was no memory left.
                    with run.log.open("a", encoding="utf-8") as log:
                        log.write(f"\nkilled by {signal.Signals(-status).name}\n")
                why = last_line(run.log, process.log_start)
            why = why or f"status {status}"
            with suppress(OSError):
                run.failure.write_text(f"{why}\n", encoding="utf-8")
            self._display.failed(run, why)


def _options(run: Run) -> list[str]:
    if run.begun:
        return ["--resume", str(run.directory), *run.again]
    # Stopped before its first checkpoint: `fit` would take another directory beside it.
    shutil.rmtree(run.directory, ignore_errors=True)
    return list(run.arguments)


def _kill(popen: subprocess.Popen[bytes]) -> None:
    """End a process and those that it started, for other devices: they are a group."""
    with suppress(ProcessLookupError):
        os.killpg(popen.pid, signal.SIGKILL)


def last_line(log: Path, start: int = 0) -> str:
    """Return the last line behind a byte with something in it; empty if there is none."""
    lines = log.read_bytes()[start:].decode("utf-8", "replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _environment() -> dict[str, str]:
    """The environment of all processes: this code, whatever directory they are started in."""
    package = Path(__file__).resolve().parents[2]
    path = os.pathsep.join(part for part in (str(package), os.environ.get("PYTHONPATH")) if part)
    return os.environ | {
        ENDS_WITH_STDIN: "1",
        "PYTHONPATH": path,
        "PYTHONSAFEPATH": "1",  # or another checkout in the working directory would come first
        "PYTHONUNBUFFERED": "1",  # so that what is said last stands last in the log
    }
