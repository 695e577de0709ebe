"""`MaskedBatchNorm` against `nn.BatchNorm1d`, with masks and large means."""

import pytest
import torch
from reference.models import relative_error
from torch import nn

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.model.norms import MaskedBatchNorm


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
