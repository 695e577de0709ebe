"""``metrics.csv`` is what Lightning's logger writes, at once; it can be cut and continued."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.loggers import CSVLogger

from graphormer_sepnorm.training.callbacks.logs import LogTraining, MetricsFile

ROWS = [
    ({"train_loss_step": 0.25, "epoch": 0}, 2),
    ({"validation_mae": 1 / 3, "validation_loss": 1e-9, "epoch": 0}, 4),
    ({"train_loss_epoch": 0.5, "epoch": 0}, 4),
    ({"train_loss_step": 0.125, "epoch": 1}, 5),
]


def test_rows_are_written_at_once_as_lightning_writes_them_at_the_end(tmp_path: Path) -> None:
    lightnings, own = CSVLogger(tmp_path, name="", version="theirs"), MetricsFile(tmp_path)
    for rows, (metrics, step) in enumerate(ROWS, start=1):
        lightnings.log_metrics(dict(metrics), step)
        own.log_metrics(metrics, step)
        assert len((tmp_path / "metrics.csv").read_text().splitlines()) == 1 + rows == 1 + own.rows
    lightnings.save()
    expected = (tmp_path / "theirs" / "metrics.csv").read_bytes()
    assert (tmp_path / "metrics.csv").read_bytes() == expected


def test_the_rate_that_is_logged_is_that_of_the_step(tmp_path: Path, train: Callable) -> None:
    had: list[float] = []

    class Meet(Callback):
        def on_before_optimizer_step(self, trainer: Trainer, module: Any, optimizer: Any) -> None:
            had.append(optimizer.param_groups[0]["lr"])

    logger = MetricsFile(tmp_path)
    options = {"log_every_n_steps": 1, "accumulate_grad_batches": 2}
    train(Meet(), LogTraining(), logger=logger, **options)
    with (tmp_path / "metrics.csv").open(newline="") as file:
        rates = [row["learning_rate"] for row in csv.DictReader(file) if row["learning_rate"]]
    assert [float(rate) for rate in rates] == had
    assert len(had) == 6
    assert had[0] < had[1] > had[-1]


def test_every_so_many_steps_one_is_logged(tmp_path: Path, train: Callable) -> None:
    train(LogTraining(), logger=MetricsFile(tmp_path), log_every_n_steps=3)
    with (tmp_path / "metrics.csv").open(newline="") as file:
        steps = [int(row["step"]) for row in csv.DictReader(file) if row["train_loss_step"]]
    assert steps == [2, 5, 8]  # counted from 0, of ten


def test_a_file_that_was_cut_is_continued_to_the_same(tmp_path: Path) -> None:
    first = MetricsFile(tmp_path)
    for row in ROWS:
        first.log_metrics(*row)
    whole = (tmp_path / "metrics.csv").read_bytes()
    second = MetricsFile(tmp_path)
    second.keep(2)
    assert second.rows == 2
    for row in ROWS[2:]:
        second.log_metrics(*row)
    assert (tmp_path / "metrics.csv").read_bytes() == whole
    second.begin_again()
    assert not (tmp_path / "metrics.csv").exists()
