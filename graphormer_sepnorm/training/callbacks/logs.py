"""``metrics.csv``, continued where a resumed run left it."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only

from graphormer_sepnorm.files import replacing
from graphormer_sepnorm.runs.directory import RunDirectory
from graphormer_sepnorm.training.optimizer import rate_of_step
from graphormer_sepnorm.training.steps import step_in_epoch


class MetricsFile(Logger):
    """``metrics.csv``: a row for each call, a column for each name, in alphabetical order.

    Unlike Lightning's `CSVLogger` it can be continued by a resumed run, loses no row when a process
    is killed, and is never half a file.

    Args:
        directory: The run directory.

    Attributes:
        rows: How many the file has.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._path = RunDirectory(directory).metrics_file
        self._columns: list[str] = []
        self.rows = 0

    @property
    def name(self) -> str:
        """Nothing: the file lies in the run directory itself."""
        return ""

    @property
    def version(self) -> str:
        """Nothing, as `name`."""
        return ""

    @property
    def save_dir(self) -> str:
        """The run directory; Lightning's log directory where this logger is the first."""
        return str(self._path.parent)

    def log_hyperparams(self, params: Any, *arguments: Any, **options: Any) -> None:
        """Do nothing: config.yaml has them."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Add a row."""
        row = {**metrics, "step": step}
        if not row.keys() <= {*self._columns}:
            earlier, columns = self._read()
            self._write(earlier, sorted({*columns, *row}))
        with self._path.open("a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, self._columns).writerow(row)
        self.rows += 1

    @rank_zero_only
    def keep(self, rows: int) -> None:
        """Keep the first `rows` rows of the file; what follows is logged again."""
        if self._path.is_file():
            kept, columns = self._read()
            self._write(kept[:rows], columns)

    @rank_zero_only
    def begin_again(self) -> None:
        """Take the file of an earlier attempt away."""
        self._path.unlink(missing_ok=True)

    def _read(self) -> tuple[list[dict[str, Any]], list[str]]:
        if not self._path.is_file():
            return [], []
        with self._path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            return list(reader), list(reader.fieldnames or [])

    def _write(self, rows: list[dict[str, Any]], columns: list[str]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with (
            replacing(self._path) as partial,
            partial.open("w", newline="", encoding="utf-8") as file,
        ):
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)
        self._columns, self.rows = columns, len(rows)


class Board(TensorBoardLogger):
    """TensorBoard's logs of a run, without Lightning's copy of the options in ``hparams.yaml``.

    Args:
        directory: The run directory; the logs lie in ``tensorboard/`` in it.
        purge_step: From where on earlier logs are not shown; 0 shows all.
    """

    def __init__(self, directory: Path, purge_step: int) -> None:
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


class ContinueMetrics(Callback):
    """Keeps in each checkpoint how many rows of ``metrics.csv`` belong before it.

    Args:
        logger: The file.
    """

    def __init__(self, logger: MetricsFile) -> None:
        self._logger = logger

    def state_dict(self) -> dict[str, int]:
        """Return the number of rows so far."""
        return {"rows": self._logger.rows}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Take away the rows after the checkpoint."""
        self._logger.keep(state_dict["rows"])
