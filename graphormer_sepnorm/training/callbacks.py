"""What a training writes and shows: ``metrics.csv``, ``run.json``, one line."""

from __future__ import annotations

import csv
import math
import platform
import subprocess
import time
import warnings
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.utilities import rank_zero_only

from graphormer_sepnorm.files import replacing
from graphormer_sepnorm.formatting import StatusLine, clock, four_digits
from graphormer_sepnorm.inference.checkpoint import package_versions
from graphormer_sepnorm.kernels.library import library
from graphormer_sepnorm.metrics import METRICS
from graphormer_sepnorm.model.graphormer import count_parameters
from graphormer_sepnorm.process import cores, processor
from graphormer_sepnorm.runs.directory import Record, RunDirectory, Session
from graphormer_sepnorm.training.checkpoints import step_in_epoch
from graphormer_sepnorm.training.optimizer import rate_of_step


class MetricsFile(CSVLogger):
    """``metrics.csv`` of a run: Lightning's, written at each call, in the run directory itself.

    Rows of an earlier session stay until `keep`; the file has `rows` of them.
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
        stored = self._earlier[: 1 + rows] if rows else []
        self.rows = max(0, len(stored) - 1)
        self.experiment.metrics_keys = next(csv.reader(line.decode() for line in stored[:1]), [])
        if stored:
            with replacing(self._file) as partial:
                partial.write_bytes(b"".join(stored))
        else:
            self._file.unlink(missing_ok=True)


class LogTraining(Callback):
    """Logs the training loss and the learning rate: of every n-th step, and the mean of the epoch.

    Lightning would do so after the checkpoint of the same step, which has the number of its rows.
    """

    def __init__(self, file: MetricsFile) -> None:
        self._file = file

    def state_dict(self) -> dict[str, int]:
        """Return the number of rows so far."""
        return {"rows": self._file.rows}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Take away the rows after the checkpoint."""
        self._file.keep(state_dict["rows"])

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        """Log a step, as often as the trainer's log_every_n_steps says."""
        every = trainer.log_every_n_steps  # type: ignore[attr-defined]
        if step_in_epoch(trainer) is None or not every or trainer.global_step % every:
            return
        loss: Any = trainer.strategy.reduce(pl_module.step_loss.clone(), reduce_op="sum")
        self._log(trainer, {"train_loss_step": float(loss), "learning_rate": rate_of_step(trainer)})

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Log the mean loss of the epoch."""
        loss = trainer.callback_metrics.get("train_loss_epoch")
        if loss is not None:
            self._log(trainer, {"train_loss_epoch": float(loss)})

    def _log(self, trainer: Trainer, values: dict[str, float]) -> None:
        row = {"epoch": trainer.current_epoch, **values}
        for logger in trainer.loggers:
            logger.log_metrics(row, step=trainer.global_step - 1)  # counted as Lightning does


@rank_zero_only
def print_data_and_model(trainer: Trainer, module: Any) -> None:
    """Print what is trained on what."""
    splits = trainer.datamodule.splits  # type: ignore[attr-defined]
    sizes = " / ".join(f"{len(part):,}" for part in splits.parts.values())
    left_out = len(splits.report.invalid) if splits.report else 0
    others = f", {left_out:,} row{'s' if left_out > 1 else ''} left out" if left_out else ""
    print(f"data   {splits.name}: {sizes} molecules (train / validation / test){others}")
    norm, parameters = module.model.config.norm, f"{count_parameters(module.model):,} parameters"
    print(f"model  {norm}, {parameters}, on {module.device}\n", flush=True)


class TrainingProgress(Callback):
    """Shows epoch, time left, loss, validation metric, step and speed of the whole training.

    Next to the metric stands its best value, where that decides which checkpoint is the best.
    """

    def __init__(self, metric: str) -> None:
        self.metric = metric
        self._line: StatusLine | None = None
        self._started, self._first_step, self._epoch, self._graphs = 0.0, 0, 0, 0
        self._loss = math.nan

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Start the clock."""
        self._line = StatusLine() if trainer.is_global_zero else None
        self._started, self._first_step, self._graphs = time.monotonic(), trainer.global_step, 0

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Refresh the line at the end of an optimizer step."""
        self._graphs += graphs_in(batch) * trainer.world_size  # all have as many, but for one
        self._epoch = trainer.current_epoch + 1
        if step_in_epoch(trainer) is not None and self._line and self._line.is_due():
            # Reading the loss waits for the device. Of several processes each knows its share; to
            # ask the others, all would have to show at the same step.
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
        best: Any = trainer.checkpoint_callback
        name = f"validation_{self.metric}"
        values = {
            "loss": self._loss,
            f"validation {METRICS[self.metric].label}": trainer.callback_metrics.get(name),
            "best": best.best_model_score if best is not None and best.monitor == name else None,
        }
        known = {k: float(v) for k, v in values.items() if v is not None and not math.isnan(v)}
        parts += [f"{label} {four_digits(value)}" for label, value in known.items()]
        parts += [f"step {step:,}/{total:,}", f"{self._graphs / seconds:,.0f} graphs/s"]
        return " · ".join(parts)


class RunRecord(Callback):
    """Writes ``run.json``: data, task, size, and each session with its machine and time."""

    def __init__(self, run: RunDirectory, command: list[str]) -> None:
        self._run = run
        self._command = command
        self._started = time.perf_counter()
        self._record: Record | None = None

    @property
    def seconds(self) -> float:
        """Wall-clock time of all sessions, start-up and evaluation included."""
        if self._record:
            self._record.sessions[-1].seconds = round(time.perf_counter() - self._started, 1)
        # A run that was finished when it was resumed has no new session.
        record = self._record or self._run.record()
        return record.seconds if record else 0.0

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Begin a session."""
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        splits, earlier = data.splits, self._run.record()
        task, steps = pl_module.task, trainer.estimated_stepping_batches
        session = Session(
            started=_now(),
            from_step=trainer.global_step,
            command=self._command,
            commit=_commit(),
            python=platform.python_version(),
            packages=package_versions(),
            machine=_machine(trainer, pl_module),
        )
        self._record = Record(
            dataset=splits.name,
            dataset_fingerprint=splits.fingerprint,
            feature_version=splits.feature_version,
            molecules={name: len(data.indices(name)) for name in splits.parts},
            split=splits.report.split if splits.report else None,
            data_note=splits.note,
            metric=task.metric,
            unit=task.unit_of(task.main),
            selected_on=getattr(trainer.checkpoint_callback, "monitor", None),
            parameters=count_parameters(pl_module.model),
            planned_steps=int(steps) if math.isfinite(steps) else None,
            seed=pl_module.hparams["seed"],
            sessions=[*(earlier.sessions if earlier else []), session],
        )
        self._write(trainer)

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: Any, checkpoint: dict[str, Any]
    ) -> None:
        """Note how far the session has come, and that an earlier end is none any more."""
        self._write(trainer)
        if self._record and trainer.state.fn == "fit" and trainer.is_global_zero:
            self._run.summary_file.unlink(missing_ok=True)

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Note that training is done."""
        self._write(trainer, "trained")

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        """Note why the session ended."""
        interrupted = isinstance(exception, KeyboardInterrupt)
        self._write(trainer, "interrupted" if interrupted else f"failed: {exception}")

    def _write(self, trainer: Trainer, end: str | None = None) -> None:
        if self._record is None:
            return
        session = self._record.sessions[-1]
        if end is not None:
            session.ended, session.end = _now(), end
        if trainer.state.fn == "fit" and trainer.is_global_zero:
            session.seconds = round(time.perf_counter() - self._started, 1)
            session.to_step = trainer.global_step
            self._run.write_record(self._record)


def graphs_in(batch: Any) -> int:
    """Number of graphs of a batch; those of captured steps are the indices of their graphs."""
    return len(batch) if isinstance(batch, np.ndarray) else batch.num_graphs


class Throughput(Callback):
    """Measures training time, validation not counted, and the graphs of this process."""

    def __init__(self) -> None:
        self.graphs = 0
        self.seconds = 0.0
        self._since: float | None = None

    @property
    def graphs_per_second(self) -> float:
        """Training graphs per second; nan before the first step."""
        return self.graphs / self.seconds if self.seconds else math.nan

    def on_train_batch_start(self, *_: Any) -> None:
        """Start the clock after a pause."""
        if self._since is None:
            self._since = time.perf_counter()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count a batch, together with the time in which it was loaded."""
        now = time.perf_counter()
        if self._since is not None:
            self.seconds += now - self._since
        self.graphs += graphs_in(batch)
        self._since = now

    def on_validation_start(self, *_: Any) -> None:
        """Stop the clock."""
        self._since = None

    def state_dict(self) -> dict[str, float]:
        """Keep the measurement of a run that is resumed."""
        return {"graphs": self.graphs, "seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, float]) -> None:
        """Continue it."""
        self.graphs, self.seconds = int(state_dict["graphs"]), state_dict["seconds"]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _commit() -> str | None:
    """The commit of this code, with ``+changes`` if files differ from it; None: it has none."""
    file = Path(__file__)
    describe = "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+changes"
    how: Any = {"cwd": file.parent, "capture_output": True, "check": True, "timeout": 10}
    try:
        # Installed somewhere below another repository, the code is not of that one.
        subprocess.run(["git", "ls-files", "--error-unmatch", file.name], **how)
        return subprocess.run(["git", *describe], **how).stdout.decode().strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _machine(trainer: Trainer, module: Any) -> dict[str, Any]:
    on_gpu = module.device.type == "cuda"
    return {
        "system": platform.platform(),
        "processor": processor(),
        "cores": cores(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(module.device) if on_gpu else module.device.type,
        "processes": trainer.world_size,
        "precision": str(trainer.precision),
        "compiled_kernels": not on_gpu and library() is not None,
    }
