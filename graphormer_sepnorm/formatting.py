"""Pieces of the lines that people read."""

from __future__ import annotations

from collections.abc import Sequence


def clock(seconds: float) -> str:
    """Say how long something takes: ``1:02:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def in_a_line(text: str) -> str:
    """Bring what may hold line breaks into one line."""
    return " ".join(text.split())


def listed(names: Sequence[str], most: int = 12) -> str:
    """List names of somebody else's, the first `most` of them."""
    shown = ", ".join(map(in_a_line, names[:most]))
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def shortened(text: str, length: int = 60) -> str:
    """Cut a text so that it has at most `length` characters, the last ones ``...``."""
    return text if len(text) <= length else text[: length - 3] + "..."


def format_table(rows: list[tuple[str, str]]) -> str:
    """Return two aligned columns, one line per row."""
    width = max(len(label) for label, _ in rows)
    return "\n".join(f"{label:<{width}}  {value}" for label, value in rows)
