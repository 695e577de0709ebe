"""Lightning's loop over an epoch, in launches instead of single steps.

A launch is several optimiser steps that follow each other, taken in one turn of the loop. A turn
costs the host about a millisecond, as much as a captured step takes on a fast GPU. So steps at
whose end nothing is to be done (logged, validated, saved) wait for the next one at whose end
something is, and are taken with it. Lightning and its callbacks are called once, for the last step
of the launch; by then all counters are what they would be had they been called for every step.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.loops.fetchers import _DataFetcher
from lightning.pytorch.loops.optimization.automatic import _AutomaticOptimization
from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop
from lightning.pytorch.trainer import call
from torch import Tensor
from torch.optim import Optimizer

from graphormer_sepnorm.graphs.resident import BatchShape


@dataclass(frozen=True)
class Launch:
    """The batches of the steps of a launch; Lightning hands it on in the place of a single batch.

    Attributes:
        graphs: Numbers of the graphs of all batches, one after the other, int64.
        shapes: Shape of each batch.
    """

    graphs: Tensor
    shapes: tuple[BatchShape, ...]

    @property
    def num_graphs(self) -> int:
        """Graphs of all batches."""
        return len(self.graphs)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Launch:
        """Return the launch with its tensor on `device`; the host does not wait for a GPU."""
        return replace(self, graphs=sent(self.graphs, device))


def sent(tensor: Tensor, device: torch.device | str) -> Tensor:
    """Return a tensor of the host on `device`, without waiting until a GPU is done with its work.

    From ordinary memory a copy would wait, whatever it is told.
    """
    if torch.device(device).type == "cuda" and not tensor.is_cuda:
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def steps_until_due(trainer: Trainer, most: int) -> int:
    """Steps of the next launch, 1 to `most`, of which only the last ends with something due.

    Due are the logging of every n-th step, a validation, the end of the epoch or of training, the
    checkpoint that `LastCheckpoint` writes after the first step of an epoch, and the moment in
    which `GraphormerModule` fixes BatchNorm's statistics.
    """
    loop = trainer.fit_loop.epoch_loop
    done = loop.batch_progress.current.ready
    if done == 0:
        return 1
    room = [most, int(trainer.num_training_batches) - done]
    if trainer.max_steps != -1:
        room.append(trainer.max_steps - trainer.global_step)
    module: Any = trainer.lightning_module
    until_fixed = module.fixed_from - trainer.global_step  # infinite if they are not to be fixed
    if 0 < until_fixed < most:
        room.append(int(until_fixed))
    every = trainer.log_every_n_steps  # type: ignore[attr-defined]
    if every:
        room.append(every - trainer.global_step % every)
    validation = trainer.val_check_batch  # type: ignore[attr-defined]
    if validation is not None and not math.isinf(validation):
        over_epochs = trainer.check_val_every_n_epoch is None
        seen = loop.batch_progress.total.ready if over_epochs else done
        room.append(int(validation) - seen % int(validation))
    return min(room)


class LaunchLoop(_TrainingEpochLoop):
    """Lightning's loop over an epoch, one launch a turn.

    Args:
        replaced: The loop whose place it takes.
        most: Steps of a launch at most.
        collate: Makes a launch of the numbers of the graphs of each batch.

    Attributes:
        launching: Whether it does so; otherwise it is the loop that it replaced.
    """

    def __init__(
        self,
        replaced: _TrainingEpochLoop,
        most: int,
        collate: Callable[[Sequence[np.ndarray]], Launch],
    ) -> None:
        super().__init__(replaced.trainer, replaced.min_steps, replaced.max_steps)
        vars(self).update(vars(replaced))  # the validation loop already knows its data
        self.automatic_optimization = _LaunchOptimisation(replaced.trainer)
        self.most = most
        self.collate = collate
        self.launching = True

    def advance(self, data_fetcher: _DataFetcher) -> None:
        """Take the steps of one launch; the last of them in Lightning's way."""
        fetcher = _Launches(self, data_fetcher) if self.launching else data_fetcher
        super().advance(fetcher)  # type: ignore[arg-type]


class _Launches:
    """Fetches as many batches as a launch has, in the place of one."""

    def __init__(self, loop: LaunchLoop, fetcher: _DataFetcher) -> None:
        self._loop = loop
        self._fetcher = fetcher

    @property
    def done(self) -> bool:
        return self._fetcher.done

    def __next__(self) -> tuple[Launch, int, int]:
        loop = self._loop
        steps = steps_until_due(loop.trainer, loop.most)
        launch = loop.collate([next(self._fetcher)[0] for _ in range(steps)])
        # Lightning counts the last one itself.
        loop.batch_progress.increment_by(steps - 1)
        loop._batches_that_stepped += steps - 1
        return launch, 0, 0


class _LaunchOptimisation(_AutomaticOptimization):
    """Takes the steps of a launch and counts them."""

    def run(self, optimizer: Optimizer, batch_idx: int, kwargs: OrderedDict) -> dict[str, Any]:
        if not isinstance(kwargs.get("batch"), Launch):
            return super().run(optimizer, batch_idx, kwargs)
        trainer = self.trainer
        losses = call._call_lightning_module_hook(trainer, "training_step", *kwargs.values())
        progress = self.optim_progress.optimizer
        progress.zero_grad.increment_by(len(losses))
        progress.step.increment_by(len(losses))
        for _ in losses[1:]:  # the loop does it for one
            trainer.fit_loop.epoch_loop.update_lr_schedulers(
                "step", update_plateau_schedulers=False
            )
        return {"loss": losses[-1], "losses": losses}
