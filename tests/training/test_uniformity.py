"""The auxiliary loss that pushes embeddings apart, against all pairs one by one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from graphormer_sepnorm.compare.geometry import uniformity
from graphormer_sepnorm.datasets.splits import DatasetSplits
from graphormer_sepnorm.training.loss import mean_inner_product


def literal_mean(rows: torch.Tensor) -> torch.Tensor:
    terms = [rows[i] @ rows[j] for i in range(len(rows)) for j in range(len(rows)) if i != j]
    return torch.stack(terms).mean()


def test_mean_over_all_pairs() -> None:
    rows = torch.randn(13, 5, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(mean_inner_product(rows), literal_mean(rows))
    (gradient,) = torch.autograd.grad(mean_inner_product(rows), rows)
    (expected,) = torch.autograd.grad(literal_mean(rows), rows)
    torch.testing.assert_close(gradient, expected)


def test_single_embedding_has_no_pair() -> None:
    assert mean_inner_product(torch.ones(1, 3)) == 0


@pytest.fixture
def same_label(splits: DatasetSplits) -> DatasetSplits:
    """Graphs that a model has no other reason to tell apart."""
    for part in splits.parts.values():
        for graph in part:
            graph.y[:] = 1.0
    return splits


def test_it_pushes_apart_what_it_is_told_to(same_label: DatasetSplits, train: Callable) -> None:
    def spread(weight: float, on: str) -> list[float]:
        # BatchNorm would have taken away the mean of the batch, and with it the products, already.
        model = {"norm": "ln+ln", "uniformity_weight": weight, "uniformity_on": on}
        options = {"data": {"batch_size": 37}, "max_epochs": 20, "limit_val_batches": 0}
        module, data, _ = train(model=model, **options)
        (batch,) = data.statistics_batches(37)
        with torch.no_grad():
            return [uniformity(cloud) for cloud in module.model.eval().encode(batch)]

    token, atoms = spread(0.0, "both")
    assert spread(1.0, "graph_token")[0] < token - 0.1
    assert spread(1.0, "atoms")[1] < atoms - 0.1
    both = spread(1.0, "both")
    assert both[0] < token - 0.1
    assert both[1] < atoms - 0.1


def test_its_weight_multiplies_it(train: Callable, losses: Callable) -> None:
    def first(weight: float) -> float:
        recorder = losses()
        model = {"norm": "ln+ln", "uniformity_weight": weight, "uniformity_on": "both"}
        train(recorder, model=model, max_epochs=1, limit_train_batches=1, limit_val_batches=0)
        return recorder.values[0]

    without, quarter, whole = map(first, (0.0, 0.25, 1.0))
    assert whole != pytest.approx(without, rel=0.01)
    assert quarter - without == pytest.approx(0.25 * (whole - without), rel=1e-4)


def test_a_last_step_of_fewer_batches_weighs_it_as_any_other(train: Callable) -> None:
    def trained(accumulated: int) -> dict[str, torch.Tensor]:
        model = {"norm": "ln+ln", "uniformity_weight": 1.0, "uniformity_on": "both"}
        options = {"max_epochs": 1, "limit_train_batches": 1, "limit_val_batches": 0}
        module, _, _ = train(model=model, accumulate_grad_batches=accumulated, **options)
        return module.model.state_dict()

    alone, of_four = trained(1), trained(4)
    for name, value in alone.items():
        torch.testing.assert_close(of_four[name], value)
