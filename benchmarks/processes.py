"""The processes that are timed: sides that work when asked to, and whole commands.

This process stays small (no torch): the system counts a parent's peak memory as its child's.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.sides.protocol import rusage_bytes

REPOSITORY = Path(__file__).resolve().parent.parent


class SideFailed(Exception):
    """A side cannot do its work; the message says why."""


def variables(threads: int, home: Path | None = None, folder: Path = REPOSITORY) -> dict[str, str]:
    """Return the environment variables of a timed process.

    With a `home` of its own, for what a library leaves there, and `folder`, a checkout of this
    package.
    """
    numbers = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    homes = {} if home is None else {"HOME": str(home)}
    return {**os.environ, **numbers, **homes, "PYTHONPATH": str(folder)}


@dataclass
class Command:
    """A command that is timed from its start to its end.

    Attributes:
        command: Program and arguments.
        environment: Environment variables.
        log: File for what it prints.
        folder: Its working directory.
        peak: Its peak memory so far, bytes.
    """

    command: list[str]
    environment: dict[str, str]
    log: Path
    folder: Path = REPOSITORY
    peak: int = 0

    def started(self, **streams: Any) -> subprocess.Popen:
        """Start it; what it prints goes to the log, but for the streams that are given."""
        with self.log.open("ab") as log:
            told = {"stdout": log, "stderr": log, **streams}
            return subprocess.Popen(self.command, env=self.environment, cwd=self.folder, **told)

    def round(self) -> float:
        """Run it once and return the seconds.

        Raises:
            SideFailed: It ended with an error.
        """
        start = time.perf_counter()
        process = self.started(stdin=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        self.peak = max(self.peak, rusage_bytes(usage))
        if process.returncode:
            raise SideFailed(f"it ended with {process.returncode}: {last_line(self.log)}")
        return seconds

    def close(self) -> None:
        """There is nothing to end."""


class SideProcess(Command):
    """A side that waits for its turns."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._process = self.started(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def prepare(self, work: str, options: dict[str, Any]) -> dict[str, Any]:
        """Make the work ready and warm up.

        Returns:
            ``facts``, and ``command`` or ``memory_before``; see `sides.protocol`.

        Raises:
            SideFailed: It cannot be done.
        """
        return self._ask({"do": "prepare", "work": work, "options": options})

    def round(self) -> float:
        """Work once and return the seconds."""
        answer = self._ask({"do": "round"})
        self.peak = max(self.peak, answer["peak"])
        return answer["seconds"]

    def close(self) -> None:
        """Let the process end."""
        # Closes standard input, at whose end the side ends.
        self._process.communicate()

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(json.dumps(message), file=self._process.stdin, flush=True)
            answer = json.loads(self._process.stdout.readline() or "{}")
        except BrokenPipeError:
            answer = {}
        if not answer or "error" in answer:
            raise SideFailed(answer.get("error") or f"it ended: {last_line(self.log)}")
        return answer


def last_line(log: Path) -> str:
    """Return the last line of a log that says something."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")
