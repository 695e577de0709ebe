"""The norms of packed rows on a CPU, all of a layer's in one pass, by the compiled functions.

Rows lie in stretches, each with a LayerNorm or a BatchNorm of its own: the graph tokens, then the
atoms. One after the other would be a split, their norms and a join, forwards and backwards.

R packed rows · D channels
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from graphormer_sepnorm.kernels.library import integers, point, pointers, run
from graphormer_sepnorm.model.batch_norm import MaskedBatchNorm

Norm = nn.LayerNorm | MaskedBatchNorm
# Kinds of norms: LayerNorm; BatchNorm by the statistics of the batch; by constants.
OF_ROWS, OF_BATCH, CONSTANT = range(3)  # kernels/norm.c, gpu_norm_kernels.py

# What a thread takes at a time: rows; channels, where they are summed over rows.
_SHARE_OF_ROWS, _SHARE_OF_CHANNELS = 256, 32


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


def kind_of(norm: Norm) -> int:
    """What a norm takes its statistics of, at present."""
    if isinstance(norm, nn.LayerNorm):
        return OF_ROWS
    return OF_BATCH if norm.follows_batches else CONSTANT


def normalise(rows: Tensor, norms: Sequence[Norm], lengths: Sequence[int]) -> Tensor:
    """Normalise the stretches of packed rows, as the norms would one by one.

    Args:
        rows: ``[R, D]``, float32 on a CPU; every row counts.
        norms: Of each stretch; one or two.
        lengths: Their rows, R together.

    Returns:
        ``[R, D]``.

    Raises:
        DataError: A BatchNorm would take the variance of fewer than two rows.
    """
    for norm, length in zip(norms, lengths, strict=True):
        if isinstance(norm, MaskedBatchNorm) and norm.follows_batches:
            norm.require_two(length)
    parameters = [tensor for norm in norms for tensor in (norm.weight, norm.bias)]
    result: Any = _Normalise.apply(rows, norms, lengths, *parameters)
    return result


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, norms: Sequence[Norm], lengths: Sequence[int], *parameters: Tensor
    ) -> Tensor:
        rows, output = rows.contiguous(), torch.empty_like(rows)
        parameters = tuple(parameter.contiguous() for parameter in parameters)
        width, threads = rows.shape[1], torch.get_num_threads()
        arguments = point(_Norm(count=len(norms), width=width), input=rows, output=output)
        statistics: list[Tensor] = []
        first = 0
        for stretch, norm, length in zip(arguments.stretches, norms, lengths, strict=False):
            stretch.first, stretch.last = first, first + length
            stretch.kind, stretch.eps = kind_of(norm), norm.eps
            first += length
            statistics.append(rows.new_empty(2, length if stretch.kind == OF_ROWS else width))
            if isinstance(norm, MaskedBatchNorm):
                point(stretch, running_mean=norm.running_mean, running_variance=norm.running_var)
                stretch.momentum = norm.momentum
                if stretch.kind == OF_BATCH:
                    norm.num_batches_tracked.add_(1)
        _point(arguments, parameters, statistics)
        if any(stretch.kind != OF_ROWS for stretch in arguments.stretches[: len(norms)]):
            run("norm_statistics", arguments, width, _SHARE_OF_CHANNELS, threads)
        run("norm_forward", arguments, rows.shape[0], _SHARE_OF_ROWS, threads)
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
        _point(arguments, parameters, statistics)
        point(arguments, input=rows, gradient=gradient, input_gradient=of_rows)
        for number, stretch in enumerate(arguments.stretches[: arguments.count]):
            of_weight, of_bias = of_parameters[2 * number : 2 * number + 2]
            point(stretch, weight_gradient=of_weight, bias_gradient=of_bias)
        threads = torch.get_num_threads()
        run("norm_sums", arguments, arguments.width, _SHARE_OF_CHANNELS, threads)
        run("norm_backward", arguments, rows.shape[0], _SHARE_OF_ROWS, threads)
        return of_rows, None, None, *of_parameters


def _point(arguments: _Norm, parameters: Sequence[Tensor], statistics: Sequence[Tensor]) -> None:
    """Say where weights, biases, means and scales of the stretches lie."""
    for number, stretch in enumerate(arguments.stretches[: arguments.count]):
        weight, bias = parameters[2 * number : 2 * number + 2]
        mean, scale = statistics[number]
        point(stretch, weight=weight, bias=bias, mean=mean, scale=scale)
