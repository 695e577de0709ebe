"""What is said before and during a training."""

import re

import pytest
from tiny_graphs import Noted

from graphormer_sepnorm import formatting
from graphormer_sepnorm.training.callbacks import TrainingProgress
from graphormer_sepnorm.training.checkpoints import checkpoint_callbacks, step_in_epoch


@pytest.mark.parametrize("accumulated", [1, 3])
def test_the_loss_is_that_of_the_step(accumulated, train, monkeypatch, capsys) -> None:
    monkeypatch.setattr(formatting, "LOG_SECONDS", 0)
    # Of optimizer steps that have ended, as the log files have it.
    noted = Noted(lambda at, own: None if step_in_epoch(at) is None else float(own.step_loss))
    options = {"accumulate_grad_batches": accumulated, "enable_progress_bar": True}
    train(noted, TrainingProgress("mae"), model={"dropout": 0.0}, max_epochs=1, **options)
    lines = capsys.readouterr().err.splitlines()
    shown = [float(found[1]) for line in lines if (found := re.search(r" loss ([\d.]+)", line))]
    # A line for each step, and one at the end.
    losses = [value for value in noted.values if value is not None]
    assert len(losses) == -(-5 // accumulated)
    assert shown == [pytest.approx(value, abs=1e-4) for value in [*losses, losses[-1]]]


@pytest.mark.parametrize(("decides", "shown"), [("mae", True), ("loss", False), ("last", False)])
def test_a_best_value_is_shown_where_it_decides(decides, shown, train, capsys, tmp_path) -> None:
    keepers = checkpoint_callbacks(tmp_path, decides, patience=0)
    train(*keepers, TrainingProgress("mae"), max_epochs=2, enable_progress_bar=True)
    last = capsys.readouterr().err.splitlines()[-1]
    assert "validation MAE" in last
    assert ("best" in last) == shown
