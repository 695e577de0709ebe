"""Pieces of the lines that people read."""

import math

import pytest

from graphormer_sepnorm import formatting
from graphormer_sepnorm.formatting import (
    MINUS,
    NONE,
    StatusLine,
    aligned,
    decimals_of,
    four_digits,
    in_figure,
    interval,
    listed,
    mean_and_sd,
    number,
    p_value,
    shortened,
    signed,
)
from graphormer_sepnorm.metrics import METRICS


def test_cells_stand_below_each_other() -> None:
    rows = [("a", "long name", "1"), ("bcd", "x", "12.5"), ("e", "", "")]
    assert aligned(rows) == "a    long name  1\nbcd  x          12.5\ne"
    assert aligned(rows, numbers_from=2) == "a    long name     1\nbcd  x          12.5\ne"
    assert aligned(iter(rows[:1])) == "a  long name  1"
    assert aligned([]) == ""


def test_numbers_of_any_size_have_four_digits() -> None:
    shown = {
        **{0.0: "0.000", 0.99999: "1.000", 0.05: "0.05000", 1.23456: "1.235", 999.99: "1000"},
        **{-12345.678: "-12346", 1.5214e-9: "1.521e-09", 0.0005: "0.0005000"},
        **{7.63569e12: "7.636e+12", -3e5: "-300000", math.inf: "inf", math.nan: "nan"},
    }
    assert {value: four_digits(value) for value in shown} == shown
    assert [*map(decimals_of, (1234.5, 12.3, 0.05, 0, math.nan))] == [0, 2, 5, 4, 4]
    assert decimals_of(0.0004, 0.123, digits=3) == 4  # both ends of an interval have a sign
    assert METRICS["mae"].shown(2.5e-9, "M") == "2.500e-09 M"
    found = [number(2.5e-9, 12), number(-7.5e12, 0), number(0.05, 4)]
    assert found == ["2.5e-09", f"{MINUS}7.5e+12", "0.0500"]


def test_numbers_of_tables() -> None:
    p_values = {51 / 1024: "0.0498", 0.04997: "0.0499", 0.125: "0.125", 1 / 32: "0.031"}
    p_values |= {0.25: "0.25", 1.0: "1", 0.0004: "0.0004", 1e-5: "< 0.0001"}
    assert {value: p_value(value) for value in p_values} == p_values
    assert number(489481, 0) == "489,481"
    assert number(-0.00001, 4) == signed(0.00001, 4) == "0.0000"
    assert (signed(-1.5, 2), signed(1.5, 2)) == (f"{MINUS}1.50", "+1.50")
    nan = math.nan
    assert {number(nan, 2), signed(nan, 2), p_value(nan), interval(nan, nan, 2)} == {NONE}
    assert interval(-1, 2, 1) == f"{MINUS}1.0 to +2.0"
    assert mean_and_sd([2.0, 4.0, 9.0], 2) == "5.00 ± 3.61"
    assert (mean_and_sd([0.3], 1), mean_and_sd([], 1)) == ("0.3", NONE)


def test_names_are_listed_shortened_and_drawn() -> None:
    assert listed(["a", "b\n c"], most=2) == "a, b c"
    assert listed(["a", "b", "c", "d"], most=2) == "a, b and 2 more"
    assert shortened("123456", 6) == "123456"
    assert shortened("1234567", 6) == "123..."
    assert in_figure("price in $ (log$)") == r"price in \$ (log\$)"
    assert [in_figure(name) for name in ("_hidden_", "a_b_")] == [" _hidden_", "a_b_"]


@pytest.mark.parametrize(("terminal", "first", "later"), [(True, 2, 1), (False, 30, 30)])
def test_a_line_is_due_now_and_then(terminal, first, later, monkeypatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(formatting.time, "monotonic", lambda: now[0])
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    line = StatusLine()
    for seconds in (first, later, later):
        now[0] += seconds - 0.01
        assert not line.is_due()
        now[0] += 0.01
        assert line.is_due()
        line.show("at work")


@pytest.mark.parametrize(
    ("terminal", "shown"),
    [(True, "\r\033[Kfirst\r\033[Ksecond\r\033[K"), (False, "first\nsecond\n")],
)
def test_a_terminal_has_one_line_that_goes_and_a_log_has_all(terminal, shown, monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    line = StatusLine()
    line.clear()  # nothing is there yet
    line.show("first")
    line.show("second")
    line.clear()
    line.clear()
    line.leave()  # nothing is there any more
    assert capsys.readouterr().err == shown


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_is_not_too_narrow_for_a_line(terminal: bool, monkeypatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    line = StatusLine()
    line.show("word " * 20)
    line.leave()
    assert len(capsys.readouterr().err) == (len("\r\033[K\n") + 39 if terminal else 101)
