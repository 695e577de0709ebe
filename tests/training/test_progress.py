"""What is said before and during a training."""

import re
from typing import Any

import pytest
from lightning.pytorch import Callback, Trainer

from graphormer_sepnorm import formatting
from graphormer_sepnorm.training.callbacks import TrainingProgress
from graphormer_sepnorm.training.checkpoints import checkpoint_callbacks, step_in_epoch


class StepLosses(Callback):
    """Notes the loss of every optimizer step, as the log files have it."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        if step_in_epoch(trainer) is not None:
            self.values.append(float(pl_module.step_loss))


@pytest.mark.parametrize("accumulated", [1, 3])
def test_the_loss_is_that_of_the_step(accumulated, train, monkeypatch, capsys) -> None:
    monkeypatch.setattr(formatting, "LOG_SECONDS", 0)
    noted = StepLosses()
    options = {"accumulate_grad_batches": accumulated, "enable_progress_bar": True}
    train(noted, TrainingProgress("mae"), model={"dropout": 0.0}, max_epochs=1, **options)
    lines = capsys.readouterr().err.splitlines()
    shown = [float(found[1]) for line in lines if (found := re.search(r" loss ([\d.]+)", line))]
    # A line for each step, and one at the end.
    assert len(noted.values) == -(-5 // accumulated)
    assert shown == [pytest.approx(value, abs=1e-4) for value in [*noted.values, noted.values[-1]]]


@pytest.mark.parametrize(("decides", "shown"), [("mae", True), ("loss", False), ("last", False)])
def test_a_best_value_is_shown_where_it_decides(decides, shown, train, capsys, tmp_path) -> None:
    keepers = checkpoint_callbacks(tmp_path, decides, patience=0)
    train(*keepers, TrainingProgress("mae"), max_epochs=2, enable_progress_bar=True)
    last = capsys.readouterr().err.splitlines()[-1]
    assert "validation MAE" in last
    assert ("best" in last) == shown
