"""As many CPU threads as there are cores that no other program keeps busy.

A step has hundreds of short parallel regions, and each ends when its last thread does. A thread
that shares its core with another program waits for its turn of some milliseconds, each time, and
the others wait for it: of two trainings with two threads each on two cores both have a fortieth of
the speed that they have with one thread each (docs/training.md). Compiled products give the same
numbers with any number of threads; torch's, which take their place without AVX-512 and for large
matrices, differ in the last digits.
"""

from __future__ import annotations

import math
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer

from graphormer_sepnorm.process import cores

_SECONDS_BETWEEN_LOOKS = 1.0
# What others may use of a core before it counts as theirs: less is the noise of any machine. Who
# shares a core with one of our threads gets half of it, so half a core has to count.
_SPARE = 0.25
_IDLE = slice(3, 5)  # idle and waiting for a disk, of the columns of /proc/stat (proc_stat(5))
_GUEST = 8  # from here on columns are counted in earlier ones too


class LeaveBusyCores(Callback):
    """Computes with fewer threads while other programs use the cores, and with all of them after.

    The most is what torch had at the start (``OMP_NUM_THREADS``). Only on a CPU, and where the
    system says how busy its cores are, that is, on Linux. Whoever sets ``OMP_WAIT_POLICY`` says how
    threads are to wait, and keeps all of them.
    """

    def __init__(self) -> None:
        self._most = 1
        self._before: tuple[float, float, float] | None = None

    def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        """Remember how many threads there are at most."""
        self._most = torch.get_num_threads()
        self._before = None

    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        """Look how busy the cores are, once a second."""
        self._look(pl_module)

    on_validation_batch_start = on_test_batch_start = on_train_batch_start  # type: ignore[assignment]

    def teardown(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        """Leave as many threads as there were."""
        torch.set_num_threads(self._most)

    on_exception = teardown  # type: ignore[assignment]

    def _look(self, module: Any) -> None:
        if self._most == 1 or module.device.type != "cpu" or "OMP_WAIT_POLICY" in os.environ:
            return
        now = time.monotonic()
        if self._before and now < self._before[0] + _SECONDS_BETWEEN_LOOKS:
            return
        busy = seconds_busy()
        if busy is None:
            return
        ours = time.process_time()
        if self._before:
            then, busy_then, ours_then = self._before
            others = (busy - busy_then - (ours - ours_then)) / (now - then)
            threads = threads_beside(others, cores(), self._most)
            if threads != torch.get_num_threads():
                torch.set_num_threads(threads)
        self._before = now, busy, ours


def threads_beside(others: float, cores: int, most: int) -> int:
    """Return with how many threads to compute beside other programs.

    Args:
        others: How many cores they keep busy, on average.
        cores: How many there are.
        most: The most threads to use.

    Returns:
        At least 1.
    """
    return max(1, min(most, cores - math.ceil(max(0.0, others - _SPARE))))


def seconds_busy() -> float | None:
    """Return how long the cores that this process may use were busy since the system started.

    Returns:
        Seconds, the sum over the cores, or None where the system does not say it.
    """
    if sys.platform != "linux":
        return None
    try:
        lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeError):
        return None
    allowed = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    ticks = 0
    for name, *columns in (line.split() for line in lines if line.startswith("cpu")):
        if name in allowed:
            counted = [int(column) for column in columns[:_GUEST]]
            ticks += sum(counted) - sum(counted[_IDLE])
    return ticks / os.sysconf("SC_CLK_TCK")
