"""Attention, its bias and dropout on a CPU, by the compiled functions of `kernels`.

They work on the real tokens of each graph alone, keep no dropout masks and nothing of the size of
the attention weights for backward, and give what the plain path gives up to rounding; dropout masks
are other draws of the same distribution.

R packed rows · b graphs of a block · T tokens of a graph · S: T rounded up to whole vectors
H heads · C channels
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphormer_sepnorm.graphs.batch import PADDING_PAIR, AttentionBlock
from graphormer_sepnorm.kernels.library import in_threads, library

_LANES = 8  # kernels/vector.h
# Below this many numbers a second thread costs more than it gains.
_WORTH_A_THREAD = 1 << 18


class _Dropout(ctypes.Structure):
    """``Dropout`` of kernels/vector.h."""

    _fields_ = (
        ("seed", ctypes.c_uint32 * 2),
        ("threshold", ctypes.c_uint32),
        ("scale", ctypes.c_float),
    )


class _Attention(ctypes.Structure):
    """``Attention`` of kernels/attention.c."""

    _fields_ = (
        *(
            (name, ctypes.c_void_p)
            for name in ("rows", "num_tokens", "bias_start", "softmax_start")
        ),
        *((name, ctypes.c_int64) for name in ("max_tokens", "heads", "channels")),
        ("scale", ctypes.c_float),
        ("dropping", ctypes.c_int32),
        ("dropout", _Dropout),
        *((name, ctypes.c_void_p) for name in ("projected", "bias", "output", "softmax")),
        *((name, ctypes.c_void_p) for name in ("output_gradient", "projected_gradient")),
        ("bias_gradient", ctypes.c_void_p),
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
        bounds: First graphs of the shares of the threads, and b.
    """

    values: Tensor
    block: AttentionBlock
    num_tokens: Tensor
    start: Tensor
    softmax_start: Tensor
    bounds: list[int]

    def arguments(self, heads: int) -> _Attention:
        """Return what every compiled function wants to know."""
        return _Attention(
            rows=self.block.rows.data_ptr(),
            num_tokens=self.num_tokens.data_ptr(),
            bias_start=self.start.data_ptr(),
            softmax_start=self.softmax_start.data_ptr(),
            max_tokens=self.block.rows.shape[1],
            heads=heads,
        )


def gather_bias(table: Tensor, block: AttentionBlock) -> PackedBias:
    """Lay out the bias of each pair of a block; ``table [2 + P, H]`` is that of its type."""
    heads = table.shape[1]
    num_tokens = (block.pair_type[:, 0] != PADDING_PAIR).sum(1)
    lanes = (num_tokens + _LANES - 1) // _LANES * _LANES
    start = _starts(heads * num_tokens * lanes)
    threads = torch.get_num_threads()
    shares = torch.tensor([int(start[-1]) * part // threads for part in range(threads + 1)])
    layout = PackedBias(
        table.new_empty(0),
        block,
        num_tokens,
        start,
        _starts(2 * heads * lanes),
        torch.searchsorted(start, shares).tolist(),
    )
    values: Any = _GatherBias.apply(table, layout)
    return replace(layout, values=values)


def attend(projected: Tensor, biases: Sequence[PackedBias], heads: int, dropout: float) -> Tensor:
    """Mix the rows of each graph: softmax(q k / sqrt(d) + bias) v, head by head.

    Args:
        projected: ``[R, 3 C]``, query, key and value of each packed row.
        biases: One per attention block.
        heads: H.
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
        arguments, pair_type = layout.arguments(table.shape[1]), layout.block.pair_type
        _each_share(layout, _function("bias_forward"), arguments, pair_type, table, values)
        return values

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        table = torch.zeros(ctx.shape, dtype=torch.float64)
        arguments = ctx.layout.arguments(ctx.shape[1])
        # One thread: types are shared by all graphs.
        _function("bias_backward")(
            ctypes.byref(arguments),
            *map(_address, (ctx.layout.block.pair_type, gradient.contiguous(), table)),
            ctypes.c_int64(0),
            ctypes.c_int64(len(ctx.layout.num_tokens)),
        )
        return table.to(gradient.dtype), None


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
            _each_share(bias, _function("attention_forward"), arguments)
            calls.append(arguments)
        ctx.save_for_backward(projected, output, *softmax, *values)
        ctx.calls, ctx.biases = calls, biases
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        projected = ctx.saved_tensors[0]
        gradient = gradient.contiguous()
        projected_gradient = torch.empty_like(projected)
        if sum(int(bias.num_tokens.sum()) for bias in ctx.biases) < len(projected):
            projected_gradient.zero_()
        bias_gradients = []
        for bias, arguments in zip(ctx.biases, ctx.calls, strict=True):
            # Lanes beyond the last query are written too.
            bias_gradient = torch.empty_like(bias.values)
            arguments.output_gradient = gradient.data_ptr()
            arguments.projected_gradient = projected_gradient.data_ptr()
            arguments.bias_gradient = bias_gradient.data_ptr()
            _each_share(bias, _function("attention_backward"), arguments)
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
    tensors = [None if residual is None else _address(residual), *map(_address, (update, output))]
    function = _function("dropout_add")

    def work(first: int, last: int) -> None:
        function(ctypes.byref(dropout), *tensors, ctypes.c_int64(first), ctypes.c_int64(last))

    size = update.numel()
    threads = torch.get_num_threads() if size >= _WORTH_A_THREAD else 1
    inner = [size * part // threads // _LANES * _LANES for part in range(threads)]
    in_threads(work, [*inner, size])
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


def _function(name: str) -> Callable[..., int]:
    compiled = library()
    assert compiled is not None  # `usable` has said so
    return getattr(compiled, name)


def _address(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def _each_share(
    bias: PackedBias, function: Callable[..., int], arguments: _Attention, *tensors: Tensor
) -> None:
    """Call a compiled function for all graphs of a block, some of them in each thread."""
    addresses = [_address(tensor) for tensor in tensors]

    def work(first: int, last: int) -> None:
        range_ = (ctypes.c_int64(first), ctypes.c_int64(last))
        if function(ctypes.byref(arguments), *addresses, *range_):
            raise MemoryError("no memory for attention")

    in_threads(work, bias.bounds)
