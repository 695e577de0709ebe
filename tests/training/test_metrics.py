"""Metrics are those of the whole split, in real units."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.training.metrics import (
    MeanLoss,
    SplitMetrics,
    area_under_roc,
    why_undefined,
)

TWO_BINARY = Task("binary", ("a", "b"), ("", ""), "auroc")
TWO_VALUES = Task("regression", ("a", "b"), ("eV", "eV"), "mae")


def collect(task: Task, predictions: torch.Tensor, targets: torch.Tensor, size: int) -> dict:
    """Give the rows to SplitMetrics in batches of `size`, the last one smaller."""
    metrics = SplitMetrics(task)
    ids = torch.arange(100, 100 + len(targets))
    for first in range(0, len(targets), size):
        part = slice(first, first + size)
        metrics.update(predictions[part], targets[part], ids[part])
    return metrics.compute()


@pytest.mark.parametrize("size", [1, 7, 10, 23, 64])
def test_mae_of_an_odd_split_is_that_of_all_rows(size: int) -> None:
    targets = torch.randn(23, 2)
    targets[3, 0] = targets[20:, 1] = torch.nan
    predictions = torch.randn(23, 2)
    errors = (predictions - targets).abs()
    columns = [errors[:, k][~errors[:, k].isnan()].mean().item() for k in (0, 1)]
    assert collect(TWO_VALUES, predictions, targets, size) == {
        "mae": pytest.approx(np.mean(columns), rel=1e-6),
        "mae_a": pytest.approx(columns[0], rel=1e-6),
        "mae_b": pytest.approx(columns[1], rel=1e-6),
    }


@pytest.mark.parametrize("size", [5, 31])
def test_auroc_equals_sklearn_with_missing_labels_and_ties(size: int) -> None:
    targets = (torch.rand(31, 2) < 0.4).float()
    targets[::5, 1] = torch.nan
    scores = torch.randn(31, 2).mul(3).round()  # ties, and scores outside [0, 1]
    columns = []
    for k in (0, 1):
        present = ~targets[:, k].isnan()
        columns.append(roc_auc_score(targets[present, k], scores[present, k]))
    metrics = collect(TWO_BINARY, scores, targets, size)
    assert metrics["auroc_a"] == pytest.approx(columns[0], abs=1e-6)
    assert metrics["auroc_b"] == pytest.approx(columns[1], abs=1e-6)
    assert metrics["auroc"] == pytest.approx(np.mean(columns), abs=1e-6)


def test_auroc_of_large_logits_has_no_ties_from_rounding() -> None:
    # sigmoid(30) and sigmoid(40) are both 1.0 in float32.
    scores = torch.tensor([[30.0], [40.0], [35.0]])
    assert area_under_roc(scores, torch.tensor([[0.0], [1.0], [0.0]])).item() == 1.0


def test_target_with_one_class_or_no_label_is_undefined_and_left_out_of_the_mean() -> None:
    scores = torch.tensor([[0.1, 0.5], [0.9, 0.2], [0.4, 0.3]])
    one_class = torch.tensor([[0.0, 1.0], [1.0, 1.0], [0.0, math.nan]])
    metrics = collect(TWO_BINARY, scores, one_class, 2)
    assert metrics["auroc"] == metrics["auroc_a"] == 1.0
    assert math.isnan(metrics["auroc_b"])
    nothing = torch.full((3, 2), math.nan)
    assert math.isnan(collect(TWO_BINARY, scores, nothing, 2)["auroc"])
    assert math.isnan(collect(TWO_VALUES, scores, nothing, 2)["mae"])


def test_prediction_that_is_no_number_is_not_hidden() -> None:
    targets = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    predictions = torch.tensor([[0.2, math.nan], [0.7, 0.1]])
    assert math.isnan(collect(TWO_VALUES, predictions, targets, 2)["mae"])
    assert math.isnan(collect(TWO_BINARY, predictions, targets, 2)["auroc"])


def test_graph_that_two_processes_evaluated_counts_once() -> None:
    metrics = SplitMetrics(Task("regression", ("y",), ("",), "mae"))
    metrics.update(torch.tensor([[1.0], [5.0]]), torch.zeros(2, 1), torch.tensor([0, 1]))
    metrics.update(torch.tensor([[5.0]]), torch.zeros(1, 1), torch.tensor([1]))
    assert metrics.compute() == {"mae": 3.0}


def test_undefined_metric_is_explained() -> None:
    assert "both classes" in why_undefined(TWO_BINARY, "test")
    assert "no label" in why_undefined(TWO_VALUES, "validation")


def test_auroc_equals_ogbs_evaluator(real_data_root: object) -> None:
    from graphormer_sepnorm.datasets.molhiv import load_molhiv, ogb_rocauc

    labels = torch.tensor([float(graph.y) for graph in load_molhiv(real_data_root).test])
    assert len(labels) == 4113
    scores = torch.randn(len(labels)) + labels
    ours = area_under_roc(scores[:, None], labels[:, None]).item()
    assert ours == pytest.approx(ogb_rocauc(labels.numpy(), scores.numpy()), abs=1e-7)


def test_mean_loss_is_over_labels_and_keeps_nan() -> None:
    mean = MeanLoss()
    mean.update(torch.tensor(6.0), torch.tensor(3))
    mean.update(torch.tensor(1.0), torch.tensor(1))
    mean.update(torch.tensor(0.0), torch.tensor(0))
    assert mean.compute() == 7 / 4
    mean.update(torch.tensor(torch.nan), torch.tensor(1))
    assert mean.compute().isnan()
