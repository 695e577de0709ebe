"""Tables in CSV files: written for a test, and read back."""

import csv
from collections.abc import Sequence
from pathlib import Path


def write_csv(path: Path, rows: Sequence[Sequence[object]]) -> Path:
    """Write a table; the first row is its header."""
    with path.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
        csv.writer(file).writerows(rows)
    return path


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a table, by the names of its columns."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
