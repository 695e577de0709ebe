"""One process at work in a run directory; a second one is told which."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import platform
import sys
import textwrap
from datetime import datetime
from pathlib import Path

from graphormer_sepnorm.files import read_json
from graphormer_sepnorm.runs.directory import LOCK

log = logging.getLogger(__name__)

_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)

# Of this process. Processes that it forks, to load data, must not keep what it has let go of.
_held: set[int] = set()


def _close_held() -> None:
    for handle in _held:
        os.close(handle)
    _held.clear()


os.register_at_fork(after_in_child=_close_held)


class RunLock:
    """A lock on a directory that ends with its process, however that ends.

    The file that is locked says who has it, and goes when it is let go.

    Args:
        path: Of the file.
        handle: File descriptor that holds the lock.
    """

    def __init__(self, path: Path, handle: int) -> None:
        self._path = path
        self._handle = handle
        _held.add(handle)

    @classmethod
    def take(cls, directory: Path) -> RunLock | None:
        """Lock a directory; return None if another process has it.

        Raises:
            OSError: The directory is not there, or nothing can be written in it.
        """
        path = directory / LOCK
        while True:
            # Not emptied when it is opened: what its holder has written is to stay.
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                return None
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    os.close(handle)
                    raise
                log.warning("the file system of %s has no locks: start one run in it only", path)
            if _is_at(path, handle):
                break
            os.close(handle)  # its holder has taken the file away meanwhile
        who = {
            "process": os.getpid(),
            "host": platform.node(),
            "since": datetime.now().isoformat(" ", timespec="minutes"),
            "command": textwrap.shorten(" ".join([Path(sys.argv[0]).name, *sys.argv[1:]]), 120),
        }
        with contextlib.suppress(OSError):  # no room: it is locked without a name
            os.ftruncate(handle, 0)
            os.write(handle, json.dumps(who).encode())
        return cls(path, handle)

    def release(self) -> None:
        """Let go, and take the file away."""
        with contextlib.suppress(OSError):
            if _is_at(self._path, self._handle):
                self._path.unlink()
        _held.discard(self._handle)
        os.close(self._handle)


def holder(directory: Path) -> str:
    """Say who has the lock of a directory."""
    who = read_json(directory / LOCK)
    if who is None:  # it is about to be written
        return "another process"
    return "process {process} on {host} since {since} ({command})".format_map(
        {name: who.get(name, "?") for name in ("process", "host", "since", "command")}
    )


def _is_at(path: Path, handle: int) -> bool:
    """Whether a file that is open is still the one of this name."""
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False
