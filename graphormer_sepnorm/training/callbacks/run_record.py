"""What a run was made with, where and how fast; ``run.json`` in its directory."""

from __future__ import annotations

import math
import platform
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer

from graphormer_sepnorm.inference.checkpoint import package_versions
from graphormer_sepnorm.kernels.library import library
from graphormer_sepnorm.model.summary import count_parameters
from graphormer_sepnorm.process import cores, processor
from graphormer_sepnorm.runs.directory import Record, RunDirectory, Session
from graphormer_sepnorm.training.callbacks.checkpoints import best_checkpoint


class RunRecord(Callback):
    """Writes ``run.json``: data, task, size, and each session with its machine and time.

    A run that was resumed has several sessions. One that was killed has no ``ended``; its step and
    time are those of its last checkpoint.

    Args:
        run: Its directory.
        command: What started this session, as a list of words.
    """

    def __init__(self, run: RunDirectory, command: list[str]) -> None:
        self._run = run
        self._command = command
        self._started = time.perf_counter()
        self._record: Record | None = None

    @property
    def seconds(self) -> float:
        """Wall-clock time of all sessions, start-up and evaluation included."""
        if self._record:
            self._note_time()
        # A run that was finished when it was resumed has no new session.
        record = self._record or self._run.record()
        return record.seconds if record else 0.0

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Begin a session."""
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        splits = data.splits
        earlier = self._run.record()
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
            selected_on=getattr(best_checkpoint(trainer), "monitor", None),
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
        self._end(trainer, "trained")

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        """Note why the session ended."""
        interrupted = isinstance(exception, KeyboardInterrupt)
        self._end(trainer, "interrupted" if interrupted else f"failed: {exception}")

    def _end(self, trainer: Trainer, how: str) -> None:
        if self._record:
            session = self._record.sessions[-1]
            session.ended, session.end = _now(), how
            self._write(trainer)

    def _note_time(self) -> None:
        assert self._record is not None
        self._record.sessions[-1].seconds = round(time.perf_counter() - self._started, 1)

    def _write(self, trainer: Trainer) -> None:
        if self._record is None or trainer.state.fn != "fit" or not trainer.is_global_zero:
            return
        self._note_time()
        self._record.sessions[-1].to_step = trainer.global_step
        self._run.write_record(self._record)


class Throughput(Callback):
    """Measures training time, validation not counted.

    Attributes:
        graphs: Training graphs that this process has seen, before a resume too.
        seconds: Time that training them took.
    """

    def __init__(self) -> None:
        self.graphs = 0
        self.seconds = 0.0
        self._since: float | None = None

    @property
    def graphs_per_second(self) -> float:
        """Training graphs per second; nan before the first step."""
        return self.graphs / self.seconds if self.seconds else math.nan

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
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
        self.graphs += batch.num_graphs
        self._since = now

    def on_validation_start(self, trainer: Trainer, pl_module: Any) -> None:
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
    described = "describe --always --abbrev=40 --exclude=* --dirty=+changes"
    try:
        # Installed somewhere below another repository, the code is not of that one.
        for words in (f"ls-files --error-unmatch {file.name}", described):
            said = subprocess.run(
                ["git", *words.split()],
                cwd=file.parent,
                capture_output=True,
                check=True,
                timeout=10,
            ).stdout.decode()
        return said.strip()
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
