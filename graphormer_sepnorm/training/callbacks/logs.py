"""``metrics.csv``, continued where a resumed run left it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.utilities import rank_zero_only

from graphormer_sepnorm.files import replacing
from graphormer_sepnorm.runs.directory import RunDirectory
from graphormer_sepnorm.training.optimizer import rate_of_step
from graphormer_sepnorm.training.steps import step_in_epoch


class MetricsFile(CSVLogger):
    """``metrics.csv`` of a run: Lightning's, written at each call, in the run directory itself.

    Args:
        directory: The run directory. Rows of an earlier session stay until `keep`.

    Attributes:
        rows: How many the file has.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, name="", version="", flush_logs_every_n_steps=1)
        self._file = RunDirectory(directory).metrics_file
        self._earlier = self._file.read_bytes().splitlines(True) if self._file.is_file() else []
        self.rows = 0
        with warnings.catch_warnings(action="ignore"):
            _ = self.experiment  # it takes an earlier file away, and warns of it
        self.keep(len(self._earlier))

    def log_hyperparams(self, *arguments: Any, **options: Any) -> None:
        """Do nothing: config.yaml has them."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Add a row."""
        super().log_metrics(dict(metrics), step)
        self.rows += 1

    @rank_zero_only
    def keep(self, rows: int) -> None:
        """Keep the first `rows` rows of an earlier session; what follows is logged again."""
        kept = self._earlier[: 1 + rows] if rows else []
        self.rows = max(0, len(kept) - 1)
        self.experiment.metrics_keys = kept[0].decode().strip().split(",") if kept else []
        if kept:
            with replacing(self._file) as partial:
                partial.write_bytes(b"".join(kept))
        else:
            self._file.unlink(missing_ok=True)


class LogTraining(Callback):
    """Logs the training loss and the learning rate: of every n-th step, and the mean of the epoch.

    Lightning would do so after the callbacks, that is, after a checkpoint of the same step: then a
    run that goes on from it would lack the row. Checkpoints keep how many rows belong before them.

    Args:
        file: ``metrics.csv``; None: there is none.
    """

    def __init__(self, file: MetricsFile | None = None) -> None:
        self._file = file

    def state_dict(self) -> dict[str, int]:
        """Return the number of rows so far."""
        return {"rows": self._file.rows if self._file else 0}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Take away the rows after the checkpoint."""
        if self._file:
            self._file.keep(state_dict["rows"])

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log a step, as often as the trainer's log_every_n_steps says."""
        every = trainer.log_every_n_steps  # type: ignore[attr-defined]
        accumulating = step_in_epoch(trainer, batch_idx) is None
        if accumulating or not every or trainer.global_step % every:
            return
        loss: Any = trainer.strategy.reduce(pl_module.step_loss.clone(), reduce_op="sum")
        schedule: Any = trainer.lr_scheduler_configs[0].scheduler
        rate = rate_of_step(schedule)
        self._log(trainer, {"train_loss_step": float(loss), "learning_rate": rate})

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Log the mean loss of the epoch."""
        loss = trainer.callback_metrics.get("train_loss_epoch")
        if loss is not None:
            self._log(trainer, {"train_loss_epoch": float(loss)})

    def _log(self, trainer: Trainer, values: dict[str, float]) -> None:
        row = {"epoch": trainer.current_epoch, **values}
        for logger in trainer.loggers:
            logger.log_metrics(row, step=trainer.global_step - 1)  # counted as Lightning does
