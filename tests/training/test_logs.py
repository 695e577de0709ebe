"""``metrics.csv`` is written at once; it can be cut and continued."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer
from reference.tables import read_csv

from graphormer_sepnorm.training.callbacks import LogTraining, MetricsFile


def test_the_rate_that_is_logged_is_that_of_the_step(tmp_path: Path, train: Callable) -> None:
    had: list[float] = []

    class Meet(Callback):
        def on_before_optimizer_step(self, trainer: Trainer, module: Any, optimizer: Any) -> None:
            had.append(optimizer.param_groups[0]["lr"])

    logger = MetricsFile(tmp_path)
    options = {"log_every_n_steps": 1, "accumulate_grad_batches": 2}
    train(Meet(), LogTraining(logger), logger=logger, **options)
    rows = read_csv(tmp_path / "metrics.csv")
    rates = [row["learning_rate"] for row in rows if row["learning_rate"]]
    assert [float(rate) for rate in rates] == had
    assert len(had) == 6
    assert had[0] < had[1] > had[-1]
