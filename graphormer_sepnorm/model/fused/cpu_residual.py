"""What joins the residual stream after attention on a CPU, by the compiled functions of `kernels`.

R packed rows · C channels (width)
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphormer_sepnorm.kernels.library import run

# What a thread takes at a time: rows forwards, channels backwards.
_SHARE_OF_ROWS, _SHARE_OF_CHANNELS = 256, 32


class _Residual(ctypes.Structure):
    """``Residual`` of kernels/residual.c."""

    _fields_ = (
        ("residual", ctypes.c_void_p),
        ("update", ctypes.c_void_p),
        ("messages", ctypes.c_void_p),
        ("log_degree", ctypes.c_void_p),
        ("plain", ctypes.c_void_p),
        ("by_degree", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("gradient", ctypes.c_void_p),
        ("update_gradient", ctypes.c_void_p),
        ("plain_gradient", ctypes.c_void_p),
        ("by_degree_gradient", ctypes.c_void_p),
        ("rows", ctypes.c_int64),
        ("width", ctypes.c_int64),
    )


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
        ctx: Any,
        residual: Tensor,
        update: Tensor,
        messages: Tensor | None,
        log_degree: Tensor,
        plain: Tensor,
        by_degree: Tensor,
    ) -> Tensor:
        residual, update = residual.contiguous(), update.contiguous()
        messages = None if messages is None else messages.contiguous()
        output = torch.empty_like(update)
        arguments = _arguments(update, log_degree, plain, by_degree)
        arguments.residual, arguments.output = residual.data_ptr(), output.data_ptr()
        arguments.messages = None if messages is None else messages.data_ptr()
        run("residual_forward", arguments, len(update), _SHARE_OF_ROWS, torch.get_num_threads())
        ctx.save_for_backward(update, log_degree, plain, by_degree)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        update, log_degree, plain, by_degree = ctx.saved_tensors
        gradient = gradient.contiguous()
        of_update, of_plain = torch.empty_like(update), torch.empty_like(plain)
        of_degree = torch.empty_like(by_degree)
        arguments = _arguments(update, log_degree, plain, by_degree)
        arguments.gradient, arguments.update_gradient = gradient.data_ptr(), of_update.data_ptr()
        arguments.plain_gradient = of_plain.data_ptr()
        arguments.by_degree_gradient = of_degree.data_ptr()
        threads = torch.get_num_threads()
        share = len(plain) if threads == 1 else _SHARE_OF_CHANNELS
        run("residual_backward", arguments, len(plain), share, threads)
        messages = gradient if ctx.needs_input_grad[2] else None
        return gradient, of_update, messages, None, of_plain, of_degree


def _arguments(update: Tensor, log_degree: Tensor, plain: Tensor, by_degree: Tensor) -> _Residual:
    return _Residual(
        update=update.data_ptr(),
        log_degree=log_degree.data_ptr(),
        plain=plain.data_ptr(),
        by_degree=by_degree.data_ptr(),
        rows=len(update),
        width=update.shape[1],
    )
