"""The norms of packed rows on a GPU as two kernels forward and two backward, by Triton.

The plain path takes about a dozen for each masked BatchNorm, and more backwards. As attention's,
the kernels are used for some size and kind of norms after they have given the plain path's values,
gradients and running statistics on the device itself.

R packed rows · D channels · P programs
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from graphormer_sepnorm.model.batch_norm import MaskedBatchNorm
from graphormer_sepnorm.model.fused.cpu_norm import CONSTANT, OF_BATCH, OF_ROWS, Norm, kind_of
from graphormer_sepnorm.model.fused.gpu import (
    agreement,
    largest_difference,
    on_device_of,
    possible,
)

MOST_CHANNELS = 1024
# Numbers of a tile, and programs of a stretch: what each of them sums, all of them read.
_TILE, _MOST_PROGRAMS = 4096, 64


def usable(rows: Tensor, norms: Sequence[Norm]) -> bool:
    """Whether `normalise` can take these rows ``[R, D]``, and gives what the plain path gives."""
    return (
        possible(rows)
        and rows.shape[1] <= MOST_CHANNELS
        and agrees(rows.device, rows.shape[1], *(kind_of(norm) for norm in norms))
    )


def normalise(
    rows: Tensor,
    norms: Sequence[Norm],
    lengths: Sequence[int],
    num_graphs: int,
    real_atoms: Tensor | None,
) -> Tensor:
    """Normalise the stretches of packed rows, as the norms would one by one.

    Args:
        rows: ``[R, D]``, graph tokens first.
        norms: Of each stretch; one or two.
        lengths: Their rows, R together.
        num_graphs: Number of graph tokens B.
        real_atoms: Which atoms enter statistics, bool ``[R - B]``; None: all.

    Returns:
        ``[R, D]``.

    Raises:
        DataError: Without a mask, if a BatchNorm would take the variance of fewer than two rows.
    """
    if real_atoms is None:
        for norm, length in zip(norms, lengths, strict=True):
            if isinstance(norm, MaskedBatchNorm) and norm.follows_batches:
                norm.require_two(length)
    parameters = [tensor for norm in norms for tensor in (norm.weight, norm.bias)]
    result: Any = _Normalise.apply(rows, norms, lengths, num_graphs, real_atoms, *parameters)
    return result


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        norms: Sequence[Norm],
        lengths: Sequence[int],
        num_graphs: int,
        real_atoms: Tensor | None,
        *parameters: Tensor,
    ) -> Tensor:
        from graphormer_sepnorm.model.fused.gpu_norm_kernels import norm_forward, norm_statistics

        rows = rows.contiguous()
        parameters = tuple(parameter.contiguous() for parameter in parameters)
        launch = _Launch(norms, lengths, num_graphs, real_atoms is not None, rows.shape[1])
        real = rows if real_atoms is None else real_atoms.contiguous().view(torch.uint8)
        output = torch.empty_like(rows)
        statistics = rows.new_empty(2, 4, rows.shape[1])
        partial = rows.new_empty(launch.programs, 3, rows.shape[1])
        if OF_BATCH in launch.kinds:
            launch(norm_statistics, rows, real, partial)
        of_norms: list[Any] = []
        for number, norm in enumerate(norms):
            own = parameters[2 * number : 2 * number + 2]
            if isinstance(norm, MaskedBatchNorm):
                running = norm.running_mean, norm.running_var, norm.num_batches_tracked
                of_norms += [*own, *running, norm.eps, norm.momentum]
            else:
                of_norms += [*own, rows, rows, rows, norm.eps, 0.0]
        launch(norm_forward, rows, real, partial, statistics, output, *_twice(of_norms, norms))
        ctx.launch, ctx.eps = launch, [norm.eps for norm in norms]
        ctx.save_for_backward(rows, real, statistics, *parameters)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        from graphormer_sepnorm.model.fused.gpu_norm_kernels import norm_backward, norm_sums

        rows, real, statistics, *parameters = ctx.saved_tensors
        gradient, of_rows = gradient.contiguous(), torch.empty_like(rows)
        partial = rows.new_empty(ctx.launch.programs, 2, rows.shape[1])
        # Zeros where a stretch has no rows; made at once, since each time costs a kernel.
        of_parameters = list(rows.new_zeros(len(parameters), rows.shape[1]).unbind())
        ctx.launch(norm_sums, rows, gradient, statistics, partial, *_twice(ctx.eps, ctx.eps))
        of_norms: list[Any] = []
        for number, eps in enumerate(ctx.eps):
            own = slice(2 * number, 2 * number + 2)
            of_norms += [parameters[2 * number], *of_parameters[own], eps]
        given = rows, real, gradient, statistics, partial, of_rows
        ctx.launch(norm_backward, *given, *_twice(of_norms, ctx.eps))
        return of_rows, None, None, None, None, *of_parameters


def _twice(given: list[Any], norms: Sequence[Any]) -> list[Any]:
    """What two norms have; a single one has no rows for the second, whatever it is."""
    return given if len(norms) == 2 else given + given


class _Launch:
    """Starts kernels for one or two stretches of rows.

    A mask speaks of the rows from `num_graphs` on.
    """

    def __init__(
        self,
        norms: Sequence[Norm],
        lengths: Sequence[int],
        num_graphs: int,
        masked: bool,
        channels: int,
    ) -> None:
        width = 1 << (channels - 1).bit_length()
        rows = max(1, _TILE // width)
        programs = [min(_MOST_PROGRAMS, -(-length // rows)) for length in lengths]
        self.kinds = [kind_of(norm) for norm in norms]
        self.programs = sum(programs)
        self._sizes = lengths[0], sum(lengths), programs[0], num_graphs, channels
        self._constants = {
            "KIND0": self.kinds[0],
            "KIND1": self.kinds[-1],
            "MASKED": masked,
            "ROWS": rows,
            "PART": min(_MOST_PROGRAMS, max(1, _TILE // 2 // width)),
            "MOST": _MOST_PROGRAMS,
            "W": width,
        }

    def __call__(self, kernel: Any, *given: Any) -> None:
        """Start a kernel; what it is given comes before the sizes."""
        if self.programs:
            with on_device_of(given[0]):
                kernel[(self.programs,)](*given, *self._sizes, **self._constants, num_warps=8)


@functools.lru_cache
def agrees(device: torch.device, channels: int, *kinds: int) -> bool:
    """Whether norms of these kinds are what the plain path gives; says so if they are not."""
    return agreement("the norms take", device, lambda: disagreement(device, channels, *kinds))


def disagreement(device: torch.device, channels: int, *kinds: int) -> float:
    """Largest relative difference of values, gradients and statistics to the plain path."""
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    graphs, atoms = 40, 3000
    rows = drawn(graphs + atoms, channels) * 2 + drawn(channels)
    slope = drawn(graphs + atoms, channels).to(device)
    real = (torch.arange(atoms) < atoms - 50).to(device)
    rows[-50:] = 1e3  # padding enters no statistic
    lengths = [graphs, atoms] if len(kinds) == 2 else [graphs + atoms]
    results = []
    for dtype in (torch.float32, torch.float64):
        norms = [_norm(kind, channels).to(device, dtype) for kind in kinds]
        given = rows.to(device, dtype).requires_grad_()
        if dtype == torch.float32:
            output = normalise(given, norms, lengths, graphs, real)
        else:
            masks = torch.cat([real.new_ones(graphs), real]).split(lengths)
            parts = zip(norms, given.split(lengths), masks, strict=True)
            output = torch.cat([_plainly(norm, part, mask) for norm, part, mask in parts])
        inputs = [given, *(parameter for norm in norms for parameter in norm.parameters())]
        # Nothing looks at padding.
        counted = torch.cat([real.new_ones(graphs), real])[:, None]
        wanted = torch.where(counted, slope, 0).to(dtype)
        buffers = [buffer.double() for norm in norms for buffer in norm.buffers()]
        results.append(
            [
                torch.where(counted, output, 0),
                *torch.autograd.grad(output, inputs, wanted),
                *buffers,
            ]
        )
    return largest_difference(*results)


def _norm(kind: int, channels: int) -> Norm:
    """A norm of a kind, whose parameters and statistics are none that a new one has."""
    norm = nn.LayerNorm(channels) if kind == OF_ROWS else MaskedBatchNorm(channels)
    if isinstance(norm, MaskedBatchNorm):
        norm.fixed = kind == CONSTANT
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for tensor in (*norm.parameters(), *norm.buffers()):
            if tensor.is_floating_point():
                tensor.copy_(0.5 + torch.rand(tensor.shape, generator=generator))
    return norm


def _plainly(norm: Norm, rows: Tensor, real: Tensor) -> Tensor:
    return norm(rows, real) if isinstance(norm, MaskedBatchNorm) else norm(rows)
