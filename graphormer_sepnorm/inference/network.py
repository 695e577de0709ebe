"""From a checkpoint to its network, whose sizes are those of the weights that are there."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from graphormer_sepnorm.errors import CheckpointError, ConfigError
from graphormer_sepnorm.model.config import GraphormerConfig
from graphormer_sepnorm.model.graphormer import Graphormer


def check_network(options: dict[str, Any], weights: dict[str, Tensor]) -> None:
    """Compare the sizes that a network is said to have with its weights.

    Before it is built: a number in a file must not decide how much memory is taken.

    Raises:
        CheckpointError: They contradict each other, or this version has no such network.
    """
    config = _config(options)
    layers = {name.split(".")[1] for name in weights if name.startswith("layers.")}
    if config.layers != len(layers):
        raise CheckpointError(f"model.layers is {config.layers}, the weights are of {len(layers)}")
    try:
        with torch.device("meta"), torch.random.fork_rng(devices=[]):
            expected = Graphormer(config).state_dict()
    except ConfigError as error:
        raise _unknown(error) from error
    for name in expected.keys() | weights.keys():
        if name not in weights:
            raise CheckpointError(f"state_dict has no model.{name}")
        if name not in expected:
            raise CheckpointError(f"the network has no {name}, which state_dict has")
        found, size = list(weights[name].shape), list(expected[name].shape)
        if found != size:
            raise CheckpointError(f"model.{name} has shape {found}, not {size}")


def build_network(options: dict[str, Any], weights: dict[str, Tensor]) -> Graphormer:
    """Build a network and give it its weights; an option that is missing has its default.

    Raises:
        CheckpointError: This version has no such network.
    """
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
