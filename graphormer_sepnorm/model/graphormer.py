"""Graphormer (Ying et al., NeurIPS 2021) whose graph token may be normalised separately.

B graphs · M atoms · R = B + M packed rows, graph tokens first · C channels (width)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, cast

from torch import Tensor, nn

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.model.attention import GraphAttention, TokenProjection
from graphormer_sepnorm.model.bias_mixing import BiasMixing
from graphormer_sepnorm.model.degree_scaler import DegreeScaler, log_degrees
from graphormer_sepnorm.model.drop_path import branch_scales
from graphormer_sepnorm.model.dropout import dropout, dropout_add
from graphormer_sepnorm.model.encodings import AtomEmbedding, AttentionBias, BlockBias
from graphormer_sepnorm.model.initialisation import initialise
from graphormer_sepnorm.model.local import LOCALS, BondMessages, LocalName
from graphormer_sepnorm.model.random_walks import ENCODINGS, EncodingName, RandomWalkEncoding
from graphormer_sepnorm.model.readout import READOUTS, AtomReadout, ReadoutName, sum_over_atoms
from graphormer_sepnorm.model.token_norm import NormArm, make_norm, norm_name

if TYPE_CHECKING:
    from graphormer_sepnorm.graphs.batch import GraphBatch
    from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary

# Options by which the network becomes another than Graphormer; their defaults are Graphormer's.
INGREDIENTS = (
    *("encodings", "local", "degree_scaler", "bias_mixing", "graph_token_projections"),
    "readout",
)
# Options that act in training only: a network trained with some can go on with others.
REGULARISATION = ("dropout", "attention_dropout", "input_dropout", "drop_path")


@dataclass(frozen=True)
class GraphormerConfig:
    """Everything that decides the shape of a Graphormer; the default is the slim model.

    Attributes:
        norm: Norm arm, [CLS] + atoms: shared-ln (sharenorm), shared-bn, bn+ln (sepnorm), bn+bn,
            ln+ln, ln+bn.
        layers: Transformer layers.
        width: C, channels of a token.
        heads: H, attention heads.
        ffn_width: Channels inside the feed-forward network.
        max_path_length: D, hops of a shortest path that enter the edge encoding.
        norm_position: ``pre`` (version 1 of the reference) or ``post`` (its version 2).
        dropout: Of what attention and feed-forward network add to the residual stream.
        attention_dropout: Of attention weights.
        input_dropout: Of the embedded tokens.
        encodings: ``graphormer``, or ``rrwp``: with random walks beside, see `random_walks`.
        walk_steps: K, powers of the random walk, the 0th among them.
        local: ``none``, or ``gine``: messages along bonds beside attention, see `local`.
        drop_path: Probability that a graph skips a branch of the last layer, see `drop_path`.
        atom_rows: Rows of the atom table; None: as many as the vocabulary needs.
        bond_rows: Rows of the bond table; None: as many as the vocabulary needs.
        degree_rows: Rows of each degree table.
        spatial_rows: Rows of the distance table.
        path_rows: Rows of the table of position weights of the edge encoding.
        num_targets: Outputs.
        degree_scaler: Whether attention is scaled by degrees, see `degree_scaler`.
        bias_mixing: Whether each layer mixes the heads of the attention bias, see `bias_mixing`.
        graph_token_projections: Layers, from the first on, in which the graph token has a query,
            key and value projection of its own, see `TokenProjection`.
        readout: What predictions are read from: ``graph_token`` (Graphormer), ``sum`` of the atoms,
            or ``both``, see `readout`.
        mean_atoms: Atoms of an average training graph: sums over atoms are divided by it.

    Raises:
        ConfigError: If values contradict each other.
    """

    norm: str = "bn+ln"
    layers: int = 12
    width: int = 80
    heads: int = 8
    ffn_width: int = 80
    max_path_length: int = 20
    norm_position: Literal["pre", "post"] = "pre"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    input_dropout: float = 0.1
    atom_rows: int | None = None
    bond_rows: int | None = None
    degree_rows: int = 64
    spatial_rows: int = 40
    path_rows: int = 40
    num_targets: int = 1
    readout: ReadoutName = "graph_token"
    mean_atoms: float = 1.0
    encodings: EncodingName = "graphormer"
    walk_steps: int = 21
    local: LocalName = "none"
    degree_scaler: bool = False
    bias_mixing: bool = False
    graph_token_projections: int = 0
    drop_path: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", norm_name(self.norm))
        for option in (
            *("layers", "width", "heads", "ffn_width", "degree_rows", "num_targets"),
            *("atom_rows", "bond_rows", "walk_steps"),
        ):
            value = getattr(self, option)
            if value is not None and value < 1:
                raise ConfigError(f"{option} is {value}: it must be at least 1")
        for option in REGULARISATION:
            if not 0 <= getattr(self, option) < 1:
                raise ConfigError(
                    f"{option} is {getattr(self, option)}: a probability from 0 to below 1"
                )
        if self.width % self.heads:
            raise ConfigError(f"width {self.width} is not a multiple of heads {self.heads}")
        if not 0 <= self.graph_token_projections <= self.layers:
            raise ConfigError(
                f"graph_token_projections {self.graph_token_projections} must be between 0 and "
                f"layers {self.layers}"
            )
        if not 1 <= self.max_path_length <= self.path_rows:
            raise ConfigError(
                f"max_path_length {self.max_path_length} must be between 1 and path_rows "
                f"{self.path_rows}"
            )
        for option, choices in (
            *(("norm_position", ("pre", "post")), ("encodings", ENCODINGS)),
            *(("local", LOCALS), ("readout", READOUTS)),
        ):
            if getattr(self, option) not in choices:
                names = " or ".join(f"'{choice}'" for choice in choices)
                raise ConfigError(f"{option} '{getattr(self, option)}' must be {names}")
        if not self.mean_atoms > 0:
            raise ConfigError(f"mean_atoms is {self.mean_atoms}: it must be positive")
        if self.spatial_rows < 3:
            raise ConfigError(
                f"spatial_rows is {self.spatial_rows}: it must be at least 3 (same atom, farther, "
                "unreachable)"
            )

    def for_vocabulary(self, vocabulary: GraphVocabulary) -> GraphormerConfig:
        """Return the configuration with its tables sized for a vocabulary.

        Raises:
            ConfigError: If a table was given fewer rows than the vocabulary needs.
        """
        sizes = {}
        for option, part in (("atom_rows", vocabulary.atoms), ("bond_rows", vocabulary.bonds)):
            given = getattr(self, option)
            if given is not None and given < part.num_rows:
                raise ConfigError(
                    f"{option} {given} is too small: the training data needs {part.num_rows} rows "
                    "(leave the option out to have as many as needed)"
                )
            sizes[option] = given or part.num_rows
        return replace(self, **sizes)


class Layer(nn.Module):
    """One transformer layer: attention, then a feed-forward network, each with residual and norm.

    Args:
        config: Of the model.
        place: Of this layer, from 0.
    """

    def __init__(self, config: GraphormerConfig, place: int) -> None:
        super().__init__()
        self.pre = config.norm_position == "pre"
        self.dropout = config.dropout
        self.attention_norm = make_norm(config.norm, config.width, first=self.pre and place == 0)
        self.attention = GraphAttention(config.width, config.heads, config.attention_dropout)
        self.token_projection = (
            TokenProjection(config.width) if place < config.graph_token_projections else None
        )
        self.bias_mixing = BiasMixing(config.heads) if config.bias_mixing else None
        self.degree_scaler = DegreeScaler(config.width) if config.degree_scaler else None
        self.local = (
            BondMessages(cast(int, config.bond_rows), config.width)
            if config.local == "gine"
            else None
        )
        self.ffn_norm = make_norm(config.norm, config.width)
        self.ffn = nn.Sequential(
            nn.Linear(config.width, config.ffn_width),
            nn.GELU(),
            nn.Linear(config.ffn_width, config.width),
        )

    def forward(
        self,
        rows: Tensor,
        batch: GraphBatch,
        biases: list[BlockBias],
        scales: Tensor | None = None,
        log_degree: Tensor | None = None,
    ) -> Tensor:
        """Transform packed rows.

        Args:
            rows: ``[R, C]``, graph tokens first.
            batch: Says which rows belong together.
            biases: One per attention block.
            scales: Of both branches (`branch_scales`), ``[2, R, 1]``; None: they are taken whole.
            log_degree: Of each row (`log_degrees`), ``[R, 1]``, for a degree scaler.

        Returns:
            ``[R, C]``.
        """
        first, second = (None, None) if scales is None else scales
        if self.pre:
            update = self._mix(
                _normalise(self.attention_norm, rows, batch), batch, biases, log_degree
            )
            rows = self._add(rows, update, first)
            return self._add(rows, self.ffn(_normalise(self.ffn_norm, rows, batch)), second)
        rows = self._add(rows, self._mix(rows, batch, biases, log_degree), first)
        rows = _normalise(self.attention_norm, rows, batch)
        return _normalise(self.ffn_norm, self._add(rows, self.ffn(rows), second), batch)

    def _mix(
        self,
        rows: Tensor,
        batch: GraphBatch,
        biases: list[BlockBias],
        log_degree: Tensor | None,
    ) -> Tensor:
        if self.bias_mixing is not None:
            biases = self.bias_mixing(biases)
        update = self.attention(rows, batch, biases, self.token_projection)
        if self.degree_scaler is not None:
            update = self.degree_scaler(update, log_degree)
        return update if self.local is None else update + self.local(rows, batch)

    def _add(self, rows: Tensor, update: Tensor, scale: Tensor | None) -> Tensor:
        if scale is not None:
            update = update * scale
        return dropout_add(rows, update, self.dropout) if self.training else rows + update


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
        self.bias = AttentionBias(
            config.bond_rows,
            config.spatial_rows,
            config.path_rows,
            config.max_path_length,
            config.heads,
            config.width // config.heads,
        )
        self.walks = (
            RandomWalkEncoding(config.walk_steps, config.width, config.heads)
            if config.encodings == "rrwp"
            else None
        )
        self.input_norm = None if pre else make_norm(config.norm, config.width, first=True)
        self.layers = nn.ModuleList(Layer(config, place) for place in range(config.layers))
        self.output_norm = make_norm(config.norm, config.width) if pre else None
        self.readout = nn.Linear(config.width, config.num_targets)
        self.atom_readout = (
            AtomReadout(config.width, config.num_targets) if config.readout == "both" else None
        )
        self.initialise(0)

    def initialise(self, seed: int) -> None:
        """Draw all parameters anew, each from (`seed`, its name)."""
        initialise(self, self.config.layers, seed)

    def encode(self, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Return the last graph tokens ``[B, C]`` and atoms ``[M, C]``, normalised."""
        biases = self.bias(batch)
        rows = self.embedding(batch)
        if self.walks is not None:
            rows, biases = self.walks(rows, biases, batch)
        if self.input_norm is not None:
            rows = _normalise(self.input_norm, rows, batch)
        if self.training:
            rows = dropout(rows, self.config.input_dropout)
        depth: Sequence[Tensor | None] = [None] * len(self.layers)
        if self.training and self.config.drop_path:
            depth = branch_scales(batch, len(self.layers), self.config.drop_path).unbind()
        log_degree = log_degrees(batch, rows.dtype) if self.config.degree_scaler else None
        for layer, scales in zip(self.layers, depth, strict=True):
            rows = layer(rows, batch, biases, scales, log_degree)
        if self.output_norm is not None:
            rows = _normalise(self.output_norm, rows, batch)
        return rows[: batch.num_graphs], rows[batch.num_graphs :]

    def read_out(self, graph_token: Tensor, atoms: Tensor, batch: GraphBatch) -> Tensor:
        """Return predictions ``[B, num_targets]`` from what `encode` gives."""
        if self.config.readout == "graph_token":
            return self.readout(graph_token)
        total = sum_over_atoms(atoms, batch) / self.config.mean_atoms
        if self.atom_readout is None:
            return self.readout(total)
        return self.readout(graph_token) + self.atom_readout(total)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return the prediction for each graph, ``[B, num_targets]``."""
        return self.read_out(*self.encode(batch), batch)


def _normalise(norm: NormArm, rows: Tensor, batch: GraphBatch) -> Tensor:
    """Apply a norm arm to packed rows ``[R, C]``."""
    return norm.packed(rows, batch.num_graphs, batch.real_atoms)
