"""How far the work on a table is, on stderr."""

from __future__ import annotations

import time

from graphormer_sepnorm.formatting import StatusLine, clock
from graphormer_sepnorm.tables.reader import TableReader


class TableProgress:
    """Shows how many rows are done, how fast, and how long the others will take.

    Args:
        reader: The table.
        verb: What is done with the rows: ``read``, ``predicted``.
        quiet: Show nothing.
        done: Rows that were done in an earlier run.
        total: Rows that there are to do; None: estimated from the part that has been read.
    """

    def __init__(
        self,
        reader: TableReader,
        verb: str,
        quiet: bool = False,
        done: int = 0,
        total: int | None = None,
    ) -> None:
        self._reader, self._verb, self._total, self._skipped = reader, verb, total, done
        self._line = None if quiet else StatusLine()
        self._started = time.monotonic()
        self._first_share = self._share(done) or 0.0

    def show(self, rows: int) -> None:
        """Show how many rows are done so far, if that is due."""
        if self._line is None or not self._line.is_due():
            return
        seconds = max(time.monotonic() - self._started, 1e-9)
        text = f"{rows:,} rows {self._verb}, {(rows - self._skipped) / seconds:,.0f} rows/s"
        share = self._share(rows)
        if share is not None and share > self._first_share:
            left = (1 - share) * seconds / (share - self._first_share)
            text += f", {share:.0%}, {clock(left)} left"
        self._line.show(text)

    def _share(self, rows: int) -> float | None:
        if self._total:
            return rows / self._total
        read = self._reader.fraction()  # reading is ahead of what is done
        return None if read is None else read * min(1, rows / max(1, self._reader.rows_read))

    def finish(self) -> None:
        """Clear the line."""
        if self._line is not None:
            self._line.clear()
