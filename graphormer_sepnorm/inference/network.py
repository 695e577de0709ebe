"""From a checkpoint to its network, whose sizes are those of the weights that are there."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from graphormer_sepnorm.errors import CheckpointError, ConfigError
from graphormer_sepnorm.model.config import GraphormerConfig
from graphormer_sepnorm.model.graphormer import Graphormer

# Where the sizes of a network show. What is built is larger than all of this by a small factor.
_SHAPES = {
    "embedding.atom.weight": ("atom_rows", "width"),
    "embedding.in_degree.weight": ("degree_rows", "width"),
    "bias.spatial.weight": ("spatial_rows", "heads"),
    "bias.bond.weight": ("bond_rows", "heads"),
    "bias.path_weight": ("path_rows", "heads", "heads"),
    "readout.weight": ("num_targets", "width"),
}
# Of each encoding that is a part of a name of `encodings`.
_ENCODING_SHAPES = {
    "rrwp": {"walks.atoms.weight": ("width", "walk_steps")},
    "paths": {"paths.atoms.weight": ("width", "walk_steps")},
}
_EXTRA_SHAPES = {
    "extra_readout.training_mean": ("extra_inputs",),
    "extra_readout.training_factor": ("extra_inputs",),
    "extra_readout.numbers.weight": ("width", "extra_inputs"),
}
_LAYER_SHAPES = {"ffn.0.weight": ("ffn_width", "width")}
_ATTENTION_SHAPES = {"attention.query.weight": ("width", "width")}
_MESSAGE_SHAPES = {"local.bond.weight": ("bond_rows", "width")}
_STATE_SHAPES = {"local.ends.weight": ("width", "width")}


def check_network(options: dict[str, Any], weights: dict[str, Tensor]) -> None:
    """Compare the sizes that a network is said to have with its weights.

    Before it is built: a number in a file must not decide how much memory is taken. The options are
    those of `GraphormerConfig`, of the right types.

    Raises:
        CheckpointError: They contradict each other, or this version has no such network.
    """
    config = _config(options)
    layers = {name.split(".")[1] for name in weights if name.startswith("layers.")}
    if config.layers != len(layers):
        raise CheckpointError(f"model.layers is {config.layers}, the weights are of {len(layers)}")
    expected = dict(_SHAPES)
    for part in config.encodings.split("+"):
        expected |= _ENCODING_SHAPES.get(part, {})
    if config.extra_inputs:
        expected |= _EXTRA_SHAPES
    of_all = _LAYER_SHAPES | (_MESSAGE_SHAPES if config.local_mpnn != "none" else {})
    of_all |= _STATE_SHAPES if config.bond_states else {}
    for place in range(config.layers):
        own = of_all | (_ATTENTION_SHAPES if config.attends(place) else {})
        expected |= {f"layers.{place}.{name}": sizes for name, sizes in own.items()}
    for name, sizes in expected.items():
        if name not in weights:
            raise CheckpointError(f"state_dict has no model.{name}")
        shape = tuple(weights[name].shape)
        if shape != tuple(getattr(config, size) for size in sizes):
            said = " x ".join(f"{size} {getattr(config, size)}" for size in sizes)
            raise CheckpointError(f"model.{name} has shape {list(shape)}, not {said}")


def build_network(options: dict[str, Any], weights: dict[str, Tensor]) -> Graphormer:
    """Build a network and give it its weights; an option that is missing has its default.

    Raises:
        CheckpointError: This version has no such network.
    """
    check_network(options, weights)
    model = Graphormer(_config(options))
    load_weights(model, weights)
    return model


def load_weights(module: nn.Module, weights: dict[str, Tensor]) -> None:
    """Give a module its weights, names and shapes compared.

    Raises:
        CheckpointError: They are of another network.
    """
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        raise _unknown(error) from error


def _config(options: dict[str, Any]) -> GraphormerConfig:
    try:
        return GraphormerConfig(**options)
    except (TypeError, ConfigError) as error:
        raise _unknown(error) from error


def _unknown(error: Exception) -> CheckpointError:
    reason = " ".join(str(error).split())[:200]
    return CheckpointError(
        f"the network of the checkpoint is not one of this version ({reason}): use the version of "
        "graphormer_sepnorm that wrote it"
    )
