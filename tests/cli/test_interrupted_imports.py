"""Ctrl-C and SIGTERM while libraries are imported: one line, whatever the import does with it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from graphormer_sepnorm.cli.main import while_loading

PROGRAM = """
import signal, sys
from graphormer_sepnorm.cli.main import while_loading

with while_loading("train.py"):
    try:
        signal.raise_signal(int(sys.argv[1]))
    except BaseException:  # as some imports do
        print("caught")
print("went on")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_process_at_once(number: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(int(number))], capture_output=True, text=True
    )
    assert done.returncode == 130
    assert done.stderr == "train.py: interrupted; nothing was saved\n"
    assert done.stdout == ""


def test_afterwards_signals_mean_what_they_meant() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    with while_loading("train.py"):
        assert all(
            signal.getsignal(number) != old for number, old in zip(numbers, before, strict=True)
        )
    assert [signal.getsignal(number) for number in numbers] == before
