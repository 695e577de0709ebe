"""Attention, its bias and dropout on a CPU, by the compiled functions of `kernels`.

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
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphormer_sepnorm.graphs.batch import PADDING_PAIR, AttentionBlock
from graphormer_sepnorm.kernels.library import library, run

_LANES = 8  # kernels/vector.h
# What a thread takes at a time: some graphs, some numbers.
_SHARE_OF_GRAPHS, _SHARE_OF_NUMBERS = 4, 1 << 16


class _Dropout(ctypes.Structure):
    """``Dropout`` of kernels/vector.h."""

    _fields_ = (
        ("seed", ctypes.c_uint32 * 2),
        ("threshold", ctypes.c_uint32),
        ("scale", ctypes.c_float),
    )


class _DropoutArguments(ctypes.Structure):
    """``DropoutAdd`` of kernels/dropout.c."""

    _fields_ = (
        ("dropout", _Dropout),
        ("residual", ctypes.c_void_p),
        ("update", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
    )


class _Attention(ctypes.Structure):
    """``Attention`` of kernels/attention.c."""

    _fields_ = (
        ("rows", ctypes.c_void_p),
        ("num_tokens", ctypes.c_void_p),
        ("bias_start", ctypes.c_void_p),
        ("softmax_start", ctypes.c_void_p),
        ("max_tokens", ctypes.c_int64),
        ("heads", ctypes.c_int64),
        ("channels", ctypes.c_int64),
        ("scale", ctypes.c_float),
        ("dropping", ctypes.c_int32),
        ("dropout", _Dropout),
        ("projected", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("softmax", ctypes.c_void_p),
        ("output_gradient", ctypes.c_void_p),
        ("projected_gradient", ctypes.c_void_p),
        ("bias_gradient", ctypes.c_void_p),
        ("pair_type", ctypes.c_void_p),
        ("table", ctypes.c_void_p),
        ("table_gradient", ctypes.c_void_p),
        ("graphs", ctypes.c_int64),
        ("pair_bias", ctypes.c_void_p),
        ("mixing", ctypes.c_void_p),
        ("mixing_gradient", ctypes.c_void_p),
        ("mixed_bias", ctypes.c_void_p),
    )


def usable(rows: Tensor, channels: int = _LANES) -> bool:
    """Whether the compiled functions can take ``rows``, for heads of `channels` channels."""
    if torch.compiler.is_compiling() or rows.device.type != "cpu" or rows.dtype != torch.float32:
        return False
    compiled = library()
    return (
        compiled is not None
        and not torch.is_autocast_enabled("cpu")
        and bool(compiled.attention_supports(ctypes.c_int64(channels)))
    )


@dataclass(frozen=True)
class PackedBias:
    """The attention bias of a block without its padding.

    Attributes:
        values: float32, for each graph ``[H, T keys, S queries]``, one after the other.
        block: Which packed rows the tokens are, and the types of their pairs.
        num_tokens: int64 ``[b]``, T of each graph.
        start: int64 ``[b + 1]``, where `values` of each graph begin.
        softmax_start: int64 ``[b + 1]``, where ``[H, 2, S]`` of each graph begin.
    """

    values: Tensor
    block: AttentionBlock
    num_tokens: Tensor
    start: Tensor
    softmax_start: Tensor

    def arguments(self, heads: int) -> _Attention:
        """Return what every compiled function wants to know."""
        return _Attention(
            rows=self.block.rows.data_ptr(),
            pair_type=self.block.pair_type.data_ptr(),
            num_tokens=self.num_tokens.data_ptr(),
            bias_start=self.start.data_ptr(),
            softmax_start=self.softmax_start.data_ptr(),
            graphs=self.block.rows.shape[0],
            max_tokens=self.block.rows.shape[1],
            heads=heads,
        )

    def run(self, name: str, arguments: _Attention, threads: int | None = None) -> None:
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


def add_pair_bias(bias: PackedBias, own: Tensor) -> PackedBias:
    """Add to a bias what each pair of tokens has of its own, ``[H, b, T, T]``, query by key."""
    values: Any = _AddPairBias.apply(bias.values, own, bias)
    return replace(bias, values=values)


def mix_bias(bias: PackedBias, mixing: Tensor) -> PackedBias:
    """Make each head a mixture of all heads; its shares are a row of ``mixing [H, H]``."""
    values: Any = _MixBias.apply(bias.values, mixing, bias)
    return replace(bias, values=values)


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
    result: Any = _Attend.apply(projected, heads, dropout, biases, *(one.values for one in biases))
    return result


def dropout_add(residual: Tensor | None, update: Tensor, dropout: float) -> Tensor:
    """Return ``residual + dropout(update)`` in one pass; without `residual` the second alone."""
    result: Any = _DropoutAdd.apply(residual, update, dropout)
    return result


class _GatherBias(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, layout: PackedBias) -> Tensor:
        ctx.layout, ctx.shape = layout, table.shape
        values = table.new_empty(int(layout.start[-1]))
        table = table.contiguous()
        arguments = layout.arguments(table.shape[1])
        arguments.table, arguments.bias = table.data_ptr(), values.data_ptr()
        layout.run("bias_forward", arguments)
        return values

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        table = torch.zeros(ctx.shape, dtype=torch.float64)
        gradient = gradient.contiguous()
        arguments = ctx.layout.arguments(ctx.shape[1])
        arguments.bias_gradient, arguments.table_gradient = gradient.data_ptr(), table.data_ptr()
        # Types are shared by all graphs.
        ctx.layout.run("bias_backward", arguments, threads=1)
        return table.to(gradient.dtype), None


class _AddPairBias(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, own: Tensor, layout: PackedBias) -> Tensor:
        ctx.layout, ctx.shape = layout, own.shape
        own, values = own.contiguous(), values.clone()
        arguments = layout.arguments(len(own))
        arguments.pair_bias, arguments.bias = own.data_ptr(), values.data_ptr()
        layout.run("pair_bias_forward", arguments)
        return values

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[override]
        gradient = gradient.contiguous()
        own = gradient.new_zeros(ctx.shape)
        arguments = ctx.layout.arguments(len(own))
        arguments.pair_bias, arguments.bias_gradient = own.data_ptr(), gradient.data_ptr()
        ctx.layout.run("pair_bias_backward", arguments)
        return gradient, own, None


class _MixBias(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, mixing: Tensor, layout: PackedBias) -> Tensor:
        mixing, mixed = mixing.contiguous(), torch.empty_like(values)
        arguments = layout.arguments(len(mixing))
        arguments.bias, arguments.mixed_bias = values.data_ptr(), mixed.data_ptr()
        arguments.mixing = mixing.data_ptr()
        layout.run("mix_bias_forward", arguments)
        ctx.save_for_backward(values, mixing)
        ctx.layout = layout
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[override]
        values, mixing = ctx.saved_tensors
        gradient, own = gradient.contiguous(), torch.empty_like(values)
        of_graphs = mixing.new_empty(len(ctx.layout.num_tokens), *mixing.shape)
        arguments = ctx.layout.arguments(len(mixing))
        arguments.bias, arguments.mixed_bias = values.data_ptr(), own.data_ptr()
        arguments.mixing, arguments.bias_gradient = mixing.data_ptr(), gradient.data_ptr()
        arguments.mixing_gradient = of_graphs.data_ptr()
        ctx.layout.run("mix_bias_backward", arguments)
        return own, of_graphs.sum(0), None


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        projected: Tensor,
        heads: int,
        dropout: float,
        biases: Sequence[PackedBias],
        *values: Tensor,
    ) -> Tensor:
        projected = projected.contiguous()
        width = projected.shape[1] // 3
        output = projected.new_empty(len(projected), width)
        if sum(int(bias.num_tokens.sum()) for bias in biases) < len(projected):
            output.zero_()
        later = any(ctx.needs_input_grad)
        softmax, calls = [], []
        for bias in biases:
            arguments = bias.arguments(heads)
            arguments.channels = width // heads
            arguments.scale = (width // heads) ** -0.5
            arguments.dropping = dropout > 0
            arguments.dropout = _new_dropout(dropout)
            arguments.projected = projected.data_ptr()
            arguments.bias = bias.values.data_ptr()
            arguments.output = output.data_ptr()
            if later:
                softmax.append(projected.new_empty(int(bias.softmax_start[-1])))
                arguments.softmax = softmax[-1].data_ptr()
            bias.run("attention_forward", arguments)
            calls.append(arguments)
        ctx.save_for_backward(projected, output, *softmax, *values)
        ctx.calls, ctx.biases = calls, biases
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        projected, output, *others = ctx.saved_tensors
        softmax, values = others[: len(ctx.biases)], others[len(ctx.biases) :]
        gradient = gradient.contiguous()
        projected_gradient = torch.empty_like(projected)
        if sum(int(bias.num_tokens.sum()) for bias in ctx.biases) < len(projected):
            projected_gradient.zero_()
        bias_gradients = []
        for number, (bias, arguments) in enumerate(zip(ctx.biases, ctx.calls, strict=True)):
            # Lanes beyond the last query are written too.
            bias_gradient = torch.empty_like(values[number])
            # Saved tensors may have been moved meanwhile (`saved_tensors_hooks`).
            arguments.projected, arguments.output = projected.data_ptr(), output.data_ptr()
            arguments.softmax = softmax[number].data_ptr()
            arguments.bias = values[number].data_ptr()
            arguments.output_gradient = gradient.data_ptr()
            arguments.projected_gradient = projected_gradient.data_ptr()
            arguments.bias_gradient = bias_gradient.data_ptr()
            bias.run("attention_backward", arguments)
            bias_gradients.append(bias_gradient)
        return projected_gradient, None, None, None, *bias_gradients


class _DropoutAdd(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, residual: Tensor | None, update: Tensor, dropout: float) -> Tensor:
        ctx.dropout = _new_dropout(dropout)
        return _run_dropout(ctx.dropout, residual, update)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, None]:  # type: ignore[override]
        residual = gradient if ctx.needs_input_grad[0] else None
        return residual, _run_dropout(ctx.dropout, None, gradient), None


def _run_dropout(dropout: _Dropout, residual: Tensor | None, update: Tensor) -> Tensor:
    update = update.contiguous()
    output = torch.empty_like(update)
    residual = None if residual is None else residual.contiguous()
    arguments = _DropoutArguments(
        dropout,
        None if residual is None else residual.data_ptr(),
        update.data_ptr(),
        output.data_ptr(),
    )
    run("dropout_add", arguments, update.numel(), _SHARE_OF_NUMBERS, torch.get_num_threads())
    return output


def _new_dropout(probability: float) -> _Dropout:
    """Draw a seed from torch's generator, so that `torch.manual_seed` decides the masks."""
    if not probability:
        return _Dropout()
    seed = torch.randint(0, 1 << 32, (2,)).tolist()
    return _Dropout(
        seed=(ctypes.c_uint32 * 2)(*seed),
        threshold=round(probability * 2**32),
        scale=1 / (1 - probability),
    )


def _starts(sizes: Tensor) -> Tensor:
    """Where each of several things begins that lie one after the other, and where the last ends."""
    return torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
