"""The options of a Graphormer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.model.encodings import ENCODINGS, EncodingName
from graphormer_sepnorm.model.local import LOCALS, LocalName
from graphormer_sepnorm.model.norm_arms import norm_name
from graphormer_sepnorm.model.readout import READOUTS, ReadoutName

if TYPE_CHECKING:
    from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary

# Options by which the network becomes another than Graphormer; their defaults are Graphormer's.
INGREDIENTS = ("encodings", "ring_bias", "local", "degree_scaler", "bias_mixing", "readout")
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
        encodings: ``graphormer``, or with others beside: ``rrwp`` (random walks, see
            `random_walks`), ``rings`` (sizes of rings, see `rings`), ``rrwp+rings``.
        walk_steps: K, powers of the random walk, the 0th among them.
        ring_bias: Whether the attention bias knows the rings that pairs share, see `rings`.
        local: ``none``, or ``gine``: messages along bonds beside attention, or ``gine+rings``:
            along bonds and between all atoms of a ring, see `local`.
        drop_path: Probability that a graph skips a branch of the last layer, see `drop_path`.
        atom_rows: Rows of the atom table; None: as many as the vocabulary needs.
        bond_rows: Rows of the bond table; None: as many as the vocabulary needs.
        degree_rows: Rows of each degree table.
        spatial_rows: Rows of the distance table.
        path_rows: Rows of the table of position weights of the edge encoding.
        num_targets: Outputs.
        degree_scaler: Whether attention is scaled by degrees, see `degree_scaler`.
        bias_mixing: Whether each layer mixes the heads of the attention bias, see `bias_mixing`.
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
    ring_bias: bool = False
    local: LocalName = "none"
    degree_scaler: bool = False
    bias_mixing: bool = False
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
