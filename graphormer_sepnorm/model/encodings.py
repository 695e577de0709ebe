"""Structural encodings: Graphormer's three (Ying et al. 2021, Section 3.1), and rings.

B graphs · M atoms · R = B + M packed rows · D hops · H heads · C channels (width) · P pair types
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.graphs.batch import GraphBatch
from graphormer_sepnorm.model.attention_ops import BlockBias, pair_bias
from graphormer_sepnorm.model.config import GraphormerConfig
from graphormer_sepnorm.model.ops import linear

# Ring sizes from 3 on that are distinguished; larger rings count as the largest.
_SMALLEST, _LARGEST = 3, 32


class AtomEmbedding(nn.Module):
    """Atom features and centrality encoding (Ying et al. 2021, Eq. 5), and the graph token.

    The embedding of an atom is the sum of the rows of its features, of its in-degree and of its
    out-degree (higher degrees share the last row). The graph token is one learned vector for all
    graphs. Row 0 of the table of atom features, unknown, is zero.
    """

    def __init__(self, atom_rows: int, degree_rows: int, width: int) -> None:
        super().__init__()
        self.atom = nn.Embedding(atom_rows, width, padding_idx=0)
        self.in_degree = nn.Embedding(degree_rows, width)
        self.out_degree = nn.Embedding(degree_rows, width)
        self.graph_token = nn.Parameter(torch.zeros(1, width))

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return the packed rows ``[B + M, C]``, graph tokens first."""
        last = self.in_degree.num_embeddings - 1
        atoms = (
            self.atom(batch.atom_rows).sum(1)
            + self.in_degree(batch.in_degree.clamp(max=last))
            + self.out_degree(batch.out_degree.clamp(max=last))
        )
        return torch.cat([self.graph_token.expand(batch.num_graphs, -1), atoms])


class AttentionBias(nn.Module):
    """Spatial encoding, edge encoding and the graph token's distance, as one table of pair types.

    The bias of an ordered pair (i, j), added to the attention logit of query i and key j in every
    layer, is (Ying et al. 2021, Eq. 6 and 7; edge encoding as in the reference implementation)

        spatial[SPD(i, j)] + 1 / min(max(SPD, 1), D) * sum_{hop d < D} bond_d W_d

    with bond_d the embedding (over heads, mean over bond features) of the d-th bond of the path,
    here averaged over all shortest paths. Pairs with the graph token have one learned bias. Row 0
    of the table of bond features, unknown, is zero; the last row of the distance table belongs to
    unreachable pairs, and longer distances share the last but one.
    """

    def __init__(self, config: GraphormerConfig) -> None:
        super().__init__()
        heads = config.heads
        # Of a head: they decide whether the compiled functions can be used.
        self.channels = config.width // heads
        self.max_path_length = config.max_path_length
        self.spatial = nn.Embedding(config.spatial_rows, heads)
        self.bond = nn.Embedding(cast(int, config.bond_rows), heads, padding_idx=0)
        self.path_weight = nn.Parameter(torch.zeros(config.path_rows, heads, heads))
        self.graph_token = nn.Parameter(torch.zeros(1, heads))
        self.rings = SharedRing(heads) if config.ring_bias else None

    def table(self, batch: GraphBatch) -> Tensor:
        """Return the bias of each pair type, ``[2 + P, H]``; see `AttentionBlock.pair_type`."""
        hops = self.max_path_length
        if batch.type_path.shape[1] < hops:
            raise ConfigError(
                f"the model counts {hops} hops (max_path_length), the batch holds paths of "
                f"{batch.type_path.shape[1]}: make its graph store with the same max_path_length"
            )
        distance = batch.type_distance
        last = self.spatial.num_embeddings - 1
        index = torch.where(distance < 0, last, distance.clamp(max=last - 1))
        spatial = self.spatial(index)
        bond = self.bond(batch.bond_rows).mean(1)  # [k, H]
        step = linear(bond, self.path_weight[:hops].mT.flatten(0, 1))  # [k, D H]
        step = step.unflatten(1, (hops, -1)).transpose(0, 1).flatten(0, 1)  # [D k, H]
        edges = linear(batch.type_path[:, :hops].flatten(1).to(step.dtype), step.T)
        edges = edges / distance.clamp(1, hops)[:, None].to(step.dtype)
        if self.rings is not None:
            edges = edges + self.rings(self.rings.factors(batch.type_ring, distance == 1))
        padding = spatial.new_full((1, spatial.shape[1]), float("-inf"))
        return torch.cat([padding, self.graph_token, spatial + edges])

    def forward(self, batch: GraphBatch) -> list[BlockBias]:
        """Return the bias of each attention block."""
        return pair_bias(self.table(batch), batch.blocks, self.channels)


class RingEncoding(nn.Module):
    """Adds the sizes of an atom's smallest and largest ring to its embedding.

    As Bouritsas et al. 2022, "Improving Graph Neural Network Expressivity via Subgraph Isomorphism
    Counting", give cycles to each atom. It tells a model of ZINC a part of its target, which has a
    penalty for rings of more than six atoms: results with it are to be declared.

    The ring of a bond is the smallest that it lies in; r and s are the smallest and the largest of
    the rings of an atom's bonds, 0 if there is none. Added is ``t(r) U + t(s) V`` with
    ``t(r)_k = 1 if r >= k else 0``, k from 3 to 32. U and V start as zeros (`set_neutral`), so a
    ring larger than all of the training molecules' is taken as their largest, and a size between
    two of theirs is taken as between the two.
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
        update = linear(reached[:, 0], self.smallest.T) + linear(reached[:, 1], self.largest.T)
        graph_token, atoms = rows.split([batch.num_graphs, len(update)])
        return torch.cat([graph_token, atoms + update])


class SharedRing(nn.Module):
    """What it means for two atoms that they lie in one ring: ``t(r) U + b t(r) V``.

    r is the size of the smallest ring that both lie in (`BlockStructure.pair_type`), 0 if there is
    none, b is 1 if a bond joins them, ``t(r)_k = 1 if r >= k else 0``. U and V start as zeros
    (`set_neutral`), as in `RingEncoding`. That two atoms share a ring is a flag of pairs in CSA
    (Menegaux et al. 2023, "Self-Attention in Colors"), and a second set of bonds in TIGT (Choi et
    al. 2024, "Topology-Informed Graph Transformer").

    Args:
        channels: C, of what is made of a ring.
        largest: K, the largest k; the smallest is 3.
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

    def factors(self, ring: Tensor, is_bond: Tensor) -> Tensor:
        """Return ``t(r)`` and ``b t(r)`` side by side, what `forward` takes, ``[P, 2 (K - 2)]``.

        Args:
            ring: Size r of the ring, int64 ``[P]``.
            is_bond: Whether a bond joins the pair (b), bool ``[P]``.
        """
        sizes = torch.arange(_SMALLEST, self.largest + 1, device=ring.device)
        reached = ring[:, None] >= sizes
        return torch.cat([reached, reached & is_bond[:, None]], 1).to(self.any.dtype)

    def forward(self, factors: Tensor) -> Tensor:
        """Return ``[P, C]``."""
        return linear(factors, torch.cat([self.any, self.bonded]).T)
