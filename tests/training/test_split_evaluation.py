"""What is collected over a split: the rows of all batches, the mean loss."""

from __future__ import annotations

import pytest
import torch

from graphormer_sepnorm.training.evaluation import MeanLoss, SplitPredictions


@pytest.mark.parametrize("size", [1, 7, 10, 23, 64])
def test_rows_of_all_batches_come_back_by_graph(size: int) -> None:
    predictions, targets = torch.randn(23, 2), torch.randn(23, 2)
    targets[3, 0] = torch.nan
    order, collected = torch.randperm(23), SplitPredictions()
    for rows in order.split(size):
        collected.update(predictions[rows], targets[rows], rows + 100)
    found = collected.compute()
    for array, expected in zip(found, (targets, predictions), strict=True):
        assert array.dtype == "float64"
        assert torch.equal(torch.tensor(array).nan_to_num(), expected.double().nan_to_num())


def test_one_graph_with_one_target_stays_a_table() -> None:
    collected = SplitPredictions()
    collected.update(torch.ones(1, 1), torch.zeros(1, 1), torch.tensor([5]))
    assert [array.tolist() for array in collected.compute()] == [[[0.0]], [[1.0]]]


def test_graph_that_two_processes_evaluated_counts_once() -> None:
    collected = SplitPredictions()
    collected.update(torch.tensor([[1.0], [5.0]]), torch.zeros(2, 1), torch.tensor([0, 1]))
    collected.update(torch.tensor([[5.0]]), torch.zeros(1, 1), torch.tensor([1]))
    assert collected.compute()[1].tolist() == [[1.0], [5.0]]


def test_mean_loss_is_over_labels_and_keeps_nan() -> None:
    mean = MeanLoss()
    mean.update(torch.tensor(6.0), torch.tensor(3))
    mean.update(torch.tensor(1.0), torch.tensor(1))
    mean.update(torch.tensor(0.0), torch.tensor(0))
    assert mean.compute() == 7 / 4
    mean.update(torch.tensor(torch.nan), torch.tensor(1))
    assert mean.compute().isnan()
