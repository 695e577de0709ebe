"""Training whose loss is no longer a number is stopped, and what it met is kept."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, Trainer
from torch import Tensor

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.files import write_json
from graphormer_sepnorm.process import resuming
from graphormer_sepnorm.runs.directory import RunDirectory
from graphormer_sepnorm.training.optimizer import rate_of_step
from graphormer_sepnorm.training.steps import step_in_epoch

# Looking at a loss makes a GPU, or the other processes, wait for it; so it is done for several.
_LOOK_EVERY = 16


@dataclass(frozen=True)
class _Step:
    """An optimiser step whose loss has not been looked at yet."""

    step: int
    epoch: int
    batch: int
    learning_rate: float


class StopWhenDiverged(Callback):
    """Ends a training whose loss or weights are not finite, before a checkpoint can hold them.

    Args:
        directory: The run directory. ``diverged.json`` is written there: the step, its learning
            rate and the molecules of its batch. None writes nothing.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._steps: list[_Step] = []
        self._losses: list[Tensor] = []
        self._last: _Step | None = None

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Note the loss of a step; look at it soon."""
        if step_in_epoch(trainer, batch_idx) is None:
            return
        schedule: Any = trainer.lr_scheduler_configs[0].scheduler
        # Of several steps, where they are launched together; this is the last of them.
        losses = outputs["losses"].unbind() if "losses" in outputs else (pl_module.step_loss,)
        for place, loss in enumerate(losses, start=1 - len(losses)):
            step, rate = trainer.global_step + place, rate_of_step(schedule, -place)
            self._steps.append(_Step(step, trainer.current_epoch, batch_idx + place, rate))
            self._losses.append(loss)
        at_once = trainer.world_size == 1 and pl_module.device.type == "cpu"
        if at_once or len(self._losses) >= _LOOK_EVERY * len(losses):
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
        if self._last and not torch.stack(finite).all():
            raise ConfigError(self._advice(self._last, "weights are nan", trainer, pl_module))

    def _look(self, trainer: Trainer, module: Any) -> None:
        """Look at the losses noted since the last time.

        Raises:
            ConfigError: One is not finite.
        """
        if not self._losses:
            return
        noted = torch.stack([loss.to(module.device) for loss in self._losses])
        losses = trainer.strategy.reduce(noted, reduce_op="sum").tolist()  # type: ignore[union-attr]
        steps, self._steps, self._losses = self._steps, [], []
        self._last = steps[-1]
        for step, loss in zip(steps, losses, strict=True):
            if not math.isfinite(loss):
                raise ConfigError(self._advice(step, f"the loss is {loss}", trainer, module))

    def _advice(self, at: _Step, found: str, trainer: Trainer, module: Any) -> str:
        what = (
            f"training diverged at step {at.step:,} (epoch {at.epoch + 1}, learning rate "
            f"{at.learning_rate:.3g}): {found}"
        )
        if self._directory is None:
            return f"{what}; lower --model.learning_rate or clip gradients"
        path = RunDirectory(self._directory).diverged_file
        if trainer.is_global_zero:
            record = {**asdict(at), "found": found, "molecules": _molecules(at, trainer)}
            write_json(path, record)
        lower = f"--model.learning_rate {module.hparams['learning_rate'] / 2:g}"
        if RunDirectory(self._directory.parent.parent).members == self._directory.parent:
            return f"{what}; its batch is in {path}; train another ensemble with {lower}"
        return f"{what}; its batch is in {path}; go on with {resuming(self._directory)} {lower}"


def _molecules(at: _Step, trainer: Trainer) -> list[dict[str, Any]]:
    """The training molecules of a step, of all processes."""
    data: Any = trainer.datamodule  # type: ignore[attr-defined]
    loader: Any = trainer.train_dataloader
    batches = list(loader.batch_sampler.batches)
    first = at.batch - at.batch % trainer.accumulate_grad_batches
    numbers = [number for batch in batches[first : at.batch + 1] for number in batch]
    smiles = data.splits.smiles_of(numbers)
    atoms = data.store.num_atoms(np.array(numbers))
    return [
        {
            "number": number,  # in the three splits behind each other, from 0
            "smiles": text or None,
            "atoms": int(count),
            "targets": data.store.targets[number].tolist(),
        }
        for number, text, count in zip(numbers, smiles, atoms, strict=True)
    ]
