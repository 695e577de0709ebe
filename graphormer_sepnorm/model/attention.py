"""Self-attention over the tokens of each graph, on packed rows.

R packed rows · b graphs of a block · T tokens · H heads · C channels
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphormer_sepnorm.graphs.batch import GraphBatch


class GraphAttention(nn.Module):
    """Multi-head attention with an additive bias (Ying et al. 2021, Eq. 6).

    Projections work on packed rows; only the attention itself sees padded blocks.

    Args:
        width: C, a multiple of `heads`.
        heads: H.
        dropout: Probability of dropping an attention weight.
    """

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)

    def forward(self, rows: Tensor, batch: GraphBatch, biases: list[Tensor]) -> Tensor:
        """Mix the rows of each graph.

        Args:
            rows: ``[R, C]``, graph tokens first.
            batch: Says which rows belong together.
            biases: One ``[b, H, T, T]`` per attention block.

        Returns:
            ``[R, C]``.
        """
        projected = [linear(rows) for linear in (self.query, self.key, self.value)]
        mixed = []
        for block, bias in zip(batch.blocks, biases, strict=True):
            index = block.rows.flatten()
            query, key, value = (
                part.index_select(0, index)
                .view(*block.rows.shape, self.heads, -1)
                .transpose(1, 2)
                .flatten(0, 1)  # [b H, T, C / H]
                for part in projected
            )
            logits = torch.baddbmm(
                bias.flatten(0, 1), query, key.transpose(1, 2), alpha=query.shape[-1] ** -0.5
            )
            weights = functional.dropout(logits.softmax(-1), self.dropout, self.training)
            result = (weights @ value).unflatten(0, (-1, self.heads))  # [b, H, T, C / H]
            mixed.append(result.transpose(1, 2).flatten(0, 1).flatten(1))
        return self.output(torch.cat(mixed).index_select(0, batch.unpad))
