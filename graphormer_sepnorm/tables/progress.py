"""How far the work on a table is, on stderr."""

from __future__ import annotations

import sys
import time

from graphormer_sepnorm.tables.reader import TableReader

TERMINAL_SECONDS, LOG_SECONDS = 1.0, 30.0
PATIENCE_SECONDS = 2.0  # what takes less needs no line


class TableProgress:
    """One line that is rewritten on a terminal; in a log file a line now and then.

    Args:
        reader: The table.
        verb: What is done with the rows: ``read``, ``predicted``.
        quiet: Show nothing.
        done: Rows that were done in an earlier run.
    """

    def __init__(self, reader: TableReader, verb: str, quiet: bool = False, done: int = 0) -> None:
        self._reader = reader
        self._verb = verb
        self._quiet = quiet
        self._terminal = sys.stderr.isatty()
        self._interval = TERMINAL_SECONDS if self._terminal else LOG_SECONDS
        self._started = time.monotonic()
        self._next = self._started + (PATIENCE_SECONDS if self._terminal else LOG_SECONDS)
        self._skipped = done
        self._first_share = reader.fraction() or 0.0
        self._shown = False

    def show(self, rows: int) -> None:
        """Say how far it is, if there is something new to say.

        Args:
            rows: Rows done so far.
        """
        now = time.monotonic()
        if self._quiet or now < self._next:
            return
        self._next = now + self._interval
        seconds = max(now - self._started, 1e-9)
        text = f"{rows:,} rows {self._verb}, {(rows - self._skipped) / seconds:,.0f} rows/s"
        share = self._reader.fraction()
        if share is not None and share > self._first_share:
            left = (1 - share) * seconds / (share - self._first_share)
            text += f", {share:.0%}, {_duration(left)} left"
        if self._terminal:
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
            self._shown = True
        else:
            print(text, file=sys.stderr, flush=True)

    def finish(self) -> None:
        """Clear the line."""
        if self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
            self._shown = False


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
