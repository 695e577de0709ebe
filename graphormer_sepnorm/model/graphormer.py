"""Graphormer (Ying et al., NeurIPS 2021) whose graph token may be normalized separately.

B graphs · M atoms · R = B + M packed rows, graph tokens first · C channels (width)
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.graphs.batch import GraphBatch
from graphormer_sepnorm.graphs.extra_inputs import CLIPPED
from graphormer_sepnorm.model.attention_ops import share_bias
from graphormer_sepnorm.model.config import GraphormerConfig
from graphormer_sepnorm.model.encodings import (
    AtomEmbedding,
    AttentionBias,
    PathEncoding,
    RandomWalkEncoding,
    RingEncoding,
    SharedRing,
)
from graphormer_sepnorm.model.layers import (
    BiasMixing,
    DegreeScaler,
    Layer,
    log_degrees,
    mean_over_atoms,
    sum_over_atoms,
)
from graphormer_sepnorm.model.norms import MaskedBatchNorm, SeparateNorm, SharedNorm, make_norm
from graphormer_sepnorm.model.ops import Linear, dropout

_STD = 0.02  # of initial values
# What starts with ones for factors and zeros for all else.
_NEUTRAL = (MaskedBatchNorm, nn.LayerNorm, DegreeScaler, RingEncoding, SharedRing)


class ExtraReadout(nn.Module):
    """Joins extra features of a graph to what its prediction is read from.

    ``h + W3 gelu(W1 h + W2 z + b) + c``, of what is read, h, and the standardized features, z. Not
    ``h + W2 z``: behind a linear readout, a temperature would then move the predictions of all
    molecules by the same amount.

    Args:
        count: D, extra features.
        width: C, channels of h.
        dropout: Probability of z and of the hidden channels.

    Attributes:
        training_mean: Of the training graphs' features, ``[D]``.
        training_factor: 1 / their standard deviation, ``[D]``; 0 for a feature without any.
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

    def standardize_by(self, mean: Tensor, factor: Tensor) -> None:
        """Take the scaling that `standardization` found."""
        self.training_mean.copy_(mean)
        self.training_factor.copy_(factor)

    def forward(self, read: Tensor, extra: Tensor) -> Tensor:
        """Join ``h [B, C]`` and the features ``[B, D]``, of nan the training mean: ``[B, C]``.

        Raises:
            ConfigError: The batch holds another number of features.
        """
        count = len(self.training_mean)
        if extra.shape[1:] != (count,):  # one number would be broadcast
            raise ConfigError(
                f"the model reads {count} extra features (extra_inputs), the batch holds "
                f"{list(extra.shape)}: give extra of the shape [graphs, {count}]"
            )
        scores = (extra - self.training_mean) * self.training_factor
        scores = scores.clamp(-CLIPPED, CLIPPED).nan_to_num(0.0)
        if self.training:
            scores = dropout(scores, self.dropout)
        # Standardized in float32, whatever the model's precision.
        hidden = gelu(self.read(read) + self.numbers(scores.to(read.dtype)))
        if self.training:
            hidden = dropout(hidden, self.dropout)
        return read + self.hidden(hidden)


class Graphormer(nn.Module):
    """Graphormer with a choice of norms; predicts from the graph token by default.

    Pre-norm: ``x + Attention(Norm(x))``, ``x + FFN(Norm(x))``, a last norm, a linear readout of
    the graph token. Post-norm: a norm of the embedded tokens, ``Norm(x + Attention(x))``,
    ``Norm(x + FFN(x))``, the same readout.

    Args:
        config: With `atom_rows` and `bond_rows` given (`GraphormerConfig.for_vocabulary`).

    Raises:
        ConfigError: They are not.
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
        sizes = config.walk_steps, config.width, config.heads
        self.walks = RandomWalkEncoding(*sizes) if "rrwp" in config.encodings else None
        self.paths = PathEncoding(*sizes) if "paths" in config.encodings else None
        self.rings = RingEncoding(config.width) if "rings" in config.encodings else None
        self.input_norm = None if pre else make_norm(config.norm, config.width, first=True)
        self.layers = nn.ModuleList(Layer(config, index) for index in range(config.layers))
        self.output_norm = make_norm(config.norm, config.width) if pre else None
        self.readout = Linear(config.width, config.num_targets)
        both = config.readout in ("both", "graph_token+mean")
        self.atom_readout = Linear(config.width, config.num_targets, bias=False) if both else None
        extra = config.extra_inputs, config.width, config.dropout
        self.extra_readout = ExtraReadout(*extra) if config.extra_inputs else None
        self.initialize(0)

    def initialize(self, seed: int) -> None:
        """Sample all parameters again, each from (`seed`, its name); see `initialize`."""
        initialize(self, self.config.layers, seed)

    def encode(self, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Return the last graph tokens ``[B, C]`` and atoms ``[M, C]``, normalized."""
        if "rings" in self.config.local_mpnn:
            batch = batch.with_ring_pairs()
        parts = batch.num_graphs, batch.real_atoms
        biases = self.bias(batch)
        rows = self.embedding(batch)
        for ways in (self.walks, self.paths):
            if ways is not None:
                rows, biases = ways(rows, biases, batch)
        if self.rings is not None:
            rows = self.rings(rows, batch)
        if self.input_norm is not None:
            rows = self.input_norm(rows, *parts)
        if self.training:
            rows = dropout(rows, self.config.input_dropout)
        biases = [share_bias(bias) for bias in biases]
        depth: Sequence[Tensor | None] = [None] * len(self.layers)
        if self.training and self.config.drop_path:
            scales = branch_scales(batch, len(self.layers), self.config.drop_path)
            depth = scales.to(rows.dtype).unbind()  # float32 would carry a model in bf16 along
        log_degree = log_degrees(batch, rows.dtype) if self.config.degree_scaler else None
        states: Tensor | None = None
        for layer, scales in zip(self.layers, depth, strict=True):
            rows, states = layer(rows, batch, biases, scales, log_degree, states)
        if self.output_norm is not None:
            rows = self.output_norm(rows, *parts)
        return rows[: batch.num_graphs], rows[batch.num_graphs :]

    def read_out(self, graph_token: Tensor, atoms: Tensor, batch: GraphBatch) -> Tensor:
        """Return predictions ``[B, num_targets]`` from what `encode` gives.

        A target that is a sum over parts of a molecule is linear in the sum of its atoms'
        embeddings (Xu et al. 2019, "How Powerful are Graph Neural Networks?", Section 4.2), which
        is divided by the atoms of an average training graph: as large as an embedding, it takes
        the same learning rate. The mean has a graph's size taken out.
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
    """Return of each class the logit of its probability under a softmax of ``logits [B, C]``.

    z_c - log Σ_{j≠c} exp z_j: a sigmoid of it is the softmax of class c, so that classes that
    exclude each other go the way of independent ones from here on.
    """
    own = torch.eye(logits.shape[1], dtype=torch.bool, device=logits.device)
    others = logits[:, None, :].masked_fill(own, -math.inf)
    return logits - others.logsumexp(dim=2)


def branch_scales(batch: GraphBatch, layers: int, probability: float) -> Tensor:
    """Sample which branches each graph takes: stochastic depth (Huang et al. 2016, Section 3).

    Layer l = 1 ... L becomes ``x + s f(x)``: s is 0 with probability ``p_l = p l / L``, otherwise
    ``1 / (1 - p_l)``, so that its mean is 1 and nothing is left to do in evaluation. Attention and
    feed-forward network are sampled apart, all tokens of a graph together (per sample, as in
    GPTrans, Chen et al. 2023): a token on its own would lose touch with its graph.

    Returns:
        s of each packed row in both branches of each layer, ``[L, 2, R, 1]``.
    """
    tokens = torch.arange(batch.num_graphs, device=batch.unpad.device)
    of_row = torch.cat([tokens, batch.graph_of_atom])
    number = torch.arange(1, layers + 1, device=of_row.device)[:, None, None]
    skipping = number * (probability / layers)
    taken = torch.rand(layers, 2, batch.num_graphs, device=of_row.device) >= skipping
    return (taken / (1 - skipping)).index_select(2, of_row)[..., None]


@torch.no_grad()
def initialize(model: nn.Module, layers: int, seed: int) -> None:
    """Initialize as version 1 of the reference does, each parameter from (seed, its name).

    So two models that differ in a norm start with the same values in everything else, whatever the
    order in which their parts are built: a comparison of the two is paired.

    Linear weights are sampled from N(0, 0.02 / sqrt(layers)), linear biases are 0, embeddings and
    other tables are sampled from N(0, 0.02). Norms start as the identity (one that is neither
    LayerNorm nor BatchNorm as it was made), and so does what changes Graphormer's own numbers
    or must not be random where no training molecule reaches it.
    """
    arms = [one for one in model.modules() if isinstance(one, SharedNorm | SeparateNorm)]
    norms = {norm for arm in arms for norm in arm.modules()}
    for prefix, module in model.named_modules():
        if isinstance(module, MaskedBatchNorm):
            module.running_mean.zero_()
            module.running_var.fill_(1)
            module.num_batches_tracked.zero_()
        if module in norms and not isinstance(module, MaskedBatchNorm | nn.LayerNorm):
            continue
        for name, parameter in module.named_parameters(prefix=prefix, recurse=False):
            short = name.rpartition(".")[2]
            if isinstance(module, _NEUTRAL):
                parameter.fill_(1.0 if short in ("weight", "plain") else 0.0)
            elif isinstance(module, BiasMixing):
                parameter.zero_().fill_diagonal_(1)
            elif isinstance(module, nn.Linear) and short == "bias":
                parameter.zero_()
            elif not parameter.is_meta:  # one that has no values, for its shape, takes no memory
                std = _STD / layers**0.5 if isinstance(module, nn.Linear) else _STD
                # Sampled on the CPU, whatever torch's default device, and in float32, so that every
                # device and dtype starts alike.
                digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
                generator = torch.Generator("cpu")
                generator.manual_seed(int.from_bytes(digest[:8], "little") >> 1)
                values = torch.randn(parameter.shape, generator=generator, device="cpu")
                parameter.copy_(values * std)
            if isinstance(module, nn.Embedding) and module.padding_idx is not None:
                parameter[module.padding_idx] = 0


def count_parameters(module: nn.Module) -> int:
    """Number of parameters that are trained."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)
