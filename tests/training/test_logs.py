"""``metrics.csv`` is written at once; it can be cut and continued."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer

from graphormer_sepnorm.training.callbacks import LogTraining, MetricsFile

ROWS = [
    ({"train_loss_step": 0.25, "epoch": 0}, 2),
    ({"validation_mae": 1 / 3, "validation_loss": 1e-9, "epoch": 0}, 4),
    ({"train_loss_epoch": 0.5, "epoch": 0}, 4),
    ({"train_loss_step": 0.125, "epoch": 1}, 5),
]


def test_the_rate_that_is_logged_is_that_of_the_step(tmp_path: Path, train: Callable) -> None:
    had: list[float] = []

    class Meet(Callback):
        def on_before_optimizer_step(self, trainer: Trainer, module: Any, optimizer: Any) -> None:
            had.append(optimizer.param_groups[0]["lr"])

    logger = MetricsFile(tmp_path)
    options = {"log_every_n_steps": 1, "accumulate_grad_batches": 2}
    train(Meet(), LogTraining(logger), logger=logger, **options)
    with (tmp_path / "metrics.csv").open(newline="") as file:
        rates = [row["learning_rate"] for row in csv.DictReader(file) if row["learning_rate"]]
    assert [float(rate) for rate in rates] == had
    assert len(had) == 6
    assert had[0] < had[1] > had[-1]


def test_a_file_that_was_cut_is_continued_to_the_same(tmp_path: Path) -> None:
    first = MetricsFile(tmp_path)
    for row in ROWS:
        first.log_metrics(*row)
    whole = (tmp_path / "metrics.csv").read_bytes()
    second = MetricsFile(tmp_path)
    assert (tmp_path / "metrics.csv").read_bytes() == whole  # until it is known where to go on
    second.keep(2)
    assert second.rows == 2
    for row in ROWS[2:]:
        second.log_metrics(*row)
    assert (tmp_path / "metrics.csv").read_bytes() == whole
    second.keep(0)
    assert not (tmp_path / "metrics.csv").exists()
    second.log_metrics(*ROWS[0])
    assert len((tmp_path / "metrics.csv").read_text().splitlines()) == 2
