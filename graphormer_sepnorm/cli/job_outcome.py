"""What is said of a job on a table, whatever is written for its rows."""

from __future__ import annotations

import shlex
import sys
import time
from typing import TYPE_CHECKING

from graphormer_sepnorm.process import command

if TYPE_CHECKING:
    from graphormer_sepnorm.inference.table_job import Outcome, TableJob

EXIT_NOTHING_PREDICTED = 1
_NOUNS = {
    "predicted": "a prediction",
    "embedded": "an embedding",
    "explained": "an explanation",
}


def what_is_left(job: TableJob, outcome: Outcome, arguments: list[str]) -> str:
    """Say what an interrupted job leaves, and how to go on, if that can be."""
    if not job.can_resume:
        return f"interrupted after {outcome.rows:,} rows; the output is incomplete"
    if not outcome.safe_rows:
        left = f"{job.partial} is as it was" if job.partial.exists() else "there is no output"
        return f"interrupted before a row was written; {left}"
    again = [word for word in arguments if word != "--resume"]
    return (
        f"interrupted: {job.partial} holds the first {outcome.safe_rows:,} rows, the rest is "
        f"missing; continue with: {command('predict')} {shlex.join(again)} --resume"
    )


def finished(job: TableJob, outcome: Outcome, started: float) -> int:
    """Say what has come of a job that began then (`time.monotonic`); return the exit status."""
    if not job.quiet:
        print(summary(job, outcome, time.monotonic() - started), file=sys.stderr)
    nothing = outcome.rows and outcome.errors.total() == outcome.rows
    return EXIT_NOTHING_PREDICTED if nothing else 0


def summary(job: TableJob, outcome: Outcome, seconds: float) -> str:
    """Return what has come of a job: rows, those with an error by its kind, time."""
    failed = outcome.errors.total()
    lines = [f"note: {note}" for note in outcome.notes]
    text = f"{outcome.rows:,} rows, {outcome.rows - failed:,} {job.verb}"
    if failed:
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in outcome.errors.most_common())
        text += f", {failed:,} without {_NOUNS[job.verb]} ({kinds})"
    if outcome.warnings:
        text += f", {outcome.warnings:,} with a warning"
    rate = (outcome.rows - outcome.earlier_rows) / max(seconds, 1e-3)
    text += f"; {seconds:.1f} s, {rate:,.0f} rows/s"
    if job.to_file:
        text += f"; {job.destination}"
    return "\n".join([*lines, text])
