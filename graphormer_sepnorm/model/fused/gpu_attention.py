"""Attention on a GPU as one kernel forward and one backward, where Triton is there and agrees.

The plain path takes about a dozen kernels for a layer and writes the attention weights several
times. Here the packed rows are read and written in place. Before it is used for heads and tokens of
some size, it is compared with the plain path on the device itself; if it does not agree, or cannot
be compiled, one line says so and the plain path is taken.

R packed rows · b graphs of a block · T tokens · H heads · C channels of a head
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphormer_sepnorm.graphs.batch import PADDING_PAIR, TOKEN_PAIR, AttentionBlock
from graphormer_sepnorm.model.fused.gpu import (
    agreement,
    largest_difference,
    on_device_of,
    possible,
)

MOST_TOKENS, MOST_CHANNELS = 64, 64


def usable(projected: Tensor, blocks: Sequence[AttentionBlock], heads: int) -> bool:
    """Whether `attend` can take these rows ``[R, 3 H C]``, and gives what the plain path gives."""
    channels = projected.shape[1] // (3 * heads)
    return (
        possible(projected)
        and channels <= MOST_CHANNELS
        and all(block.rows.shape[1] <= MOST_TOKENS for block in blocks)
        and all(agrees(projected.device, block.rows.shape[1], heads, channels) for block in blocks)
    )


def attend(
    projected: Tensor,
    blocks: Sequence[AttentionBlock],
    biases: Sequence[Tensor],
    heads: int,
    dropout: float,
) -> Tensor:
    """Mix the rows of each graph: softmax(q k / sqrt(C) + bias) v, head by head.

    Args:
        projected: ``[R, 3 H C]``, query, key and value of each packed row.
        blocks: Each row is in one of them, or in none.
        biases: The attention bias of each block, ``[b, H, T, T]``.
        heads: H, attention heads.
        dropout: Probability of dropping an attention weight.

    Returns:
        ``[R, H C]``; zero for rows that belong to no graph.
    """
    result: Any = _Attend.apply(projected, blocks, heads, dropout, *biases)
    return result


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        projected: Tensor,
        blocks: Sequence[AttentionBlock],
        heads: int,
        dropout: float,
        *biases: Tensor,
    ) -> Tensor:
        from graphormer_sepnorm.model.fused.gpu_attention_kernels import attention_forward

        projected = projected.contiguous()
        biases = tuple(bias.contiguous() for bias in biases)
        output = projected.new_zeros(len(projected), projected.shape[1] // 3)
        seeds = torch.empty(len(blocks), dtype=torch.int64, device=projected.device)
        if dropout > 0:  # on the device, so that a recorded step draws another one each time
            seeds.random_(1 << 31)
        ctx.blocks, ctx.heads, ctx.dropout = blocks, heads, dropout
        for block, bias, seed in zip(blocks, biases, seeds, strict=True):
            given = (projected, bias, block.rows, block.pair_type, seed, output)
            _launch(attention_forward, block, given, heads, dropout, output.shape[1] // heads)
        ctx.save_for_backward(projected, seeds, *biases)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        from graphormer_sepnorm.model.fused.gpu_attention_kernels import attention_backward

        projected, seeds, *biases = ctx.saved_tensors
        gradient = gradient.contiguous()
        of_rows = torch.zeros_like(projected)
        of_biases = [torch.empty_like(bias) for bias in biases]
        channels = gradient.shape[1] // ctx.heads
        for block, bias, seed, of_bias in zip(ctx.blocks, biases, seeds, of_biases, strict=True):
            given = (projected, bias, block.rows, block.pair_type, seed, gradient, of_rows, of_bias)
            _launch(attention_backward, block, given, ctx.heads, ctx.dropout, channels)
        return of_rows, None, None, None, *of_biases


def _launch(
    kernel: Any,
    block: AttentionBlock,
    given: tuple[Tensor, ...],
    heads: int,
    dropout: float,
    channels: int,
) -> None:
    graphs, tokens = block.rows.shape
    with on_device_of(given[0]):
        kernel[(graphs, heads)](
            *given,
            tokens,
            channels**-0.5,
            dropout,
            HEADS=heads,
            C=channels,
            S=_rounded(tokens),
            D=_rounded(channels),
            DROPPING=dropout > 0,
            # Compiled for an H100, four warps have too few registers for 64 x 64 logits.
            num_warps=8 if _rounded(tokens) > 32 else 4,
        )


def _rounded(number: int) -> int:
    """The next power of 2, and at least what a matrix unit takes."""
    return max(16, 1 << (number - 1).bit_length())


@functools.lru_cache
def agrees(device: torch.device, tokens: int, heads: int, channels: int) -> bool:
    """Whether kernels of this size give what the plain path gives; says so if they do not."""
    return agreement(
        "attention takes", device, lambda: disagreement(device, tokens, heads, channels)
    )


def disagreement(device: torch.device, tokens: int, heads: int, channels: int) -> float:
    """Largest relative difference of values and gradients to the plain path, on two graphs."""
    generator = torch.Generator().manual_seed(0)
    sizes = torch.tensor([[tokens], [max(1, tokens - 3)]])
    real = torch.arange(tokens) < sizes
    rows = torch.where(real, torch.arange(2 * tokens).view(2, tokens), 0).to(device)
    pair_type = torch.where(real, TOKEN_PAIR, PADDING_PAIR)[:, None].repeat(1, tokens, 1)
    block = AttentionBlock(rows, pair_type.to(device))

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(device)

    bias = drawn(2, heads, tokens, tokens)
    bias = bias.masked_fill(~real[:, None, None].to(device), float("-inf")).requires_grad_()
    projected = drawn(2 * tokens, 3 * heads * channels).requires_grad_()
    slope = drawn(2 * tokens, heads * channels)
    fused = attend(projected, [block], [bias], heads, 0.0)
    found = fused, *torch.autograd.grad(fused, (projected, bias), slope)
    query, key, value = (
        projected[rows].unflatten(2, (3, heads, channels)).permute(2, 0, 3, 1, 4).double()
    )
    weights = (query @ key.mT * channels**-0.5 + bias.double()).softmax(-1)
    mixed = (weights @ value).transpose(1, 2).flatten(2)[real.to(device)]
    plain = torch.zeros_like(slope, dtype=torch.float64).index_put((rows[real.to(device)],), mixed)
    truth = plain, *torch.autograd.grad(plain, (projected, bias), slope.double())
    return largest_difference(found, truth)
