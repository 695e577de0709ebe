"""Random walks and their attention bias on a CPU, by the compiled functions of `kernels`.

R packed rows · K powers · H heads
"""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphormer_sepnorm.kernels.library import run
from graphormer_sepnorm.model.fused.cpu_attention import PackedBias

# Graphs that a thread takes at a time.
_SHARE = 4


class _Walks(ctypes.Structure):
    """``Walks`` of kernels/walks.c."""

    _fields_ = (
        ("rows", ctypes.c_void_p),
        ("num_tokens", ctypes.c_void_p),
        ("bias_start", ctypes.c_void_p),
        ("pair_type", ctypes.c_void_p),
        ("is_bond", ctypes.c_void_p),
        ("max_tokens", ctypes.c_int64),
        ("heads", ctypes.c_int64),
        ("steps", ctypes.c_int64),
        ("weight", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("returns", ctypes.c_void_p),
        ("gradient", ctypes.c_void_p),
        ("weight_gradient", ctypes.c_void_p),
    )


def add_walk_bias(bias: PackedBias, weight: Tensor, is_bond: Tensor, returns: Tensor) -> PackedBias:
    """Add ``sum_k weight_hk P_k(i, j)`` to the bias of each pair.

    Args:
        bias: Of a block.
        weight: ``[H, K]``.
        is_bond: bool ``[2 + P]``, which pair types are bonds.
        returns: ``[R, K]``; ``P_k(i, i)`` of the block's tokens is written there.
    """
    values: Any = _AddWalkBias.apply(bias.values, weight, is_bond, returns, bias)
    return replace(bias, values=values)


class _AddWalkBias(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        weight: Tensor,
        is_bond: Tensor,
        returns: Tensor,
        layout: PackedBias,
    ) -> Tensor:
        weight, output = weight.contiguous(), torch.empty_like(values)
        arguments = _arguments(weight, is_bond, layout)
        arguments.bias, arguments.output = values.data_ptr(), output.data_ptr()
        arguments.returns = returns.data_ptr()
        _run("walks_forward", arguments, layout)
        ctx.save_for_backward(weight, is_bond)
        ctx.layout = layout
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        weight, is_bond = ctx.saved_tensors
        gradient = gradient.contiguous()
        of_graphs = weight.new_empty(len(ctx.layout.num_tokens), *weight.shape)
        arguments = _arguments(weight, is_bond, ctx.layout)
        arguments.gradient = gradient.data_ptr()
        arguments.weight_gradient = of_graphs.data_ptr()
        _run("walks_backward", arguments, ctx.layout)
        return gradient, of_graphs.sum(0), None, None, None


def _arguments(weight: Tensor, is_bond: Tensor, layout: PackedBias) -> _Walks:
    return _Walks(
        rows=layout.block.rows.data_ptr(),
        num_tokens=layout.num_tokens.data_ptr(),
        bias_start=layout.start.data_ptr(),
        pair_type=layout.block.pair_type.data_ptr(),
        is_bond=is_bond.data_ptr(),
        max_tokens=layout.block.rows.shape[1],
        heads=len(weight),
        steps=weight.shape[1],
        weight=weight.data_ptr(),
    )


def _run(name: str, arguments: _Walks, layout: PackedBias) -> None:
    run(name, arguments, len(layout.num_tokens), _SHARE, torch.get_num_threads())
