"""What the progress line says."""

from __future__ import annotations

import re
from typing import Any

import pytest
from lightning.pytorch import Callback, Trainer

from graphormer_sepnorm.training.callbacks import progress
from graphormer_sepnorm.training.callbacks.progress import TrainingProgress
from graphormer_sepnorm.training.steps import step_in_epoch


class StepLosses(Callback):
    """Notes the loss of every optimiser step, as the log files have it."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if step_in_epoch(trainer, batch_idx) is not None:
            self.values.append(float(pl_module.step_loss))


@pytest.mark.parametrize("accumulated", [1, 3])
def test_the_loss_is_that_of_the_step(
    accumulated, make_trainer, make_module, make_data, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0)
    noted = StepLosses()
    trainer = make_trainer(
        accumulate_grad_batches=accumulated,
        max_epochs=1,
        callbacks=[noted, TrainingProgress("mae")],
        enable_progress_bar=True,
    )
    trainer.fit(make_module(dropout=0.0), make_data())
    lines = capsys.readouterr().err.splitlines()
    shown = [float(found[1]) for line in lines if (found := re.search(r" loss ([\d.]+)", line))]
    # A line for each step, and one at the end.
    assert len(noted.values) == -(-5 // accumulated)
    assert shown == [pytest.approx(value, abs=1e-4) for value in [*noted.values, noted.values[-1]]]
