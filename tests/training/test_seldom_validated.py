"""Training that validates every n-th epoch only: its end, its curve, its checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer

from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.inference.checkpoint import KEY, read_checkpoint
from graphormer_sepnorm.training.callbacks.averaging import AveragedWeights
from graphormer_sepnorm.training.callbacks.checkpoints import ValidateAtTheEnd, checkpoint_callbacks
from graphormer_sepnorm.training.callbacks.learning_curve import LearningCurve
from graphormer_sepnorm.training.module import GraphormerModule

MakeModule = Callable[..., GraphormerModule]
MakeData = Callable[..., MoleculeDataModule]
MakeTrainer = Callable[..., Trainer]


def parameters(module: GraphormerModule) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in module.model.state_dict().items()}


class Validations(Callback):
    """Records the steps after which there was a validation, and BatchNorm's measurements."""

    def __init__(self, module: GraphormerModule, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[int] = []
        self.measured: list[int] = []
        measure = module.measure_batch_norm

        def noted() -> None:
            self.measured.append(module.trainer.global_step)
            measure()

        monkeypatch.setattr(module, "measure_batch_norm", noted)

    def on_validation_end(self, trainer: Trainer, *_: Any) -> None:
        self.steps.append(trainer.global_step)


@pytest.mark.parametrize(
    ("every", "options", "steps"),
    [
        (2, {"max_epochs": 4}, [10, 20]),  # 5 steps are one epoch
        (2, {"max_epochs": 3}, [10, 15]),
        (9, {"max_epochs": 2}, [10]),
        (2, {"max_epochs": -1, "max_steps": 13}, [10, 13]),
        (9, {"max_epochs": -1, "max_steps": 10}, [10]),
        (9, {"max_epochs": 4, "max_steps": 5, "min_epochs": 2}, [5]),
    ],
)
@pytest.mark.parametrize("averaged", [False, True])
def test_a_run_that_validates_every_nth_epoch_validates_its_end(
    every: int,
    options: dict[str, int],
    steps: list[int],
    averaged: bool,
    tmp_path: Path,
    make_module: MakeModule,
    make_data: MakeData,
    make_trainer: MakeTrainer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = make_module(norm="bn+bn")
    curve, seen = LearningCurve(tmp_path / "curve.png", "mae"), Validations(module, monkeypatch)
    trainer = make_trainer(
        check_val_every_n_epoch=every,
        callbacks=[
            *([AveragedWeights(0.9)] if averaged else []),
            ValidateAtTheEnd(),
            seen,
            curve,
            *checkpoint_callbacks(tmp_path, "mae", 0),
        ],
        enable_checkpointing=True,
        **options,
    )
    trainer.fit(module, make_data())
    assert seen.steps == seen.measured == steps
    assert trainer.check_val_every_n_epoch == every
    # What the curve shows of an epoch is of that epoch.
    known = [point["step"] for point in curve.history if "validation_mae" in point]
    assert known == steps
    assert len(curve.history) == -(-steps[-1] // 5)
    last = read_checkpoint(tmp_path / "checkpoints" / "last.ckpt")
    assert last["global_step"] == steps[-1]
    newest = float(trainer.callback_metrics["validation_mae"])
    assert (
        last[KEY]["validation"]["validation_mae"] == newest == curve.history[-1]["validation_mae"]
    )
    assert read_checkpoint(tmp_path)["global_step"] in steps


def test_validations_do_not_touch_the_training(
    make_module: MakeModule, make_data: MakeData, make_trainer: MakeTrainer
) -> None:
    trained = []
    for every in (1, 3):
        module = make_module(norm="bn+bn", dropout=0.2)
        make_trainer(max_epochs=3, check_val_every_n_epoch=every).fit(module, make_data())
        trained.append([parameter.detach() for parameter in module.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*trained, strict=True))


class StopAfter(Callback):
    """Interrupts training after some steps, as Ctrl-C does."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_step == self.steps and not trainer.is_last_batch:
            raise KeyboardInterrupt

    def on_train_epoch_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_step == self.steps:
            raise KeyboardInterrupt


@pytest.mark.parametrize("stop", [7, 10, 12, 15])
def test_a_resumed_run_validates_every_nth_epoch_as_the_uninterrupted_one(
    stop: int,
    tmp_path: Path,
    make_module: MakeModule,
    make_data: MakeData,
    make_trainer: MakeTrainer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(folder: str, resume: Path | None, *more: Callback) -> tuple[dict, list, list, Any]:
        module = make_module(norm="bn+bn", dropout=0.2)
        curve = LearningCurve(tmp_path / f"{folder}.png", "mae")
        seen = Validations(module, monkeypatch)
        callbacks = [AveragedWeights(0.9), ValidateAtTheEnd(), seen, curve, *more]
        trainer = make_trainer(
            max_epochs=5,
            check_val_every_n_epoch=2,
            callbacks=[*callbacks, *checkpoint_callbacks(tmp_path / folder, "mae", 2)],
            enable_checkpointing=True,
        )
        try:
            trainer.fit(module, make_data(), ckpt_path=resume, weights_only=True)
        except SystemExit:
            assert trainer.interrupted
        stopping = trainer.early_stopping_callback
        return parameters(module), seen.steps, curve.history, stopping

    straight, steps, history, stopping = run("straight", None)
    _, early, _, _ = run("first", None, StopAfter(stop))
    last = tmp_path / "first" / "checkpoints" / "last.ckpt"
    resumed, late, whole, stopping_then = run("second", last)
    assert steps == [10, 20, 25] == early + late
    assert whole == history
    assert stopping_then.wait_count == stopping.wait_count
    assert all(torch.equal(straight[name], resumed[name]) for name in straight)
