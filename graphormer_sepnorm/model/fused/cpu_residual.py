"""What joins the residual stream on a CPU, by the compiled functions of `kernels`.

Dropout masks are not kept: backward makes them again.

R packed rows · C channels (width)
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphormer_sepnorm.kernels.library import integers, point, pointers, run

# What a thread takes at a time: rows forwards, channels backwards; numbers of a dropout.
_SHARE_OF_ROWS, _SHARE_OF_CHANNELS, _SHARE_OF_NUMBERS = 256, 32, 1 << 16


class _Residual(ctypes.Structure):
    """``Residual`` of kernels/residual.c."""

    _fields_ = (
        *pointers("residual", "update", "messages", "log_degree", "plain", "by_degree", "output"),
        *pointers("gradient", "update_gradient", "plain_gradient", "by_degree_gradient"),
        *integers("rows", "width"),
    )


class Dropout(ctypes.Structure):
    """``Dropout`` of kernels/vector.h."""

    _fields_ = (
        ("seed", ctypes.c_uint32 * 2),
        ("threshold", ctypes.c_uint32),
        ("scale", ctypes.c_float),
    )


class _DropoutAddition(ctypes.Structure):
    """``DropoutAdd`` of kernels/dropout.c."""

    _fields_ = (
        ("dropout", Dropout),
        *pointers("residual", "update", "output"),
    )


def new_dropout(probability: float) -> Dropout:
    """Draw a seed from torch's generator, so that `torch.manual_seed` decides the masks."""
    if not probability:
        return Dropout()
    seed = torch.randint(0, 1 << 32, (2,), device="cpu").tolist()
    return Dropout(
        seed=(ctypes.c_uint32 * 2)(*seed),
        threshold=round(probability * 2**32),
        scale=1 / (1 - probability),
    )


def dropout_add(residual: Tensor | None, update: Tensor, dropout: float) -> Tensor:
    """Return ``residual + dropout(update)`` in one pass; without `residual` the second alone."""
    result: Any = _DropoutAdd.apply(residual, update, dropout)
    return result


def add_scaled(
    residual: Tensor,
    update: Tensor,
    messages: Tensor | None,
    log_degree: Tensor,
    plain: Tensor,
    by_degree: Tensor,
) -> Tensor:
    """Return ``residual + update * (plain + log_degree * by_degree) + messages`` in one pass.

    Args:
        residual: ``[R, C]``.
        update: ``[R, C]``, what attention gives.
        messages: ``[R, C]``; None: there are none.
        log_degree: ``[R, 1]``, a constant: it gets no gradient.
        plain: ``[C]``.
        by_degree: ``[C]``.

    Returns:
        ``[R, C]``.
    """
    result: Any = _AddScaled.apply(residual, update, messages, log_degree, plain, by_degree)
    return result


class _AddScaled(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, residual: Tensor, update: Tensor, messages: Tensor | None, *scaling: Tensor
    ) -> Tensor:
        residual, update = residual.contiguous(), update.contiguous()
        messages = None if messages is None else messages.contiguous()
        output = torch.empty_like(update)
        arguments = _arguments(update, *scaling)
        point(arguments, residual=residual, messages=messages, output=output)
        run("residual_forward", arguments, len(update), _SHARE_OF_ROWS, torch.get_num_threads())
        ctx.save_for_backward(update, *scaling)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        update, *scaling = ctx.saved_tensors
        gradient = gradient.contiguous()
        of_update, _, of_plain, of_degree = map(torch.empty_like, ctx.saved_tensors)
        arguments = _arguments(update, *scaling)
        point(arguments, gradient=gradient, update_gradient=of_update)
        point(arguments, plain_gradient=of_plain, by_degree_gradient=of_degree)
        threads = torch.get_num_threads()
        run("residual_backward", arguments, len(of_plain), _SHARE_OF_CHANNELS, threads)
        messages = gradient if ctx.needs_input_grad[2] else None
        return gradient, of_update, messages, None, of_plain, of_degree


def _arguments(update: Tensor, log_degree: Tensor, plain: Tensor, by_degree: Tensor) -> _Residual:
    sizes = _Residual(rows=len(update), width=update.shape[1])
    return point(sizes, update=update, log_degree=log_degree, plain=plain, by_degree=by_degree)


class _DropoutAdd(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, residual: Tensor | None, update: Tensor, dropout: float) -> Tensor:
        ctx.dropout = new_dropout(dropout)
        return _run_dropout(ctx.dropout, residual, update)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, None]:  # type: ignore[override]
        residual = gradient if ctx.needs_input_grad[0] else None
        return residual, _run_dropout(ctx.dropout, None, gradient), None


def _run_dropout(dropout: Dropout, residual: Tensor | None, update: Tensor) -> Tensor:
    update = update.contiguous()
    output = torch.empty_like(update)
    residual = None if residual is None else residual.contiguous()
    arguments = _DropoutAddition(dropout)
    point(arguments, residual=residual, update=update, output=output)
    run("dropout_add", arguments, update.numel(), _SHARE_OF_NUMBERS, torch.get_num_threads())
    return output
