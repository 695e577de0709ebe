"""Locks: one process trains in a run directory, one command in a directory of many runs."""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from filelock import lock_descriptor

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.process import is_first_process
from graphormer_sepnorm.runs.directory import LOCK

log = logging.getLogger(__name__)

REPORT_LOCK = ".report.lock"
_PATIENCE = 20.0  # seconds; runs whose command was killed are gone much sooner
# What a file system says that has no locks, as some of clusters.
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)


def lock(path: Path) -> int | None:
    """Lock a file until its descriptor is closed or the process has ended, however it ends.

    The file is never removed: others may have it open already. (And processes that are started
    share the descriptor: that is why this is no `filelock.FileLock`.)

    Returns:
        The descriptor; None if another process has the lock.

    Raises:
        OSError: Its directory is not there, or nothing can be written in it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        taken = lock_descriptor(descriptor, blocking=False)
    except OSError as error:
        taken = error.errno in _NO_LOCKS
        if not taken:
            os.close(descriptor)
            raise
        log.warning("the file system of %s has no locks: start one run in it only", path)
    if not taken:
        os.close(descriptor)
        return None
    return descriptor


@contextlib.contextmanager
def locked(directory: Path, patience: float = _PATIENCE, name: str = LOCK) -> Iterator[int]:
    """Keep other commands out of a directory of runs.

    Args:
        directory: It is there.
        patience: Seconds to wait for a command or its runs to end.
        name: What is locked: `LOCK` to train or `REPORT_LOCK`, which do not exclude each other.

    Yields:
        The file descriptor that holds the lock, to be handed to the processes of the runs: the
        directory is free only when they are gone as well.

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


class RunLock:
    """The directory of one run, which no other process takes until this context ends.

    If it ends with an error before anything was trained, a directory that was made is removed
    again, so that the next attempt has the same name.

    Attributes:
        path: Of the directory; None until there is one.
        worth_keeping: Whether something was trained in it.
    """

    def __init__(self) -> None:
        self.path: Path | None = None
        self.worth_keeping = False
        self._lock: int | None = None
        # The folders that were made for it, from the inside to the outside.
        self._made: list[Path] = []
        # Processes that are forked, to load data, must not keep the lock when this one is killed.
        os.register_at_fork(after_in_child=self._release)

    def new(self, wanted: Path) -> Path:
        """Make a directory: `wanted`, or with -2, -3, ... after it if that is taken.

        An empty directory counts as free, unless another process has it.

        Raises:
            ConfigError: It cannot be made.
        """
        if wanted.name in ("", ".."):  # "." and ".." have no name that a number could follow
            wanted = wanted.resolve()
        for number in itertools.count(1):
            path = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
            try:
                if self._claim(path):
                    break
            except OSError as error:
                if isinstance(error, FileNotFoundError) and number < 10:
                    continue  # the process that had it has just removed it
                raise ConfigError(
                    f"cannot make the run directory {path} ({error.strerror}): choose another "
                    "with --output"
                ) from error
        return path

    def _claim(self, path: Path) -> bool:
        made = [folder for folder in (path, *path.parents) if not folder.exists()]
        try:
            path.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            if os.path.lexists(path):  # a file
                return False
            raise
        # Looked at again when it is locked: a process may have filled it and ended meanwhile.
        if _used(path) or (descriptor := lock(path / LOCK)) is None:
            return False
        if _used(path):
            os.close(descriptor)
            return False
        self.path, self._lock, self._made = path, descriptor, made
        return True

    def reopen(self, path: Path) -> None:
        """Take the directory of an earlier session, in the first process only.

        Raises:
            ConfigError: Another process is at work in it, or nothing can be written there.
        """
        self.path, self.worth_keeping = path, True
        if not is_first_process():
            return
        try:
            self._lock = lock(path / LOCK)
        except OSError as error:
            raise ConfigError(f"cannot write into {path} ({error.strerror})") from error
        if self._lock is None:
            raise ConfigError(
                f"{path} is being trained by another process: wait for it, or stop it first"
            )

    def discard(self) -> None:
        """Remove the folders that were made for it again, if nothing was trained in them."""
        if self._made and not self.worth_keeping:
            shutil.rmtree(self._made[0], ignore_errors=True)
            with contextlib.suppress(OSError):  # something else is in one
                for folder in self._made[1:]:
                    folder.rmdir()
            self._made = []
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
        self._lock = None

    def __enter__(self) -> RunLock:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            self.discard()
        self._release()


def _used(path: Path) -> bool:
    return any(entry.name != LOCK for entry in path.iterdir())
