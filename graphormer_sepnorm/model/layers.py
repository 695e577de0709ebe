"""One layer of Graphormer, and its parts: attention, messages along bonds, and what can be added.

B graphs · R packed rows, graph tokens first · E bonds · H heads · C channels (width)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from graphormer_sepnorm.graphs.batch import RING_KINDS, GraphBatch
from graphormer_sepnorm.model.attention_ops import BlockBias, attend, mix_bias
from graphormer_sepnorm.model.config import GraphormerConfig
from graphormer_sepnorm.model.encodings import SharedRing
from graphormer_sepnorm.model.norms import make_norm
from graphormer_sepnorm.model.ops import (
    FeedForward,
    Linear,
    dropout,
    is_plain,
    linear,
    message_sums,
    scaled_sum,
    state_message_sums,
)

# Sizes of rings that messages tell apart: one more costs every layer 2 C parameters.
_LARGEST_RING = 10


class GraphAttention(nn.Module):
    """Multi-head attention with an additive bias (Ying et al. 2021, Eq. 6)."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.query = Linear(width, width)
        self.key = Linear(width, width)
        self.value = Linear(width, width)
        self.output = Linear(width, width)

    def forward(self, rows: Tensor, batch: GraphBatch, biases: Sequence[BlockBias]) -> Tensor:
        """Mix the rows ``[R, C]`` of each graph; one bias per attention block (`AttentionBias`)."""
        parts = (self.query, self.key, self.value)
        if all(is_plain(part) for part in parts):  # in one product
            joined = (torch.cat([getattr(p, name) for p in parts]) for name in ("weight", "bias"))
            projected = linear(rows, *joined)
        else:
            projected = torch.cat([part(rows) for part in parts], dim=1)
        dropout = self.dropout if self.training else 0.0
        return self.output(attend(projected, batch, biases, self.heads, dropout))


class BiasMixing(nn.Module):
    """Head h of this layer has the bias ``sum_g X_hg bias_g``; X starts as the identity.

    Graphormer adds one bias in every layer; GRIT (Ma et al. 2023) and GPTrans (Chen et al. 2023)
    let their pairs evolve from layer to layer. This is the cheapest form of it: H² numbers a layer.
    """

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(heads, heads).fill_diagonal_(1))

    def forward(self, biases: Sequence[BlockBias]) -> list[BlockBias]:
        """Return the biases of this layer, laid out like those given, one per attention block."""
        return [mix_bias(bias, self.weight) for bias in biases]


class DegreeScaler(nn.Module):
    """``x * theta_1 + log(1 + d) x * theta_2`` after attention (Ma et al. 2023, GRIT, Section 3).

    Attention averages, and an average does not know over how many: degrees bring the number back.
    Channel by channel, of what the output projection of attention gives (GRIT's code scales what
    goes into it). Starts as the identity, theta_1 = 1 and theta_2 = 0.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.plain = nn.Parameter(torch.ones(width))
        self.by_degree = nn.Parameter(torch.zeros(width))

    def forward(self, update: Tensor, log_degree: Tensor, messages: Tensor | None) -> Tensor:
        """Scale ``update [R, C]`` by ``log_degree [R, 1]``, and add messages, if there are any."""
        return scaled_sum(update, log_degree, self.plain, self.by_degree, messages)


class BondMessages(nn.Module):
    """What GINE adds up: ``W sum_{bonds j -> i} ReLU(h_j + e_ji)``.

    Graphormer's bonds reach only the attention weights: what an atom passes on does not depend on
    the bond it passes over. Here it does.

    e is the sum of the embeddings of the bond's features (Hu et al. 2020, "Strategies for
    Pre-training Graph Neural Networks"), here in a branch next to attention (Rampášek et al. 2022,
    "Recipe for a General, Powerful, Scalable Graph Transformer"). GINE's own term ``(1 + ε) h_i``
    is the residual stream, its MLP the layer's feed-forward network. Graph tokens have no bonds
    and get 0.

    With rings, a second way goes over the cliques that rings make (Choi et al. 2024, "Topology-
    Informed Graph Transformer", has a branch of its own for it): W' times the mean, over all atoms
    j that share a ring with i, of ``ReLU(h_j + t(r) U + b t(r) V)`` (`SharedRing`). The mean,
    because there are many: summed up with the bonds' and through their W they made ZINC worse.

    With states a bond knows what it joins: ``s_ji`` grows in each layer by ``ReLU(P (h_j + h_i) +
    e_ji)``, from 0, and the message is ``ReLU(h_j + s_ji)``: the edge features of GatedGCN (Bresson
    & Laurent 2017, "Residual Gated Graph ConvNets") without its gates.
    """

    ring_factors: Tensor

    def __init__(
        self, bond_rows: int, width: int, rings: bool = False, states: bool = False
    ) -> None:
        super().__init__()
        self.bond = nn.Embedding(bond_rows, width, padding_idx=0)
        self.rings = SharedRing(width, _LARGEST_RING) if rings else None
        if self.rings is not None:
            kind = torch.arange(RING_KINDS, device="cpu")  # also of a network on the meta device
            factors = self.rings.factors(kind // 2, kind % 2 == 1)
            self.register_buffer("ring_factors", factors, persistent=False)
        self.ends = Linear(width, width, bias=False) if states else None
        self.output = Linear(width, width, bias=False)
        self.ring_output = Linear(width, width, bias=False) if rings else None

    def forward(
        self, rows: Tensor, batch: GraphBatch, states: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return what the rows ``[R, C]`` receive from their neighbors, and the bonds' new states.

        `states` are those of the bonds after the layer before, ``[E, C]``; None: there is none.
        """
        kinds = self.bond(batch.bond_rows).sum(1)
        if self.ends is None:
            sums = message_sums(rows, kinds, batch.bonds)
        else:
            sums, states = state_message_sums(rows, self.ends(rows), kinds, states, batch.bonds)
        update = self.output(sums)
        if self.rings is not None and self.ring_output is not None:
            pairs, neighbors = batch.ring_pairs, batch.ring_neighbors
            assert pairs is not None  # `Graphormer.encode` has asked for them
            assert neighbors is not None
            sums = message_sums(rows, self.rings(self.ring_factors), pairs)
            update = update + self.ring_output(sums / neighbors[:, None].clamp(min=1))
        return update, states


class Layer(nn.Module):
    """One transformer layer: attention, then a feed-forward network, each with residual and norm.

    In the first `local_layers` messages along bonds stand in the place of attention: the graph
    network before the transformer of Wu et al. 2021, "Representing Long-Range Context for Graph
    Neural Networks with Global Attention". The graph token receives nothing there.

    Args:
        config: The options of the model.
        index: Of the layer, from 0.
    """

    def __init__(self, config: GraphormerConfig, index: int) -> None:
        super().__init__()
        self.pre = config.norm_position == "pre"
        self.dropout = config.dropout
        width, heads, attends = config.width, config.heads, index >= config.local_layers
        # Before the first attention the graph token is the same for every graph.
        first = index <= config.local_layers if self.pre else not attends
        self.attention_norm = make_norm(config.norm, width, first=first)
        self.attention = self.bias_mixing = self.degree_scaler = self.local = None
        if attends:
            self.attention = GraphAttention(width, heads, config.attention_dropout)
            self.bias_mixing = BiasMixing(heads) if config.bias_mixing else None
            self.degree_scaler = DegreeScaler(width) if config.degree_scaler else None
        if config.local_mpnn != "none":
            rings = "rings" in config.local_mpnn
            bond_rows = cast(int, config.bond_rows)
            self.local = BondMessages(bond_rows, width, rings, config.bond_states)
        self.ffn_norm = make_norm(config.norm, width, first=not attends)
        ends = Linear(width, config.ffn_width), Linear(config.ffn_width, width)
        self.ffn = FeedForward(ends[0], nn.GELU(), ends[1])

    def forward(
        self,
        rows: Tensor,
        batch: GraphBatch,
        biases: list[BlockBias],
        scales: Tensor | None = None,
        log_degree: Tensor | None = None,
        bond_states: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Transform packed rows.

        Args:
            rows: ``[R, C]``, graph tokens first.
            batch: Says which rows belong together.
            biases: The attention bias of each block.
            scales: Factors of both branches (`branch_scales`), ``[2, R, 1]``; None: 1.
            log_degree: `log_degrees` of the rows, ``[R, 1]``, for a degree scaler.
            bond_states: Of the layer before (`BondMessages`), ``[E, C]``; None: there is none.

        Returns:
            ``[R, C]``, and the new states of the bonds.
        """
        first, second = (None, None) if scales is None else scales
        parts = batch.num_graphs, batch.real_atoms
        inputs = self.attention_norm(rows, *parts) if self.pre else rows
        update = None
        if self.local is not None:
            update, bond_states = self.local(inputs, batch, bond_states)
        if self.attention is not None:
            mixed = self.attention(
                inputs, batch, self.bias_mixing(biases) if self.bias_mixing else biases
            )
            if self.degree_scaler is not None:
                update = self.degree_scaler(mixed, log_degree, update)
            else:
                update = mixed if update is None else mixed + update
        rows = self._add(rows, cast(Tensor, update), first)
        if self.pre:
            return self._feed(self.ffn_norm(rows, *parts), rows, second), bond_states
        rows = self.attention_norm(rows, *parts)
        return self.ffn_norm(self._feed(rows, rows, second), *parts), bond_states

    def _feed(self, inputs: Tensor, rows: Tensor, scale: Tensor | None) -> Tensor:
        if scale is None and not (self.training and self.dropout):
            return self.ffn(inputs, rows)
        return self._add(rows, self.ffn(inputs), scale)

    def _add(self, rows: Tensor, update: Tensor, scale: Tensor | None) -> Tensor:
        update = update if scale is None else update * scale
        return dropout(update, self.dropout if self.training else 0.0, rows)


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
