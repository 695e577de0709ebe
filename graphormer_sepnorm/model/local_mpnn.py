"""Messages along bonds, beside attention.

Graphormer's bonds reach only the attention weights: what an atom passes on does not depend on the
bond it passes over. Here it does.

R packed rows · E bonds · F pairs in one ring · C channels (width)
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from graphormer_sepnorm.graphs.batch import RING_KINDS, GraphBatch
from graphormer_sepnorm.model.fused.cpu_attention import usable
from graphormer_sepnorm.model.fused.cpu_linear import Linear
from graphormer_sepnorm.model.fused.cpu_messages import message_sums
from graphormer_sepnorm.model.rings import SharedRing

LocalName = Literal["none", "gine", "gine+rings"]
LOCALS: tuple[LocalName, ...] = get_args(LocalName)
# Sizes of rings that messages tell apart: one more costs every layer 2 C parameters.
_LARGEST_RING = 10


class BondMessages(nn.Module):
    """What GINE adds up: ``W sum_{bonds j -> i} ReLU(h_j + e_ji)``.

    e is the sum of the embeddings of the bond's features (Hu et al. 2020, "Strategies for
    Pre-training Graph Neural Networks"), here in a branch beside attention (Rampášek et al. 2022,
    "Recipe for a General, Powerful, Scalable Graph Transformer"). GINE's own term ``(1 + ε) h_i``
    is the residual stream, its MLP the layer's feed-forward network. Graph tokens have no bonds
    and get 0.

    With rings, all atoms that share a ring send each other messages too, with
    ``e_ji = t(r) U + b t(r) V`` (`SharedRing`) and the same W: a second way, over the cliques that
    rings make (Choi et al. 2024, TIGT, have a branch of its own for it).

    Args:
        bond_rows: Rows of the table of bond features; row 0, unknown, is zero.
        width: C, channels of a token.
        rings: Whether atoms of a ring send each other messages.
    """

    def __init__(self, bond_rows: int, width: int, rings: bool = False) -> None:
        super().__init__()
        self.bond = nn.Embedding(bond_rows, width, padding_idx=0)
        self.rings = SharedRing(width, _LARGEST_RING) if rings else None
        self.output = Linear(width, width, bias=False)

    def forward(self, rows: Tensor, batch: GraphBatch) -> Tensor:
        """Return what the packed rows ``[R, C]`` are told by their neighbours, ``[R, C]``."""
        values, ways = self.bond(batch.bond_rows).sum(1), batch.bonds
        if self.rings is not None:
            kind = torch.arange(RING_KINDS, device=rows.device)
            of_rings = self.rings(kind // 2, kind % 2 == 1)
            source, target, kind = batch.ring_pairs
            of_pairs = torch.stack([source, target, kind + len(values)])
            ways, values = torch.cat([ways, of_pairs], dim=1), torch.cat([values, of_rings])
        if usable(rows):
            return self.output(message_sums(rows, values, ways))
        source, target, kind = ways
        messages = (rows.index_select(0, source) + values.index_select(0, kind)).relu()
        # Bonds that only fill up lead to one row more.
        sums = messages.new_zeros(len(rows) + 1, rows.shape[1]).index_add(0, target, messages)
        return self.output(sums[:-1])
