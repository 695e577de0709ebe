"""A small model in a checkpoint, for tests of what is done with one."""

import copy
from typing import Any, Literal

import torch

from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.inference.checkpoint import FORMAT_VERSION, KEY
from graphormer_sepnorm.model.config import GraphormerConfig
from graphormer_sepnorm.model.graphormer import Graphormer


def make_checkpoint(
    featurizer: str | None = "molecule-1",
    kind: Literal["regression", "binary"] = "regression",
    targets: tuple[str, ...] = ("property",),
    **options: Any,
) -> dict[str, Any]:
    """An untrained model with these options that knows C, N and O, as a checkpoint keeps it."""
    atoms = [[5, 6, 7], [0, 1, 2], [*range(6)], [4, 5, 6], [*range(5)], [0], [0, 1, 2], [0, 1]]
    vocabulary = {"atoms": [*atoms, [0, 1]], "bonds": [[0, 1, 2, 3], [0], [0, 1]]}
    sizes = {"layers": 2, "width": 16, "heads": 2, "ffn_width": 16, "max_path_length": 5}
    sizes |= {"num_targets": len(targets), "atom_rows": 40, "bond_rows": 10}
    config = GraphormerConfig(**sizes, **options)
    model = Graphormer(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    metric = "mae" if kind == "regression" else "auroc"
    task = Task(kind, targets, ("mol/L",) * len(targets), metric)
    facts = {
        "format_version": FORMAT_VERSION,
        "model": {name: getattr(config, name) for name in config.__dataclass_fields__},
        "task": task.to_plain(),
        "target_mean": [3.0] * len(targets),
        "target_std": [2.0] * len(targets),
        "vocabulary": vocabulary,
        "featurizer": featurizer,
        "feature_version": "molecule-1",
        "dataset": "a test",
        "dataset_fingerprint": "none",
    }
    weights = {f"model.{name}": value for name, value in model.state_dict().items()}
    return {KEY: facts, "state_dict": weights}


def with_column(**options: Any) -> dict[str, Any]:
    """One that reads the column pH too, with 50 as its mean."""
    checkpoint = make_checkpoint(extra_inputs=1, **options)
    checkpoint[KEY]["extra_inputs"] = {"columns": ["pH"]}
    weights = checkpoint["state_dict"]
    weights["model.extra_readout.training_mean"][:] = 50
    weights["model.extra_readout.training_factor"][:] = 0.1
    return checkpoint


def replaced(checkpoint: dict[str, Any], path: tuple, value: Any) -> dict[str, Any]:
    """A copy of a checkpoint with another value in one place; its tensors are shared."""
    whole = copy.copy(checkpoint)
    part: Any = whole
    for name in path[:-1]:
        inner = part[name]
        part[name] = list(inner) if isinstance(inner, tuple) else copy.copy(inner)
        part = part[name]
    part[path[-1]] = value
    return whole
