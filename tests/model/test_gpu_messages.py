"""The fused sums of messages against the plain path, on a GPU or by Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from reference.compiled import DEVICE, output_and_gradients
from torch import Tensor

from graphormer_sepnorm.model import messages
from graphormer_sepnorm.model.fused import gpu_messages
from graphormer_sepnorm.model.messages import BondMessages, plain_state_sums, plain_sums


def drawn(bonds: int, width: int, dtype: torch.dtype) -> list[Tensor]:
    """Rows, ends and values of kinds with few digits, and bonds of which some only fill up."""
    generator = torch.Generator().manual_seed(bonds + width)
    values = [
        (torch.randn(number, width, generator=generator) * 64).round() / 64
        for number in (12, 12, 3)
    ]
    ends = torch.randint(0, 12, (2, bonds), generator=generator)
    ways = torch.cat([ends, torch.randint(0, 3, (1, bonds), generator=generator)])
    fill = torch.tensor([[0], [12], [0]]).expand(-1, 5)
    given = [one.to(DEVICE, dtype).requires_grad_() for one in values]
    return [*given, torch.cat([ways, fill], 1).to(DEVICE)]


def three_layers(by_states: Callable, sums: Callable) -> Callable[..., Tensor]:
    """The states of a layer go into the next one; nobody asks for those of the last."""

    def run(rows: Tensor, ends: Tensor, values: Tensor, ways: Tensor) -> Tensor:
        first, states = by_states(rows, ends, values, None, ways)
        second, states = by_states(rows, ends.flip(0), values, states, ways)
        third, _ = by_states(ends, rows, values, states, ways)
        return torch.cat([first, second, third, sums(rows, values, ways)])

    return run


@pytest.mark.parametrize("width", [1, 8, 30, 72])
@pytest.mark.parametrize("bonds", [0, 1, 50])
def test_sums_and_gradients(width, bonds, kernels):
    fused = three_layers(gpu_messages.state_message_sums, gpu_messages.message_sums)
    plain = three_layers(plain_state_sums, plain_sums)
    truth = output_and_gradients(plain, drawn(bonds, width, torch.float64))
    found = output_and_gradients(fused, drawn(bonds, width, torch.float32))
    for exact, quick in zip(truth, found, strict=True):
        torch.testing.assert_close(quick.double(), exact, rtol=1e-5, atol=1e-4)


def test_states_alone_have_gradients(kernels):
    def states_of(function: Callable) -> Callable[..., Tensor]:
        return lambda rows, ends, values, ways: function(rows, ends, values, None, ways)[1][:20]

    rows, *others = drawn(20, 8, torch.float64)
    truth = output_and_gradients(states_of(plain_state_sums), [rows.detach(), *others])
    rows, *others = drawn(20, 8, torch.float32)
    fused = states_of(gpu_messages.state_message_sums)
    found = output_and_gradients(fused, [rows.detach(), *others])
    for exact, quick in zip(truth, found, strict=True):
        torch.testing.assert_close(quick.double(), exact, rtol=1e-5, atol=1e-4)


def test_undefined_rows_are_heard_by_their_neighbours_alone(kernels):
    rows = torch.ones(4, 9, device=DEVICE)
    rows[0] = torch.nan
    bonds = torch.tensor([[0, 1, 2], [1, 2, 3], [0, 0, 0]], device=DEVICE)
    values = torch.zeros(1, 9, device=DEVICE)
    sums, states = gpu_messages.state_message_sums(rows, rows, values, None, bonds)
    for of_rows in (sums, gpu_messages.message_sums(rows, values, bonds)):
        assert of_rows[1].isnan().all()
        assert not of_rows[[0, 2, 3]].isnan().any()
    assert states[0].isnan().all()
    assert not states[1:].isnan().any()


@pytest.mark.parametrize("states", [False, True])
def test_a_layer_takes_them(states, kernels, monkeypatch):
    rows, _, _, ways = drawn(30, 16, torch.float32)
    torch.manual_seed(0)
    layer = BondMessages(4, 16, states=states).to(DEVICE)
    batch = type("Batch", (), {"bond_rows": torch.arange(3, device=DEVICE)[:, None], "bonds": ways})
    monkeypatch.setattr(messages, "usable", lambda _: False)
    results, calls = [], []
    for name in ("message_sums", "state_message_sums"):
        function = getattr(gpu_messages, name)
        monkeypatch.setattr(gpu_messages, name, lambda *a, own=function: calls.append(1) or own(*a))
    for fused in (False, True):
        monkeypatch.setattr(gpu_messages, "usable", lambda _, fused=fused: fused)
        results.append(layer(rows, batch)[0])
    assert calls == [1]
    torch.testing.assert_close(*results)


def test_kernels_are_compared_with_the_plain_path_before_they_are_used(kernels):
    device = torch.device(DEVICE)
    assert gpu_messages.disagreement(device, 24) < 1e-6
    with torch.inference_mode():  # a validation may be the first to meet a width
        assert gpu_messages.agrees(device, 24)


def test_a_cpu_takes_the_plain_path():
    assert not gpu_messages.usable(torch.zeros(3, 8))
