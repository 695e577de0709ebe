"""One command at work in a directory, and no run that outlives its command.

A run holds on to the lock of its command, so the directory is free only when both are gone. And it
has the reading end of a pipe as standard input, whose writing end only the command has: when the
command is gone, however that came, the pipe ends and the run with it.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.process import KILLED_BY_ITS_COMMAND
from graphormer_sepnorm.runs.place import lock

# Tells a process that its standard input ends with the one that started it.
ENDS_WITH_STDIN = "GRAPHORMER_ENDS_WITH_STDIN"
TRAINING_LOCK, REPORT_LOCK = ".lock", ".report.lock"
_PATIENCE = 20.0  # seconds; runs whose command was killed are gone much sooner


def end_with_the_command() -> None:
    """End this process when the comparison that started it does; does nothing in any other.

    At once and without saving: the next command may continue this run already. What is on disk is
    whole at any moment.
    """
    # Taken away, so that processes started from here (for other devices) do not read it too.
    if os.environ.pop(ENDS_WITH_STDIN, None) is None:
        return
    os.environ[KILLED_BY_ITS_COMMAND] = "1"

    def wait() -> None:
        while os.read(0, 1):
            pass
        # With the processes that this one has started for other devices, which are of its group.
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def locked(
    directory: Path, patience: float = _PATIENCE, name: str = TRAINING_LOCK
) -> Iterator[int]:
    """Keep other commands out of a directory.

    Args:
        directory: It is there.
        patience: Seconds to wait for a command or its runs to end.
        name: What is locked: `TRAINING_LOCK` or `REPORT_LOCK`, which do not exclude each other.

    Yields:
        The file descriptor that holds the lock, to be handed to the runs.

    Raises:
        ConfigError: Another command is at work there.
    """
    end = time.monotonic() + patience
    while (descriptor := lock(directory / name)) is None:
        if time.monotonic() > end:
            raise ConfigError(
                f"another command is at work in {directory}: wait for it, or stop it first"
            )
        time.sleep(0.1)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
