"""What atoms tell each other along bonds and within rings, beside attention or before it.

R packed rows · E bonds · F pairs of atoms in one ring · C channels
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphormer_sepnorm.graphs.batch import RING_KINDS, GraphBatch
from graphormer_sepnorm.model.encodings import SharedRing
from graphormer_sepnorm.model.fused import cpu_messages
from graphormer_sepnorm.model.fused.cpu_attention import usable
from graphormer_sepnorm.model.fused.cpu_linear import Linear

# Sizes of rings that messages tell apart: one more costs every layer 2 C parameters.
_LARGEST_RING = 10


class BondMessages(nn.Module):
    """What GINE adds up: ``W sum_{bonds j -> i} ReLU(h_j + e_ji)``.

    Graphormer's bonds reach only the attention weights: what an atom passes on does not depend on
    the bond it passes over. Here it does.

    e is the sum of the embeddings of the bond's features (Hu et al. 2020, "Strategies for
    Pre-training Graph Neural Networks"), here in a branch beside attention (Rampášek et al. 2022,
    "Recipe for a General, Powerful, Scalable Graph Transformer"). GINE's own term ``(1 + ε) h_i``
    is the residual stream, its MLP the layer's feed-forward network. Graph tokens have no bonds
    and get 0.

    With rings, a second way goes over the cliques that rings make (Choi et al. 2024, "Topology-
    Informed Graph Transformer", has a branch of its own for it): W' times the mean, over all atoms
    j that share a ring with i, of ``ReLU(h_j + t(r) U + b t(r) V)`` (`SharedRing`). The mean,
    because there are many: summed up with the bonds' and through their W they made ZINC worse.

    With states a bond knows what it joins: ``s_ji`` grows in each layer by ``ReLU(P (h_j + h_i) +
    e_ji)``, from 0, and the message is ``ReLU(h_j + s_ji)``. So what an atom is told depends on
    itself too, and on what the bond was in earlier layers: the edge features of GatedGCN (Bresson &
    Laurent 2017, "Residual Gated Graph ConvNets") without its gates.

    Args:
        bond_rows: Rows of the table of bond features; row 0, unknown, is zero.
        width: C, channels of a token.
        rings: Whether atoms of a ring send each other messages.
        states: Whether bonds have states.
    """

    ring_factors: Tensor

    def __init__(
        self, bond_rows: int, width: int, rings: bool = False, states: bool = False
    ) -> None:
        super().__init__()
        self.bond = nn.Embedding(bond_rows, width, padding_idx=0)
        self.rings = SharedRing(width, _LARGEST_RING) if rings else None
        if self.rings is not None:
            kind = torch.arange(RING_KINDS)
            factors = self.rings.factors(kind // 2, kind % 2 == 1)
            self.register_buffer("ring_factors", factors, persistent=False)
        self.ends = Linear(width, width, bias=False) if states else None
        self.output = Linear(width, width, bias=False)
        self.ring_output = Linear(width, width, bias=False) if rings else None

    def forward(
        self, rows: Tensor, batch: GraphBatch, states: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Pass messages.

        Args:
            rows: Packed rows ``[R, C]``.
            batch: Says which of them bonds and rings join.
            states: Of the bonds after the layer before, ``[E, C]``; None: there is none.

        Returns:
            What the rows are told by their neighbours, ``[R, C]``, and the new states; None for a
            model without.
        """
        kinds = self.bond(batch.bond_rows).sum(1)
        compiled = usable(rows)
        sum_up = cpu_messages.message_sums if compiled else plain_sums
        if self.ends is None:
            sums = sum_up(rows, kinds, batch.bonds)
        else:
            with_states = cpu_messages.state_message_sums if compiled else plain_state_sums
            sums, states = with_states(rows, self.ends(rows), kinds, states, batch.bonds)
        told = self.output(sums)
        if self.rings is None or self.ring_output is None:
            return told, states
        assert batch.ring_pairs is not None  # `Graphormer.encode` has asked for them
        assert batch.ring_neighbours is not None
        sums = sum_up(rows, self.rings(self.ring_factors), batch.ring_pairs)
        sums = sums / batch.ring_neighbours[:, None].clamp(min=1)
        return told + self.ring_output(sums), states


def plain_sums(rows: Tensor, values: Tensor, ways: Tensor) -> Tensor:
    """`message_sums` by torch's own operations."""
    source, target, kind = ways
    messages = (rows.index_select(0, source) + values.index_select(0, kind)).relu()
    return _sums_at(target, messages, len(rows))


def plain_state_sums(
    rows: Tensor, ends: Tensor, values: Tensor, before: Tensor | None, bonds: Tensor
) -> tuple[Tensor, Tensor]:
    """`state_message_sums` by torch's own operations."""
    source, target, kind = bonds
    own = target.clamp(max=len(rows) - 1)  # a bond that only fills up leads to one row more
    both = ends.index_select(0, source) + ends.index_select(0, own)
    states = (both + values.index_select(0, kind)).relu()
    states = states if before is None else before + states
    return _sums_at(target, (rows.index_select(0, source) + states).relu(), len(rows)), states


def _sums_at(target: Tensor, messages: Tensor, rows: int) -> Tensor:
    """Return the sums of `messages [E, C]` at each row, ``[R, C]``."""
    # Bonds that only fill up lead to one row more.
    sums = messages.new_zeros(rows + 1, messages.shape[1])
    return sums.index_add(0, target, messages)[:-1]
