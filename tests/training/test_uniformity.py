"""The auxiliary loss that pushes embeddings apart, against all pairs one by one."""

from collections.abc import Callable

import pytest
import torch

from graphormer_sepnorm.training.loss import uniformity_loss


def literal_mean(rows: torch.Tensor) -> torch.Tensor:
    terms = [rows[i] @ rows[j] for i in range(len(rows)) for j in range(len(rows)) if i != j]
    return torch.stack(terms).mean()


def test_mean_over_all_pairs() -> None:
    rows = torch.randn(13, 5, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(uniformity_loss(rows), literal_mean(rows))
    (gradient,) = torch.autograd.grad(uniformity_loss(rows), rows)
    (expected,) = torch.autograd.grad(literal_mean(rows), rows)
    torch.testing.assert_close(gradient, expected)
    assert uniformity_loss(torch.ones(1, 3)) == 0  # of which there is no pair


def test_its_weight_multiplies_it(train: Callable, losses: Callable) -> None:
    def first(weight: float) -> float:
        recorder = losses()
        model = {"norm": "ln+ln", "uniformity_weight": weight}
        train(recorder, model=model, max_epochs=1, limit_train_batches=1, limit_val_batches=0)
        return recorder.values[0]

    without, quarter, whole = map(first, (0.0, 0.25, 1.0))
    assert whole != pytest.approx(without, rel=0.01)
    assert quarter - without == pytest.approx(0.25 * (whole - without), rel=1e-4)


def test_a_last_step_of_fewer_batches_weighs_it_as_any_other(train: Callable) -> None:
    def trained(accumulated: int) -> dict[str, torch.Tensor]:
        model = {"norm": "ln+ln", "uniformity_weight": 1.0}
        options = {"max_epochs": 1, "limit_train_batches": 1, "limit_val_batches": 0}
        module, _, _ = train(model=model, accumulate_grad_batches=accumulated, **options)
        return module.model.state_dict()

    alone, of_four = trained(1), trained(4)
    for name, value in alone.items():
        torch.testing.assert_close(of_four[name], value)
