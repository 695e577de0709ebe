"""Messages along bonds, beside attention.

Graphormer's bonds reach only the attention weights: what an atom passes on does not depend on the
bond it passes over. Here it does.

R packed rows · E bonds · C channels (width)
"""

from __future__ import annotations

from typing import Literal, get_args

from torch import Tensor, nn

from graphormer_sepnorm.graphs.batch import GraphBatch
from graphormer_sepnorm.model.compiled import usable
from graphormer_sepnorm.model.compiled_linear import Linear
from graphormer_sepnorm.model.compiled_messages import message_sums

LocalName = Literal["none", "gine"]
LOCALS: tuple[LocalName, ...] = get_args(LocalName)


class BondMessages(nn.Module):
    """What GINE adds up: ``W sum_{bonds j -> i} ReLU(h_j + e_ji)``.

    e is the sum of the embeddings of the bond's features (Hu et al. 2020, "Strategies for
    Pre-training Graph Neural Networks"), here in a branch beside attention (Rampášek et al. 2022,
    "Recipe for a General, Powerful, Scalable Graph Transformer"). GINE's own term ``(1 + ε) h_i``
    is the residual stream, its MLP the layer's feed-forward network. Graph tokens have no bonds
    and get 0.

    Args:
        bond_rows: Rows of the table of bond features; row 0, unknown, is zero.
        width: C.
    """

    def __init__(self, bond_rows: int, width: int) -> None:
        super().__init__()
        self.bond = nn.Embedding(bond_rows, width, padding_idx=0)
        self.output = Linear(width, width, bias=False)

    def forward(self, rows: Tensor, batch: GraphBatch) -> Tensor:
        """Return what the packed rows ``[R, C]`` are told by their neighbours, ``[R, C]``."""
        bonds = self.bond(batch.bond_rows).sum(1)
        if usable(rows):
            return self.output(message_sums(rows, bonds, batch.bonds))
        source, target, kind = batch.bonds
        messages = (rows.index_select(0, source) + bonds.index_select(0, kind)).relu()
        # Bonds that only fill up lead to one row more.
        sums = messages.new_zeros(len(rows) + 1, rows.shape[1]).index_add(0, target, messages)
        return self.output(sums[:-1])
