"""Batch normalisation over the real rows of all processes.

`nn.BatchNorm1d` counts padding rows, and `nn.SyncBatchNorm` neither knows a mask nor runs on a
CPU. The class below is deliberately not a subclass of theirs: converting a model to SyncBatchNorm
would replace a subclass and lose the mask. (`torch.optim.swa_utils.update_bn` looks for subclasses
too, and leaves this one as it is.)

    M rows · D channels
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from graphormer_sepnorm.errors import DataError


class MaskedBatchNorm(nn.Module):
    """Batch normalisation (Ioffe & Szegedy 2015) of packed rows.

    In training the mean and the biased variance are taken over the real rows of the batch, of all
    processes when torch.distributed runs; running statistics (unbiased variance) are kept as in
    `nn.BatchNorm1d`, whose parameter and buffer names it shares. Sums are taken in float32 at
    least. In evaluation the running statistics are used; in training too while `fixed` is set, so
    that a row no longer depends on the rest of its batch and training sees what evaluation sees.

    Args:
        channels: D, of a row.
        eps: Added to the variance, against division by zero.
        momentum: Weight of the newest batch in the running statistics.

    Attributes:
        fixed: Whether the running statistics are constants, in training as in evaluation.
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, channels: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.eps = eps
        self.momentum = momentum
        self.fixed = False
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    def forward(self, rows: Tensor, real: Tensor | None = None) -> Tensor:
        """Normalise each channel.

        Args:
            rows: What is normalised, ``[M, D]``.
            real: bool ``[M]``, rows that count; None: all do. Other rows are transformed alike
                but enter no statistic.

        Returns:
            ``[M, D]``, in the dtype of `rows`.

        Raises:
            DataError: In training, if fewer than two rows count and statistics are not `fixed`:
                their variance is undefined. With a mask this is seen on a CPU only; a GPU is not
                waited for.
        """
        follows = self.follows_batches
        if follows and (real is not None or several_processes()):
            return self._masked(rows, real)
        if follows:
            # Not len(): it would make a constant of the number of rows in torch.export.
            self.require_two(rows.shape[0])
            self.num_batches_tracked.add_(1)
        return functional.batch_norm(
            rows,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            training=follows,
            momentum=self.momentum,
            eps=self.eps,
        )

    def extra_repr(self) -> str:
        """What ``print`` shows."""
        return f"{len(self.weight)}, eps={self.eps:g}, momentum={self.momentum:g}"

    @property
    def follows_batches(self) -> bool:
        """Whether a batch is normalised by its own statistics, and the running ones follow."""
        return self.training and not self.fixed

    @staticmethod
    def require_two(count: int) -> None:
        """Refuse, with a DataError, to take the variance of fewer rows."""
        if count < 2:
            raise DataError(_TOO_FEW.format(count))

    def _masked(self, rows: Tensor, real: Tensor | None) -> Tensor:
        # Numbers near 0 add up with less rounding; the running mean is the same on every process.
        shift = self.running_mean.to(torch.promote_types(self.running_mean.dtype, torch.float32))
        shift = shift.nan_to_num(0.0, 0.0, 0.0)  # after a batch that was not finite
        values = rows.to(shift.dtype) - shift
        mask = (
            values.new_ones(values.shape[0], 1, dtype=torch.bool) if real is None else real[:, None]
        )
        # First the mean, then the squares around it: their sum does not cancel, wherever it is.
        own = torch.cat([mask.sum(0).to(values.dtype), torch.where(mask, values, 0).sum(0)])
        sums = sum_over_processes(own)
        count, mean = sums[:1], sums[1:] / sums[:1]
        if not torch.compiler.is_compiling() and values.device.type == "cpu":
            self.require_two(int(count))
        centred = values - mean
        squares = sum_over_processes(torch.where(mask, centred, 0).square().sum(0))
        variance = squares / count
        with torch.no_grad():
            self.num_batches_tracked.add_(1)
            unbiased = variance * (count / (count - 1))
            self.running_mean.lerp_((mean + shift).to(self.running_mean), self.momentum)
            self.running_var.lerp_(unbiased.to(self.running_var), self.momentum)
        normalised = centred * torch.rsqrt(variance + self.eps)
        return (normalised * self.weight + self.bias).to(rows.dtype)


def sum_over_processes(sums: Tensor) -> Tensor:
    """Add a tensor up over all processes of torch.distributed; differentiable."""
    return _SumOverProcesses.apply(sums) if several_processes() else sums  # type: ignore[return-value]


def several_processes() -> bool:
    """Whether torch.distributed runs, in more than this process."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


class _SumOverProcesses(torch.autograd.Function):
    """Adds up over all processes; the gradient of a sum reaches the rows of all of them.

    torch's own differentiable all-reduce is deprecated in 2.13, and its successor is private.
    """

    @staticmethod
    def forward(ctx: Any, sums: Tensor) -> Tensor:
        total = sums.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        total = gradient.contiguous().clone()
        dist.all_reduce(total)
        return total


_TOO_FEW = (
    "BatchNorm met {} of what it normalises (graphs and atoms, or sequences and tokens) in a "
    "training batch, and needs at least 2: use larger batches, or evaluation mode"
)
