"""How often the last state is saved, and that a run goes on from it exactly."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Callback, Trainer
from tiny_graphs import Noted

from graphormer_sepnorm.training import checkpoints
from graphormer_sepnorm.training.checkpoints import LastCheckpoint, StopAtOnce


class Clock:
    """Stands for `time`; an epoch of five steps takes so many seconds."""

    def __init__(self, seconds_per_epoch: float) -> None:
        self.per_step = seconds_per_epoch / 5
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def tick(self, *_: Any) -> None:
        """Let the time of a step pass."""
        self.now += self.per_step


@pytest.fixture
def saved_steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Steps after which a checkpoint was written."""
    steps: list[int] = []
    save = Trainer.save_checkpoint

    def noted(trainer: Trainer, *arguments: Any, **options: Any) -> None:
        steps.append(trainer.global_step)
        save(trainer, *arguments, **options)

    monkeypatch.setattr(Trainer, "save_checkpoint", noted)
    return steps


@pytest.mark.parametrize(
    ("seconds_per_epoch", "minutes", "expected"),
    [
        (60.0, 10.0, [6, 11, 16, 20]),  # after the first step of each epoch, and at the end
        (25.0, 10.0, [16, 20]),  # the epoch that ends when a minute has passed
        (1.0, 10.0, [20]),
        (1.0, 0.0, list(range(1, 5)) + list(range(6, 10)) + [11, 12, 13, 14, 16, 17, 18, 19, 20]),
        (5.0, 0.05, [3, 6, 9, 12, 16, 19, 20]),  # three seconds, of a second a step
    ],
)
def test_short_epochs_do_not_write_a_checkpoint_each(
    seconds_per_epoch, minutes, expected, saved_steps, tmp_path, monkeypatch, train
):
    clock = Clock(seconds_per_epoch)
    monkeypatch.setattr(checkpoints, "time", clock)
    train(Noted(clock.tick), LastCheckpoint(tmp_path / "last.ckpt", minutes), max_epochs=4)
    assert saved_steps == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"val_check_interval": 2}, [1, 3, 6, 8, 10]),
        ({"val_check_interval": 3, "accumulate_grad_batches": 2}, [1, 2, 4, 5, 6]),
        ({"val_check_interval": 3, "check_val_every_n_epoch": None}, [1, 2, 4, 7, 8, 10]),
        ({"val_check_interval": 1}, [1, 2, 3, 4, 6, 7, 8, 9, 10]),  # no better one
    ],
)
def test_no_step_is_saved_that_a_validation_follows(
    options, expected, saved_steps, tmp_path, train
):
    train(LastCheckpoint(tmp_path / "last.ckpt", 0.0), max_epochs=2, **options)
    assert saved_steps == expected


def test_the_middle_of_a_step_is_not_saved(tmp_path: Path, train: Callable) -> None:
    class Stop(Callback):
        def on_before_optimizer_step(self, trainer: Trainer, *_: Any) -> None:
            if trainer.global_step == 3:
                raise StopAtOnce

    _, _, trainer = train(Stop(), LastCheckpoint(tmp_path / "last.ckpt"))
    assert trainer.interrupted
    assert not (tmp_path / "last.ckpt").exists()
