"""Relative random-walk probabilities (RRWP).

From GRIT: Ma et al. 2023, "Graph Inductive Biases in Transformers without Message Passing".

R packed rows · b graphs of a block · T tokens · K powers · H heads · C channels (width)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from graphormer_sepnorm.graphs.batch import FIRST_ATOM_PAIR, AttentionBlock, GraphBatch
from graphormer_sepnorm.model.encodings import BlockBias
from graphormer_sepnorm.model.fused.cpu_attention import PackedBias
from graphormer_sepnorm.model.fused.cpu_walks import add_walk_bias


class RandomWalkEncoding(nn.Module):
    """What random walks tell about atoms and pairs, beside Graphormer's encodings.

    With A the bonds, D the degrees and ``M = D^-1 A`` a pair of atoms is described by

        P_ij = [I, M, M^2, ..., M^(K-1)]_ij

    the probabilities of being at j after 0, 1, ... steps from i. ``W P_ij`` is added to the
    attention bias of all layers, ``V P_ii`` to the embedding of atom i (GRIT: one linear layer for
    pairs, one for atoms, at the entrance). Neither has a bias: pairs with the graph token are
    described by zeros and keep the bias that they have.

    Costs K - 1 batched products of ``[T, T]`` matrices a batch, and room for K numbers a pair; far
    less where the compiled functions can be used.

    Args:
        steps: K, powers of the random walk.
        width: C, channels of a token.
        heads: H, attention heads.
    """

    def __init__(self, steps: int, width: int, heads: int) -> None:
        super().__init__()
        self.steps = steps
        self.pairs = nn.Linear(steps, heads, bias=False)
        self.atoms = nn.Linear(steps, width, bias=False)

    def forward(
        self, rows: Tensor, biases: Sequence[BlockBias], batch: GraphBatch
    ) -> tuple[Tensor, list[BlockBias]]:
        """Add both encodings.

        Args:
            rows: Embedded tokens, ``[R, C]``.
            biases: The attention bias of each block.
            batch: The graphs, with the bonds that the walks go along.

        Returns:
            Rows and biases, with the encodings.
        """
        distance = batch.type_distance
        is_bond = torch.cat([distance.new_zeros(FIRST_ATOM_PAIR), distance]) == 1
        if isinstance(biases[0], PackedBias):
            returns = rows.new_zeros(len(rows), self.steps)
            packed: list[BlockBias] = [
                add_walk_bias(bias, self.pairs.weight, is_bond, returns)
                for bias in cast(Sequence[PackedBias], biases)
            ]
            return rows + self.atoms(returns), packed
        dtype = self.pairs.weight.dtype
        walks = [
            walk_probabilities(is_bond[block.pair_type].to(dtype), block, self.steps)
            for block in batch.blocks
        ]
        diagonals = [walk.diagonal(dim1=2, dim2=3).flatten(1) for walk in walks]  # [K, b T]
        rows = rows + self.atoms(torch.cat(diagonals, dim=1).index_select(1, batch.unpad).t())
        padded = cast(Sequence[Tensor], biases)
        return rows, [self._add(bias, walk) for bias, walk in zip(padded, walks, strict=True)]

    def _add(self, bias: Tensor, walk: Tensor) -> Tensor:
        # Graph by graph, as in `BiasMixing`.
        weight = self.pairs.weight.expand(walk.shape[1], -1, -1)
        return bias + torch.bmm(weight, walk.flatten(2).transpose(0, 1)).view_as(bias)


def walk_probabilities(adjacency: Tensor, block: AttentionBlock, steps: int) -> Tensor:
    """Return P of each pair of tokens, ``[K, b, T, T]``.

    Args:
        adjacency: 1 where a bond leads from the first token to the second, ``[b, T, T]``.
        block: The tokens of some graphs, and which of them are atoms.
        steps: K, powers of the random walk.
    """
    is_atom = block.pair_type.diagonal(dim1=1, dim2=2) >= FIRST_ATOM_PAIR
    walk = adjacency / adjacency.sum(-1, keepdim=True).clamp(min=1)
    # In place: the largest numbers of a batch, which stacked from a list would be there twice.
    walks = walk.new_empty(steps, *walk.shape)
    walks[0] = is_atom.to(walk.dtype).diag_embed()
    with torch.autocast(walk.device.type, enabled=False):
        for power in range(1, steps):
            torch.bmm(walks[power - 1], walk, out=walks[power])
    return walks
