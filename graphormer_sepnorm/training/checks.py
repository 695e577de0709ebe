"""What is not trained: options out of range, other data or another network than a checkpoint's."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from typing import Any

from lightning.pytorch import Trainer

from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.errors import CheckpointError, ConfigError
from graphormer_sepnorm.formatting import listed
from graphormer_sepnorm.graphs.extra_inputs import ExtraInputs
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.model.config import FROM_DATA, REGULARISATION, GraphormerConfig
from graphormer_sepnorm.training.loss import LOSSES, UNIFORMITY_ON
from graphormer_sepnorm.training.optimizer import DECAYED, OPTIMIZERS, SCHEDULES
from graphormer_sepnorm.values import is_number, is_whole

log = logging.getLogger(__name__)

_NUMBERS = (
    "learning_rate",
    "final_learning_rate",
    "weight_decay",
    "warmup_steps",
    "eps",
    "label_fraction",
    "uniformity_weight",
    "frozen_bn_fraction",
)
_CHOICES = {
    "optimizer": OPTIMIZERS,
    "weight_decay_on": DECAYED,
    "schedule": SCHEDULES,
    "uniformity_on": UNIFORMITY_ON,
    "loss": LOSSES,
}


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse what cannot be trained with; `GraphormerConfig` checks the options of the network.

    Raises:
        ConfigError: A value is out of its range.
    """
    for name in _NUMBERS:
        if not is_number(options[name]):
            raise _out_of_range(name, repr(options[name]), "it must be a number")
    betas = options["betas"]
    if not (isinstance(betas, tuple | list) and len(betas) == 2 and all(map(is_number, betas))):
        raise _out_of_range("betas", repr(betas), "it must be two numbers")
    if not is_whole(options["seed"]):
        raise ConfigError(f"seed is {options['seed']!r}: it must be a whole number")
    for name in ("learning_rate", "eps"):
        if not options[name] > 0:
            raise _out_of_range(name, options[name], "it must be positive")
    for name in ("warmup_steps", "final_learning_rate", "weight_decay", "uniformity_weight"):
        if not options[name] >= 0:
            raise _out_of_range(name, options[name], "it must not be negative")
    if not all(0 <= beta < 1 for beta in betas):
        raise _out_of_range("betas", list(betas), "each must be from 0 to below 1")
    for name, choices in _CHOICES.items():
        if options[name] not in choices:
            wanted = " or ".join(f"'{choice}'" for choice in choices)
            raise _out_of_range(name, f"'{options[name]}'", f"it must be {wanted}")
    graphs, fixed = options["precise_bn_graphs"], options["frozen_bn_fraction"]
    if not is_whole(graphs, 0) or graphs == 1:
        raise _out_of_range("precise_bn_graphs", graphs, "it must be 0, or 2 or more")
    if not 0 < options["label_fraction"] <= 1:
        raise _out_of_range("label_fraction", options["label_fraction"], "it must be above 0, to 1")
    if not 0 <= fixed < 1:
        raise _out_of_range("frozen_bn_fraction", fixed, "it must be from 0 to below 1")
    if fixed and not graphs:
        raise ConfigError(
            "--model.frozen_bn_fraction needs --model.precise_bn_graphs: BatchNorm's statistics "
            "are fixed as they are measured"
        )


def _out_of_range(name: str, value: object, range_: str) -> ConfigError:
    return ConfigError(f"--model.{name} is {value}: {range_}")


def check_same_data(facts: Mapping[str, Any], trainer: Trainer) -> None:
    """Refuse to go on with other data than those of a checkpoint; say it where they are tested.

    Raises:
        CheckpointError: The trainer trains, and its data are other ones; or they have other numbers
            beside the graphs, other targets, or labels of another kind.
    """
    data = trainer.datamodule  # type: ignore[attr-defined]
    if not isinstance(data, MoleculeDataModule):
        return  # evaluated with a loader
    splits = data.splits
    task, own = Task.from_plain(facts["task"]), splits.task
    if task.kind != own.kind:
        raise CheckpointError(
            f"the model was trained for {task.kind} labels, those of {splits.name} are {own.kind}: "
            "give labels of the same kind"
        )
    if (task.targets, task.one_of) != (own.targets, own.one_of):
        # Predictions and labels meet by their places alone.
        raise CheckpointError(
            f"the model predicts {listed(task.targets)}, the labels of {splits.name} are "
            f"{listed(own.targets)}: give the same targets under the same names, in the same order"
        )
    wanted = ExtraInputs.of_facts(dict(facts))
    if wanted != splits.extra_inputs:
        raise CheckpointError(
            f"the network reads {wanted.in_words() or 'nothing'} beside a molecule, the data have "
            f"{splits.extra_inputs.in_words() or 'nothing'}: give the --data.descriptors and "
            "--data.descriptor_columns that it was trained with, and the same release of RDKit"
        )
    if splits.fingerprint == facts["dataset_fingerprint"]:
        return
    what = f"{splits.name} here is not the {facts['dataset']} that the model was trained on"
    if trainer.state.fn == "fit":
        raise CheckpointError(f"{what}: training cannot go on with other data")
    if splits.name == facts["dataset"]:
        log.warning("%s: its splits may differ", what)


def check_same_network(facts: Mapping[str, Any], asked_for: GraphormerConfig) -> None:
    """Refuse to go on with another network than the one that was asked for.

    Raises:
        CheckpointError: They differ in more than regularisation.
    """
    saved = GraphormerConfig(**facts["model"])
    for field in dataclasses.fields(saved):
        own, there = getattr(asked_for, field.name), getattr(saved, field.name)
        # What the data decide is not asked for: rows of tables, unless given.
        open_rows = own is None and field.name in ("atom_rows", "bond_rows")
        decided = open_rows or field.name in FROM_DATA
        if own != there and not decided and field.name not in REGULARISATION:
            raise CheckpointError(
                f"the checkpoint's network has {field.name} {there}, this one {own}: training "
                "cannot go on with another network"
            )
