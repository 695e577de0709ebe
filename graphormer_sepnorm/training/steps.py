"""Where a batch stands: callbacks act between optimiser steps, and all processes alike."""

from __future__ import annotations

import math
from typing import Any

from lightning.pytorch import Trainer

from graphormer_sepnorm.metrics import Kind

# Several processes ask each other at the first step of an epoch and at every n-th after it: asking
# makes a GPU wait.
_ASK_EVERY = 16
# Molecules that a network sees while it is fine-tuned, each as often as there are epochs.
_SHOWN: dict[Kind, int] = {"regression": 120_000, "binary": 24_000}


def step_in_epoch(trainer: Trainer, batch_idx: int) -> int | None:
    """Return which optimiser step of the epoch a batch has ended, from 0; None if it ended none."""
    accumulated = trainer.accumulate_grad_batches
    if (batch_idx + 1) % accumulated and not trainer.is_last_batch:
        return None
    return batch_idx // accumulated


def goes_on_exactly(trainer: Trainer, batch_idx: int) -> bool:
    """Whether training goes on exactly from a checkpoint of the step that a batch has ended.

    Not if a validation follows it, at the end of training, of the epoch, or with
    ``val_check_interval`` inside: whoever goes on from there never makes it. Where each step is
    such a one there is no better.
    """
    accumulated = trainer.accumulate_grad_batches
    every = trainer.val_check_batch or math.inf
    if trainer.should_stop:
        return False
    if trainer.num_training_batches <= accumulated:
        return True
    if trainer.check_val_every_n_epoch is None:  # batches are counted through all epochs
        batch_idx = trainer.fit_loop.total_batch_idx
    due = (batch_idx + 1) % every == 0 and accumulated % every != 0
    return not (trainer.is_last_batch or due)


def any_process(trainer: Trainer, wish: bool, step: int) -> bool:
    """Whether a process has a wish: all processes act on it at the same step, or none.

    Args:
        trainer: The trainer of this process.
        wish: Whether this process has it; one that is not granted has to be wished again.
        step: Step of the epoch, from `step_in_epoch`.
    """
    if trainer.world_size == 1:
        return wish
    return step % _ASK_EVERY == 0 and trainer.strategy.reduce_boolean_decision(wish, all=False)


def epochs_of_table(molecules: int, kind: Kind) -> int:
    """Return how many epochs a network is fine-tuned for where nothing says it.

    As many as show it 120,000 molecules, of a classification 24,000, but 12 to 40: classes are soon
    known by heart, numbers are not, and large tables take time. By validation errors alone, see
    docs/experiments/small-tables.md.

    Args:
        molecules: That it is trained on.
        kind: Of the targets.
    """
    return min(40, max(12, round(_SHOWN[kind] / molecules)))


def settled_epochs(trainer: Any, data: Any) -> int | None:
    """Return the epochs that are trained for: as the options say, else as the table decides.

    Args:
        trainer: Options of Lightning's trainer.
        data: The data module.
    """
    open_ended = trainer.max_epochs is None and trainer.max_steps == -1
    if open_ended and data.splits.groups is not None:
        return epochs_of_table(data.numbers.trained_on, data.splits.task.kind)
    return trainer.max_epochs


def planned_steps(trainer: Any, batches: int, epochs: int | None) -> int:
    """Return the optimiser steps of a whole run, as Lightning counts them.

    Args:
        trainer: Options of Lightning's trainer.
        batches: In an epoch.
        epochs: What `settled_epochs` gives.
    """
    limit = trainer.limit_train_batches
    if limit is not None:
        # A number of batches, or a share of them; 2 may have been read as 2.0.
        count = isinstance(limit, int) or limit > 1
        batches = min(batches, int(limit)) if count else int(batches * limit)
    limits = [trainer.max_steps] if trainer.max_steps >= 0 else []
    # Lightning's own default, where neither is given.
    epochs = 1000 if epochs is None and not limits else epochs
    if epochs is not None and epochs >= 0:
        limits.append(-(-batches // trainer.accumulate_grad_batches) * epochs)
    return min(limits, default=0)
