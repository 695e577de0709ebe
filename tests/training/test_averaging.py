"""The average of the weights is what is validated, saved and predicted with."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from tiny_graphs import StopAfter

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.inference.checkpoint import TRAINED_WEIGHTS, read_checkpoint
from graphormer_sepnorm.training.averaging import AveragedWeights, measure_batch_norm
from graphormer_sepnorm.training.checkpoints import LastCheckpoint, checkpoint_callbacks
from graphormer_sepnorm.training.module import GraphormerModule


class History(Callback):
    """Records the weights after every optimizer step, and those that are validated."""

    def __init__(self) -> None:
        self.start: dict[str, torch.Tensor] = {}
        self.trained: list[dict[str, torch.Tensor]] = []
        self.validated: list[dict[str, torch.Tensor]] = []

    def on_train_start(self, trainer: Trainer, module: Any) -> None:
        self.start = clone(module)

    def on_train_batch_end(self, trainer: Trainer, module: Any, *_: Any) -> None:
        if len(self.trained) < trainer.global_step:
            self.trained.append(clone(module))

    def on_validation_batch_start(self, trainer: Trainer, module: Any, *_: Any) -> None:
        self.validated.append(clone(module))


def clone(module: GraphormerModule) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in module.model.named_parameters()}


def literal_average(
    start: dict[str, torch.Tensor], steps: list[dict[str, torch.Tensor]], decay: float
) -> dict[str, torch.Tensor]:
    average = {name: value.double() for name, value in start.items()}
    for number, weights in enumerate(steps, start=1):
        kept = min(decay, (1 + number) / (10 + number))
        average = {
            name: kept * value + (1 - kept) * weights[name].double()
            for name, value in average.items()
        }
    return average


@pytest.mark.parametrize("accumulated", [1, 2])
def test_average_follows_its_formula_and_is_validated(accumulated: int, train: Callable) -> None:
    history = History()
    options = {"max_epochs": 3, "accumulate_grad_batches": accumulated}
    module, _, _ = train(AveragedWeights(0.5), history, model={"dropout": 0.1}, **options)
    steps = {1: 15, 2: 9}[accumulated]
    assert len(history.trained) == steps
    for epoch, validated in enumerate(history.validated[::2], start=1):
        expected = literal_average(history.start, history.trained[: steps // 3 * epoch], 0.5)
        for name, value in validated.items():
            torch.testing.assert_close(value.double(), expected[name], rtol=1e-5, atol=1e-6)
    # Training goes on with the weights themselves, and leaves them.
    for name, value in clone(module).items():
        assert torch.equal(value, history.trained[-1][name])


def test_training_is_the_same_with_and_without(train: Callable, losses: Callable) -> None:
    recorders = []
    for callbacks in ([], [AveragedWeights(0.9)]):
        recorders.append(losses())
        train(*callbacks, recorders[-1], model={"norm": "bn+bn", "dropout": 0.2}, max_epochs=3)
    assert recorders[0].values == recorders[1].values


@pytest.mark.parametrize("norm", ["bn+ln", "shared-ln"])
def test_what_is_validated_is_what_is_saved_and_tested(
    norm: str, tmp_path: Path, train: Callable, make_module: Callable, make_trainer: Callable
) -> None:
    callbacks = [AveragedWeights(0.8), *checkpoint_callbacks(tmp_path, "mae", 0)]
    module, data, trainer = train(*callbacks, model={"norm": norm}, max_epochs=3)
    best = tmp_path / "checkpoints" / "best.ckpt"
    reported = float(trainer.checkpoint_callback.best_model_score)
    options = {"ckpt_path": best, "verbose": False, "weights_only": True}
    here = trainer.test(module, data, **options)
    assert here == make_trainer().test(make_module(norm=norm), data, **options)
    again = trainer.validate(make_module(norm=norm), data, **options)
    assert again[0]["validation_mae"] == pytest.approx(reported, rel=1e-6)
    # The weights that training goes on with are others, and give another error.
    checkpoint = read_checkpoint(best)
    raw = GraphormerModule.load_from_checkpoint(best)
    raw.load_state_dict(checkpoint[TRAINED_WEIGHTS])
    other = make_trainer().validate(raw, data, verbose=False)[0]["validation_mae"]
    assert other != pytest.approx(reported, rel=1e-3)


class Interrupt(Callback):
    """Presses Ctrl-C in the middle of the second validation."""

    def on_validation_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_step == 10:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("options", "callbacks"),
    [
        ({"limit_val_batches": 0}, []),
        ({"max_epochs": -1, "max_steps": 7}, []),  # the last validation was two steps ago
        ({}, [StopAfter(3)]),  # before the first validation
    ],
)
def test_statistics_in_a_checkpoint_belong_to_the_average_in_it(
    options: dict[str, int], callbacks: list[Callback], tmp_path: Path, train: Callable
) -> None:
    last = LastCheckpoint(tmp_path / "last.ckpt")
    _, data, _ = train(AveragedWeights(0.8), *callbacks, last, **options)
    model = GraphormerModule.load_from_checkpoint(last.path).model
    stored = {name: value.clone() for name, value in model.state_dict().items()}
    measure_batch_norm(model, data.statistics_batches(2048))
    torch.testing.assert_close(dict(model.state_dict()), stored)


def test_interruption_of_a_validation_does_not_swap_the_weights(tmp_path, train: Callable) -> None:
    history, last = History(), LastCheckpoint(tmp_path / "last.ckpt")
    _, _, trainer = train(AveragedWeights(0.8), history, Interrupt(), last, max_epochs=3)
    assert trainer.interrupted
    saved = read_checkpoint(tmp_path / "last.ckpt")
    for name, value in history.trained[9].items():
        assert torch.equal(saved[TRAINED_WEIGHTS][f"model.{name}"], value)


def test_statistics_must_be_measured(train: Callable) -> None:
    with pytest.raises(ConfigError, match=r"--ema_decay needs --model\.precise_bn_graphs"):
        train(AveragedWeights(0.9), model={"norm": "bn+ln", "precise_bn_graphs": 0})
