"""How a side is asked to work: lines of JSON on standard input and output.

``{"do": "prepare", "work": name, "options": {...}}`` makes everything ready and works once to warm
up; the answer holds facts about the work. ``{"do": "round"}`` works for a second, or once where
that takes longer, and answers with the mean seconds and the peak memory of the process so far.
Instead of working itself, a side may prepare a command that is to be timed as a whole: the answer
then holds its ``command``.

Only the standard library is used, because every environment runs this file.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_LEAST_SECONDS = 1.0

Options = dict[str, Any]


@dataclass(frozen=True)
class Work:
    """What a side has prepared.

    Attributes:
        run: Does the work of one round; None if there is a command instead.
        command: Program and arguments of a process that does it.
        facts: What to report: ``molecules`` and ``flops`` of a round, ``parameters``, ...
    """

    run: Callable[[], object] | None = None
    command: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


def serve(*works: Callable[[Options], Work]) -> None:
    """Answer until standard input ends; each of `works` takes options and prepares."""
    named = {work.__name__: work for work in works}
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print; their words must not stand between the answers
    run: Callable[[], object] | None = None
    for line in sys.stdin:
        message = json.loads(line)
        try:
            if message["do"] == "prepare":
                before = _forget_peak()
                work = named[message["work"]](message["options"])
                answer = {"facts": work.facts, "command": work.command, "memory_before": before}
                if (run := work.run) is not None:
                    run()
            else:
                assert run is not None
                answer = {"seconds": _mean_seconds(run), "peak": _peak()}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


def _mean_seconds(run: Callable[[], object]) -> float:
    # While the others work, caches and idle memory are lost. A single short turn would mostly
    # measure how they come back.
    start, times = time.perf_counter(), 0
    while not times or time.perf_counter() - start < _LEAST_SECONDS:
        run()
        times += 1
    return (time.perf_counter() - start) / times


def read_smiles(options: Options) -> list[str]:
    """Return the molecules of the row."""
    return Path(options["smiles"]).read_text(encoding="utf-8").split()


def to_batches(options: Options, collate: Callable[[list[str]], object]) -> Work:
    """Text to batches that a model takes, all structure in them; `collate` makes one."""
    smiles = read_smiles(options)

    def run() -> list[object]:
        return [collate(texts) for texts in in_batches(smiles, options["batch_size"])]

    return Work(run, facts={"molecules": len(smiles)})


def in_batches(values: list[Any], size: int) -> list[list[Any]]:
    """Cut a list into batches; the last one may be smaller."""
    return [values[first : first + size] for first in range(0, len(values), size)]


def _forget_peak() -> int:
    """Begin to measure the peak anew where the system can, and return the memory in use, bytes."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    """Return the largest resident memory of this process, bytes."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return rusage_bytes(resource.getrusage(resource.RUSAGE_SELF))
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def rusage_bytes(usage: resource.struct_rusage) -> int:
    """Return the peak memory in `usage` in bytes; Linux counts kilobytes, macOS bytes."""
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
