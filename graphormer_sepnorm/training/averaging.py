"""The weights that are evaluated: their moving average, and BatchNorm's statistics for them.

The running averages that BatchNorm keeps in training lag behind weights that change, hold the
variance that dropout adds, and belong to other weights where an average of weights is evaluated.
"Precise BatchNorm" (Wu & Johnson 2021, Rethinking "Batch" in BatchNorm, section 3) measures them
anew on training data instead, with the weights as they are.

They can also be fixed for the last part of training (ibid., section 4, "FrozenBN"), which then
sees the function that is evaluated. Until then the mean of the graph tokens, say of 128 graphs, is
off by about 1 / sqrt(128) of their standard deviation in every batch, right before the readout.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch import Callback, Trainer
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.graphs.batch import GraphBatch
from graphormer_sepnorm.model.graphormer import Graphormer
from graphormer_sepnorm.model.norms import MaskedBatchNorm

if TYPE_CHECKING:
    from graphormer_sepnorm.training.module import GraphormerModule

# Where a checkpoint has the weights that training continues with, if those of the model are an
# average.
TRAINED_WEIGHTS = "trained_weights"


def batch_norms(model: torch.nn.Module) -> list[MaskedBatchNorm]:
    """Return the BatchNorms of a model; empty where every norm is a LayerNorm."""
    return [module for module in model.modules() if isinstance(module, MaskedBatchNorm)]


def fix_batch_norm(model: torch.nn.Module, fixed: bool) -> None:
    """Make the running statistics of every BatchNorm constants in training too, or no longer."""
    for norm in batch_norms(model):
        norm.fixed = fixed


@torch.no_grad()
def measure_batch_norm(model: Graphormer, batches: Iterable[GraphBatch]) -> None:
    """Set the running statistics of every BatchNorm to those of the model as it is evaluated.

    The mean over the batches of their means and of their unbiased variances, each layer fed by
    normalised layers before it, without dropout. Under several processes each gives its share of
    every batch, as in training.

    Args:
        model: The network, on the device of the batches; its mode is the same afterwards.
        batches: Training batches, of about equal size; without any nothing is changed.
    """
    norms = batch_norms(model)
    if not norms:
        return
    was_training = model.training
    before = [(norm.momentum, norm.num_batches_tracked.clone()) for norm in norms]
    model.eval()
    for norm in norms:  # they alone take the statistics of their batch
        norm.train()
    try:
        for count, batch in enumerate(batches, start=1):
            for norm in norms:
                norm.momentum = 1 / count  # the running average becomes the mean of all so far
                if count == 1:  # of which nothing is left, but 0 times nan is nan
                    norm.running_mean.nan_to_num_(0.0, 0.0, 0.0)
                    norm.running_var.nan_to_num_(1.0, 1.0, 1.0)
            model(batch)
    finally:
        for norm, (momentum, tracked) in zip(norms, before, strict=True):
            norm.momentum = momentum
            norm.num_batches_tracked.copy_(tracked)  # training batches, not these
        model.train(was_training)


class AveragedWeights(Callback):
    """Keeps ``average ← d · average + (1 - d) · weights``, taken after every optimizer step.

    Lightning's own callback keeps its average on the CPU while the model is on a GPU, gives no
    chance to measure BatchNorm's statistics for the average, and ends by overwriting what a later
    run would have to go on from.

    Validation, the best checkpoint and thereby test and prediction use the average, with BatchNorm
    statistics measured for it, or those of the weights where training has fixed them. Training goes
    on with the weights themselves; checkpoints hold both, so that a run can be resumed. Early on d
    is smaller, ``(1 + t) / (10 + t)`` after t steps, so that the initial weights are soon
    forgotten.

    Args:
        decay: d, above 0 and below 1. The average reaches back about 1 / (1 - d) steps.

    Attributes:
        pairs: The averaged parameters and the parameters, once training has started.

    Raises:
        ConfigError: The decay is out of range, or the model has BatchNorms whose statistics are
            not measured (``precise_bn_graphs`` 0): those that training keeps are of other weights.
    """

    def __init__(self, decay: float) -> None:
        if not 0 < decay < 1:
            raise ConfigError(f"--ema_decay is {decay}: it must be above 0 and below 1")
        self._decay = decay
        self._steps = 0
        # Parameters and buffers of the network. Its buffers are those of the last validation, or
        # constants (`_take_constants`).
        self._average: dict[str, Tensor] = {}
        self._has_statistics = False
        self.pairs: tuple[list[Tensor], list[Tensor]] = ([], [])
        self._exchanged = False
        self._measured = False

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Begin with the weights as they are, unless a checkpoint gave an average."""
        model = pl_module.model
        if batch_norms(model) and not pl_module.hparams["precise_bn_graphs"]:
            raise ConfigError(
                "--ema_decay needs --model.precise_bn_graphs: BatchNorm's statistics have to be "
                "measured for the averaged weights"
            )
        if not self._average:
            self._average = {name: value.clone() for name, value in model.state_dict().items()}
            self._has_statistics = not batch_norms(model)
        self._average = {name: value.to(pl_module.device) for name, value in self._average.items()}
        self._steps = self._steps or trainer.global_step
        parameters = dict(model.named_parameters())
        self.pairs = [self._average[name] for name in parameters], list(parameters.values())

    @torch.no_grad()
    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Take in the weights after an optimizer step."""
        if trainer.global_step == self._steps:
            return  # gradients are being accumulated
        self.took(trainer.global_step)
        get_ema_multi_avg_fn(self.decay_at(self._steps))(*self.pairs, self._steps)

    def decay_at(self, step: int) -> float:
        """Share of the average that is kept when the weights after `step` steps enter it."""
        return min(self._decay, (1 + step) / (10 + step))

    def took(self, step: int) -> None:
        """Note that the weights after `step` steps, and all before, are in the average."""
        self._steps = step
        self._measured = False

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Put the average in the place of the weights."""
        if self._average and trainer.state.fn == "fit":
            self._take_constants(pl_module)
            self._exchange(pl_module)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Put the weights back; the average keeps the statistics measured for it."""
        if self._exchanged:
            self._exchange(pl_module)
            self._measured = self._has_statistics = True

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Measure statistics for the average where no validation has done it."""
        if not self._measured:
            self._measure(pl_module)

    def _measure(self, module: GraphormerModule) -> None:
        self._take_constants(module)
        self._exchange(module)
        module.measure_batch_norm()
        self._exchange(module)
        self._measured = self._has_statistics = True

    def on_exception(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        """Put the weights back if training was interrupted in a validation."""
        if self._exchanged:
            self._exchange(pl_module)

    @torch.no_grad()
    def _take_constants(self, module: GraphormerModule) -> None:
        """Give the average the statistics of the weights, once they are fixed."""
        if module.statistics_fixed:
            for name, value in module.model.named_buffers():
                if name in self._average:  # others are the same in every model
                    self._average[name].copy_(value)

    @torch.no_grad()
    def _exchange(self, module: GraphormerModule) -> None:
        self._exchanged = not self._exchanged
        model = module.model
        for name, value in model.state_dict().items():
            kept = value.clone()
            value.copy_(self._average[name])
            self._average[name].copy_(kept)

    def state_dict(self) -> dict[str, int]:
        """Count the steps in the average."""
        return {"steps": self._steps}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Go on counting."""
        self._steps = state_dict["steps"]
        self._has_statistics = True  # what is saved has them

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: Any, checkpoint: dict[str, Any]
    ) -> None:
        """Save the average as the weights of the model, and the weights beside it."""
        if not self._average:
            return
        if not self._exchanged:
            self._take_constants(pl_module)
            if not self._has_statistics:  # before the first validation
                self._measure(pl_module)
        there = checkpoint["state_dict"]
        here = there | {f"model.{name}": value for name, value in self._average.items()}
        # In a validation, where a callback may save too, the two have changed places.
        average, weights = (there, here) if self._exchanged else (here, there)
        checkpoint["state_dict"], checkpoint[TRAINED_WEIGHTS] = average, dict(weights)

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: Any, checkpoint: dict[str, Any]
    ) -> None:
        """Go on with both, in training; a checkpoint without an average begins one."""
        if trainer.state.fn == "fit" and TRAINED_WEIGHTS in checkpoint:
            model = pl_module.model
            self._average = {name: value.clone() for name, value in model.state_dict().items()}
            pl_module.load_state_dict(checkpoint[TRAINED_WEIGHTS])
            pl_module.goes_on_from_average = False
