"""Graphormer (Ying et al., NeurIPS 2021) whose graph token may be normalised separately.

B graphs · M atoms · R = B + M packed rows, graph tokens first · C channels (width)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.graphs.extra_inputs import CLIPPED
from graphormer_sepnorm.model.attention import (
    BiasMixing,
    DegreeScaler,
    GraphAttention,
    log_degrees,
    mean_over_atoms,
    sum_over_atoms,
)
from graphormer_sepnorm.model.config import GraphormerConfig
from graphormer_sepnorm.model.dropout import branch_scales, dropout, dropout_add
from graphormer_sepnorm.model.encodings import (
    AtomEmbedding,
    AttentionBias,
    BlockBias,
    RingEncoding,
)
from graphormer_sepnorm.model.fused.cpu_attention import PackedBias, share_bias, usable
from graphormer_sepnorm.model.fused.cpu_linear import Linear
from graphormer_sepnorm.model.initialization import initialize
from graphormer_sepnorm.model.messages import BondMessages
from graphormer_sepnorm.model.norm_arms import NormArm, make_norm
from graphormer_sepnorm.model.walks import PathEncoding, RandomWalkEncoding

if TYPE_CHECKING:
    from graphormer_sepnorm.graphs.batch import GraphBatch


class Layer(nn.Module):
    """One transformer layer: attention, then a feed-forward network, each with residual and norm.

    In the first `local_layers` messages along bonds stand in the place of attention: the graph
    network before the transformer of Wu et al. 2021, "Representing Long-Range Context for Graph
    Neural Networks with Global Attention". The graph token hears nothing there.

    Args:
        config: The options of the model.
        place: Number of the layer, from 0.
    """

    def __init__(self, config: GraphormerConfig, place: int) -> None:
        super().__init__()
        self.pre = config.norm_position == "pre"
        self.dropout = config.dropout
        attends = config.attends(place)
        # Before the first attention the graph token is the same for every graph.
        first = place <= config.local_layers if self.pre else not attends
        self.attention_norm = make_norm(config.norm, config.width, first=first)
        self.attention = (
            GraphAttention(config.width, config.heads, config.attention_dropout)
            if attends
            else None
        )
        self.bias_mixing = BiasMixing(config.heads) if attends and config.bias_mixing else None
        self.degree_scaler = (
            DegreeScaler(config.width) if attends and config.degree_scaler else None
        )
        self.local = (
            BondMessages(
                cast(int, config.bond_rows),
                config.width,
                rings="rings" in config.local_mpnn,
                states=config.bond_states,
            )
            if config.local_mpnn != "none"
            else None
        )
        self.ffn_norm = make_norm(config.norm, config.width, first=not attends)
        self.ffn = nn.Sequential(
            Linear(config.width, config.ffn_width),
            nn.GELU(),
            Linear(config.ffn_width, config.width),
        )

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
            biases: The attention bias of each block (`BlockBias`).
            scales: What both branches are multiplied by (`branch_scales`), ``[2, R, 1]``; None: 1.
            log_degree: Logarithm of each row's degree (`log_degrees`), ``[R, 1]``, for a degree
                scaler.
            bond_states: What the layer before made of the bonds (`BondMessages`), ``[E, C]``; None:
                nothing.

        Returns:
            ``[R, C]``, and what this one makes of the bonds.
        """
        first, second = (None, None) if scales is None else scales
        inputs = _normalise(self.attention_norm, rows, batch) if self.pre else rows
        messages = None
        if self.local is not None:
            messages, bond_states = self.local(inputs, batch, bond_states)
        rows = self._mix(rows, inputs, messages, batch, biases, log_degree, first)
        if self.pre:
            rows = self._add(rows, self.ffn(_normalise(self.ffn_norm, rows, batch)), second)
        else:
            rows = _normalise(self.attention_norm, rows, batch)
            rows = _normalise(self.ffn_norm, self._add(rows, self.ffn(rows), second), batch)
        return rows, bond_states

    def _mix(
        self,
        rows: Tensor,
        inputs: Tensor,
        messages: Tensor | None,
        batch: GraphBatch,
        biases: list[BlockBias],
        log_degree: Tensor | None,
        scale: Tensor | None,
    ) -> Tensor:
        """Return `rows` with `messages` and what attention makes of `inputs` added."""
        if self.attention is None:
            assert messages is not None  # `GraphormerConfig` has seen to it
            return self._add(rows, messages, scale)
        if self.bias_mixing is not None:
            biases = self.bias_mixing(biases)
        update = self.attention(inputs, batch, biases)
        if self.degree_scaler is not None:
            whole = scale is None and not (self.training and self.dropout)
            if whole and usable(update):
                return self.degree_scaler.add_to(rows, update, messages, cast(Tensor, log_degree))
            update = self.degree_scaler(update, log_degree)
        return self._add(rows, update if messages is None else update + messages, scale)

    def _add(self, rows: Tensor, update: Tensor, scale: Tensor | None) -> Tensor:
        if scale is not None:
            update = update * scale
        return dropout_add(rows, update, self.dropout) if self.training else rows + update


class ExtraReadout(nn.Module):
    """Joins numbers beside a graph to what its prediction is read from.

    ``h + W3 gelu(W1 h + W2 z + b) + c``, of what is read, h, and the standardised numbers, z. Not
    ``h + W2 z``: behind a linear read-out, a temperature would then move the predictions of all
    molecules by the same amount.

    Args:
        count: D, numbers beside a graph.
        width: C, channels of h.
        dropout: Probability of z and of the hidden channels.

    Attributes:
        training_mean: Of the training graphs' numbers, ``[D]``.
        training_factor: 1 / their deviation, ``[D]``; 0 for a number that says nothing.
    """

    training_mean: Tensor
    training_factor: Tensor

    def __init__(self, count: int, width: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        for name in ("training_mean", "training_factor"):
            self.register_buffer(name, torch.zeros(count))
        self.read = Linear(width, width, bias=False)
        self.numbers = Linear(count, width)
        self.hidden = Linear(width, width)

    def standardise_by(self, mean: Tensor, factor: Tensor) -> None:
        """Take the scaling that `standardisation` found."""
        self.training_mean.copy_(mean)
        self.training_factor.copy_(factor)

    def forward(self, read: Tensor, extra: Tensor) -> Tensor:
        """Join them.

        Args:
            read: h, ``[B, C]``.
            extra: x, ``[B, D]``; where it is nan the training mean is taken.

        Returns:
            ``[B, C]``.

        Raises:
            ConfigError: The batch holds other than D numbers beside each graph.
        """
        count = len(self.training_mean)
        if extra.shape[1:] != (count,):  # one number would be broadcast
            raise ConfigError(
                f"the model reads {count} numbers beside each graph (extra_inputs), the batch "
                f"holds {list(extra.shape)}: give extra of the shape [graphs, {count}]"
            )
        scores = (extra - self.training_mean) * self.training_factor
        scores = scores.clamp(-CLIPPED, CLIPPED).nan_to_num(0.0)
        if self.training:
            scores = dropout(scores, self.dropout)
        # Numbers come in float32, and are standardised in it, whatever the model's precision.
        hidden = gelu(self.read(read) + self.numbers(scores.to(read.dtype)))
        if self.training:
            hidden = dropout(hidden, self.dropout)
        return read + self.hidden(hidden)


class Graphormer(nn.Module):
    """Graphormer with a choice of norms; predicts from the graph token, unless told otherwise.

    Pre-norm: ``x + Attention(Norm(x))``, ``x + FFN(Norm(x))``, a last norm, a linear read-out of
    the graph token. Post-norm: a norm of the embedded tokens, ``Norm(x + Attention(x))``,
    ``Norm(x + FFN(x))``, the same read-out.

    Args:
        config: With `atom_rows` and `bond_rows` given (`GraphormerConfig.for_vocabulary`).

    Raises:
        ConfigError: If they are not.
    """

    def __init__(self, config: GraphormerConfig) -> None:
        super().__init__()
        if config.atom_rows is None or config.bond_rows is None:
            raise ConfigError(
                "atom_rows and bond_rows must be given to build a Graphormer: use "
                "GraphormerConfig.for_vocabulary"
            )
        self.config = config
        pre = config.norm_position == "pre"
        self.embedding = AtomEmbedding(config.atom_rows, config.degree_rows, config.width)
        self.bias = AttentionBias(config)
        self.walks = (
            RandomWalkEncoding(config.walk_steps, config.width, config.heads)
            if "rrwp" in config.encodings
            else None
        )
        self.paths = (
            PathEncoding(config.walk_steps, config.width, config.heads)
            if "paths" in config.encodings
            else None
        )
        self.rings = RingEncoding(config.width) if "rings" in config.encodings else None
        self.input_norm = None if pre else make_norm(config.norm, config.width, first=True)
        self.layers = nn.ModuleList(Layer(config, place) for place in range(config.layers))
        self.output_norm = make_norm(config.norm, config.width) if pre else None
        self.readout = Linear(config.width, config.num_targets)
        self.atom_readout = (
            Linear(config.width, config.num_targets, bias=False)
            if config.readout in ("both", "graph_token+mean")
            else None
        )
        self.extra_readout = (
            ExtraReadout(config.extra_inputs, config.width, config.dropout)
            if config.extra_inputs
            else None
        )
        self.initialize(0)

    def initialize(self, seed: int) -> None:
        """Draw all parameters anew, each from (`seed`, its name)."""
        initialize(self, self.config.layers, seed)

    def encode(self, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Return the last graph tokens ``[B, C]`` and atoms ``[M, C]``, normalised."""
        if "rings" in self.config.local_mpnn:
            batch = batch.with_ring_pairs()
        biases = self.bias(batch)
        rows = self.embedding(batch)
        if self.walks is not None:
            rows, biases = self.walks(rows, biases, batch)
        if self.paths is not None:
            rows, biases = self.paths(rows, biases, batch)
        if self.rings is not None:
            rows = self.rings(rows, batch)
        if self.input_norm is not None:
            rows = _normalise(self.input_norm, rows, batch)
        if self.training:
            rows = dropout(rows, self.config.input_dropout)
        biases = [share_bias(one) if isinstance(one, PackedBias) else one for one in biases]
        depth: Sequence[Tensor | None] = [None] * len(self.layers)
        if self.training and self.config.drop_path:
            drawn = branch_scales(batch, len(self.layers), self.config.drop_path)
            depth = drawn.to(rows.dtype).unbind()  # float32 would carry a model in bf16 along
        log_degree = log_degrees(batch, rows.dtype) if self.config.degree_scaler else None
        states: Tensor | None = None
        for layer, scales in zip(self.layers, depth, strict=True):
            rows, states = layer(rows, batch, biases, scales, log_degree, states)
        if self.output_norm is not None:
            rows = _normalise(self.output_norm, rows, batch)
        return rows[: batch.num_graphs], rows[batch.num_graphs :]

    def read_out(self, graph_token: Tensor, atoms: Tensor, batch: GraphBatch) -> Tensor:
        """Return predictions ``[B, num_targets]`` from what `encode` gives.

        With `readout` both, token and atoms have one linear layer side by side. A target that is a
        sum over parts of a molecule is linear in the sum of its atoms' embeddings (Xu et al. 2019,
        "How Powerful are Graph Neural Networks?", Section 4.2), which is divided by the atoms of an
        average training graph: as large as an embedding, it takes the same learning rate. The mean
        has a graph's size taken out, so that what is learned holds for molecules of other sizes.
        """
        pooled = None
        if self.config.readout in ("mean", "graph_token+mean"):
            pooled = mean_over_atoms(atoms, batch)
        elif self.config.readout in ("sum", "both"):
            pooled = sum_over_atoms(atoms, batch) / self.config.mean_atoms
        read = graph_token if pooled is None or self.atom_readout is not None else pooled
        if self.extra_readout is not None:
            read = self.extra_readout(read, batch.extra)
        outputs = self.readout(read)
        if pooled is not None and self.atom_readout is not None:
            outputs = outputs + self.atom_readout(pooled)
        return log_odds(outputs) if self.config.exclusive else outputs

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return the prediction for each graph, ``[B, num_targets]``."""
        return self.read_out(*self.encode(batch), batch)


def log_odds(logits: Tensor) -> Tensor:
    """Return of each class the logit of its probability under a softmax of `logits`.

    z_c - log Σ_{j≠c} exp z_j: a sigmoid of it is the softmax of class c, so that classes that
    exclude each other go the way of independent ones from here on.

    Args:
        logits: ``[B, C]``, at least two classes.
    """
    own = torch.eye(logits.shape[1], dtype=torch.bool, device=logits.device)
    others = logits[:, None, :].masked_fill(own, -math.inf)
    return logits - others.logsumexp(dim=2)


def _normalise(norm: NormArm, rows: Tensor, batch: GraphBatch) -> Tensor:
    """Apply a norm arm to packed rows ``[R, C]``."""
    return norm(rows, batch.num_graphs, batch.real_atoms)
