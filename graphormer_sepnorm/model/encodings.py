"""Graphormer's three structural encodings (Ying et al. 2021, Section 3.1).

B graphs · M atoms · T tokens · D hops · H heads · C channels (width) · P pair types
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.graphs.batch import FIRST_ATOM_PAIR, PADDING_PAIR, TOKEN_PAIR, GraphBatch
from graphormer_sepnorm.model.fused.cpu_attention import PackedBias, gather_bias, usable
from graphormer_sepnorm.model.rings import SharedRing

BlockBias = Tensor | PackedBias

# Graphormer's alone, or with random walks (`random_walks`), rings (`rings`), or both beside.
EncodingName = Literal["graphormer", "rrwp", "rings", "rrwp+rings"]
ENCODINGS: tuple[EncodingName, ...] = get_args(EncodingName)

# Rows that share what pairs without atoms add to a gradient. A batch has up to half a million of
# them; with so many rows each gets a few hundred at most, no more than the commonest pair of atoms.
_SPREAD = 4096


class AtomEmbedding(nn.Module):
    """Atom features and centrality encoding (Ying et al. 2021, Eq. 5), and the graph token.

    The embedding of an atom is the sum of the rows of its features, of its in-degree and of its
    out-degree. The graph token is one learned vector for all graphs.

    Args:
        atom_rows: Rows of the table of atom features; row 0, unknown, is zero.
        degree_rows: Rows of the degree tables; higher degrees share the last.
        width: C, channels of a token.
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
    here averaged over all shortest paths. Pairs with the graph token have one learned bias.

    Args:
        bond_rows: Rows of the table of bond features; row 0, unknown, is zero.
        spatial_rows: Rows of the distance table. The last belongs to unreachable pairs, longer
            distances share the last but one.
        path_rows: Rows (hops) of the table of position weights W.
        max_path_length: D, hops that count; at most `path_rows`.
        heads: H, attention heads.
        channels: Channels of a head; they decide whether the compiled functions can be used.
        rings: Whether pairs in one ring have a bias for its size, see `SharedRing`.
    """

    def __init__(
        self,
        bond_rows: int,
        spatial_rows: int,
        path_rows: int,
        max_path_length: int,
        heads: int,
        channels: int,
        rings: bool = False,
    ) -> None:
        super().__init__()
        self.channels = channels
        self.max_path_length = max_path_length
        self.spatial = nn.Embedding(spatial_rows, heads)
        self.bond = nn.Embedding(bond_rows, heads, padding_idx=0)
        self.path_weight = nn.Parameter(torch.zeros(path_rows, heads, heads))
        self.graph_token = nn.Parameter(torch.zeros(1, heads))
        self.rings = SharedRing(heads) if rings else None

    def table(self, batch: GraphBatch) -> Tensor:
        """Return the bias of each pair type, ``[2 + P, H]``; see `AttentionBlock.pair_type`.

        Raises:
            ConfigError: If the batch was made with a smaller D.
        """
        hops = self.max_path_length
        if batch.type_path.shape[1] < hops:
            raise ConfigError(
                f"the model looks {hops} hops far (max_path_length), the batch holds paths of "
                f"{batch.type_path.shape[1]}: make its graph store with the same max_path_length"
            )
        distance = batch.type_distance
        last = self.spatial.num_embeddings - 1
        place = torch.where(distance < 0, last, distance.clamp(max=last - 1))
        spatial = self.spatial(place)
        bond = self.bond(batch.bond_rows).mean(1)  # [k, H]
        step = torch.einsum("kg,dgh->dkh", bond, self.path_weight[:hops]).flatten(0, 1)
        edges = batch.type_path[:, :hops].flatten(1).to(step.dtype) @ step
        edges = edges / distance.clamp(1, hops)[:, None].to(step.dtype)
        if self.rings is not None:
            edges = edges + self.rings(batch.type_ring, distance == 1)
        padding = spatial.new_full((1, spatial.shape[1]), float("-inf"))
        return torch.cat([padding, self.graph_token, spatial + edges])

    def forward(self, batch: GraphBatch) -> list[BlockBias]:
        """Return the bias of each attention block.

        Padded, ``[b, H, T, T]`` with -inf at padding keys, or packed where the compiled functions
        can take it.
        """
        table = self.table(batch)
        if usable(table, self.channels):
            return [gather_bias(table, block) for block in batch.blocks]
        look_up = look_up_spread if table.is_cuda else look_up_plainly
        return [
            look_up(table, block.pair_type).permute(0, 3, 1, 2).contiguous()
            for block in batch.blocks
        ]


def look_up_plainly(table: Tensor, pair_type: Tensor) -> Tensor:
    """Return the row of each pair type: ``[P, H]`` and ``[b, T, T]`` give ``[b, T, T, H]``."""
    return functional.embedding(pair_type, table)


def look_up_spread(table: Tensor, pair_type: Tensor) -> Tensor:
    """Return the same, with a gradient that a GPU can compute side by side.

    The gradient of a table sums, for each row, the pairs that took it. On a GPU torch does that
    row by row, one pair after the other: a step would wait for the two rows that most pairs take,
    padding and the graph token's. So these pairs take their bias by a mask, whose gradient is an
    ordinary sum, and only look up something, spread over rows that nobody reads.
    """
    number = torch.arange(pair_type.numel(), device=pair_type.device).view_as(pair_type)
    places = torch.where(pair_type < FIRST_ATOM_PAIR, len(table) + number % _SPREAD, pair_type)
    unread = table.new_zeros(_SPREAD, table.shape[1])
    rows = functional.embedding(places, torch.cat([table, unread]))
    kind = pair_type[..., None]
    rows = torch.where(kind == TOKEN_PAIR, table[TOKEN_PAIR], rows)
    return torch.where(kind == PADDING_PAIR, table[PADDING_PAIR], rows)
