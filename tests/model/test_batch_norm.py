"""`MaskedBatchNorm` against `nn.BatchNorm1d`, with masks and large means."""

import pytest
import torch
from reference.models import randomize, relative_error
from torch import nn

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.model.norms import MaskedBatchNorm

EXACT = 1e-12


def pair(channels: int = 6, dtype: torch.dtype = torch.float64):
    ours, theirs = MaskedBatchNorm(channels).to(dtype), nn.BatchNorm1d(channels).to(dtype)
    randomize(theirs)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def compare(ours, theirs, rows, real, tolerance=EXACT) -> None:
    """Two steps of training and one of evaluation: outputs, gradients, running statistics."""
    chosen = slice(None) if real is None else real
    for step in range(2):
        one = (rows * (step + 1)).clone().requires_grad_()
        other = (rows * (step + 1)).clone().requires_grad_()
        out, truth = ours(one, real), theirs(other[chosen])
        assert out.shape == rows.shape
        assert relative_error(out[chosen], truth) < tolerance
        weight = torch.randn_like(truth)
        ours.zero_grad(), theirs.zero_grad()
        (out[chosen] * weight).sum().backward()
        (truth * weight).sum().backward()
        assert relative_error(one.grad, other.grad) < tolerance
        assert relative_error(ours.weight.grad, theirs.weight.grad) < tolerance
        assert relative_error(ours.bias.grad, theirs.bias.grad) < tolerance
        for name, buffer in theirs.named_buffers():
            assert relative_error(dict(ours.named_buffers())[name], buffer) < tolerance, name
    ours.eval(), theirs.eval()
    assert relative_error(ours(rows, real)[chosen], theirs(rows)[chosen]) < tolerance


@pytest.mark.parametrize("mask", ["none", "all", "some"])
def test_agrees_with_torch(mask):
    rows = torch.randn(40, 6, dtype=torch.float64) * 3 + 2
    real = {"none": None, "all": torch.ones(40).bool(), "some": torch.rand(40) < 0.6}[mask]
    compare(*pair(), rows, real)


def test_masked_rows_may_hold_anything():
    rows = torch.randn(10, 3, dtype=torch.float64)
    real = torch.arange(10) < 7
    norm = MaskedBatchNorm(3).double()
    out = norm(rows, real)
    poisoned = rows.clone()
    poisoned[7:] = 1e30
    again = MaskedBatchNorm(3).double()
    assert torch.equal(out[:7], again(poisoned, real)[:7])
    assert torch.equal(norm.running_var, again.running_var)


@pytest.mark.parametrize("mean", [0.0, 30.0, 1000.0])
def test_float32_with_a_large_mean(mean):
    """Sum of squares minus square of sum would cancel; the truth is float64."""
    rows = torch.randn(500, 4, dtype=torch.float64) + mean
    truth = (rows - rows.mean(0)) / (rows.var(0, unbiased=False) + 1e-5).sqrt()
    given = rows.float()
    norm, masked = MaskedBatchNorm(4), MaskedBatchNorm(4)
    bound = max(20 * relative_error(nn.BatchNorm1d(4)(given), truth), 1e-5)
    assert relative_error(norm(given), truth) < bound
    assert relative_error(masked(given, torch.ones(500).bool()), truth) < bound
    assert relative_error(masked.running_var, norm.running_var) < 1e-3


def test_bfloat16_rows_are_summed_in_float32():
    rows = (torch.randn(3000, 4) + 4).bfloat16()
    norm, masked = MaskedBatchNorm(4), MaskedBatchNorm(4)
    for out in (norm(rows), masked(rows, torch.ones(3000).bool())):
        assert out.dtype == torch.bfloat16
        truth = nn.BatchNorm1d(4)(rows.float())
        assert float((out.float() - truth).detach().abs().max()) < 0.05
    for module in (norm, masked):
        assert module.running_mean.dtype == torch.float32
        assert torch.allclose(module.running_mean, 0.1 * rows.float().mean(0), atol=1e-5)


@pytest.mark.parametrize("masked", [False, True])
def test_a_single_row_in_training_is_a_clear_error(masked):
    norm = MaskedBatchNorm(3)
    rows = torch.randn(4 if masked else 1, 3)
    real = torch.tensor([True, False, False, False]) if masked else None
    with pytest.raises(DataError, match="at least 2"):
        norm(rows, real)
    # Neither leaves a trace in the statistics.
    assert torch.equal(norm.running_mean, torch.zeros(3))
    assert norm.num_batches_tracked == 0
    assert norm.eval()(rows, real).shape == rows.shape


def test_conversion_to_sync_batch_norm_leaves_it_alone():
    model = nn.Sequential(MaskedBatchNorm(3))
    assert isinstance(nn.SyncBatchNorm.convert_sync_batchnorm(model)[0], MaskedBatchNorm)


def test_masked_rows_are_normalized_after_a_batch_that_was_not_finite():
    """As a step that is skipped because its gradients overflowed; torch's own norms do."""
    norm, rows = MaskedBatchNorm(3), torch.randn(8, 3)
    real = torch.arange(8) < 7
    broken = rows.clone()
    broken[0, 1] = torch.inf
    norm(broken, real)
    assert norm(rows, real).isfinite().all()
