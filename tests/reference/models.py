"""Small float64 models with parameters far from their initial values, and their batches."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from graphormer_sepnorm.graphs.batch import Collator, GraphBatch
from graphormer_sepnorm.graphs.store import GraphStore
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary
from graphormer_sepnorm.model.config import GraphormerConfig
from graphormer_sepnorm.model.graphormer import Graphormer
from reference.extensions import LiteralWithExtensions
from reference.molecules import molecule

ARMS = ("shared-ln", "shared-bn", "bn+ln", "bn+bn", "ln+ln", "ln+bn")
EVERYTHING: dict[str, Any] = {
    **{"encodings": "rrwp+rings", "local_mpnn": "gine", "readout": "both"},
    **{"degree_scaler": True, "bias_mixing": True},
}
# What a model may have beyond Graphormer; whatever holds for the norm arms holds for these.
EXTENSIONS: tuple[dict[str, Any], ...] = (
    {"readout": "sum", "mean_atoms": 3.5},
    {"readout": "both", "mean_atoms": 3.5, "norm": "bn+bn"},
    {"readout": "graph_token+mean"},
    {"local_mpnn": "gine"},
    {"encodings": "rrwp", "walk_steps": 4},
    {"encodings": "paths", "walk_steps": 9},
    {"encodings": "rings"},
    {"local_mpnn": "gine+rings"},
    {"local_mpnn": "gine+rings", "local_layers": 1, "norm": "shared-bn", "readout": "both"},
    {"local_mpnn": "gine", "bond_states": True},
    {"local_mpnn": "gine+rings", "bond_states": True, "local_layers": 1},
    {"ring_bias": True},
    {"degree_scaler": True},
    {"bias_mixing": True},
    EVERYTHING | {"local_mpnn": "gine+rings", "ring_bias": True, "encodings": "paths+rings"},
    EVERYTHING | {"walk_steps": 3, "norm": "bn+bn"},
    EVERYTHING | {"walk_steps": 3, "norm": "bn+bn", "local_layers": 1, "bond_states": True},
)
VARIANTS: tuple[dict[str, Any], ...] = (*({"norm": arm} for arm in ARMS), *EXTENSIONS)


def name_of(options: dict[str, Any]) -> str:
    """Name of a variant for a test."""
    return "-".join(value if isinstance(value, str) else key for key, value in options.items())


def small_config(**options) -> GraphormerConfig:
    """Two layers of 12 channels, three heads, two targets, no dropout."""
    plain = {"layers": 2, "width": 12, "heads": 3, "ffn_width": 10, "max_path_length": 5}
    plain |= {"dropout": 0.0, "attention_dropout": 0.0, "input_dropout": 0.0, "num_targets": 2}
    return GraphormerConfig(**(plain | options))


def stored(graphs: Sequence, max_path_length: int = 5) -> tuple[GraphStore, GraphVocabulary]:
    """The graphs in a store in memory, and the vocabulary of all of them."""
    store = GraphStore.from_graphs(graphs, max_path_length)
    return store, GraphVocabulary.fit(store, np.arange(store.num_graphs))


def batch_of(
    graphs: Sequence,
    vocabulary: GraphVocabulary,
    max_path_length: int = 5,
    attention_blocks: int = 1,
) -> GraphBatch:
    """All the graphs in one batch, in this order."""
    store = GraphStore.from_graphs(graphs, max_path_length)
    return Collator(store, vocabulary, attention_blocks)(range(store.num_graphs))


def batch_of_smiles(*smiles: str, attention_blocks: int = 1) -> tuple[GraphVocabulary, GraphBatch]:
    """These molecules in one batch, and before it the vocabulary of all of them."""
    graphs = [molecule(text) for text in smiles]
    vocabulary = stored(graphs)[1]
    return vocabulary, batch_of(graphs, vocabulary, attention_blocks=attention_blocks)


@torch.no_grad()
def randomize(model: torch.nn.Module, seed: int = 0, scale: float = 0.4) -> None:
    """Make every parameter and running statistic matter; rows for unknown codes stay zero."""
    generator = torch.Generator().manual_seed(seed)
    kept = model.state_dict()  # other buffers are constants
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if name not in kept or not tensor.is_floating_point():
            continue
        values = torch.randn(tensor.shape, generator=generator, dtype=torch.float64) * scale
        if name.endswith("running_var"):
            values = values.abs() + 0.5
        elif "norm" in name and name.endswith("weight"):
            values = values + 1
        tensor.copy_(values)
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding) and module.padding_idx is not None:
            module.weight[module.padding_idx] = 0


def small_model(vocabulary: GraphVocabulary, seed: int = 0, **options) -> Graphormer:
    """A random model in float64, in evaluation mode."""
    model = Graphormer(small_config(**options).for_vocabulary(vocabulary)).double().eval()
    randomize(model, seed)
    return model


def literal_of(
    model: Graphormer, vocabulary: GraphVocabulary, one_path: bool = False
) -> LiteralWithExtensions:
    """The literal restatement with (copies of) the model's parameters, in the model's mode."""
    trained = dict(model.named_parameters())
    parameters = {
        name: tensor.detach().clone().requires_grad_(name in trained)
        for name, tensor in model.state_dict().items()
    }
    config = model.config
    names = ("norm", "norm_position", "layers", "heads", "max_path_length")
    options = {name: getattr(config, name) for name in names}
    options |= {"atom_codes": vocabulary.atoms.seen, "bond_codes": vocabulary.bonds.seen}
    options |= {"training": model.training, "one_path": one_path, "config": config}
    return LiteralWithExtensions(parameters, **options)


def relative_error(value: torch.Tensor, truth: torch.Tensor, scale: float = 1e-3) -> float:
    """Largest difference, relative to the largest true value (at least `scale`)."""
    value, truth = value.detach().double(), truth.detach().double()
    return float((value - truth).abs().max() / truth.abs().max().clamp_min(scale))
