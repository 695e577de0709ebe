"""Attention and its bias: by the compiled functions on a CPU, by torch elsewhere.

The compiled functions work on the real tokens of each graph alone, and keep nothing of the size of
the attention weights for backward; see `ops` for what holds for all of them.

R packed rows · b graphs of a block · T tokens of a graph · S: T rounded up to whole vectors
H heads · C channels · P pair types
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from graphormer_sepnorm.graphs.batch import (
    FIRST_ATOM_PAIR,
    PADDING_PAIR,
    TOKEN_PAIR,
    AttentionBlock,
    GraphBatch,
)
from graphormer_sepnorm.kernels.library import integers, point, pointers, run
from graphormer_sepnorm.model.ops import LANES, Dropout, compiled_channels, new_dropout, usable

_SHARE_OF_GRAPHS = 4  # that a thread takes at a time
# Rows that share what pairs without atoms add to a gradient. A batch has up to half a million of
# them; with so many rows each gets a few hundred at most, no more than the commonest pair of atoms.
_SPREAD = 4096
_S = TypeVar("_S", bound=ctypes.Structure)


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


@dataclass
class _Gradient:
    """Where all that use a bias add its gradient up, in the backward pass of this number.

    A backward pass that asked for other gradients alone leaves a total that nobody has taken.
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
        """Call a compiled function for all graphs, in torch's threads by default."""
        threads = threads or torch.get_num_threads()
        run(name, arguments, len(self.num_tokens), _SHARE_OF_GRAPHS, threads)


# Of one block: without its padding, or ``[b, H, T, T]`` with -inf at padding keys.
BlockBias = Tensor | PackedBias


def pair_bias(table: Tensor, blocks: Sequence[AttentionBlock], channels: int) -> list[BlockBias]:
    """Return the bias of each pair of each block, that of its type in ``table [2 + P, H]``.

    The `channels` of a head decide whether the compiled functions can be used.
    """
    if usable(table, channels):
        return [_packed_bias(table, block) for block in blocks]
    look_up = look_up_spread if table.is_cuda else functional.embedding
    looked_up = (look_up(block.pair_type, table) for block in blocks)
    return [rows.permute(0, 3, 1, 2).contiguous() for rows in looked_up]


def look_up_spread(pair_type: Tensor, table: Tensor) -> Tensor:
    """Return the rows of ``[P, H]`` of pair types ``[b, T, T]``, as `functional.embedding`.

    Its gradient can be computed side by side by a GPU.

    On a GPU torch sums the gradient of a row one pair after the other: a step would wait for the
    two rows that most pairs take, padding and the graph token's. So these pairs take their bias by
    a mask, whose gradient is an ordinary sum, and look up something spread over unused rows.
    """
    index = torch.arange(pair_type.numel(), device=pair_type.device).view_as(pair_type)
    taken = torch.where(pair_type < FIRST_ATOM_PAIR, len(table) + index % _SPREAD, pair_type)
    unread = table.new_zeros(_SPREAD, table.shape[1])
    rows = functional.embedding(taken, torch.cat([table, unread]))
    kind = pair_type[..., None]
    rows = torch.where(kind == TOKEN_PAIR, table[TOKEN_PAIR], rows)
    return torch.where(kind == PADDING_PAIR, table[PADDING_PAIR], rows)


def _packed_bias(table: Tensor, block: AttentionBlock) -> PackedBias:
    heads = table.shape[1]
    num_tokens = (block.pair_type[:, 0] != PADDING_PAIR).sum(1)
    lanes = (num_tokens + LANES - 1) // LANES * LANES
    sizes = torch.stack([heads * num_tokens * lanes, 2 * heads * lanes])
    start, softmax_start = torch.cat([sizes.new_zeros(2, 1), sizes.cumsum(1)], dim=1)
    layout = PackedBias(table.new_empty(0), block, num_tokens, start, softmax_start)
    return replace(layout, values=cast(Tensor, _GatherBias.apply(table, layout)))


def share_bias(bias: BlockBias) -> BlockBias:
    """Return a bias whose gradient the many layers that use it add up in one place.

    Of a bias with padding autograd adds them, of which each layer writes one.
    """
    if not isinstance(bias, PackedBias):
        return bias
    gradient = _Gradient()
    values = cast(Tensor, _ShareBias.apply(bias.values, gradient))
    return replace(bias, values=values, gradient=gradient)


def mix_bias(bias: BlockBias, weight: Tensor) -> BlockBias:
    """Return a bias whose head h is ``sum_g weight_hg bias_g``; `weight` is ``[H, H]``.

    One without padding is mixed by the compiled attention, which has it in its cache.
    """
    if isinstance(bias, PackedBias):
        return replace(bias, mixing=weight)
    padding = bias == float("-inf")
    # Graph by graph: as one product, the gradient of X would be a sum over all pairs of the batch
    # in very few results, for which a GPU has no use for its width.
    shares = weight.expand(len(bias), -1, -1)
    mixed = torch.bmm(shares, bias.masked_fill(padding, 0).flatten(2)).view_as(bias)
    return mixed.masked_fill(padding, float("-inf"))


def attend(
    projected: Tensor, batch: GraphBatch, biases: Sequence[BlockBias], heads: int, dropout: float
) -> Tensor:
    """Mix the rows of each graph: ``dropout(softmax(q k / sqrt(d) + bias)) v``, head by head.

    Args:
        projected: ``[R, 3 C]``, query, key and value of each packed row.
        batch: Says which rows belong together.
        biases: The attention bias of each block of the batch.
        heads: H, attention heads.
        dropout: Probability of dropping an attention weight.
    """
    if isinstance(biases[0], PackedBias):
        return _attend_packed(projected, cast(Sequence[PackedBias], biases), heads, dropout)
    mixed = []
    for block, bias in zip(batch.blocks, cast(Sequence[Tensor], biases), strict=True):
        tokens = projected.index_select(0, block.rows.flatten())
        query, key, value = (
            tokens.view(*block.rows.shape, 3, heads, -1)
            .permute(2, 0, 3, 1, 4)
            .flatten(1, 2)  # [3, b H, T, C / H]
        )
        # On a GPU torch's own function has fast forms; its backward cannot be differentiated.
        function = functional.scaled_dot_product_attention if query.is_cuda else plain_attention
        result = function(query, key, value, bias.flatten(0, 1), dropout)
        mixed.append(result.unflatten(0, (-1, heads)).transpose(1, 2).flatten(0, 1).flatten(1))
    return torch.cat(mixed).index_select(0, batch.unpad)


def plain_attention(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor, dropout: float
) -> Tensor:
    """Return ``dropout(softmax(Q Kᵀ / √d + bias)) V`` of ``[n, T, d]``; bias ``[n, T, T]``."""
    logits = torch.baddbmm(bias, query, key.transpose(1, 2), alpha=query.shape[-1] ** -0.5)
    return functional.dropout(logits.softmax(-1), dropout) @ value


def _attend_packed(
    projected: Tensor, biases: Sequence[PackedBias], heads: int, dropout: float
) -> Tensor:
    """Return ``[R, C]``; zero for rows that belong to no graph."""
    tensors = (tensor for bias in biases for tensor in (bias.values, bias.mixing))
    channels = projected.shape[1] // (3 * heads)
    scale = channels**-0.5
    # Channels of zeros change nothing, and are much quicker than code for any number of them.
    missing = compiled_channels(channels) - channels
    if missing:
        projected = functional.pad(projected.unflatten(1, (-1, channels)), (0, missing)).flatten(1)
    result = cast(Tensor, _Attend.apply(projected, heads, scale, dropout, biases, *tensors))
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
        for index, (softmax, values, mixing) in enumerate(saved):
            bias, arguments = ctx.biases[index], ctx.calls[index]
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
