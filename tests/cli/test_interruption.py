"""Ctrl-C and SIGTERM end a command with one line."""

from __future__ import annotations

import signal
from contextlib import suppress

import pytest

from graphormer_sepnorm.cli.main import run

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def handlers() -> list:
    return [signal.getsignal(number) for number in SIGNALS]


@pytest.mark.parametrize("number", SIGNALS)
def test_one_line_ends_the_command(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    def command(arguments: list[str]) -> None:
        signal.raise_signal(number)
        print("went on")

    assert run("train.py", command, []) == 130
    assert capsys.readouterr() == ("", "train.py: interrupted; nothing was saved\n")


def test_an_import_may_swallow_the_interrupt(capsys: pytest.CaptureFixture[str]) -> None:
    def command(arguments: list[str]) -> None:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        raise RecursionError("what was half loaded")

    assert run("train.py", command, []) == 130
    assert capsys.readouterr() == ("", "train.py: interrupted; nothing was saved\n")


def test_what_is_ignored_stays_so() -> None:
    before = handlers()
    seen = []

    def command(arguments: list[str]) -> None:
        seen.extend(handlers())

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert run("train.py", command, []) == 0
        assert handlers() == [signal.SIG_IGN, *before[1:]]
    finally:
        signal.signal(signal.SIGINT, before[0])
    assert seen[0] == signal.SIG_IGN
    assert callable(seen[1])


def test_afterwards_signals_mean_what_they_meant() -> None:
    before = handlers()
    seen = []

    def command(arguments: list[str]) -> None:
        seen.extend(handlers())
        raise RuntimeError("a defect")

    with pytest.raises(RuntimeError, match="a defect"):
        run("train.py", command, [])
    assert not set(seen) & set(before)
    assert handlers() == before
