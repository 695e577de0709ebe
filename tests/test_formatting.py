"""Pieces of the lines that people read."""

from __future__ import annotations

from graphormer_sepnorm.formatting import aligned


def test_cells_stand_below_each_other() -> None:
    rows = [("a", "long name", "1"), ("bcd", "x", "12.5"), ("e", "", "")]
    assert aligned(rows) == "a    long name  1\nbcd  x          12.5\ne"
    assert aligned(rows, numbers_from=2) == "a    long name     1\nbcd  x          12.5\ne"
    assert aligned(iter(rows[:1])) == "a  long name  1"
    assert aligned([]) == ""
