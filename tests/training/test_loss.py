"""The loss is the mean over the labels present."""

import math

import pytest
import torch

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.training.loss import LossName, choose_loss, summed_loss

BINARY = Task("binary", ("active",), ("",), "auroc")
REGRESSION = Task("regression", ("y",), ("",), "mae")


def mean_loss(name: LossName, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """As the module forms it."""
    total, labels = summed_loss(name, outputs, targets)
    return total / labels


def literal_loss(name: str, outputs: list[list[float]], targets: list[list[float]]) -> float:
    terms = []
    for output_row, target_row in zip(outputs, targets, strict=True):
        for output, target in zip(output_row, target_row, strict=True):
            if math.isnan(target):
                continue
            probability = 1 / (1 + math.exp(-output))
            entropy = -target * math.log(probability) - (1 - target) * math.log(1 - probability)
            gap = abs(output - target)
            terms.append({"l1": gap, "mse": gap**2, "bce": entropy}[name])
    return sum(terms) / len(terms)


@pytest.mark.parametrize("name", ["l1", "mse", "bce"])
def test_loss_equals_the_literal_formula(name: str) -> None:
    outputs = [[0.3, -1.2], [2.0, 0.1], [-0.4, 0.9]]
    targets = [[1.0, math.nan], [0.0, 1.0], [math.nan, math.nan]]
    loss = mean_loss(name, torch.tensor(outputs), torch.tensor(targets))
    assert loss.item() == pytest.approx(literal_loss(name, outputs, targets), rel=1e-6)


@pytest.mark.parametrize(("name", "power"), [("l1", 1), ("mse", 2)])
def test_a_bound_costs_on_one_side(name: LossName, power: int) -> None:
    gap = math.nan
    outputs = torch.tensor([[0.3, -1.2], [2.0, 0.1], [-0.4, 0.9]], requires_grad=True)
    targets = torch.tensor([[1.0, gap], [gap, gap], [gap, 0.5]])
    at_least = torch.tensor([[gap, -0.2], [2.5, gap], [-1.0, gap]])
    at_most = torch.tensor([[gap, gap], [gap, -0.3], [gap, gap]])
    weights = torch.tensor([1.0, 2.0, 0.5])
    limits = torch.hstack([at_least, at_most])
    total, labels = summed_loss(name, outputs, targets, weights, limits)
    terms = [0.7**power, 1.0**power, 2 * 0.5**power, 2 * 0.4**power, 0.0, 0.5 * 0.4**power]
    assert labels == len(terms)
    assert total.item() == pytest.approx(sum(terms), rel=1e-6)
    total.backward()
    assert outputs.grad is not None
    up = [[False, False], [False, True], [False, True]]  # where a step down is what is wanted
    assert (outputs.grad > 0).tolist() == up
    assert outputs.grad[2, 0] == 0  # beyond its bound
    assert ((outputs.grad < 0) | (outputs.grad > 0)).sum() == 5


@pytest.mark.parametrize("bounds", [[5.0, math.nan], [math.nan, 5.0]], ids=["least", "most"])
def test_an_output_that_is_no_number_shows_where_only_a_bound_is_known(bounds: list[float]) -> None:
    gap = torch.full((1, 1), math.nan)
    total, labels = summed_loss("l1", gap, gap, None, torch.tensor([bounds]))
    assert labels == 1
    assert total.isnan()


def test_loss_is_formed_in_float32_from_bfloat16() -> None:
    loss = mean_loss("l1", torch.ones(1, 1, dtype=torch.bfloat16), torch.zeros(1, 1))
    assert loss.dtype == torch.float32


def test_auto_takes_the_loss_that_fits_and_another_is_refused() -> None:
    assert choose_loss("auto", REGRESSION) == "l1"
    assert choose_loss("auto", BINARY) == "bce"
    assert choose_loss("mse", REGRESSION) == "mse"
    with pytest.raises(ConfigError, match="does not fit binary targets: use bce"):
        choose_loss("l1", BINARY)
