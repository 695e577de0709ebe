"""A stop on Ctrl-C, SIGTERM or SIGHUP that a resumed run can go on from."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

from lightning.pytorch import Callback, Trainer

from graphormer_sepnorm.process import KILLED_BY_ITS_COMMAND, STOPS
from graphormer_sepnorm.training.steps import any_process, goes_on_exactly, step_in_epoch

# Stops all trainings of this process, also those in threads, where no signals arrive.
STOP_ALL = threading.Event()
ONE_REQUEST = 1.0  # seconds


class StopAtOnce(KeyboardInterrupt):
    """A second Ctrl-C: training may be in the middle of a step, which is not to be saved."""


class StopBetweenSteps(Callback):
    """Lets `STOPS` take effect between two optimiser steps; a second one acts at once.

    In the middle of a step some parameters would be updated and others not, and a resumed run
    would not continue the same training. Where a validation follows a step, it and one
    more step come first; the last epoch ends training anyway.

    A batch system asks every process of a job, and the one that started this asks it once more: so
    requests within a second are one. A process that has been started by another one, which kills it
    where it is to end at once, takes all for one.
    """

    def __init__(self) -> None:
        self._asked_at: float | None = None
        self._stopping = False
        self._previous: dict[int, Any] = {}

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Take over the signals."""
        if threading.current_thread() is not threading.main_thread():  # signals do not arrive here
            return
        for number in STOPS:
            # What is ignored stays so: SIGINT in the background, SIGHUP under nohup.
            if signal.getsignal(number) != signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._ask)

    def _ask(self, number: int, frame: Any) -> None:
        if self._stopping:
            return  # what is being saved now, between two steps, is to be finished
        now = time.monotonic()
        if self._asked_at is None:
            self._asked_at = now
        elif now > self._asked_at + ONE_REQUEST and KILLED_BY_ITS_COMMAND not in os.environ:
            raise StopAtOnce

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Stop here if it was asked for."""
        step = step_in_epoch(trainer, batch_idx)
        if step is None or not goes_on_exactly(trainer, batch_idx):
            return
        if any_process(trainer, self._asked_at is not None or STOP_ALL.is_set(), step):
            self._stopping = True
            raise KeyboardInterrupt

    def on_train_end(self, *_: Any) -> None:
        """Give the signals back, after an error to a notebook that goes on."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    on_exception = on_train_end  # type: ignore[assignment]
