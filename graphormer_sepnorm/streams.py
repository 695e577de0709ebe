"""Standard output and error: closed, without a reader, of any encoding."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

_NOBODY_READS = (errno.EPIPE, errno.EIO)  # the second one of a terminal that is gone


class _Dropping:
    """A stream of which what nobody reads any more is dropped.

    Args:
        stream: It.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, or drop."""
        self._try(self._stream.write, text)
        return len(text)

    def flush(self) -> None:
        """Write what is left, or drop it."""
        self._try(self._stream.flush)

    def _try(self, function: Any, *given: str) -> None:
        try:
            function(*given)
        except OSError as error:
            if error.errno not in _NOBODY_READS:
                raise
            to_nowhere(self._stream)


def to_nowhere(stream: Any) -> None:
    """Have a stream that nobody reads any more drop what it gets, with what it holds back."""
    with contextlib.suppress(OSError, ValueError):  # not each has a number
        number = os.open(os.devnull, os.O_WRONLY)
        os.dup2(number, stream.fileno())
        os.close(number)


@contextlib.contextmanager
def usable(going_on: bool) -> Iterator[None]:
    """Make standard output and error what a command can print to, whatever they are.

    What is printed to one that is closed goes nowhere, and no file that is opened takes its number.
    What the encoding lacks, and bytes of names that are not UTF-8, come out with a backslash.
    Standard error without a reader ends no command.

    Args:
        going_on: Whether a command goes on without a reader of standard output, too.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    if threading.current_thread() is not threading.main_thread():  # one of several commands
        yield
        return
    before = {name: getattr(sys, name) for name in ("stdout", "stderr")}
    errors = {name: getattr(stream, "errors", None) for name, stream in before.items()}
    try:
        for name, stream in before.items():
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
            if stream is None:
                setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
            elif going_on or name == "stderr":
                setattr(sys, name, _Dropping(stream))
        yield
    finally:
        for name, stream in before.items():
            try:
                getattr(sys, name).flush() if stream is not None else getattr(sys, name).close()
            except BrokenPipeError:
                to_nowhere(stream)
            except OSError:
                pass  # Python says it at its end
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors=errors[name])
            setattr(sys, name, stream)
