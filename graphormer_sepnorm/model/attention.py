"""How the tokens of a graph hear of each other: attention, and what can be switched on beside it.

R packed rows · b graphs of a block · T tokens · H heads · C channels
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphormer_sepnorm.graphs.batch import AttentionBlock, GraphBatch
from graphormer_sepnorm.model.encodings import BlockBias
from graphormer_sepnorm.model.fused.cpu_attention import PackedBias, attend
from graphormer_sepnorm.model.fused.cpu_linear import Linear, linear
from graphormer_sepnorm.model.fused.cpu_residual import add_scaled


class GraphAttention(nn.Module):
    """Multi-head attention with an additive bias (Ying et al. 2021, Eq. 6).

    Projections work on packed rows; only the attention itself sees padded blocks.

    Args:
        width: C, channels of a token, a multiple of `heads`.
        heads: H, attention heads.
        dropout: Probability of dropping an attention weight.
    """

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.query = Linear(width, width)
        self.key = Linear(width, width)
        self.value = Linear(width, width)
        self.output = Linear(width, width)

    def forward(self, rows: Tensor, batch: GraphBatch, biases: Sequence[BlockBias]) -> Tensor:
        """Mix the rows of each graph.

        Args:
            rows: ``[R, C]``, graph tokens first.
            batch: Says which rows belong together.
            biases: One per attention block, see `AttentionBias`.

        Returns:
            ``[R, C]``.
        """
        projected = self._project(rows)
        dropout = self.dropout if self.training else 0.0
        if isinstance(biases[0], PackedBias):
            return self.output(
                attend(projected, cast(list[PackedBias], biases), self.heads, dropout)
            )
        mixed = [
            self._attend_padded(projected, block, cast(Tensor, bias), dropout)
            for block, bias in zip(batch.blocks, biases, strict=True)
        ]
        return self.output(torch.cat(mixed).index_select(0, batch.unpad))

    def _project(self, rows: Tensor) -> Tensor:
        """Return query, key and value of packed rows side by side, ``[R, 3 C]``, in one product."""
        parts = (self.query, self.key, self.value)
        weight, bias = (torch.cat([getattr(p, name) for p in parts]) for name in ("weight", "bias"))
        return linear(rows, weight, bias)

    def _attend_padded(
        self, projected: Tensor, block: AttentionBlock, bias: Tensor, dropout: float
    ) -> Tensor:
        """Mix one block, ``[b T, C]``; `bias` is ``[b, H, T, T]``."""
        tokens = projected.index_select(0, block.rows.flatten())
        query, key, value = (
            tokens.view(*block.rows.shape, 3, self.heads, -1)
            .permute(2, 0, 3, 1, 4)
            .flatten(1, 2)  # [3, b H, T, C / H]
        )
        attend_to = scaled_attention if projected.is_cuda else plain_attention
        result = attend_to(query, key, value, bias.flatten(0, 1), dropout)
        result = result.unflatten(0, (-1, self.heads))  # [b, H, T, C / H]
        return result.transpose(1, 2).flatten(0, 1).flatten(1)


def plain_attention(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor, dropout: float
) -> Tensor:
    """Return ``dropout(softmax(Q Kᵀ / √d + bias)) V`` of ``[n, T, d]``; bias ``[n, T, T]``."""
    logits = torch.baddbmm(bias, query, key.transpose(1, 2), alpha=query.shape[-1] ** -0.5)
    return functional.dropout(logits.softmax(-1), dropout) @ value


def scaled_attention(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor, dropout: float
) -> Tensor:
    """The same by torch's own function, which has fast forms on a GPU."""
    return functional.scaled_dot_product_attention(query, key, value, bias, dropout)


class BiasMixing(nn.Module):
    """Head h of this layer has the bias ``sum_g X_hg bias_g``; X starts as the identity.

    Graphormer adds one bias in every layer; GRIT (Ma et al. 2023) and GPTrans (Chen et al. 2023)
    let their pairs evolve from layer to layer. This is the cheapest form of it: H² numbers a layer.

    Args:
        heads: H, attention heads.
    """

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(heads))

    def set_neutral(self) -> None:
        """Become the identity."""
        with torch.no_grad():  # `nn.init.eye_` makes one on torch's default device
            self.weight.zero_().fill_diagonal_(1)

    def forward(self, biases: list[BlockBias]) -> list[BlockBias]:
        """Return the biases of this layer, laid out like those given, one per attention block.

        Packed ones are mixed by the compiled attention, which has them in its cache.
        """
        return [
            replace(bias, mixing=self.weight) if isinstance(bias, PackedBias) else self._mix(bias)
            for bias in biases
        ]

    def _mix(self, bias: Tensor) -> Tensor:
        padding = bias == float("-inf")
        # Graph by graph: as one product, the gradient of X would be a sum over all pairs of the
        # batch in very few results, for which a GPU has no use for its width.
        weight = self.weight.expand(len(bias), -1, -1)
        mixed = torch.bmm(weight, bias.masked_fill(padding, 0).flatten(2)).view_as(bias)
        return mixed.masked_fill(padding, float("-inf"))


class DegreeScaler(nn.Module):
    """``x * theta_1 + log(1 + d) x * theta_2`` after attention (Ma et al. 2023, GRIT, Section 3).

    Attention averages, and an average does not know over how many: degrees bring the number back.
    Channel by channel, of what the output projection of attention gives (GRIT's code scales what
    goes into it). Starts as the identity, theta_1 = 1 and theta_2 = 0.

    Args:
        width: C, channels of a token.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.plain = nn.Parameter(torch.ones(width))
        self.by_degree = nn.Parameter(torch.zeros(width))

    def set_neutral(self) -> None:
        """Become the identity."""
        nn.init.ones_(self.plain)
        nn.init.zeros_(self.by_degree)

    def forward(self, update: Tensor, log_degree: Tensor) -> Tensor:
        """Scale ``update [R, C]``; `log_degree` is that of its rows, ``[R, 1]``."""
        return update * (self.plain + log_degree * self.by_degree)

    def add_to(
        self, rows: Tensor, update: Tensor, messages: Tensor | None, log_degree: Tensor
    ) -> Tensor:
        """Return ``rows + self(update, log_degree) + messages`` in one pass, compiled."""
        return add_scaled(rows, update, messages, log_degree, self.plain, self.by_degree)


def log_degrees(batch: GraphBatch, dtype: torch.dtype) -> Tensor:
    """Return ``log(1 + d)`` of each packed row, ``[R, 1]``, in this precision.

    d is the in-degree of an atom. The graph token is joined to every atom: its degree is their
    number, so it can tell large graphs from small ones.
    """
    atoms = batch.in_degree[:, None].to(dtype)
    tokens = sum_over_atoms(torch.ones_like(atoms), batch)
    return torch.cat([tokens, atoms]).log1p()


def sum_over_atoms(values: Tensor, batch: GraphBatch) -> Tensor:
    """Return the sums ``[B, C]`` of the atoms' ``values [M, C]``; filler rows do not count."""
    if batch.real_atoms is not None:
        values = values.masked_fill(~batch.real_atoms[:, None], 0)
    sums = values.new_zeros(batch.num_graphs, values.shape[1])
    return sums.index_add(0, batch.graph_of_atom, values)


def mean_over_atoms(values: Tensor, batch: GraphBatch) -> Tensor:
    """Return the means ``[B, C]`` of the atoms' ``values [M, C]``; filler rows do not count."""
    numbers = sum_over_atoms(torch.ones_like(values[:, :1]), batch)
    return sum_over_atoms(values, batch) / numbers.clamp(min=1)
