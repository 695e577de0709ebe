"""Training that diverges stops at once, and nothing of it is saved."""

from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from tiny_graphs import Noted

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.inference.checkpoint import read_checkpoint
from graphormer_sepnorm.training.checkpoints import LastCheckpoint, StopWhenDiverged


class Poison(Callback):
    """Makes the loss of one step infinite or nan."""

    def __init__(self, step: int, value: float) -> None:
        self.step = step
        self.value = value

    def on_train_batch_start(self, trainer: Trainer, module: Any, *_: Any) -> None:
        if trainer.global_step == self.step:
            torch.nn.init.constant_(module.model.readout.bias, self.value)


class PoisonGradient(Callback):
    """Makes a gradient nan, of a loss that is a number."""

    def on_before_optimizer_step(self, trainer: Trainer, module: Any, *_: Any) -> None:
        if trainer.global_step == 7:
            module.model.readout.bias.grad.fill_(float("nan"))


@pytest.mark.parametrize(
    "poison", [Poison(7, float("nan")), Poison(7, float("inf")), PoisonGradient()]
)
def test_step_and_rate_are_named_and_nothing_is_saved(poison, tmp_path, train):
    following = Noted(lambda trainer, _: trainer.optimizers[0].param_groups[0]["lr"])
    last = LastCheckpoint(tmp_path / "last.ckpt", minutes=0)
    with pytest.raises(ConfigError) as caught:
        train(poison, following, StopWhenDiverged(), last)
    assert f"diverged at step 8 (epoch 2, learning rate {following.values[6]:.3g})" in str(
        caught.value
    )
    assert "--model.learning_rate 0.0015" in str(caught.value)
    # The newest checkpoint is from before.
    checkpoint = read_checkpoint(tmp_path / "last.ckpt")
    assert checkpoint["global_step"] == 7
    floats = [one for one in checkpoint["state_dict"].values() if one.is_floating_point()]
    assert all(one.isfinite().all() for one in floats)
