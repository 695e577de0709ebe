"""A place for a run: a directory that no other process takes, and never that of another run."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import platform
import shutil
import sys
import textwrap
from datetime import datetime
from pathlib import Path
from types import TracebackType

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.files import read_json
from graphormer_sepnorm.process import NO_LOCKS, is_first_process
from graphormer_sepnorm.runs.directory import LOCK, RunDirectory

log = logging.getLogger(__name__)


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
                if error.errno not in NO_LOCKS:
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


def _holder(directory: Path) -> str:
    """Say who has the lock of a directory."""
    who = read_json(directory / LOCK)
    if who is None:  # it is about to be written
        return "another process"
    return "process {process} on {host} since {since} ({command})".format_map(
        {name: who.get(name, "?") for name in ("process", "host", "since", "command")}
    )


class RunPlace:
    """The directory of one run, which no other process takes until this context ends.

    If it ends with an error before anything was trained, a new directory is taken away again, so
    that the next attempt has the same name.

    Attributes:
        path: Of the directory; None until there is one.
        worth_keeping: Whether something was trained in it.
    """

    def __init__(self) -> None:
        self.path: Path | None = None
        self.worth_keeping = False
        self._lock: RunLock | None = None
        # The folders that were made for it, from the inside to the outside.
        self._made: list[Path] = []

    def new(self, wanted: Path) -> Path:
        """Make a directory: `wanted`, or with -2, -3, ... after it if that is taken.

        An empty directory counts as free, unless another process has it.

        Raises:
            ConfigError: It cannot be made.
        """
        if wanted.name in ("", ".."):  # "." and ".." have no name that a number could follow
            wanted = wanted.resolve()
        number, vanished = 1, 0
        while True:
            path = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
            try:
                if self._claim(path):
                    return path
            except OSError as error:
                vanished += isinstance(error, FileNotFoundError)
                if 0 < vanished < 10:
                    continue  # the process that had it has just taken it away
                raise ConfigError(
                    f"cannot make the run directory {path} ({error.strerror}): choose another "
                    "place with --output"
                ) from error
            number += 1

    def _claim(self, path: Path) -> bool:
        made = [folder for folder in (path, *path.parents) if not folder.exists()]
        try:
            path.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            if os.path.lexists(path):  # a file
                return False
            raise
        if _used(path) or (lock := RunLock.take(path)) is None:
            return False
        if _used(path):  # by a process that has ended since
            lock.release()
            return False
        self.path, self._lock, self._made = path, lock, made
        return True

    def go_on_in(self, path: Path) -> None:
        """Take the directory of an earlier session, in the first process only.

        Raises:
            ConfigError: Another process is at work in it, or nothing can be written there.
        """
        self.path, self.worth_keeping = path, True
        if not is_first_process():
            return
        try:
            lock = RunLock.take(path)
        except OSError as error:
            raise ConfigError(f"cannot write into {path} ({error.strerror})") from error
        if lock is None:
            raise ConfigError(
                f"{path} is being trained by {_holder(path)}: wait for it, or stop it first"
            )
        self._lock = lock

    def discard(self) -> None:
        """Take a new directory away again, if nothing is in it that is worth anything."""
        if self._lock is None or self.worth_keeping:
            return
        assert self.path is not None
        entries, known = set(self.path.iterdir()), RunDirectory(self.path).before_the_first_step
        if entries <= known:
            for entry in entries - {self.path / LOCK}:
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry, ignore_errors=True)
                else:
                    entry.unlink(missing_ok=True)
        self._release()
        with contextlib.suppress(OSError):  # something is in it
            for folder in self._made:
                folder.rmdir()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
        self._lock = None

    def __enter__(self) -> RunPlace:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self.discard()
        self._release()


def _used(path: Path) -> bool:
    return any(entry.name != LOCK for entry in path.iterdir())


def _is_at(path: Path, handle: int) -> bool:
    """Whether a file that is open is still the one of this name."""
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False
