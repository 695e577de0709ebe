"""Has tests call kernels that are compiled for ARM processors and run by an emulator.

A plugin of pytest, for `tests/kernels/test_emulated.py`. The environment variable ``EMULATED``
holds the command that serves the functions, up to the number of this process (`serve.c`).
"""

import ctypes
import os
import subprocess
from collections.abc import Callable
from typing import Any

from graphormer_sepnorm.kernels import library


class Emulated:
    """The functions of a library, as `ctypes.CDLL` has them."""

    def __init__(self, command: list[str]) -> None:
        self.calls = 0
        self._server = subprocess.Popen(
            [*command, str(os.getpid())], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def function(*arguments: Any) -> Any:
            kinds = getattr(function, "argtypes", [None] * len(arguments))
            numbers = [_number(*one) for one in zip(arguments, kinds, strict=True)]
            integers = [one for one in numbers if isinstance(one, int)]
            doubles = [one for one in numbers if isinstance(one, float)]
            words = [*integers, *[0] * (6 - len(integers)), *(doubles or [0.0])]
            print(name, *words, file=self._server.stdin, flush=True)
            line = self._server.stdout.readline()
            assert line, f"{name} ended the emulator"
            self.calls += 1
            return getattr(function, "restype", ctypes.c_int)(int(line)).value

        setattr(self, name, function)  # what is set on it, as `restype`, stays
        return function


def _number(argument: Any, kind: Any) -> int | float:
    """Return an argument as a processor takes it."""
    if kind is ctypes.c_double:
        return float(argument)
    if hasattr(argument, "_obj"):  # made by byref
        return ctypes.addressof(argument._obj)
    return getattr(argument, "value", argument) or 0


# Before conftest.py asks which forms there are.
EMULATED = Emulated(os.environ["EMULATED"].split())
library._load = lambda: EMULATED
library._openmp = lambda: None  # one thread


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Report how often functions were called."""
    terminalreporter.write_line(f"{EMULATED.calls} calls of emulated functions")
