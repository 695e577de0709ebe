"""Self-attention over the tokens of each graph, on packed rows.

R packed rows · b graphs of a block · T tokens · H heads · C channels
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphormer_sepnorm.graphs.batch import AttentionBlock, GraphBatch
from graphormer_sepnorm.model.encodings import BlockBias
from graphormer_sepnorm.model.fused import gpu_attention
from graphormer_sepnorm.model.fused.cpu_attention import PackedBias, attend
from graphormer_sepnorm.model.fused.cpu_linear import Linear, linear


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
        if gpu_attention.usable(projected, batch.blocks, self.heads):
            padded = cast(list[Tensor], biases)
            return self.output(
                gpu_attention.attend(projected, batch.blocks, padded, self.heads, dropout)
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
        logits = torch.baddbmm(
            bias.flatten(0, 1), query, key.transpose(1, 2), alpha=query.shape[-1] ** -0.5
        )
        weights = functional.dropout(logits.softmax(-1), dropout)
        result = (weights @ value).unflatten(0, (-1, self.heads))  # [b, H, T, C / H]
        return result.transpose(1, 2).flatten(0, 1).flatten(1)
