"""The compiled way into the residual stream gives what the plain one gives, gradients too."""

from __future__ import annotations

import pytest
import torch
from reference.compiled import assert_threads_change_nothing, output_and_gradients
from reference.models import batch_of_smiles, randomise, small_config
from torch import Tensor

from graphormer_sepnorm.kernels.library import switched_off
from graphormer_sepnorm.model import attention
from graphormer_sepnorm.model.graphormer import Graphormer
from graphormer_sepnorm.model.ops import add_scaled

pytestmark = pytest.mark.usefixtures("compiled_form")


def plainly(residual, update, messages, log_degree, plain, by_degree):
    total = residual + update * (plain + log_degree * by_degree)
    return total if messages is None else total + messages


def arguments(rows: int, width: int, messages: bool, dtype=torch.float32) -> list[Tensor | None]:
    torch.manual_seed(3)
    drawn = [torch.randn(rows, width).to(dtype) for _ in range(3)]
    of_rows = [one.T.contiguous().T.requires_grad_() for one in drawn]  # column by column
    of_channels = [torch.randn(width).to(dtype).requires_grad_() for _ in range(2)]
    residual, update, third = of_rows
    log_degree = torch.rand(rows, 1).to(dtype)
    return [residual, update, third if messages else None, log_degree, *of_channels]


@pytest.mark.parametrize("messages", [True, False])
@pytest.mark.parametrize(("rows", "width"), [(1, 8), (3, 10), (64, 72), (65, 33), (500, 80)])
def test_output_and_gradients_are_those_of_the_plain_path(rows, width, messages):
    truth = output_and_gradients(plainly, arguments(rows, width, messages, torch.float64))
    fast = output_and_gradients(add_scaled, arguments(rows, width, messages))
    assert len(fast) == len(truth) == (6 if messages else 5)
    for exact, quick in zip(truth, fast, strict=True):
        torch.testing.assert_close(quick.double(), exact, rtol=1e-4, atol=2e-5)


def test_the_number_of_threads_changes_nothing():
    given = arguments(700, 72, messages=True)
    assert_threads_change_nothing(lambda: output_and_gradients(add_scaled, given))


@pytest.mark.parametrize("norm_position", ["pre", "post"])
@pytest.mark.parametrize("local", ["gine", "none"])
def test_a_network_takes_it_and_stays_what_it_is(local, norm_position, monkeypatch):
    vocabulary, batch = batch_of_smiles("CCO", "c1ccccc1", "C")
    options = {"local_mpnn": local, "norm_position": norm_position, "degree_scaler": True}
    model = Graphormer(small_config(**options).for_vocabulary(vocabulary))
    randomise(model)
    calls = []
    monkeypatch.setattr(
        attention, "add_scaled", lambda *given: calls.append(0) or add_scaled(*given)
    )
    fast = model(batch)
    assert len(calls) == model.config.layers
    with switched_off():
        plain = model(batch)
    torch.testing.assert_close(fast, plain, rtol=1e-4, atol=1e-5)
    calls.clear()
    for layer in model.layers:
        layer.dropout = 0.5  # masks the whole update: not in one pass
    model.train()(batch)
    assert not calls
