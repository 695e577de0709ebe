"""What a training shows: what is trained, then one live line, or sparse lines in a log."""

from __future__ import annotations

import math
import time
from typing import Any

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import ProgressBar

from graphormer_sepnorm.formatting import StatusLine, clock, four_digits
from graphormer_sepnorm.metrics import METRICS
from graphormer_sepnorm.model.summary import parameter_table
from graphormer_sepnorm.training.callbacks.checkpoints import best_checkpoint
from graphormer_sepnorm.training.steps import step_in_epoch


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
    """Shows epoch, time left, loss, validation metric, step and speed of the whole training.

    Lightning's bars are of an epoch each, and write a line for every one into a log file. Beside
    the metric stands its best value, where that decides which checkpoint is kept.

    Args:
        metric: Name of the metric to show.
    """

    def __init__(self, metric: str) -> None:
        super().__init__()
        self.metric = metric
        self._line: StatusLine | None = None
        self._enabled = True
        self._started = 0.0
        self._first_step = 0
        self._graphs = 0
        self._epoch = 0
        self._loss = math.nan

    def disable(self) -> None:
        """Show nothing (all processes but the first)."""
        self._enabled = False

    def enable(self) -> None:
        """Show again."""
        self._enabled = True

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Start the clock."""
        self._line = StatusLine() if self._enabled else None
        self._started, self._first_step = time.monotonic(), trainer.global_step
        self._graphs = 0

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Refresh the line at the end of an optimizer step."""
        self._graphs += batch.num_graphs * trainer.world_size  # all have as many, but for one
        self._epoch = trainer.current_epoch + 1
        if step_in_epoch(trainer, batch_idx) is not None and self._line and self._line.is_due():
            # Reading the loss waits for the device, so only when it is shown. Of several processes
            # each knows its share; to ask the others, all would have to show at the same step.
            self._loss = float(pl_module.step_loss) * trainer.world_size
            self._line.show(self._text(trainer))

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Leave the last state standing."""
        if self._line:
            self._line.show(self._text(trainer))
            self._line.leave()

    def on_exception(self, *_: Any) -> None:
        """Leave the line so that a message starts on a new one."""
        if self._line:
            self._line.leave()

    def _text(self, trainer: Trainer) -> str:
        """First what is wanted most: a narrow terminal shows no more."""
        seconds = max(1e-9, time.monotonic() - self._started)
        total, step = trainer.estimated_stepping_batches, trainer.global_step
        epochs = f"/{trainer.max_epochs}" if (trainer.max_epochs or -1) > 0 else ""
        parts = [f"epoch {self._epoch}{epochs}"]
        if math.isfinite(total) and total > step > self._first_step:
            left = (total - step) * seconds / (step - self._first_step)
            parts.append(f"{clock(left)} left")
        keeper, name = best_checkpoint(trainer), f"validation_{self.metric}"
        decides = keeper is not None and keeper.monitor == name
        for label, value in (
            ("loss", self._loss),
            (f"validation {METRICS[self.metric].label}", trainer.callback_metrics.get(name)),
            ("best", keeper.best_model_score if keeper is not None and decides else None),
        ):
            if value is not None and not math.isnan(value):
                parts.append(f"{label} {four_digits(float(value))}")
        parts += [f"step {step:,}/{total:,}", f"{self._graphs / seconds:,.0f} graphs/s"]
        return " · ".join(parts)
