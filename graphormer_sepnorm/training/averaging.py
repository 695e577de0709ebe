"""The weights that are evaluated: their moving average, and BatchNorm's statistics for them.

The running averages that BatchNorm keeps in training lag behind weights that change, hold the
variance that dropout adds, and belong to other weights where an average of weights is evaluated.
"Precise BatchNorm" (Wu & Johnson 2021, Rethinking "Batch" in BatchNorm, section 3) measures them
again on training data instead, with the weights as they are. They can also be fixed for the last
part of training (section 4, "FrozenBN"), which then sees the function that is evaluated.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch import Callback, Trainer
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.graphs.batch import GraphBatch
from graphormer_sepnorm.inference.checkpoint import TRAINED_WEIGHTS
from graphormer_sepnorm.model.graphormer import Graphormer
from graphormer_sepnorm.model.norms import MaskedBatchNorm

if TYPE_CHECKING:
    from graphormer_sepnorm.training.module import GraphormerModule


def batch_norms(model: torch.nn.Module) -> list[MaskedBatchNorm]:
    """Return the BatchNorms of a model; empty where every norm is a LayerNorm."""
    return [module for module in model.modules() if isinstance(module, MaskedBatchNorm)]


@torch.no_grad()
def measure_batch_norm(model: Graphormer, batches: Iterable[GraphBatch]) -> None:
    """Set the running statistics of every BatchNorm to those of the model as it is evaluated.

    The mean over the batches, which are of about equal size, of their means and of their unbiased
    variances, each layer fed by normalized layers before it, without dropout; those that are fixed
    are measured too. Under several processes each gives its share of every batch, as in training.
    """
    norms = batch_norms(model)
    if not norms:
        return
    was_training = model.training
    before = [(norm.momentum, norm.fixed, norm.num_batches_tracked.clone()) for norm in norms]
    model.eval()
    for norm in norms:  # they alone take the statistics of their batch
        norm.train()
        norm.fixed = False
    try:
        for count, batch in enumerate(batches, start=1):
            for norm in norms:
                norm.momentum = 1 / count  # the running average becomes the mean of all so far
                if count == 1:  # of which nothing is left, but 0 times nan is nan
                    norm.running_mean.nan_to_num_(0.0, 0.0, 0.0)
                    norm.running_var.nan_to_num_(1.0, 1.0, 1.0)
            model(batch)
    finally:
        for norm, (momentum, fixed, tracked) in zip(norms, before, strict=True):
            norm.momentum, norm.fixed = momentum, fixed
            norm.num_batches_tracked.copy_(tracked)  # training batches, not these
        model.train(was_training)


class AveragedWeights(Callback):
    """Keeps ``average ← d · average + (1 - d) · weights``, taken after every optimizer step.

    Lightning's own callback keeps its average on the CPU while the model is on a GPU, and gives no
    chance to measure BatchNorm's statistics for the average.

    Validation, the best checkpoint and thereby test and prediction use the average, with BatchNorm
    statistics measured for it, or those of the weights where training has fixed them. Training
    continues with the weights themselves; checkpoints hold both, so that a run can be resumed.
    Early on d is smaller, ``(1 + t) / (10 + t)`` after t steps, so that the initial weights are
    soon forgotten.

    Args:
        decay: d, above 0 and below 1. The average reaches back about 1 / (1 - d) steps.

    Attributes:
        pairs: The averaged parameters and the parameters, once training has started.

    Raises:
        ConfigError: The model has BatchNorms whose statistics are not measured
            (``precise_bn_graphs`` 0): those that training keeps are of other weights.
    """

    def __init__(self, decay: float) -> None:
        self._decay = decay
        self._steps = 0
        # Its BatchNorm statistics are those of the last validation, or constants.
        self._average: Graphormer | None = None
        self._has_statistics = self._measured = False
        self._in_use = False  # in the place of the network, which is here meanwhile
        self.pairs: tuple[list[Tensor], list[Tensor]] = ([], [])

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Begin with the weights as they are, unless a checkpoint gave an average."""
        model = pl_module.model
        if batch_norms(model) and not pl_module.hparams["precise_bn_graphs"]:
            raise ConfigError(
                "--ema_decay needs --model.precise_bn_graphs: BatchNorm's statistics have to be "
                "measured for the averaged weights"
            )
        average = self._average
        if average is None:
            average = copy.deepcopy(model).eval()
            self._has_statistics = not batch_norms(model)
        self._average = average.to(pl_module.device)
        self._steps = self._steps or trainer.global_step
        self.pairs = list(average.parameters()), list(model.parameters())

    @torch.no_grad()
    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Take in the weights after an optimizer step."""
        if trainer.global_step == self._steps:
            return  # gradients are being accumulated
        self.took(trainer.global_step)
        get_ema_multi_avg_fn(self.decay_at(self._steps))(*self.pairs, self._steps)

    def decay_at(self, step: int) -> float:
        """Share of the average that stays when the weights after `step` steps enter it."""
        return min(self._decay, (1 + step) / (10 + step))

    def took(self, step: int) -> None:
        """Note that the weights after `step` steps, and all before, are in the average."""
        self._steps = step
        self._measured = False

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Validate the average."""
        if self._average is not None and trainer.state.fn == "fit":
            self._take_constants(pl_module)
            self._exchange(pl_module)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Continue with the weights; the average keeps the statistics measured for it."""
        if self._in_use:
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
        if self._in_use:
            self._exchange(pl_module)

    @torch.no_grad()
    def _take_constants(self, module: GraphormerModule) -> None:
        """Give the average the statistics of the weights, once they are fixed."""
        if module.statistics_fixed and self._average is not None:
            for own, theirs in zip(self._average.buffers(), module.model.buffers(), strict=True):
                own.copy_(theirs)

    def _exchange(self, module: GraphormerModule) -> None:
        assert self._average is not None
        module.model, self._average = self._average, module.model
        self._in_use = not self._in_use

    def state_dict(self) -> dict[str, int]:
        """Count the steps in the average."""
        return {"steps": self._steps}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Continue counting."""
        self._steps = state_dict["steps"]
        self._has_statistics = True  # what is saved has them

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: Any, checkpoint: dict[str, Any]
    ) -> None:
        """Save the average as the weights of the model, and the weights next to it."""
        if self._average is None:
            return
        self._take_constants(pl_module)
        if not self._has_statistics:  # before the first validation
            self._measure(pl_module)
        used = checkpoint["state_dict"]
        other = {f"model.{name}": value for name, value in self._average.state_dict().items()}
        checkpoint["state_dict"], checkpoint[TRAINED_WEIGHTS] = used | other, dict(used)

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: Any, checkpoint: dict[str, Any]
    ) -> None:
        """Continue with both, in training; a checkpoint without an average begins one."""
        if trainer.state.fn == "fit" and TRAINED_WEIGHTS in checkpoint:
            self._average = copy.deepcopy(pl_module.model).eval()
            pl_module.load_state_dict(checkpoint[TRAINED_WEIGHTS])
