"""How runs are doing: a live table in a terminal, a line per event elsewhere."""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from graphormer_sepnorm.compare.runner import Display, Run
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.metrics import METRICS
from graphormer_sepnorm.runs.directory import RunDirectory
from graphormer_sepnorm.wording import clock


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes:
        step: Optimiser steps taken, as far as they are written down.
        newest: Newest validation metric; nan before the first.
        best: Best validation metric so far.
        left: Seconds until the last step; nan if that cannot be told yet.
    """

    step: int = 0
    newest: float = math.nan
    best: float = math.nan
    left: float = math.nan


class ProgressReader:
    """Reads how far a run is from what it keeps in its directory, when that has changed.

    Args:
        directory: Of the run.
        metric: Name of the main metric.
        steps: Optimiser steps of the whole run.
    """

    def __init__(self, directory: Path, metric: str, steps: int) -> None:
        self._run = RunDirectory(directory)
        self._column = f"validation_{metric}"
        self._best = METRICS[metric].best
        self._steps = steps
        self._seen: tuple[float, float] | None = None
        self._progress, self._end = Progress(), math.nan

    def read(self, now: float | None = None) -> Progress:
        """Return how far it is at a time (now, if None)."""
        seen = (_changed(self._run.metrics_file), _changed(self._run.record_file))
        if seen != self._seen:
            self._seen = seen
            self._progress = self._read(seen)
        left = self._end - (time.time() if now is None else now)
        return dataclasses.replace(
            self._progress, left=left if math.isnan(left) else max(0.0, left)
        )

    def _read(self, seen: tuple[float, float]) -> Progress:
        rows = self._run.metrics()
        values = [row[self._column] for row in rows if self._column in row]
        step = max((int(row.get("step", -1)) + 1 for row in rows), default=0)
        record = None
        with suppress(DataError):  # the run itself will say so
            record = self._run.record()
        session = record.sessions[-1] if record and record.sessions else None
        step = min(max(step, session.to_step if session else 0), self._steps)
        self._end = math.nan
        taken = step - (session.from_step if session else step)
        if session and taken > 0:
            started = datetime.fromisoformat(session.started).timestamp()
            # The newest file tells when the newest step was.
            newest = max(seen)
            self._end = newest + (self._steps - step) * (newest - started) / taken
        numbers = [value for value in values if not math.isnan(value)]
        return Progress(
            step, values[-1] if values else math.nan, self._best(numbers, default=math.nan)
        )


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def outcome(run: Run) -> str:
    """Say what a finished run came to."""
    summary = run.files.summary() or {}
    parts = []
    for metric in METRICS.values():
        best, test = (summary.get(f"{of}_{metric.name}") for of in ("best_validation", "test"))
        if f"best_validation_{metric.name}" not in summary:
            continue  # beside the main metric
        if best is not None:
            parts.append(f"validation {metric.label} {best:.4f}")
        if test is not None:
            parts.append(f"test {metric.label} {test:.4f}")
    return ", ".join(parts)


class Lines:
    """A line on stderr for each event.

    Args:
        runs: All runs, those finished earlier too.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        self._total, self._done = len(runs), sum(run.finished for run in runs)
        if self._done:
            _say(f"{self._done} of {self._total} runs are finished already")

    def started(self, run: Run) -> None:
        """Say so."""
        _say(f"{run.name}: {'continued' if run.begun else 'started'}")

    def finished(self, run: Run, seconds: float) -> None:
        """Say with which result."""
        self._done += 1
        count = f"{self._done} of {self._total}"
        _say(f"{run.name}: finished ({count}), {outcome(run)}, {clock(seconds)}")

    def failed(self, run: Run, why: str) -> None:
        """Say why."""
        _say(f"{run.name}: failed, {why} ({run.log})")

    def stopping(self, running: Sequence[Run]) -> None:
        """Say what is waited for."""
        _say(_stopping(running))

    def stopped(self, run: Run) -> None:
        """Say so."""
        _say(f"{run.name}: stopped")

    def refresh(self) -> None:
        """Nothing: a line per event is enough."""

    def close(self) -> None:
        """Nothing."""


def _say(line: str) -> None:
    print("".join(c if c.isprintable() else " " for c in line), file=sys.stderr, flush=True)


class LiveTable:
    """A table on the terminal, drawn anew every second.

    Args:
        runs: All runs, those finished earlier too.
        metric: Name of the main metric.
        steps: Optimiser steps of a run of each arm.
        jobs: Processes side by side.
        console: Where; the terminal of stderr if None.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        metric: str,
        steps: Mapping[str, int],
        jobs: int,
        console: Console | None = None,
    ) -> None:
        self._runs, self._metric, self._steps, self._jobs = runs, metric, steps, jobs
        self._states = {run: "finished" if run.finished else "waits" for run in runs}
        self._failures: list[str] = []
        self._note = ""
        self._took: list[float] = []
        self._readers = {run: ProgressReader(run.directory, metric, steps[run.arm]) for run in runs}
        self._live = Live(
            console=console or Console(stderr=True),
            auto_refresh=False,
            # Nothing else prints to the terminal.
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def started(self, run: Run) -> None:
        """Show it as running."""
        self._states[run] = "runs"
        self.refresh()

    def finished(self, run: Run, seconds: float) -> None:
        """Show its result."""
        self._states[run] = "finished"
        self._took.append(seconds)
        self.refresh()

    def failed(self, run: Run, why: str) -> None:
        """Show why below the table."""
        self._states[run] = "failed"
        self._failures.append(f"{run.name} failed: {why} ({run.log})")
        self.refresh()

    def stopping(self, running: Sequence[Run]) -> None:
        """Say what is waited for."""
        self._note = _stopping(running)
        self.refresh()

    def stopped(self, run: Run) -> None:
        """Show that it is no longer at work."""
        self._states[run] = "stopped"
        self.refresh()

    def refresh(self) -> None:
        """Draw."""
        self._live.start()  # does nothing the second time
        self._live.update(self._draw(self._live.console.height), refresh=True)

    def close(self) -> None:
        """Leave the last state standing."""
        self.refresh()
        self._live.stop()

    def _draw(self, height: int) -> Group:
        table = Table(box=None, pad_edge=False, header_style="bold")
        name = METRICS[self._metric].label
        for heading in ("arm", "seed", "", "step", f"validation {name}", "best", "left"):
            # Numbers stand below each other by their last digit.
            justify = "left" if heading in ("arm", "") else "right"
            table.add_column(heading, justify=justify, no_wrap=True)
        progress = {run: self._readers[run].read() for run in self._runs}
        for run in self._visible(height - 3 - len(self._failures)):
            table.add_row(*self._row(run, progress[run]))
        done = sum(state == "finished" for state in self._states.values())
        line = f"{done} of {len(self._runs)} runs finished"
        left = self._all_left(progress)
        if not math.isnan(left):
            line += f", about {clock(left)} left"
        notes = [*self._failures, *([self._note] if self._note else [])]
        return Group(table, Text(line), *(Text(note) for note in notes))

    def _visible(self, rows: int) -> list[Run]:
        """The runs that fit the terminal: what is at work, then what waits, then what is done."""
        rank = {"runs": 0, "failed": 1, "stopped": 1, "waits": 2, "finished": 3}
        important = sorted(self._runs, key=lambda run: rank[self._states[run]])
        kept = set(important[: max(rows, 1)])
        return [run for run in self._runs if run in kept]

    def _row(self, run: Run, progress: Progress) -> list[str]:
        state, total = self._states[run], self._steps[run.arm]
        began = progress.step > 0
        return [
            run.arm,
            str(run.seed),
            state,
            f"{progress.step:,}/{total:,}" if began else "",
            _number(progress.newest),
            _number(progress.best),
            clock(progress.left) if state == "runs" and not math.isnan(progress.left) else "",
        ]

    def _all_left(self, progress: Mapping[Run, Progress]) -> float:
        """Seconds until all runs are done; nan if that cannot be told yet."""
        running = [run for run in self._runs if self._states[run] == "runs"]
        lefts = [progress[run].left for run in running]
        waiting = sum(state == "waits" for state in self._states.values())
        whole = self._took or [
            progress[run].left * total / (total - progress[run].step)
            for run in running
            if (total := self._steps[run.arm]) > progress[run].step
        ]
        each = sum(whole) / len(whole) if whole else math.nan
        ahead = sum(lefts) + (waiting * each if waiting else 0.0)
        return ahead / max(1, min(self._jobs, waiting + len(running)))


def _stopping(running: Sequence[Run]) -> str:
    names = ", ".join(run.name for run in running)
    return f"stopping, when these are saved: {names}; a second time stops at once"


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4f}"


def choose_display(
    runs: Sequence[Run], metric: str, steps: Mapping[str, int], jobs: int
) -> Display:
    """A live table if stderr is a terminal, else lines."""
    terminal = sys.stderr.isatty() and not Console(stderr=True).is_dumb_terminal
    return LiveTable(runs, metric, steps, jobs) if terminal else Lines(runs)
