"""What a training shows: a table of the model, then one live line, or sparse lines in a log."""

from __future__ import annotations

import math
import sys
import time
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import ProgressBar

from graphormer_sepnorm.formatting import clock, four_digits
from graphormer_sepnorm.metrics import METRICS
from graphormer_sepnorm.model.summary import parameter_table
from graphormer_sepnorm.training.callbacks.checkpoints import best_checkpoint
from graphormer_sepnorm.training.steps import step_in_epoch

_SECONDS_BETWEEN_LINES = 20.0


class ModelTable(Callback):
    """Prints what is trained, on what, and how many parameters each part has."""

    def on_fit_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Print the table when the network is built."""
        if not trainer.is_global_zero:
            return
        splits = trainer.datamodule.splits  # type: ignore[attr-defined]
        sizes = " / ".join(f"{len(part):,}" for part in splits.parts.values())
        left_out = len(splits.report.invalid) if splits.report else 0
        others = f", {left_out:,} row{'s' if left_out > 1 else ''} left out" if left_out else ""
        print(f"data   {splits.name}: {sizes} molecules (train / validation / test){others}")
        print(f"model  {pl_module.model.config.norm}, on {pl_module.device}\n")
        print(parameter_table(pl_module.model), end="\n\n", flush=True)


class TrainingProgress(ProgressBar):
    """Shows step, loss, validation metric, speed and remaining time.

    Beside the metric stands its best value, where that decides which checkpoint is kept.

    In a terminal one line is redrawn; elsewhere (a log file, a batch job) a line is printed at
    most every 20 seconds, so that ten thousand epochs do not make ten thousand lines.

    Args:
        metric: Name of the metric to show.
    """

    def __init__(self, metric: str) -> None:
        super().__init__()
        self.metric = metric
        self._enabled = True
        self._live = sys.stderr.isatty()
        self._best = math.nan
        self._best_decides = False
        self._newest = math.nan
        self._loss = math.nan
        self._started = self._last_shown = 0.0
        self._first_step = 0
        self._graphs = 0
        self._epoch = 0
        self._threads = 1

    def disable(self) -> None:
        """Show nothing (all processes but the first)."""
        self._enabled = False

    def enable(self) -> None:
        """Show again."""
        self._enabled = True

    def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        """Remember how many threads there are at most."""
        super().setup(trainer, pl_module, stage)
        self._threads = torch.get_num_threads()

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Start the clock."""
        self._started = self._last_shown = time.monotonic()
        self._first_step = trainer.global_step
        self._graphs = 0
        keeper = best_checkpoint(trainer)
        best = getattr(keeper, "best_model_score", None)
        self._best_decides = getattr(keeper, "monitor", "") == f"validation_{self.metric}"
        if best is not None and self._best_decides:  # a resumed run
            self._best = float(best)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Refresh the line at the end of an optimiser step."""
        self._graphs += batch.num_graphs * trainer.world_size  # all have as many, but for one
        self._epoch = trainer.current_epoch + 1
        pause = 0.2 if self._live else _SECONDS_BETWEEN_LINES
        if step_in_epoch(trainer, batch_idx) is None or not self._enabled:
            return
        if time.monotonic() - self._last_shown >= pause:
            # Reading the loss waits for the device, so only when it is shown. Of several processes
            # each knows its share; to ask the others, all would have to show at the same step.
            self._loss = float(pl_module.step_loss) * trainer.world_size
            self._show(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Take over the newest validation metric."""
        value = trainer.callback_metrics.get(f"validation_{self.metric}")
        if value is None or trainer.state.fn != "fit":
            return
        self._newest = float(value)
        known = [number for number in (self._best, self._newest) if not math.isnan(number)]
        self._best = METRICS[self.metric].best(known, default=math.nan)

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Leave the last state standing."""
        if self._enabled:
            self._show(trainer)
            self._finish()

    def on_exception(self, *_: Any) -> None:
        """Leave the line so that a message starts on a new one."""
        self._finish()

    def print(self, *arguments: Any, **options: Any) -> None:
        """Print without disturbing the line."""
        self._finish()
        print(*arguments, **options)

    def _finish(self) -> None:
        if self._live and self._enabled and self._started:
            sys.stderr.write("\n")
            sys.stderr.flush()

    def _show(self, trainer: Trainer) -> None:
        now = time.monotonic()
        self._last_shown = now
        elapsed = max(1e-9, now - self._started)
        total = trainer.estimated_stepping_batches
        done = trainer.global_step - self._first_step
        parts = [f"epoch {self._epoch}", f"step {trainer.global_step:,}/{total:,}"]
        for label, value in (
            ("loss", self._loss),
            (f"validation {METRICS[self.metric].label}", self._newest),
            ("best", self._best if self._best_decides else math.nan),
        ):
            if not math.isnan(value):
                parts.append(f"{label} {four_digits(value)}")
        parts.append(f"{self._graphs / elapsed:,.0f} graphs/s")
        threads = torch.get_num_threads()
        if threads < self._threads:  # other programs keep cores busy
            parts.append(f"{threads} of {self._threads} threads")
        if done and total > trainer.global_step:
            parts.append(f"{clock((total - trainer.global_step) * elapsed / done)} left")
        line = " · ".join(parts)
        if self._live:
            sys.stderr.write(f"\r\x1b[K{line}")
        else:
            sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
