"""A place for a run: a directory that no other process takes, and never that of another run."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from types import TracebackType

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.process import is_first_process
from graphormer_sepnorm.runs.directory import RunDirectory
from graphormer_sepnorm.runs.lock import LOCK, RunLock, holder


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
                f"{path} is being trained by {holder(path)}: wait for it, or stop it first"
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
