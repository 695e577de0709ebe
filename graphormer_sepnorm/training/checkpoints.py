"""Which states of training are saved and when it stops: always between two optimizer steps."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint, Timer

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.files import replacing
from graphormer_sepnorm.inference.checkpoint import write_checkpoint
from graphormer_sepnorm.metrics import METRICS
from graphormer_sepnorm.process import KILLED_BY_ITS_COMMAND, answered_by
from graphormer_sepnorm.runs.directory import BEST, PREVIOUS, RunDirectory
from graphormer_sepnorm.training.optimizer import rate_of_step

log = logging.getLogger(__name__)

# Several processes ask each other at the first step of an epoch and at every n-th after it, and
# losses are looked at as seldom: both make a GPU wait.
_ASK_EVERY = 16
# An epoch's end need not be saved where the state of so many seconds ago is.
_SECONDS_BETWEEN_EPOCHS = 60.0
ONE_REQUEST = 1.0  # seconds


def step_in_epoch(trainer: Trainer) -> int | None:
    """Return which step of the epoch, from 0, a batch that has just ended ended; None if none."""
    accumulated, batch_idx = trainer.accumulate_grad_batches, trainer.fit_loop.batch_idx
    if (batch_idx + 1) % accumulated and not trainer.is_last_batch:
        return None
    return batch_idx // accumulated


def is_exact_resume_point(trainer: Trainer) -> bool:
    """Whether training continues exactly from a checkpoint of the step that has just ended.

    Not if a validation follows it, which whoever continues from there would never make; where each
    step is such a one there is no better.
    """
    accumulated, every = trainer.accumulate_grad_batches, trainer.val_check_batch or math.inf
    if trainer.should_stop:
        return False
    if trainer.num_training_batches <= accumulated:
        return True
    loop, through_all_epochs = trainer.fit_loop, trainer.check_val_every_n_epoch is None
    batch_idx = loop.total_batch_idx if through_all_epochs else loop.batch_idx
    due = (batch_idx + 1) % every == 0 and accumulated % every != 0
    return not (trainer.is_last_batch or due)


def any_process(trainer: Trainer, wish: bool, step: int) -> bool:
    """Whether a process has a wish: all processes act on it at the same step (of the epoch).

    One that is not granted has to be wished again.
    """
    if trainer.world_size == 1:
        return wish
    return step % _ASK_EVERY == 0 and trainer.strategy.reduce_boolean_decision(wish, all=False)


class DurableCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint under another name, waits until it is on disk, then renames it.

    Lightning does not wait: after a power cut the new file can be empty and the old one gone.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None
    ) -> None:
        """Write the file; where that fails, the file that was there stays."""
        write_checkpoint(checkpoint, path)


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
    run, decides = RunDirectory(run_directory), METRICS[metric]
    by: Any = {"monitor": decides.column, "mode": "max" if decides.higher_is_better else "min"}
    best = BestCheckpoint(
        dirpath=run.checkpoints,
        filename=run.best.stem,
        **by,
        enable_version_counter=False,  # fixed names: no index is needed to find it
        # At once after the validation: a Ctrl-C at the end of the epoch must not lose it.
        save_on_train_epoch_end=False,
    )
    callbacks: list[Callback] = [best, LastCheckpoint(run.last, minutes)]
    if patience > 0:
        # A metric that is undefined once is no improvement; Lightning would stop there. Nor is it
        # asked at the end of an epoch: that of a run that is made longer comes again, without a
        # validation.
        options: Any = {"check_finite": False, "check_on_train_epoch_end": False, "min_delta": 0.0}
        callbacks.append(StopEarly(**by, patience=patience, **options))
    return callbacks


class BestCheckpoint(ModelCheckpoint):
    """Keeps the checkpoint with the best validation metric, also of a run that was moved.

    Lightning would forget the earlier best there.
    """

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from the best checkpoint of the run that is resumed."""
        if state_dict["dirpath"] != self.dirpath:
            path = str(Path(str(self.dirpath)) / BEST)
            if not Path(path).is_file():
                return  # none was written yet, or it is gone: nothing is there to be beaten
            paths = dict.fromkeys(("best_model_path", "kth_best_model_path"), path)
            best = {path: state_dict["best_model_score"]}
            state_dict = {**state_dict, "dirpath": self.dirpath, **paths, "best_k_models": best}
        super().load_state_dict(state_dict)


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
    minutes, at the end, and when training is interrupted.

    Args:
        path: File that is overwritten (the new one is complete before the old one goes).
        minutes: Time between two checkpoints inside an epoch, and between those after epochs if it
            is less than a minute.

    Attributes:
        saved_step: Optimizer steps taken when it was last saved; -1 before.
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

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Save if it is time to, at the end of an optimizer step."""
        step = step_in_epoch(trainer)
        if step is None or not is_exact_resume_point(trainer):
            return  # gradients that are being accumulated are in no checkpoint
        # An epoch is saved after the first step of the next one, when validation, early stopping
        # and logging are done with it: from there Lightning continues exactly.
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
            with replacing(self.path.with_name(PREVIOUS)) as partial:
                shutil.copyfile(self.path, partial)
        trainer.save_checkpoint(self.path)
        self.saved_step = trainer.global_step
        self._saved_at = time.monotonic()
        self._validated = False


class ValidateAtTheEnd(Callback):
    """Ends a run with a validation, wherever max_steps or the last epoch lies.

    Lightning would stop without one in the middle of an epoch, and after one that is not among
    every ``check_val_every_n_epoch``; the last weights are often the best.
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


class StopAtOnce(KeyboardInterrupt):
    """A second Ctrl-C: training may be in the middle of a step, which is not to be saved."""


class StopBetweenSteps(Callback):
    """Lets `STOPS` take effect between two optimizer steps; a second one acts at once.

    In the middle of a step some parameters would be updated and others not, and a resumed run
    would not continue the same training. Where a validation follows a step, it and one more step
    come first; the last epoch ends training anyway.

    A batch system asks every process of a job, and the one that started this asks it once more: so
    requests within a second are one. A process that has been started by another one, which kills it
    where it is to end at once, takes all for one.
    """

    def __init__(self) -> None:
        self._asked_at: float | None = None
        self._stopping = False
        self._answering = contextlib.ExitStack()

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Take over the signals, which arrive in the main thread."""
        if threading.current_thread() is threading.main_thread():
            self._answering.enter_context(answered_by(self._ask))

    def _ask(self, *_: Any) -> None:
        if self._stopping:
            return  # what is being saved now, between two steps, is to be finished
        now = time.monotonic()
        if self._asked_at is None:
            self._asked_at = now
        elif now > self._asked_at + ONE_REQUEST and KILLED_BY_ITS_COMMAND not in os.environ:
            raise StopAtOnce

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Stop here if it was asked for."""
        step = step_in_epoch(trainer)
        if step is None or not is_exact_resume_point(trainer):
            return
        if any_process(trainer, self._asked_at is not None, step):
            self._stopping = True
            raise KeyboardInterrupt

    def on_train_end(self, *_: Any) -> None:
        """Give the signals back, after an error to a notebook that runs on."""
        self._answering.close()

    on_exception = on_train_end  # type: ignore[assignment]


class StopWhenDiverged(Callback):
    """Ends a training whose loss or weights are not finite, before a checkpoint can hold them."""

    def __init__(self) -> None:
        self._step = ""  # the newest, in words

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        """Look at the loss of a step, seldom where that makes a GPU or processes wait."""
        step = step_in_epoch(trainer)
        if step is None:
            return
        epoch, rate = trainer.current_epoch + 1, rate_of_step(trainer)
        self._step = f"step {trainer.global_step:,} (epoch {epoch}, learning rate {rate:.3g})"
        at_once = trainer.world_size == 1 and pl_module.device.type == "cpu"
        if at_once or step % _ASK_EVERY == 0:
            self._look(trainer, pl_module)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Look before the validation is believed."""
        self._look(trainer, pl_module)

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: Any, checkpoint: dict[str, Any]
    ) -> None:
        """Look before anything is saved, at the weights too: gradients may be nan, a loss not."""
        self._look(trainer, pl_module)
        finite = [parameter.isfinite().all() for parameter in pl_module.parameters()]
        if self._step and not torch.stack(finite).all():
            raise self._diverged("weights are not finite", pl_module)

    def _look(self, trainer: Trainer, module: Any) -> None:
        """What is not finite once stays so: the newest loss is enough."""
        if not self._step:
            return
        loss = trainer.strategy.reduce(module.step_loss.clone(), reduce_op="sum")
        if not math.isfinite(loss):
            raise self._diverged(f"the loss is {float(loss)}", module)

    def _diverged(self, found: str, module: Any) -> ConfigError:
        return ConfigError(
            f"training diverged at {self._step}: {found}; give a lower learning rate, "
            f"--model.learning_rate {module.hparams['learning_rate'] / 2:g}, or clip gradients"
        )
