"""How long training took, validation not counted."""

from __future__ import annotations

import math
import time
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer


class Throughput(Callback):
    """Measures training time, validation not counted.

    Attributes:
        graphs: Training graphs that this process has seen, before a resume too.
        seconds: Time that training them took.
    """

    def __init__(self) -> None:
        self.graphs = 0
        self.seconds = 0.0
        self._since: float | None = None

    @property
    def graphs_per_second(self) -> float:
        """Training graphs per second; nan before the first step."""
        return self.graphs / self.seconds if self.seconds else math.nan

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Start the clock after a pause."""
        if self._since is None:
            self._since = time.perf_counter()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count a batch, together with the time in which it was loaded."""
        now = time.perf_counter()
        if self._since is not None:
            self.seconds += now - self._since
        self.graphs += batch.num_graphs
        self._since = now

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop the clock."""
        self._since = None

    def state_dict(self) -> dict[str, float]:
        """Keep the measurement of a run that is resumed."""
        return {"graphs": self.graphs, "seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, float]) -> None:
        """Continue it."""
        self.graphs, self.seconds = int(state_dict["graphs"]), state_dict["seconds"]
