"""The norms, and their arms: how the graph token ([CLS]) and the atoms are normalized.

ShareNorm sends every token through one norm; SepNorm (Chen et al., NeurIPS 2023, Eq. 5) sends the
graph token through one of its own. An arm is written [CLS] + atoms:

    shared-ln (sharenorm)   one LayerNorm for both: the usual transformer
    shared-bn               one BatchNorm for both
    bn+ln (sepnorm)         BatchNorm for the graph token, LayerNorm for the atoms
    bn+bn, ln+ln, ln+bn     the other pairs, each with parameters of its own

    B graphs · M atoms, or any rows · D channels
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.kernels.library import integers, point, pointers
from graphormer_sepnorm.model.config import norm_name
from graphormer_sepnorm.model.ops import CHANNELS, ROWS, in_threads, usable


class LayerNorm(nn.LayerNorm):
    """`nn.LayerNorm` that accepts the mask of real rows, which it does not need."""

    def forward(self, rows: Tensor, real: Tensor | None = None) -> Tensor:
        """Normalize each row of ``[M, D]`` over its channels."""
        return super().forward(rows)


class MaskedBatchNorm(nn.Module):
    """Batch normalization (Ioffe & Szegedy 2015) over the real rows of all processes.

    `nn.BatchNorm1d` counts padding rows, and `nn.SyncBatchNorm` neither knows a mask nor runs on a
    CPU. This is no subclass of theirs: converting a model to SyncBatchNorm would replace it and
    lose the mask.

    In training the mean and the biased variance are taken over the real rows of the batch, of all
    processes when torch.distributed runs; running statistics (unbiased variance) are kept as in
    `nn.BatchNorm1d`, whose parameter and buffer names it shares. Sums are taken in float32 at
    least. In evaluation the running statistics are used.

    Attributes:
        fixed: Whether the running statistics are used, and stay, in training too.
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
        """Normalize each channel of ``[M, D]``.

        Args:
            rows: What is normalized, in the norm's dtype or a lower one.
            real: bool ``[M]``, rows that count; None: all do. Other rows are transformed alike
                but enter no statistic.

        Raises:
            DataError: In training, if fewer than two rows count (with a mask on a CPU only, since
                a GPU is not waited for): their variance is undefined.
        """
        follows = self.follows_batches
        if follows and (real is not None or several_processes()):
            return self._masked(rows, real)
        if follows:
            # Not len(): it would make a constant of the number of rows in torch.export.
            self.require_two(rows.shape[0])
            self.num_batches_tracked.add_(1)
        own = self.running_mean, self.running_var, self.weight, self.bias
        return functional.batch_norm(rows, *own, follows, self.momentum, self.eps)

    def extra_repr(self) -> str:
        """What ``print`` shows."""
        return f"{len(self.weight)}, eps={self.eps:g}, momentum={self.momentum:g}"

    @property
    def follows_batches(self) -> bool:
        """Whether a batch is normalized by its own statistics, and the running ones follow."""
        return self.training and not self.fixed

    @staticmethod
    def require_two(count: int) -> None:
        """Refuse, with a DataError, to take the variance of fewer rows."""
        if count < 2:
            raise DataError(
                f"BatchNorm met {count} of what it normalizes (graphs and atoms, or sequences and "
                "tokens) in a training batch, and needs at least 2: use larger batches, or "
                "evaluation mode"
            )

    def _masked(self, rows: Tensor, real: Tensor | None) -> Tensor:
        # Numbers near 0 add up with less rounding; the running mean is the same on every process.
        shift = self.running_mean.to(torch.promote_types(self.running_mean.dtype, torch.float32))
        shift = shift.nan_to_num(0.0, 0.0, 0.0)  # after a batch that was not finite
        values = rows.to(shift.dtype) - shift
        real = values.new_ones(values.shape[0], dtype=torch.bool) if real is None else real
        mask = real[:, None]
        # First the mean, then the squares around it: their sum does not cancel, wherever it is.
        own = torch.cat([mask.sum(0).to(values.dtype), torch.where(mask, values, 0).sum(0)])
        sums = sum_over_processes(own)
        count, mean = sums[:1], sums[1:] / sums[:1]
        if not torch.compiler.is_compiling() and values.device.type == "cpu":
            self.require_two(int(count))
        centered = values - mean
        squares = sum_over_processes(torch.where(mask, centered, 0).square().sum(0))
        variance = squares / count
        with torch.no_grad():
            self.num_batches_tracked.add_(1)
            unbiased = variance * (count / (count - 1).clamp(min=1))
            self.running_mean.lerp_((mean + shift).to(self.running_mean), self.momentum)
            self.running_var.lerp_(unbiased.to(self.running_var), self.momentum)
        normalized = centered * torch.rsqrt(variance + self.eps)
        return (normalized * self.weight + self.bias).to(rows.dtype)


def sum_over_processes(sums: Tensor) -> Tensor:
    """Add a tensor up over all processes of torch.distributed; differentiable."""
    return _SumOverProcesses.apply(sums) if several_processes() else sums  # type: ignore[return-value]


def several_processes() -> bool:
    """Whether torch.distributed runs, in more than this process."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


class _SumOverProcesses(torch.autograd.Function):
    """torch's own differentiable all-reduce is deprecated in 2.13, and its successor is private."""

    @staticmethod
    def forward(ctx: Any, sums: Tensor) -> Tensor:
        total = sums.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        total = gradient.contiguous().clone()
        dist.all_reduce(total)
        return total


class SharedNorm(nn.Module):
    """ShareNorm: one norm for the graph token and the atoms, with a mask of the real rows."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, rows: Tensor, num_graphs: int, real_atoms: Tensor | None = None) -> Tensor:
        """Normalize rows ``[B + M, D]``, graph tokens first.

        Args:
            rows: Graph tokens, then atoms, ``[B + M, D]``.
            num_graphs: B, graph tokens at the front.
            real_atoms: Atoms that are not padding, bool ``[M]``; None: all.
        """
        if real_atoms is not None:
            real_atoms = torch.cat([real_atoms.new_ones(num_graphs), real_atoms])
        return _normalize(rows, [self.norm], [rows.shape[0]], real_atoms)


class SeparateNorm(nn.Module):
    """SepNorm (Chen et al. 2023, Eq. 5): the graph token and the atoms each have their norm."""

    def __init__(self, graph_token_norm: nn.Module, atom_norm: nn.Module) -> None:
        super().__init__()
        self.graph_token_norm = graph_token_norm
        self.atom_norm = atom_norm

    def forward(self, rows: Tensor, num_graphs: int, real_atoms: Tensor | None = None) -> Tensor:
        """Normalize rows ``[B + M, D]``, graph tokens first; see `SharedNorm`."""
        lengths = [num_graphs, rows.shape[0] - num_graphs]
        return _normalize(rows, [self.graph_token_norm, self.atom_norm], lengths, real_atoms)


def _normalize(
    rows: Tensor, norms: Sequence[nn.Module], lengths: Sequence[int], real: Tensor | None
) -> Tensor:
    """Normalize stretches of packed rows; `real` is the mask of the last one."""
    if (
        usable(rows)
        and real is None
        and min(lengths) >= 0
        and not several_processes()
        and all(_can_be_packed(norm, rows) for norm in norms)
    ):
        return packed_norm(rows, cast(Sequence[LayerNorm | MaskedBatchNorm], norms), lengths)
    if len(norms) == 1:
        return norms[0](rows, real)
    # Not slices: the gradient of each would be as large as `rows`, mostly zeros.
    first, last = rows.split(list(lengths))
    return torch.cat([norms[0](first), norms[1](last, real)])


def _can_be_packed(norm: nn.Module, rows: Tensor) -> bool:
    """Whether a norm of `rows` need not be called; a subclass or a hook may do anything."""
    return (
        type(norm) in (LayerNorm, MaskedBatchNorm)
        and not (norm._forward_hooks or norm._forward_pre_hooks)
        and not (norm._backward_hooks or norm._backward_pre_hooks)
        and norm.bias is not None
        and isinstance(norm.weight, Tensor)
        and (norm.weight.dtype, norm.weight.device) == (rows.dtype, rows.device)
        and norm.weight.shape == rows.shape[1:]
    )


NormArm = SharedNorm | SeparateNorm

# A norm of D channels, called with rows ``[M, D]`` and, for atoms, a mask of the real ones (None:
# all are). One more kind here, and in `config.KINDS`, is one more arm, shared and with every other
# (CONTRIBUTING.md).
NORM_KINDS: dict[str, Callable[[int], nn.Module]] = {"ln": LayerNorm, "bn": MaskedBatchNorm}


def make_norm(name: str, channels: int, *, first: bool = False) -> NormArm:
    """Build the norm of an arm.

    Args:
        name: One of `NORMS` or an alias.
        channels: D, of a row.
        first: Before the first attention a norm meets the same graph token in every graph.
            BatchNorm would return its bias for all of them in training, and in evaluation divide
            the drift of its running mean by sqrt(eps). So there the token's branch is LayerNorm in
            every arm (shared BatchNorm thereby becomes ln+bn).
    """
    name = norm_name(name)
    shared = name.removeprefix("shared-") if name.startswith("shared-") else None
    if shared is not None and not (first and shared == "bn"):
        return SharedNorm(NORM_KINDS[shared](channels))
    token, atom = (shared, shared) if shared else name.split("+")
    token = "ln" if first and token == "bn" else token
    return SeparateNorm(NORM_KINDS[token](channels), NORM_KINDS[atom](channels))


# Norms, all of a layer's in one pass: packed rows lie in stretches, each with a LayerNorm or a
# BatchNorm of its own, the graph tokens first. One after the other would be a split, their norms
# and a join, forwards and backwards.

# Kinds of norms: LayerNorm; BatchNorm by the statistics of the batch; by constants.
_OF_ROWS, _OF_BATCH, _CONSTANT = range(3)  # kernels/norm.c


class _Stretch(ctypes.Structure):
    """``Stretch`` of kernels/norm.c."""

    _fields_ = (
        *integers("first", "last", "kind"),
        *pointers("weight", "bias", "mean", "scale", "running_mean", "running_variance"),
        *pointers("weight_gradient", "bias_gradient"),
        ("eps", ctypes.c_float),
        ("momentum", ctypes.c_float),
    )


class _Norm(ctypes.Structure):
    """``Norm`` of kernels/norm.c."""

    _fields_ = (
        ("stretches", _Stretch * 2),
        *integers("count", "width"),
        *pointers("input", "output", "gradient", "input_gradient"),
    )


def packed_norm(
    rows: Tensor, norms: Sequence[nn.LayerNorm | MaskedBatchNorm], lengths: Sequence[int]
) -> Tensor:
    """Normalize the stretches of packed rows by the compiled functions, as the norms one by one.

    Args:
        rows: ``[R, C]``, float32 on a CPU; every row counts.
        norms: Of each stretch; one or two, with weight and bias.
        lengths: Their rows, R together.
    """
    for norm, length in zip(norms, lengths, strict=True):
        if not isinstance(norm, nn.LayerNorm) and norm.follows_batches:
            norm.require_two(length)
    parameters = [tensor for norm in norms for tensor in (norm.weight, norm.bias)]
    return cast(Tensor, _PackedNorm.apply(rows, norms, lengths, *parameters))


class _PackedNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, norms: Sequence[Any], lengths: Sequence[int], *parameters: Tensor
    ) -> Tensor:
        rows, output = rows.contiguous(), torch.empty_like(rows)
        parameters = tuple(parameter.contiguous() for parameter in parameters)
        width = rows.shape[1]
        arguments = point(_Norm(count=len(norms), width=width), input=rows, output=output)
        statistics: list[Tensor] = []
        first = 0
        for stretch, norm, length in zip(arguments.stretches, norms, lengths, strict=False):
            stretch.first, stretch.last, stretch.eps = first, first + length, norm.eps
            first += length
            stretch.kind = _OF_ROWS
            if not isinstance(norm, nn.LayerNorm):
                stretch.kind = _OF_BATCH if norm.follows_batches else _CONSTANT
                point(stretch, running_mean=norm.running_mean, running_variance=norm.running_var)
                stretch.momentum = norm.momentum
                if stretch.kind == _OF_BATCH:
                    norm.num_batches_tracked.add_(1)
            statistics.append(rows.new_empty(2, length if stretch.kind == _OF_ROWS else width))
        _point_stretches(arguments, parameters, statistics)
        if any(stretch.kind != _OF_ROWS for stretch in arguments.stretches[: len(norms)]):
            in_threads("norm_statistics", arguments, width, CHANNELS)
        in_threads("norm_forward", arguments, rows.shape[0], ROWS)
        ctx.arguments = arguments
        ctx.save_for_backward(rows, *parameters, *statistics)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        arguments = ctx.arguments
        rows, *others = ctx.saved_tensors
        parameters, statistics = others[: -arguments.count], others[-arguments.count :]
        gradient, of_rows = gradient.contiguous(), torch.empty_like(rows)
        of_parameters = [torch.empty_like(parameter) for parameter in parameters]
        # Saved tensors may have been moved meanwhile (`saved_tensors_hooks`).
        _point_stretches(arguments, parameters, statistics)
        point(arguments, input=rows, gradient=gradient, input_gradient=of_rows)
        for index, stretch in enumerate(arguments.stretches[: arguments.count]):
            of_weight, of_bias = of_parameters[2 * index : 2 * index + 2]
            point(stretch, weight_gradient=of_weight, bias_gradient=of_bias)
        in_threads("norm_sums", arguments, arguments.width, CHANNELS)
        in_threads("norm_backward", arguments, rows.shape[0], ROWS)
        return of_rows, None, None, *of_parameters


def _point_stretches(
    arguments: _Norm, parameters: Sequence[Tensor], statistics: Sequence[Tensor]
) -> None:
    for index, (mean, scale) in enumerate(statistics):
        weight, bias = parameters[2 * index : 2 * index + 2]
        point(arguments.stretches[index], weight=weight, bias=bias, mean=mean, scale=scale)
