"""How runs are doing: a line per event, and in a terminal a bar for each run at work."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from graphormer_sepnorm.compare.runner import Run
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.formatting import clock, four_digits
from graphormer_sepnorm.metrics import METRICS
from graphormer_sepnorm.runs.directory import RunDirectory, Summary

_SPEED_OVER = 600.0  # seconds; metrics are written down every so many steps only


@dataclass(frozen=True)
class Reached:
    """Optimiser steps that a run has taken, and its validation metric; nan before the first."""

    step: int = 0
    newest: float = math.nan
    best: float = math.nan


def reached(directory: Path, metric: str) -> Reached:
    """Read how far a run is from what it has written down in its directory."""
    run = RunDirectory(directory)
    if run.members.is_dir():  # an ensemble, which is as far as its members are
        members = [reached(member, metric).step for member in run.members.glob("seed*/")]
        return Reached(sum(members))
    files = run.metrics_file, run.record_file
    times = tuple(path.stat().st_mtime if path.is_file() else 0.0 for path in files)
    return _read(directory, metric, times)


@functools.lru_cache(maxsize=1024)
def _read(directory: Path, metric: str, times: tuple[float, ...]) -> Reached:
    """Read the files as they were at these times: anew when one has changed."""
    run = RunDirectory(directory)
    rows, column = run.metrics(), f"validation_{metric}"
    values = [row[column] for row in rows if column in row]
    step = max((int(row.get("step", -1)) + 1 for row in rows), default=0)
    with suppress(DataError):  # the run itself will say so
        if (record := run.record()) and record.sessions:
            step = max(step, record.sessions[-1].to_step)
    numbers = [value for value in values if not math.isnan(value)]
    newest = values[-1] if values else math.nan
    return Reached(step, newest, METRICS[metric].best(numbers, default=math.nan))


def outcome(run: Run) -> str:
    """Say what a finished run came to."""
    summary, found = run.files.summary() or Summary(), []
    for metric in METRICS.values():
        if f"best_validation_{metric.name}" in summary:  # others stand beside the main metric
            values = {"validation": summary.validation(metric.name)}
            values["test"] = summary.test(metric.name)
            found += [
                f"{of} {metric.label} {four_digits(x)}" for of, x in values.items() if x is not None
            ]
    return ", ".join(found)


class _Console(Console):
    """Goes on where nobody reads what is said any more: runs that save must not be killed for it.

    Rich's own closes standard output then, whichever has gone, and leaves the program.
    """

    def on_broken_pipe(self) -> None:
        """Say nothing more."""
        self.quiet = True


class Display:
    """Shows how runs are doing: a line for each event.

    In a terminal the lines stand above bars, one for each run at work and one for all runs.

    Args:
        runs: All runs, those finished earlier too.
        metric: ``mae`` or ``auroc``.
        steps: Optimiser steps of a run of each arm.
        console: Where.
        bars: Whether it is a terminal.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        metric: str,
        steps: Mapping[str, int],
        console: Console,
        bars: bool,
    ) -> None:
        self._runs, self._metric, self._steps = runs, metric, steps
        self._over = {run for run in runs if run.finished}
        self._done = len(self._over)
        self._bars: dict[Run, TaskID] = {}
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[values]}"),
            TimeRemainingColumn(),
            console=console,
            auto_refresh=False,
            disable=not bars,
            speed_estimate_period=_SPEED_OVER,
            # Nothing else prints to the terminal.
            redirect_stdout=False,
            redirect_stderr=False,
        )
        if self._done:
            self._say(f"{self._done} of {len(runs)} runs are finished already")
        total = sum(steps[run.arm] for run in runs)
        self._all = self._progress.add_task("", total=total, completed=self._taken(), values="")
        self.refresh()
        self._progress.start()

    def _say(self, line: str) -> None:
        text = Text("".join(c if c.isprintable() else " " for c in line))
        with suppress(OSError):  # the terminal was closed
            self._progress.console.print(text, soft_wrap=True)

    def started(self, run: Run) -> None:
        """A process of the run begins."""
        # What was taken earlier is of no speed.
        step, total = reached(run.directory, self._metric).step, self._steps[run.arm]
        bar = self._progress.add_task(run.name, total=total, completed=step, values="")
        self._bars[run] = bar
        if self._progress.disable:
            self._say(f"{run.name}: {'continued' if run.begun else 'started'}")
        self.refresh()

    def finished(self, run: Run, seconds: float) -> None:
        """It is trained and tested."""
        self._ended(run)
        self._done += 1
        count = f"{self._done} of {len(self._runs)}"
        self._say(f"{run.name}: finished ({count}), {outcome(run)}, {clock(seconds)}")

    def failed(self, run: Run, why: str) -> None:
        """It ended otherwise."""
        self._ended(run)
        self._say(f"{run.name}: failed, {why} ({run.log})")

    def stopping(self, running: Sequence[Run]) -> None:
        """The processes at work have been asked to stop."""
        names = ", ".join(run.name for run in running)
        self._say(f"stopping, when these are saved: {names}; a second time stops at once")

    def stopped(self, run: Run) -> None:
        """One of them has."""
        self._ended(run, over=False)
        self._say(f"{run.name}: stopped")

    def _ended(self, run: Run, over: bool = True) -> None:
        """Its process is gone; is nothing more to be done either?"""
        if over:
            self._over.add(run)
        self._progress.remove_task(self._bars.pop(run))

    def refresh(self) -> None:
        """Draw; time has passed."""
        if self._progress.disable:
            return
        for run, bar in self._bars.items():
            now, values = reached(run.directory, self._metric), ""
            if not math.isnan(now.newest):
                name = METRICS[self._metric].label
                values = (
                    f"validation {name} {four_digits(now.newest)}, best {four_digits(now.best)}"
                )
            self._progress.update(bar, completed=now.step, values=values)
        said = f"{self._done} of {len(self._runs)} runs finished"
        self._progress.update(self._all, completed=self._taken(), description=said)
        with suppress(OSError):
            self._progress.refresh()

    def close(self) -> None:
        """Leave the last state standing."""
        self.refresh()
        if not self._progress.disable:
            with suppress(OSError):
                self._progress.stop()

    def _taken(self) -> int:
        """Steps of all runs that are not to be taken any more."""
        return sum(
            self._steps[run.arm] if run in self._over else reached(run.directory, self._metric).step
            for run in self._runs
        )


def choose_display(runs: Sequence[Run], metric: str, steps: Mapping[str, int]) -> Display:
    """On stderr, with bars if it is a terminal."""
    console = _Console(stderr=True)
    bars = sys.stderr.isatty() and not console.is_dumb_terminal
    return Display(runs, metric, steps, console, bars)
