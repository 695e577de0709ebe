"""Ctrl-C and SIGTERM end a command with one line, in the middle of an import too."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from graphormer_sepnorm.cli.main import run

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MODULE = """
import signal, sys
try:
    signal.raise_signal(int(sys.argv[1]))
except BaseException:  # as some libraries do
    print("caught")
"""
PROGRAM = """
import signal, sys
from graphormer_sepnorm.cli.main import run

def command(arguments):
    {body}
    print("went on")

sys.exit(run("train.py", command))
"""


def ended(number: int, body: str, directory: Path) -> subprocess.CompletedProcess[str]:
    (directory / "library.py").write_text(MODULE)
    (directory / "program.py").write_text(PROGRAM.format(body=body))
    return subprocess.run(
        [sys.executable, str(directory / "program.py"), str(int(number))],
        capture_output=True,
        text=True,
    )


def handlers() -> list:
    return [signal.getsignal(number) for number in SIGNALS]


@pytest.mark.parametrize("number", SIGNALS[:2])
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("import library", "interrupted while libraries were imported"),
        ("signal.raise_signal(int(arguments[0]))", "interrupted; nothing was saved"),
    ],
)
def test_one_line_ends_the_command(body: str, said: str, number: int, tmp_path: Path) -> None:
    done = ended(number, body, tmp_path)
    assert done.returncode == 130
    assert done.stderr == f"train.py: {said}\n"
    assert done.stdout == ""


def test_in_a_module_that_calls_the_command(tmp_path: Path) -> None:
    """Only the command's own imports count."""
    (tmp_path / "started.py").write_text("import program")
    ended(signal.SIGTERM, "signal.raise_signal(int(arguments[0]))", tmp_path)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "started.py"), str(int(signal.SIGTERM))],
        capture_output=True,
        text=True,
    )
    assert done.stderr == "train.py: interrupted; nothing was saved\n"


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
    assert seen[1] not in (signal.SIG_IGN, before[1])


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
