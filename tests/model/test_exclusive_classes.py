"""Classes that exclude each other: the outputs are log-odds under a softmax."""

from __future__ import annotations

import torch
from reference.models import small_config
from torch.nn.functional import softmax

from graphormer_sepnorm.model.graphormer import Graphormer, log_odds


def test_a_sigmoid_of_the_log_odds_is_the_softmax() -> None:
    logits = 3 * torch.randn(7, 5, dtype=torch.float64)
    expected = softmax(logits, dim=1)
    torch.testing.assert_close(log_odds(logits).sigmoid(), expected)
    torch.testing.assert_close(log_odds(logits), (expected / (1 - expected)).log())
    # Two classes: the difference of the two, and its negative.
    two = log_odds(logits[:, :2])
    torch.testing.assert_close(two[:, 0], logits[:, 0] - logits[:, 1])
    torch.testing.assert_close(two[:, 0], -two[:, 1])


def test_large_logits_leave_finite_gradients() -> None:
    logits = torch.tensor([[300.0, -300.0, 0.0], [1e4, 1e4, -1e4]], requires_grad=True)
    values = log_odds(logits)
    assert values.isfinite().all()
    values.square().sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_only_the_outputs_of_a_network_differ() -> None:
    plain = Graphormer(small_config(atom_rows=20, bond_rows=5, num_targets=3))
    exclusive = Graphormer(small_config(atom_rows=20, bond_rows=5, num_targets=3, exclusive=True))
    exclusive.load_state_dict(plain.state_dict())
    token, atoms = torch.randn(4, plain.config.width), torch.randn(9, plain.config.width)
    outputs = plain.read_out(token, atoms, None)  # type: ignore[arg-type]
    found = exclusive.read_out(token, atoms, None)  # type: ignore[arg-type]
    torch.testing.assert_close(found, log_odds(outputs))
    torch.testing.assert_close(found.sigmoid().sum(dim=1), torch.ones(4))
