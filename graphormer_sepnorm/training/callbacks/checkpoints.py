"""Which states of training are kept: the best by the validation, and the last."""

from __future__ import annotations

import logging
import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint, Timer

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.formatting import listed
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.metrics import LAST, METRICS, Metric, chosen_metric
from graphormer_sepnorm.runs.directory import BEST, PREVIOUS, RunDirectory
from graphormer_sepnorm.training.callbacks.stopping import StopAtOnce
from graphormer_sepnorm.training.steps import any_process, goes_on_exactly, step_in_epoch

log = logging.getLogger(__name__)

# An epoch's end need not be kept where the state of so many seconds ago is.
_SECONDS_BETWEEN_EPOCHS = 60.0


def monitored_metric(
    task: Task, validation_targets: np.ndarray, chosen: str | None = None, patience: int = 0
) -> Metric:
    """Return what decides which checkpoint is the best.

    If nothing is chosen, the main metric, unless it is a mean of errors of several targets, or one
    that no target's labels define (its nan would be beaten by nothing, and the first epoch would
    stay the best): then the loss, which is of standardised values or of probabilities.

    Args:
        task: What is predicted.
        validation_targets: Labels of the validation split, ``[n, T]``; nan = missing.
        chosen: Name of a metric, or ``loss``, or ``last``.
        patience: See `checkpoint_callbacks`.

    Raises:
        ConfigError: What is chosen does not exist, or is not defined for these targets, or cannot
            stop early.
    """
    loss = METRICS["loss"]
    metric = task.main if chosen is None else chosen_metric(chosen, task.kind)
    if metric is LAST and patience:
        raise ConfigError(
            "--metric last takes the end of training, whatever it is, and nothing can say when to "
            "stop early: leave out --early_stopping, or choose a metric or loss"
        )
    if metric in (loss, LAST):
        return metric
    undefined = not any(map(metric.is_defined, validation_targets.T))
    if chosen is None:
        return loss if undefined or (metric.in_unit and len(task.targets) > 1) else metric
    if not task.has_mean(metric):
        units = listed(sorted({unit or "none" for unit in task.units}))
        raise ConfigError(
            f"--metric {chosen}: the targets have several units ({units}), in which it has no "
            "mean: choose one without a unit, or loss"
        )
    if undefined:
        raise ConfigError(
            f"--metric {chosen} is undefined on the validation split: no target has "
            f"{metric.lacking} there; choose another one, or loss"
        )
    return metric


def undefined_targets(task: Task, targets: np.ndarray, metric: Metric) -> list[str]:
    """Return the targets whose labels do not define a metric.

    Not those that lack any label, where others have one and that is all the metric needs.

    Args:
        task: What is predicted.
        targets: Labels of a split, ``[n, T]``; nan = missing.
        metric: Which.
    """
    found = [
        name
        for name, labels in zip(task.targets, targets.T, strict=True)
        if not metric.is_defined(labels)
    ]
    return found if metric.needs_contrast or len(found) == len(task.targets) else []


def checkpoint_callbacks(
    run_directory: Path, metric: str, patience: int, minutes: float = 10.0
) -> list[Callback]:
    """Return the callbacks that keep the best and the last checkpoint and stop early.

    Args:
        run_directory: Checkpoints go to ``checkpoints/`` in it.
        metric: Name of what decides on the validation split, see `monitored_metric`.
        patience: Validations without improvement after which training stops; 0 never stops.
        minutes: Time between two checkpoints, see `LastCheckpoint`.
    """
    decides = METRICS[metric]
    monitor, mode = decides.column, "max" if decides.higher_is_better else "min"
    run = RunDirectory(run_directory)
    callbacks: list[Callback] = [
        BestCheckpoint(
            dirpath=run.checkpoints,
            filename=run.best.stem,
            monitor=monitor,
            mode=mode,
            # Fixed names: a run directory then needs no index to find its best checkpoint.
            enable_version_counter=False,
            # At once after the validation: a Ctrl-C at the end of the epoch must not lose it.
            save_on_train_epoch_end=False,
        ),
        LastCheckpoint(run.last, minutes),
    ]
    if patience > 0:
        callbacks.append(
            # A metric that is undefined once is no improvement; Lightning would stop there.
            StopEarly(
                monitor,
                mode=mode,
                patience=patience,
                min_delta=0.0,
                check_finite=False,
                # And not at the end of an epoch: that of a run that is made longer comes again,
                # without a validation.
                check_on_train_epoch_end=False,
            )
        )
    return callbacks


class BestCheckpoint(ModelCheckpoint):
    """Keeps the checkpoint with the best validation metric, also of a run that was moved.

    There Lightning would forget the earlier best, and call the next validation the best.
    """

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from the best checkpoint of the run that is resumed."""
        if state_dict["dirpath"] != self.dirpath:
            own = Path(str(self.dirpath)) / BEST
            if not own.is_file():
                return  # none was written yet, or it is gone: nothing is there to be beaten
            path = str(own)
            state_dict = {
                **state_dict,
                "dirpath": self.dirpath,
                "best_model_path": path,
                "kth_best_model_path": path,
                "best_k_models": {path: state_dict["best_model_score"]},
            }
        super().load_state_dict(state_dict)


def best_checkpoint(trainer: Trainer) -> BestCheckpoint | None:
    """Return what keeps the best checkpoint; a callback of the user's may keep others too."""
    return next((one for one in trainer.callbacks if isinstance(one, BestCheckpoint)), None)  # type: ignore[attr-defined]


class StopEarly(EarlyStopping):
    """Stops when the validation metric no longer improves, also across runs.

    Lightning would train a run that it has stopped for another epoch when it is resumed, and take
    the patience from the checkpoint.
    """

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue counting, with the patience of this run."""
        super().load_state_dict({**state_dict, "patience": self.patience})

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Train no further where it was stopped before."""
        if self.wait_count >= self.patience:
            trainer.should_stop = True
            log.warning(
                "this run was stopped early, after %d validations without improvement: only a "
                "larger --early_stopping, or 0, lets it go on",
                self.wait_count,
            )


class LastCheckpoint(Callback):
    """Keeps the newest state of training, and the one before it.

    Saved after an epoch (and one step more) unless it was within the last minute, every few
    minutes, at the end, and when training is interrupted. So epochs of a second on a fast machine
    do not write a thousand files.

    Args:
        path: File that is overwritten (the new one is complete before the old one goes).
        minutes: Time between two checkpoints inside an epoch, and between those after epochs if it
            is less than a minute.

    Attributes:
        saved_step: Optimiser steps taken when it was last saved; -1 before.
    """

    def __init__(self, path: Path, minutes: float = 10.0) -> None:
        self.path = path
        self._seconds = 60 * minutes
        self.saved_step = -1
        self._saved_at = time.monotonic()
        self._validated = False

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Start the clock."""
        self.saved_step = trainer.global_step
        self._saved_at = time.monotonic()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save if it is time to, at the end of an optimiser step."""
        step = step_in_epoch(trainer, batch_idx)
        if step is None or not goes_on_exactly(trainer, batch_idx):
            return  # gradients that are being accumulated are in no checkpoint
        # An epoch is saved after the first step of the next one, when validation, early stopping
        # and logging are done with it: from there Lightning goes on exactly.
        first = step == 0 and trainer.current_epoch > 0
        enough = min(self._seconds, _SECONDS_BETWEEN_EPOCHS) if first else self._seconds
        # Clocks differ: one process decides for all of them.
        if any_process(trainer, time.monotonic() - self._saved_at >= enough, step):
            self._save(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Note what the saved state does not know."""
        self._validated = True

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Save at the end, which may lie in the middle of an epoch."""
        self._save(trainer, again=self._validated)

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        """Save what there is when training is interrupted."""
        if isinstance(exception, KeyboardInterrupt) and not isinstance(exception, StopAtOnce):
            self._save(trainer)

    def _save(self, trainer: Trainer, again: bool = False) -> None:
        started = trainer.global_step > 0 and trainer.state.fn == "fit"
        if not started or (trainer.global_step == self.saved_step and not again):
            return
        if trainer.is_global_zero and self.path.is_file():
            self._keep_previous()
        trainer.save_checkpoint(self.path)
        self.saved_step = trainer.global_step
        self._saved_at = time.monotonic()
        self._validated = False

    def _keep_previous(self) -> None:
        """Give the file a second name, so that it is there under one of them at any moment."""
        previous, link = self.path.with_name(PREVIOUS), self.path.with_name(f".{PREVIOUS}.link")
        link.unlink(missing_ok=True)
        try:
            os.link(self.path, link)
        except OSError:  # a file system without links
            shutil.copyfile(self.path, link)
        os.replace(link, previous)


class ValidateAtTheEnd(Callback):
    """Ends a run with a validation, wherever max_steps or the last epoch lies.

    Lightning would stop without one in the middle of an epoch, and after one that is not among
    every ``check_val_every_n_epoch``: a short run would have no best checkpoint, and a long one
    would never look at its last weights, which are often the best.
    """

    def __init__(self) -> None:
        self._every: int | None = None

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Ask for the stop one moment earlier, in the way that includes a validation."""
        done = trainer.max_steps != -1 and trainer.global_step >= trainer.max_steps
        done |= trainer.is_last_batch and trainer.current_epoch + 1 == trainer.max_epochs
        if trainer.world_size == 1:  # several have several clocks: the timer asks one of them
            timers = (one for one in trainer.callbacks if isinstance(one, Timer))  # type: ignore[attr-defined]
            left = [timer.time_remaining() for timer in timers]
            done |= any(seconds is not None and seconds <= 0 for seconds in left)
        if done:
            # With it Lightning validates also between two of every `val_check_interval` batches.
            trainer.should_stop = True
        if trainer.should_stop and trainer.check_val_every_n_epoch is not None:
            self._every = self._every or trainer.check_val_every_n_epoch
            trainer.check_val_every_n_epoch = 1  # this is asked next, before the epoch ends

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Leave the trainer as it was: it may train for longer."""
        if self._every is not None:
            trainer.check_val_every_n_epoch, self._every = self._every, None
