"""The options of a Graphormer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from graphormer_sepnorm.errors import ConfigError, did_you_mean
from graphormer_sepnorm.values import Options, ranged

if TYPE_CHECKING:
    from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary

# Kinds of norm; every pair of them is an arm, [CLS] + atoms, and each shared by both.
KINDS = ("ln", "bn")
NORMS = (
    *(f"shared-{kind}" for kind in KINDS),
    *(f"{token}+{atom}" for token in reversed(KINDS) for atom in KINDS),
)
NORM_ALIASES = {"sharenorm": "shared-ln", "sepnorm": "bn+ln"}
NormPosition = Literal["pre", "post"]
EncodingName = Literal["graphormer", "rrwp", "rings", "rrwp+rings", "paths", "paths+rings"]
LocalName = Literal["none", "gine", "gine+rings"]
ReadoutName = Literal["graph_token", "sum", "mean", "both", "graph_token+mean"]
# Options by which the network becomes another than Graphormer; their defaults are Graphormer's.
EXTENSIONS = (
    "encodings",
    "ring_bias",
    "local_mpnn",
    "local_layers",
    "bond_states",
    "degree_scaler",
    "bias_mixing",
    "readout",
)
# Options that act in training only: a network trained with some can continue with others, and
# fine-tuning has its own.
REGULARIZATION = ("dropout", "attention_dropout", "input_dropout", "drop_path")
# No options: the data decide.
FROM_DATA = ("num_targets", "mean_atoms", "extra_inputs", "exclusive")


def norm_name(name: str) -> str:
    """Return the canonical name of a norm arm, aliases resolved."""
    lower = str(name).lower()
    canonical = NORM_ALIASES.get(lower, lower)
    if canonical not in NORMS:
        choices = [*NORM_ALIASES, *NORMS]
        raise ConfigError(
            f"unknown norm '{name}'{did_you_mean(lower, choices)}: "
            f"choose one of {', '.join(choices)}"
        )
    return canonical


@dataclass(frozen=True)
class GraphormerConfig(Options):
    """Everything that decides the shape of a Graphormer; the default is the slim model.

    All but `FROM_DATA`, which the data decide, are options of the command line, which takes names,
    types, defaults and these explanations from here.

    Attributes:
        norm: Norm of the graph token + norm of the atoms: shared-ln (or sharenorm), shared-bn,
            bn+ln (or sepnorm), bn+bn, ln+ln, ln+bn.
        layers: Number of transformer layers; memory and time grow linearly.
        width: Channels per token, a multiple of heads; the number of parameters grows
            quadratically.
        heads: Number of attention heads.
        ffn_width: Channels of the feed-forward network's hidden layer; Graphormer uses width.
        max_path_length: Maximum number of bonds of a shortest path that enter the edge encoding;
            Graphormer version 1 uses 20, version 2 uses 5. Data are preprocessed once per value.
        norm_position: pre (norm before attention and feed-forward, Graphormer version 1) or post
            (version 2).
        dropout: Dropout on the outputs of attention and feed-forward, 0 to below 1. Costs a tenth
            to a quarter of a step on a CPU. In a training it may be null, as both below: 0 for
            values, 0.1 for classes.
        attention_dropout: Dropout on the attention weights, 0 to below 1.
        input_dropout: Dropout on the embedded tokens, 0 to below 1.
        drop_path: Stochastic depth, 0 to below 1: probability of skipping a branch of the last
            layer for a graph in training; smaller in earlier layers.
        atom_rows: Rows of the atom embedding table; null: one for each code in the training data.
        bond_rows: Rows of the bond embedding table; null: one for each code in the training data.
        degree_rows: Rows of each degree embedding table; larger degrees share the last row.
        spatial_rows: Rows of the table of shortest-path distances; larger distances share a row.
        path_rows: Rows of the table of positions on a path, at least max_path_length.
        encodings: graphormer, or with additions: rrwp (random-walk probabilities, in the attention
            bias and the atom embeddings), paths (numbers of simple paths and cycles by length, in
            the same places), rings (sizes of an atom's smallest and largest ring), rrwp+rings,
            paths+rings.
        walk_steps: Number of random-walk powers that rrwp uses, or of path lengths; includes 0.
        ring_bias: Whether the attention bias depends on the size of the ring that two atoms share,
            and on whether they are bonded. Costs 60 heads parameters.
        local_mpnn: none, as Graphormer; gine adds message passing along bonds next to attention,
            for width² parameters per layer; gine+rings also adds the mean message from all atoms of
            an atom's rings, for width² + 16 width more.
        local_layers: Number of first layers with message passing (local_mpnn) but no attention.
            Each saves 4 width² parameters.
        bond_states: Whether bonds have hidden states, updated in each layer from the two atoms and
            used by message passing (local_mpnn). Costs width² parameters per layer.
        degree_scaler: Whether the output of attention is scaled, per channel, by the logarithm of
            the degree. Costs 2 width parameters per layer.
        bias_mixing: Whether each layer mixes the heads of the shared attention bias. Costs heads²
            parameters per layer.
        readout: What the prediction is computed from: graph_token (Graphormer), sum (over atoms,
            for additive targets), mean (over atoms), both (graph token and sum) or
            graph_token+mean. The last two cost width parameters per target.
        num_targets: Number of outputs, one per target.
        mean_atoms: Mean number of atoms of a training graph, by which sums over atoms are divided.
        extra_inputs: Number of additional features per graph that the readout takes.
        exclusive: Whether the targets are mutually exclusive classes.

    Raises:
        ConfigError: If values contradict each other.
    """

    norm: str = "bn+ln"
    layers: int = ranged(12, least=1)
    width: int = ranged(80, least=1)
    heads: int = ranged(8, least=1)
    ffn_width: int = ranged(80, least=1)
    max_path_length: int = ranged(20, least=1)
    norm_position: NormPosition = "pre"
    dropout: float = ranged(0.1, least=0, below=1)
    attention_dropout: float = ranged(0.1, least=0, below=1)
    input_dropout: float = ranged(0.1, least=0, below=1)
    drop_path: float = ranged(0.0, least=0, below=1)
    atom_rows: int | None = ranged(None, least=1)
    bond_rows: int | None = ranged(None, least=1)
    degree_rows: int = ranged(64, least=1)
    spatial_rows: int = ranged(40, least=3)  # same atom, farther, unreachable
    path_rows: int = ranged(40, least=1)
    encodings: EncodingName = "graphormer"
    walk_steps: int = ranged(21, least=1)
    ring_bias: bool = False
    local_mpnn: LocalName = "none"
    local_layers: int = ranged(0, least=0)
    bond_states: bool = False
    degree_scaler: bool = False
    bias_mixing: bool = False
    readout: ReadoutName = "graph_token"
    num_targets: int = ranged(1, least=1)
    mean_atoms: float = ranged(1.0, above=0)
    extra_inputs: int = ranged(0, least=0)
    exclusive: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "norm", norm_name(self.norm))
        if self.width % self.heads:
            raise ConfigError(
                f"{self.section}width {self.width} is not a multiple of heads {self.heads}"
            )
        if self.max_path_length > self.path_rows:
            raise ConfigError(
                f"{self.section}max_path_length {self.max_path_length} must be between 1 and "
                f"path_rows {self.path_rows}"
            )
        if self.local_layers >= self.layers:
            raise ConfigError(
                f"{self.section}local_layers is {self.local_layers}: it must be below layers, "
                f"{self.layers}"
            )
        for option in ("local_layers", "bond_states"):
            if getattr(self, option) and self.local_mpnn == "none":
                raise ConfigError(
                    f"{self.section}{option} needs messages along bonds: give local_mpnn gine or "
                    "gine+rings"
                )

    @property
    def reads_graph_token(self) -> bool:
        """Whether predictions are read from the graph token, alone or with the atoms."""
        return self.readout not in ("sum", "mean")

    def for_vocabulary(self, vocabulary: GraphVocabulary) -> GraphormerConfig:
        """Return the configuration with its tables sized for a vocabulary."""
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
