"""Random walks or simple paths and their attention bias on a CPU, by the compiled functions.

R packed rows · K powers · H heads
"""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphormer_sepnorm.kernels.library import integers, point, pointers
from graphormer_sepnorm.model.fused.cpu_attention import PackedBias


class _Walks(ctypes.Structure):
    """``Walks`` of kernels/walks.c."""

    _fields_ = (
        *pointers("rows", "num_tokens", "bias_start", "pair_type", "is_bond"),
        *integers("max_tokens", "heads", "steps", "most_paths"),
        *pointers("weight", "bias", "output", "returns", "gradient", "weight_gradient"),
    )


def add_walk_bias(
    bias: PackedBias, weight: Tensor, is_bond: Tensor, returns: Tensor, most_paths: int
) -> PackedBias:
    """Add ``sum_k weight_hk P_k(i, j)`` to the bias of each pair.

    Args:
        bias: Of a block.
        weight: ``[H, K]``.
        is_bond: bool ``[2 + P]``, which pair types are bonds.
        returns: ``[R, K]``; ``P_k(i, i)`` of the block's tokens is written there.
        most_paths: 0: P are the probabilities of random walks. Otherwise they are logarithms of
            counts of simple paths, for graphs that have no more than so many.
    """
    values: Any = _AddWalkBias.apply(bias.values, weight, is_bond, returns, bias, most_paths)
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
        most_paths: int,
    ) -> Tensor:
        weight, output = weight.contiguous(), torch.empty_like(values)
        arguments = _arguments(weight, is_bond, layout, most_paths)
        point(arguments, bias=values, output=output, returns=returns)
        layout.run("walks_forward", arguments)
        ctx.save_for_backward(weight, is_bond)
        ctx.layout, ctx.most_paths = layout, most_paths
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        weight, is_bond = ctx.saved_tensors
        gradient = gradient.contiguous()
        of_graphs = weight.new_empty(len(ctx.layout.num_tokens), *weight.shape)
        arguments = _arguments(weight, is_bond, ctx.layout, ctx.most_paths)
        point(arguments, gradient=gradient, weight_gradient=of_graphs)
        ctx.layout.run("walks_backward", arguments)
        return gradient, of_graphs.sum(0), None, None, None, None


def _arguments(weight: Tensor, is_bond: Tensor, layout: PackedBias, most_paths: int) -> _Walks:
    heads, steps = weight.shape
    arguments = layout.arguments(_Walks, heads)
    arguments.steps, arguments.most_paths = steps, most_paths
    return point(arguments, weight=weight, is_bond=is_bond)
