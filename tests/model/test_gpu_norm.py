"""The fused norms against the plain path, on a GPU or by Triton's interpreter."""

from __future__ import annotations

import copy

import pytest
import torch
from reference.compiled import DEVICE, norm_of, norm_results
from reference.models import ARMS

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.model import norm_arms
from graphormer_sepnorm.model.batch_norm import MaskedBatchNorm
from graphormer_sepnorm.model.fused import gpu_norm
from graphormer_sepnorm.model.fused.cpu_norm import CONSTANT, OF_BATCH, OF_ROWS


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("state", ["batch", "fixed"])
@pytest.mark.parametrize("arm", ARMS)
def test_everything_is_as_on_the_plain_path(arm, state, masked, kernels, monkeypatch):
    """Rows of padding have gradients here, although nothing looks at them in a network."""
    graphs, atoms, channels = 5, 70, 19
    norm = norm_of(arm, channels, state).to(DEVICE)
    torch.manual_seed(1)
    rows = (torch.randn(graphs + atoms, channels) * 2 + 3).to(DEVICE)
    real = (torch.rand(atoms) < 0.8).to(DEVICE) if masked else None
    if real is not None:
        real[0] = False  # not even the first atom need be real
    monkeypatch.setattr(gpu_norm, "_MOST_PROGRAMS", 4)
    monkeypatch.setattr(gpu_norm, "_TILE", 4 * 32)
    monkeypatch.setattr(norm_arms.cpu_attention, "usable", lambda _: False)
    monkeypatch.setattr(gpu_norm, "usable", lambda *_: False)
    truth = norm_results(copy.deepcopy(norm).double(), rows.double(), graphs, real)
    calls = []
    normalise = gpu_norm.normalise
    monkeypatch.setattr(gpu_norm, "normalise", lambda *a: calls.append(1) or normalise(*a))
    monkeypatch.setattr(gpu_norm, "usable", lambda *_: True)
    fast = norm_results(norm, rows, graphs, real)
    assert calls == [1]
    assert fast.keys() == truth.keys()
    for name, exact in truth.items():
        if exact.is_floating_point():
            torch.testing.assert_close(fast[name].double(), exact, rtol=1e-4, atol=2e-5)
        else:
            assert torch.equal(fast[name], exact), name


@pytest.mark.parametrize("kinds", [(OF_BATCH, OF_BATCH), (OF_BATCH, OF_ROWS), (CONSTANT,)])
def test_kernels_are_compared_with_the_plain_path_before_they_are_used(kinds, kernels):
    device = torch.device(DEVICE)
    assert gpu_norm.disagreement(device, 24, *kinds) < 1e-5
    with torch.inference_mode():  # a validation may be the first to meet a size
        assert gpu_norm.agrees(device, 24, *kinds)


def test_large_means_do_not_cancel(kernels):
    norm = MaskedBatchNorm(4).to(DEVICE)
    rows = (torch.randn(500, 4) + 1e4).to(DEVICE)
    truth = copy.deepcopy(norm).double()(rows.double())
    found = gpu_norm.normalise(rows, [norm], [500], 3, None)
    torch.testing.assert_close(found.double(), truth, rtol=1e-4, atol=1e-4)


def test_a_single_row_is_an_error_that_leaves_no_trace(kernels):
    norm = MaskedBatchNorm(4).to(DEVICE)
    with pytest.raises(DataError, match="met 1 of what it normalises"):
        gpu_norm.normalise(torch.randn(1, 4, device=DEVICE), [norm], [1], 1, None)
    assert norm.num_batches_tracked == 0


def test_a_cpu_takes_the_plain_path():
    assert not gpu_norm.usable(torch.zeros(3, 8), [MaskedBatchNorm(8)])
