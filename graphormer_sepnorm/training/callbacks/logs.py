"""``metrics.csv``, continued where a resumed run left it."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

from lightning.fabric.loggers.csv_logs import _ExperimentWriter
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only

from graphormer_sepnorm.files import replacing
from graphormer_sepnorm.runs.directory import RunDirectory
from graphormer_sepnorm.training.steps import step_in_epoch


class _ContinuedWriter(_ExperimentWriter):
    """Lightning's writer, but it keeps the file that is there and never leaves half of it."""

    def __init__(self, log_dir: str) -> None:
        super().__init__(log_dir)
        self.rows = 0

    def _check_log_dir_exists(self) -> None:
        """Do nothing: Lightning would remove the file of the run that is continued."""

    def log_metrics(self, metrics_dict: dict[str, float], step: int | None = None) -> None:
        """Add a row."""
        super().log_metrics(metrics_dict, step)
        self.rows += 1

    def _rewrite_with_new_header(self, fieldnames: list[str]) -> None:
        with open(self.metrics_file_path, newline="", encoding="utf-8") as file:
            self._write(list(csv.DictReader(file)), fieldnames)

    def keep(self, rows: int) -> None:
        """Keep the first `rows` rows of the file; what follows is logged again."""
        self.rows, self.metrics, self.metrics_keys = 0, [], []
        path = Path(self.metrics_file_path)
        if not path.is_file():
            return
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            kept = [row for _, row in zip(range(rows), reader, strict=False)]
            self.metrics_keys = list(reader.fieldnames or [])
        self.rows = len(kept)
        self._write(kept, self.metrics_keys)

    def _write(self, rows: list[dict[str, Any]], fieldnames: list[str]) -> None:
        path = Path(self.metrics_file_path)
        with replacing(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=fieldnames)
            writer.writeheader()
            writer.writerows(rows)


class MetricsFile(CSVLogger):
    """Lightning's CSV logger that can be continued.

    Args:
        directory: The run directory; the file is ``metrics.csv`` in it.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, name="", version="")

    @property
    def writer(self) -> _ContinuedWriter:
        """What writes the file."""
        if self._experiment is None:
            os.makedirs(self.root_dir, exist_ok=True)
            self._experiment = _ContinuedWriter(log_dir=self.log_dir)
        assert isinstance(self._experiment, _ContinuedWriter)
        return self._experiment

    def begin_again(self) -> None:
        """Take the file of an earlier attempt away; the first process does, whose file it is."""
        if rank_zero_only.rank == 0:
            RunDirectory(Path(self.root_dir)).metrics_file.unlink(missing_ok=True)

    @property
    def experiment(self) -> Any:
        """The same, under the name that Lightning uses."""
        return self.writer

    def log_hyperparams(self, *arguments: Any, **options: Any) -> None:
        """Do nothing: config.yaml has them."""


class Board(TensorBoardLogger):
    """TensorBoard's logs of a run, without Lightning's copy of the options in ``hparams.yaml``.

    Args:
        directory: The run directory; the logs lie in ``tensorboard/`` in it.
        purge_step: From where on earlier logs are not shown; 0 shows all.
    """

    def __init__(self, directory: Path, purge_step: int = 0) -> None:
        super().__init__(
            directory,
            name="",
            version=RunDirectory(directory).tensorboard.name,
            purge_step=purge_step or None,
            default_hp_metric=False,
        )

    @rank_zero_only
    def save(self) -> None:
        """Write what there is, and no second config.yaml."""
        self.experiment.flush()


class LogTraining(Callback):
    """Logs the training loss and the learning rate: of every n-th step, and the mean of the epoch.

    Lightning would do so after the callbacks, that is, after a checkpoint of the same step: then a
    run that goes on from it would lack the row.
    """

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log a step, as often as the trainer's log_every_n_steps says."""
        every = trainer.log_every_n_steps  # type: ignore[attr-defined]
        accumulating = step_in_epoch(trainer, batch_idx) is None
        if accumulating or not every or trainer.global_step % every:
            return
        own: Any = pl_module.step_loss
        loss = trainer.strategy.reduce(own.clone(), reduce_op="sum")
        rate = trainer.optimizers[0].param_groups[0]["lr"]
        self._log(trainer, {"train_loss_step": float(loss), "learning_rate": rate})

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the mean loss of the epoch."""
        loss = trainer.callback_metrics.get("train_loss_epoch")
        if loss is not None:
            self._log(trainer, {"train_loss_epoch": float(loss)})

    def _log(self, trainer: Trainer, values: dict[str, float]) -> None:
        row = {"epoch": trainer.current_epoch, **values}
        for logger in trainer.loggers:
            logger.log_metrics(row, step=trainer.global_step - 1)  # counted as Lightning does


class ContinueMetrics(Callback):
    """Keeps in each checkpoint how many rows of ``metrics.csv`` belong before it.

    Args:
        logger: The file.
    """

    def __init__(self, logger: MetricsFile) -> None:
        self._logger = logger

    def state_dict(self) -> dict[str, int]:
        """Write the rows so far to disk and return their number."""
        self._logger.save()
        return {"rows": self._logger.writer.rows}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Take away the rows after the checkpoint; the first process does, whose file it is."""
        if rank_zero_only.rank == 0:
            self._logger.writer.keep(state_dict["rows"])
