"""Pieces of the lines that people read, and the line that says how far something is."""

from __future__ import annotations

import math
import shutil
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import ClassVar

TERMINAL_SECONDS, LOG_SECONDS = 1.0, 30.0
PATIENCE_SECONDS = 2.0  # what takes less needs no line
MINUS, NONE = "\N{MINUS SIGN}", "\N{EN DASH}"  # the latter for a number that is nan
_MOST_DECIMALS, _LARGE = 8, 1e7


def clock(seconds: float) -> str:
    """Say how long something takes: ``1:02:03``, ``2 days, 1:02:03``."""
    return str(timedelta(seconds=round(seconds)))


def in_a_line(text: str) -> str:
    """Bring what may hold line breaks into one line."""
    return " ".join(text.split())


def in_figure(text: str) -> str:
    """Return text that matplotlib shows as it is.

    A dollar would begin mathematics, and a name in a legend that begins with ``_`` is left out.
    """
    text = text.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def decimals_of(*values: float, digits: int = 4) -> int:
    """Return how many decimals show so many digits of the largest number, and one of the others."""
    first = sorted(-math.floor(math.log10(abs(v))) for v in values if v and math.isfinite(v))
    return max(0, first[0] + digits - 1, min(6, first[-1])) if first else digits


def four_digits(value: float) -> str:
    """Return a number with four digits, and all of those before the point."""
    long = 1000 <= abs(value) < _LARGE
    return f"{value:.0f}" if long else f"{value:#.4g}".removesuffix(".")


def number(value: float, decimals: int) -> str:
    """Return a number with `decimals` decimals; with four digits if it would become long."""
    if not math.isfinite(value):
        return NONE
    long = decimals > _MOST_DECIMALS or abs(value) >= _LARGE
    text = f"{value:.4g}" if long else f"{value:,.{decimals}f}"
    negative = text.startswith("-") and text.strip("-0.,") != ""
    return (MINUS if negative else "") + text.lstrip("-")


def signed(value: float, decimals: int) -> str:
    """Return a difference, with its sign."""
    text = number(value, decimals)
    return f"+{text}" if text[0].isdigit() and text.strip("0.,") else text


def interval(low: float, high: float, decimals: int) -> str:
    """Return both ends with their signs."""
    if math.isnan(low) or math.isnan(high):
        return NONE
    return f"{signed(low, decimals)} to {signed(high, decimals)}"


def mean_and_sd(values: Iterable[float], decimals: int) -> str:
    """Return mean and standard deviation (n - 1); one value has no standard deviation."""
    column = [float(value) for value in values]
    if not column:
        return NONE
    mean = number(statistics.fmean(column), decimals)
    return f"{mean} ± {number(statistics.stdev(column), decimals)}" if len(column) > 1 else mean


def p_value(value: float) -> str:
    """Return a p-value with three decimals, a small one with its first digit, or ``< 0.0001``.

    One below 0.05, which decides on words, is not rounded to it.
    """
    if math.isnan(value):
        return NONE
    if value < 1e-4:
        return "< 0.0001"
    if 0.0495 <= value < 0.05:
        return f"{min(value, 0.0499):.4f}"
    return f"{value:.3f}".rstrip("0").rstrip(".") if value >= 0.001 else f"{value:.4f}"


def count(items: int, what: str) -> str:
    """Return ``1 seed``, ``3 seeds``."""
    return f"{items:,} {what}" if items == 1 else f"{items:,} {what}s"


def listed(names: Sequence[str], most: int = 12) -> str:
    """List names of somebody else's, the first `most` of them."""
    shown = ", ".join(map(in_a_line, names[:most]))
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def shortened(text: str, length: int = 60) -> str:
    """Cut a text so that it has at most `length` characters, the last ones ``...``."""
    return text if len(text) <= length else text[: length - 3] + "..."


def aligned(rows: Iterable[Sequence[str]], numbers_from: int | None = None) -> str:
    """Return a line for each row, its cells below those of the other rows.

    Args:
        rows: Cells, as many in each row.
        numbers_from: From this column on cells are aligned by their last character.
    """
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    left = len(widths) if numbers_from is None else numbers_from
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


class StatusLine:
    """A line on stderr: rewritten on a terminal; in a log file a line now and then.

    Attributes:
        quiet: Of all of them: nothing is shown.
        terminal: Whether stderr is one.
    """

    quiet: ClassVar[bool] = False

    def __init__(self) -> None:
        self.terminal = sys.stderr.isatty()
        self._next = time.monotonic() + (PATIENCE_SECONDS if self.terminal else LOG_SECONDS)
        self._shown = False

    def is_due(self) -> bool:
        """Whether the last text was not shown a moment ago."""
        return time.monotonic() >= self._next and not self.quiet

    def show(self, text: str) -> None:
        """Replace the last text."""
        self._next = time.monotonic() + (TERMINAL_SECONDS if self.terminal else LOG_SECONDS)
        self._shown = self.terminal
        fits = shortened(text, shutil.get_terminal_size().columns - 1)  # else it would wrap
        shown = f"\r\033[K{fits}" if self.terminal else f"{text}\n"
        print(shown, end="", file=sys.stderr, flush=True)

    def leave(self) -> None:
        """Let the line stand; what follows begins on the next one."""
        if self._shown:
            print(file=sys.stderr, flush=True)
            self._shown = False

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
            self._shown = False
