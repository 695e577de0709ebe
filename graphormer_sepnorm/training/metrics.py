"""Metrics over a whole split, in real units.

An average of per-batch metrics is not the metric: the last batch is smaller, and an AUROC has no
meaning per batch at all. So predictions and targets are collected and evaluated once, one row per
graph.

G graphs · T targets.
"""

from __future__ import annotations

import torch
import torchmetrics
from torch import Tensor
from torchmetrics.functional.classification import binary_auroc

from graphormer_sepnorm.graphs.task import Task


def mean_absolute_errors(predictions: Tensor, targets: Tensor) -> Tensor:
    """MAE per target over the labels present; nan for a target without a label.

    A prediction that is not a number makes its target's error nan: it is not left out.

    Args:
        predictions: Real units, ``[G, T]``.
        targets: Real units, ``[G, T]``; nan where missing.

    Returns:
        float64 ``[T]``.
    """
    present = ~targets.isnan()
    errors = (predictions.double() - targets.double()).abs().where(present, 0.0)
    return errors.sum(dim=0) / present.sum(dim=0)


def area_under_roc(scores: Tensor, targets: Tensor) -> Tensor:
    """AUROC per target over the labels present; nan where it is undefined.

    torchmetrics' functions are silent where they should not be: a nan among the targets and a
    column with one class give 0.0, a column without labels raises an IndexError, and scores
    outside [0, 1] go through a sigmoid whose rounding makes ties. So labels are masked here, an
    undefined value is nan, and the scores are replaced by their ranks, which changes no AUROC.

    Args:
        scores: Logits or probabilities, larger for class 1, ``[G, T]``.
        targets: 0 or 1, ``[G, T]``; nan where missing.

    Returns:
        float64 ``[T]``, with the rounding of torchmetrics' float32.
    """
    areas = torch.full((targets.shape[1],), torch.nan, dtype=torch.float64)
    for column in torch.nonzero(_has_both_classes(targets)).flatten().tolist():
        present = ~targets[:, column].isnan()
        if scores[present, column].isnan().any():
            continue
        ranks = scores[present, column].unique(return_inverse=True)[1].double()
        labels = targets[present, column].long()
        areas[column] = binary_auroc(ranks / ranks.max().clamp(min=1), labels)
    return areas


def _has_both_classes(targets: Tensor) -> Tensor:
    return (targets == 0).any(dim=0) & (targets == 1).any(dim=0)


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


class SplitMetrics(torchmetrics.Metric):
    """Collects the predictions of one split and evaluates them once at its end.

    Under several processes the rows of all of them are gathered; a graph that several of them
    evaluated counts once.

    Args:
        task: What is predicted, and so which metric.

    Attributes:
        evaluated: Predictions ``[G, T]`` of the last evaluation, by graph id; real units or logits.
    """

    full_state_update = False
    evaluated: Tensor
    predictions: list[Tensor]
    targets: list[Tensor]
    graph_ids: list[Tensor]

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task = task
        for name in ("predictions", "targets", "graph_ids"):
            self.add_state(name, default=[], dist_reduce_fx="cat")

    def update(self, predictions: Tensor, targets: Tensor, graph_ids: Tensor) -> None:
        """Add a batch.

        Args:
            predictions: Real units or logits, ``[B, T]``.
            targets: Real units or 0/1, ``[B, T]``; nan where missing.
            graph_ids: Position of each graph in its data set, int64 ``[B]``.
        """
        self.predictions.append(predictions.detach().double())
        self.targets.append(targets.double())
        self.graph_ids.append(graph_ids)

    def rows(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return predictions ``[G, T]``, targets ``[G, T]`` and graph ids ``[G]``, by graph id."""
        ids = torch.cat(_as_list(self.graph_ids)).cpu()
        unique, inverse = ids.unique(return_inverse=True)
        first = torch.empty_like(unique)
        first[inverse] = torch.arange(len(ids))
        predictions = torch.cat(_as_list(self.predictions)).cpu()[first]
        targets = torch.cat(_as_list(self.targets)).cpu()[first]
        return predictions, targets, unique

    def compute(self) -> dict[str, float]:
        """Return the main metric under its name and, with several targets, one entry for each.

        The main metric is the mean over the targets whose labels define it, as in OGB; nan if none
        does.
        """
        predictions, targets, _ = self.rows()
        self.evaluated = predictions
        return evaluate(self.task, predictions, targets)


def evaluate(task: Task, predictions: Tensor, targets: Tensor) -> dict[str, float]:
    """Return what `SplitMetrics.compute` does of these predictions.

    Args:
        task: What is predicted.
        predictions: Real units or logits, ``[G, T]``.
        targets: Real units or 0/1, ``[G, T]``; nan where missing.
    """
    if task.metric == "mae":
        values = mean_absolute_errors(predictions, targets)
        defined = (~targets.isnan()).any(dim=0)
    else:
        values = area_under_roc(predictions, targets)
        defined = _has_both_classes(targets)
    metrics = {task.metric: values[defined].mean().item()}
    if len(task.targets) > 1:
        for target, value in zip(task.targets, values.tolist(), strict=True):
            metrics[f"{task.metric}_{target}"] = value
    return metrics


def why_undefined(task: Task, split: str) -> str:
    """Say in one line why the main metric of a split came out as nan."""
    if task.metric == "auroc":
        return (
            f"{split} AUROC is undefined: no target has both classes among its labels there, "
            "or a prediction is not a number"
        )
    return f"{split} MAE is undefined: there is no label, or a prediction is not a number"


def _as_list(state: list[Tensor] | Tensor) -> list[Tensor]:
    # After a gather torchmetrics leaves one tensor where there was a list.
    return state if isinstance(state, list) else [state]
