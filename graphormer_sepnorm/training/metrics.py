"""What is collected over a whole split: its predictions, its loss.

An average of per-batch metrics is not the metric: the last batch is smaller, and an AUROC has no
meaning per batch at all. So predictions and targets are collected and evaluated once, one row per
graph (`Task.evaluate`).

G graphs · T targets.
"""

from __future__ import annotations

import numpy as np
import torch
import torchmetrics
from torch import Tensor


class MeanLoss(torchmetrics.Metric):
    """Mean of a loss over the labels of many batches, of all processes.

    torchmetrics' own mean forgets the weights when it is told to let nan through, and a loss that
    is not a number must stay visible.
    """

    full_state_update = False
    total: Tensor
    labels: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("total", "labels"):
            zero = torch.tensor(0.0, dtype=torch.float64)
            self.add_state(name, default=zero, dist_reduce_fx="sum")

    def update(self, total: Tensor, labels: Tensor) -> None:
        """Add a batch: the sum of its losses and the number of its labels; or several in turn."""
        for one in total.detach().reshape(-1).unbind():  # one by one, so that rounding is the same
            self.total = self.total + one
        self.labels = self.labels + labels.sum()

    def compute(self) -> Tensor:
        """Return the mean, float64; 0 where there is no label."""
        return self.total / self.labels.clamp(min=1)


class SplitPredictions(torchmetrics.Metric):
    """Collects what is predicted for one split.

    Under several processes the rows of all of them are gathered; a graph that several of them
    evaluated counts once.
    """

    full_state_update = False
    predictions: list[Tensor]
    targets: list[Tensor]
    graph_ids: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        for name in ("predictions", "targets", "graph_ids"):
            self.add_state(name, default=[], dist_reduce_fx="cat")

    def update(self, predictions: Tensor, targets: Tensor, graph_ids: Tensor) -> None:
        """Add a batch.

        Args:
            predictions: Real units or probabilities, ``[B, T]``.
            targets: Real units or 0/1, ``[B, T]``; nan where missing.
            graph_ids: Position of each graph in its data set, int64 ``[B]``.
        """
        self.predictions.append(predictions.detach().double())
        self.targets.append(targets.double())
        self.graph_ids.append(graph_ids)

    def compute(self) -> tuple[np.ndarray, np.ndarray]:
        """Return targets and predictions, each float64 ``[G, T]``, by graph id."""
        ids = _joined(self.graph_ids)
        unique, inverse = ids.unique(return_inverse=True)
        first = torch.empty_like(unique)
        first[inverse] = torch.arange(len(ids))
        return _joined(self.targets)[first].numpy(), _joined(self.predictions)[first].numpy()


def _joined(state: list[Tensor] | Tensor) -> Tensor:
    # After a gather torchmetrics leaves one tensor where there was a list.
    return torch.cat(state if isinstance(state, list) else [state]).cpu()
