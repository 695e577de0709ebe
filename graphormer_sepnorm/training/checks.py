"""What is not trained: other data or another network than a checkpoint's."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from typing import Any

from lightning.pytorch import Trainer

from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.errors import CheckpointError
from graphormer_sepnorm.formatting import listed
from graphormer_sepnorm.graphs.extra_inputs import ExtraInputs
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.model.config import FROM_DATA, REGULARISATION, GraphormerConfig

log = logging.getLogger(__name__)


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
