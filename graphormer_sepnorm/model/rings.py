"""The rings that atoms lie in, each by itself and two together.

Cycles as an input are common: Bouritsas et al. 2022, "Improving Graph Neural Network Expressivity
via Subgraph Isomorphism Counting", counts those of each length at each atom. Here it is the sizes
of two rings, which reach as far as rings are large. That two atoms share a ring is a flag of pairs
in CSA (Menegaux et al. 2023, "Self-Attention in Colors"), and a second set of bonds in TIGT (Choi
et al. 2024, "Topology-Informed Graph Transformer").

This tells a model of ZINC a part of its target, which has a penalty for rings of more than six
atoms: results with it are to be declared.

M atoms · P pair types · C channels
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphormer_sepnorm.graphs.batch import GraphBatch

# Ring sizes from 3 on that are told apart; larger rings count as the largest.
_SMALLEST, _LARGEST = 3, 32


class RingEncoding(nn.Module):
    """Adds the sizes of an atom's smallest and largest ring to its embedding.

    The ring of a bond is the smallest that it lies in; r and s are the smallest and the largest of
    the rings of an atom's bonds, 0 if there is none. Added is ``t(r) U + t(s) V`` with
    ``t(r)_k = 1 if r >= k else 0``, k from 3 to 32. U and V start as zeros (`set_neutral`), so a
    ring larger than all of the training molecules' is taken as their largest, and a size between
    two of theirs is taken as between the two.

    Args:
        width: C, channels of a token.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        steps = _LARGEST - _SMALLEST + 1
        self.smallest = nn.Parameter(torch.zeros(steps, width))
        self.largest = nn.Parameter(torch.zeros(steps, width))

    def set_neutral(self) -> None:
        """Add nothing."""
        nn.init.zeros_(self.smallest)
        nn.init.zeros_(self.largest)

    def forward(self, rows: Tensor, batch: GraphBatch) -> Tensor:
        """Add to the packed rows ``[B + M, C]``; graph tokens, the first B, stay as they are."""
        sizes = torch.arange(_SMALLEST, _LARGEST + 1, device=rows.device)
        reached = (batch.ring_sizes[:, :, None] >= sizes).to(rows.dtype)  # [M, 2, steps]
        update = reached[:, 0] @ self.smallest + reached[:, 1] @ self.largest
        graph_token, atoms = rows.split([batch.num_graphs, len(update)])
        return torch.cat([graph_token, atoms + update])


class SharedRing(nn.Module):
    """What it means for two atoms that they lie in one ring: ``t(r) U + b t(r) V``.

    r is the size of the smallest ring that both lie in (`BlockStructure.pair_type`), 0 if there is
    none, b is 1 if a bond joins them, ``t(r)_k = 1 if r >= k else 0``. U and V start as zeros
    (`set_neutral`), as in `RingEncoding`.

    Args:
        channels: C, of what is made of a ring.
        largest: The largest k; the smallest is 3.
    """

    def __init__(self, channels: int, largest: int = _LARGEST) -> None:
        super().__init__()
        self.largest = largest
        self.any = nn.Parameter(torch.zeros(largest - _SMALLEST + 1, channels))
        self.bonded = nn.Parameter(torch.zeros(largest - _SMALLEST + 1, channels))

    def set_neutral(self) -> None:
        """Mean nothing."""
        nn.init.zeros_(self.any)
        nn.init.zeros_(self.bonded)

    def forward(self, ring: Tensor, is_bond: Tensor) -> Tensor:
        """Return ``[P, C]``.

        Args:
            ring: Size r of the ring, int64 ``[P]``.
            is_bond: Whether a bond joins the pair (b), bool ``[P]``.
        """
        sizes = torch.arange(_SMALLEST, self.largest + 1, device=ring.device)
        reached = (ring[:, None] >= sizes).to(self.any.dtype)
        return reached @ self.any + (reached * is_bond[:, None]) @ self.bonded
