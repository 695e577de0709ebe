"""Attention and its bias on a CPU, by the compiled functions of `kernels`.

They work on the real tokens of each graph alone, keep no dropout masks and nothing of the size of
the attention weights for backward, and give what the plain path gives up to rounding; dropout masks
are other draws of the same distribution.

R packed rows · b graphs of a block · T tokens of a graph · S: T rounded up to whole vectors
H heads · C channels
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from graphormer_sepnorm.graphs.batch import PADDING_PAIR, AttentionBlock
from graphormer_sepnorm.kernels.library import integers, library, point, pointers, run
from graphormer_sepnorm.model.fused.cpu_residual import Dropout, new_dropout

_LANES = 8  # kernels/vector.h
_SHARE_OF_GRAPHS = 4  # that a thread takes at a time


class _Attention(ctypes.Structure):
    """``Attention`` of kernels/attention.c."""

    _fields_ = (
        *pointers("rows", "num_tokens", "bias_start", "softmax_start"),
        *integers("max_tokens", "heads", "channels"),
        ("scale", ctypes.c_float),
        ("dropping", ctypes.c_int32),
        ("dropout", Dropout),
        *pointers("projected", "bias", "output", "softmax"),
        *pointers("output_gradient", "projected_gradient", "bias_gradient"),
        ("adding", ctypes.c_int32),
        *pointers("pair_type", "table", "table_gradient", "mixing", "mixing_gradient"),
    )


def usable(rows: Tensor, channels: int = _LANES) -> bool:
    """Whether the compiled functions can take ``rows``, for heads of `channels` channels."""
    if torch.compiler.is_compiling() or not rows.is_cpu or rows.dtype != torch.float32:
        return False
    compiled = library()
    return (
        compiled is not None
        and not torch.is_autocast_enabled("cpu")
        and _compiled_channels(compiled, channels) > 0
    )


def _compiled_channels(compiled: ctypes.CDLL, channels: int) -> int:
    """Return the fewest channels that there is code for and that hold those of a head; 0: none."""
    return int(compiled.attention_channels(ctypes.c_int64(channels)))


_S = TypeVar("_S", bound=ctypes.Structure)


@dataclass
class _Gradient:
    """Where all that use a bias add its gradient up.

    Attributes:
        total: The sum so far, laid out as the bias; None before the first of them.
        backward: In which backward pass, by torch's number of it: one that asked for other
            gradients alone leaves a sum that nobody has taken.
    """

    total: Tensor | None = None
    backward: int = -1

    def so_far(self) -> Tensor | None:
        """Return the sum of the backward pass that runs."""
        now = torch._C._current_graph_task_id()
        if now != self.backward:
            self.total, self.backward = None, now
        return self.total


@dataclass(frozen=True)
class PackedBias:
    """The attention bias of a block without its padding.

    Attributes:
        values: float32, for each graph ``[H, T keys, S queries]``, one after the other.
        block: Which packed rows the tokens are, and the types of their pairs.
        num_tokens: int64 ``[b]``, T of each graph.
        start: int64 ``[b + 1]``, where `values` of each graph begin.
        softmax_start: int64 ``[b + 1]``, where ``[H, 2, S]`` of each graph begin.
        mixing: ``[H, H]``, the shares of all heads in the bias of each; None: each has its own.
        gradient: Where that of `values` is added up (`share_bias`); None: nowhere.
    """

    values: Tensor
    block: AttentionBlock
    num_tokens: Tensor
    start: Tensor
    softmax_start: Tensor
    mixing: Tensor | None = None
    gradient: _Gradient | None = None

    def arguments(self, structure: type[_S], heads: int) -> _S:
        """Return what every compiled function wants to know."""
        sizes = structure(max_tokens=self.block.rows.shape[1], heads=heads)
        point(sizes, rows=self.block.rows, pair_type=self.block.pair_type)
        return point(sizes, num_tokens=self.num_tokens, bias_start=self.start)

    def run(self, name: str, arguments: ctypes.Structure, threads: int | None = None) -> None:
        """Call a compiled function for all graphs; in torch's threads unless told otherwise."""
        threads = threads or torch.get_num_threads()
        run(name, arguments, len(self.num_tokens), _SHARE_OF_GRAPHS, threads)


def gather_bias(table: Tensor, block: AttentionBlock) -> PackedBias:
    """Lay out the bias of each pair of a block; ``table [2 + P, H]`` is that of its type."""
    heads = table.shape[1]
    num_tokens = (block.pair_type[:, 0] != PADDING_PAIR).sum(1)
    lanes = (num_tokens + _LANES - 1) // _LANES * _LANES
    start = _starts(heads * num_tokens * lanes)
    softmax_start = _starts(2 * heads * lanes)
    layout = PackedBias(table.new_empty(0), block, num_tokens, start, softmax_start)
    values: Any = _GatherBias.apply(table, layout)
    return replace(layout, values=values)


def share_bias(bias: PackedBias) -> PackedBias:
    """Return a bias whose gradient is added up in one place, for the many layers that use it.

    Otherwise each would write one, as large as the bias, for autograd to add.
    """
    gradient = _Gradient()
    values: Any = _ShareBias.apply(bias.values, gradient)
    return replace(bias, values=values, gradient=gradient)


def attend(projected: Tensor, biases: Sequence[PackedBias], heads: int, dropout: float) -> Tensor:
    """Mix the rows of each graph: softmax(q k / sqrt(d) + bias) v, head by head.

    Args:
        projected: ``[R, 3 C]``, query, key and value of each packed row.
        biases: The attention bias of each block.
        heads: H, attention heads.
        dropout: Probability of dropping an attention weight.

    Returns:
        ``[R, C]``; zero for rows that belong to no graph.
    """
    tensors = (tensor for bias in biases for tensor in (bias.values, bias.mixing))
    channels = projected.shape[1] // (3 * heads)
    scale = channels**-0.5
    # Channels of zeros change nothing, and are much quicker than code for any number of them.
    compiled = library()
    assert compiled is not None  # there would be no packed bias
    missing = _compiled_channels(compiled, channels) - channels
    if missing:
        projected = functional.pad(projected.unflatten(1, (-1, channels)), (0, missing)).flatten(1)
    result: Any = _Attend.apply(projected, heads, scale, dropout, biases, *tensors)
    return result.unflatten(1, (heads, -1))[..., :channels].flatten(1) if missing else result


class _GatherBias(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, layout: PackedBias) -> Tensor:
        ctx.layout, ctx.shape = layout, table.shape
        values = table.new_empty(int(layout.start[-1]))
        table = table.contiguous()
        arguments = layout.arguments(_Attention, table.shape[1])
        layout.run("bias_forward", point(arguments, table=table, bias=values))
        return values

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        table = gradient.new_zeros(ctx.shape, dtype=torch.float64)
        gradient = gradient.contiguous()
        arguments = ctx.layout.arguments(_Attention, ctx.shape[1])
        point(arguments, bias_gradient=gradient, table_gradient=table)
        # Types are shared by all graphs.
        ctx.layout.run("bias_backward", arguments, threads=1)
        return table.to(gradient.dtype), None


class _ShareBias(torch.autograd.Function):
    """Passes on the sum of the gradients that all layers have added up in one place."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, gradient: _Gradient) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.gradient = gradient
        return values.view_as(values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_others: Tensor | None) -> tuple[Tensor | None, None]:  # type: ignore[override]
        total, ctx.gradient.total = ctx.gradient.so_far(), None
        if of_others is None or total is None:
            return of_others if total is None else total, None
        return total.add_(of_others), None


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        projected: Tensor,
        heads: int,
        scale: float,
        dropout: float,
        biases: Sequence[PackedBias],
        *tensors: Tensor | None,
    ) -> Tensor:
        projected = projected.contiguous()
        width = projected.shape[1] // 3
        output = projected.new_empty(len(projected), width)
        if sum(int(bias.num_tokens.sum()) for bias in biases) < len(projected):
            output.zero_()
        later = any(ctx.needs_input_grad)
        mixings = [None if mixing is None else mixing.contiguous() for mixing in tensors[1::2]]
        softmax, calls = [], []
        for bias, mixing in zip(biases, mixings, strict=True):
            arguments = bias.arguments(_Attention, heads)
            arguments.channels, arguments.scale = width // heads, scale
            arguments.dropping, arguments.dropout = dropout > 0, new_dropout(dropout)
            point(arguments, softmax_start=bias.softmax_start, bias=bias.values, mixing=mixing)
            point(arguments, projected=projected, output=output)
            if later:
                softmax.append(projected.new_empty(int(bias.softmax_start[-1])))
                point(arguments, softmax=softmax[-1])
            bias.run("attention_forward", arguments)
            calls.append(arguments)
        ctx.save_for_backward(projected, output, *softmax, *tensors[::2], *mixings)
        ctx.calls, ctx.biases = calls, biases
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        projected, output, *others = ctx.saved_tensors
        blocks = len(ctx.biases)
        saved = zip(others[:blocks], others[blocks : 2 * blocks], others[2 * blocks :], strict=True)
        gradient = gradient.contiguous()
        projected_gradient = torch.empty_like(projected)
        if sum(int(bias.num_tokens.sum()) for bias in ctx.biases) < len(projected):
            projected_gradient.zero_()
        gradients: list[Tensor | None] = []
        for number, (softmax, values, mixing) in enumerate(saved):
            bias, arguments = ctx.biases[number], ctx.calls[number]
            # Saved tensors may have been moved meanwhile (`saved_tensors_hooks`).
            point(arguments, projected=projected, output=output, softmax=softmax, bias=values)
            point(arguments, mixing=mixing, output_gradient=gradient)
            shared = bias.gradient
            total = None if shared is None else shared.so_far()
            arguments.adding = total is not None
            # Lanes beyond the last query are written too.
            total = torch.empty_like(values) if total is None else total
            of_graphs = None
            if mixing is not None:
                of_graphs = mixing.new_empty(len(bias.num_tokens), *mixing.shape)
            point(arguments, bias_gradient=total, mixing_gradient=of_graphs)
            point(arguments, projected_gradient=projected_gradient)
            bias.run("attention_backward", arguments)
            if shared is not None:
                shared.total = total
            gradients.append(total if shared is None else None)
            gradients.append(None if of_graphs is None else of_graphs.sum(0))
        return projected_gradient, None, None, None, None, *gradients


def _starts(sizes: Tensor) -> Tensor:
    """Where each of several things begins that lie one after the other, and where the last ends."""
    return torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
