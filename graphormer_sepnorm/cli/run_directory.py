"""Where a training run is kept. A run never writes into the directory of another one."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from types import TracebackType

from graphormer_sepnorm.cli.run_lock import LOCK, RunLock, holder
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.process import is_first_process

# What a run may have written when it has taken no step; without one it is of no use.
_BEFORE_THE_FIRST_STEP = {
    *("config.yaml", "data_report.json", "splits.csv", "invalid_rows.csv", "run.json"),
    *("metrics.csv", "tensorboard", "checkpoints", LOCK),
}


class RunDirectory:
    """The directory of a run, which no other process takes until this context ends.

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

    def nothing_trained(self) -> str:
        """Take a new directory away again; return what there is to say about it."""
        if self._lock is not None and not self.worth_keeping:
            self._take_away()
        return "interrupted before the first step; nothing was saved"

    def _take_away(self) -> None:
        """Remove the directory, if nothing is in it that is not known."""
        assert self.path is not None
        names = {entry.name for entry in self.path.iterdir()}
        if names <= _BEFORE_THE_FIRST_STEP:
            for entry in [self.path / name for name in names - {LOCK}]:
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

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self.nothing_trained()
        self._release()


def _used(path: Path) -> bool:
    return any(entry.name != LOCK for entry in path.iterdir())
