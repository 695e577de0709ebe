"""Ctrl-C and SIGTERM end a command with one line."""

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


@pytest.mark.parametrize("ignored", [False, True])
def test_signals_mean_afterwards_what_they_meant_and_what_is_ignored_stays_so(ignored):
    seen = []

    def command(arguments: list[str]) -> None:
        seen.extend(handlers())
        raise RuntimeError("a defect")

    if ignored:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    before = handlers()
    with pytest.raises(RuntimeError, match="a defect"):
        run("train.py", command, [])
    assert handlers() == before
    assert [one in before for one in seen] == [ignored, False, False]
