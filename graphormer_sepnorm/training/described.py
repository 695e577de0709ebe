"""What is known of a model and its data, and its test; Lightning is not needed for it.

n molecules · T targets.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphormer_sepnorm.config import ModelConfig
from graphormer_sepnorm.datasets.molecule_data import MoleculeData
from graphormer_sepnorm.files import plain
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary
from graphormer_sepnorm.inference.checkpoint import FORMAT_VERSION, package_versions
from graphormer_sepnorm.model.config import REGULARIZATION, GraphormerConfig
from graphormer_sepnorm.training.backbone import Backbone

if TYPE_CHECKING:
    import torch

    from graphormer_sepnorm.model.graphormer import Graphormer


@dataclass
class Tested:
    """Result of the best checkpoint of a network, or an ensemble.

    Attributes:
        checkpoint: Its file.
        summary: As ``summary.json`` has it.
        validation: Metrics and loss of the checkpoint's validation.
        predictions: float64 ``[n, T]`` of the test split; None where only a part was tested.
    """

    checkpoint: Path
    summary: dict[str, Any]
    validation: dict[str, float]
    predictions: np.ndarray | None


class Described:
    """A model that is described by its facts; by itself one without networks.

    Attributes:
        facts: What a checkpoint keeps of model and data; empty until the data are known.
        vocabulary: Of atoms and bonds.
        architecture: The network that the options ask for, without what the data decide.
        backbone: The network that it starts from; None: from initial values.
        model: The network, where there is one.
        members: The other networks of an ensemble that is evaluated; mostly none.
        device: Where the networks are.
    """

    facts: dict[str, Any]
    vocabulary: GraphVocabulary
    architecture: GraphormerConfig
    backbone: Backbone | None
    model: Graphormer
    members: tuple[Graphormer, ...] = ()
    device: torch.device

    @property
    def has_network(self) -> bool:
        """Whether there is one; a model may be of trees and kernel alone."""
        return False

    @property
    def task(self) -> Task:
        """What is predicted; known once the data are."""
        return Task.from_plain(self.facts["task"])

    def plan_network(self, config: ModelConfig) -> ModelConfig:
        """Validate the options before any data are touched; return them with the backbone's own."""
        self.backbone = None
        own = {name: getattr(config, name) for name in REGULARIZATION}
        self._of_values = {name: 0.0 for name in own if own[name] is None}
        if config.from_pretrained is not None:
            self.backbone = Backbone.read(config.from_pretrained)
            config = dataclasses.replace(config, **self.backbone.architecture(**own))
        self.architecture = config.network
        return config

    def describe(self, data: MoleculeData) -> None:
        """Take what is known of the data, without building a network."""
        self.facts = self.facts_of(data)
        self.vocabulary = GraphVocabulary.from_plain(self.facts["vocabulary"])

    def facts_of(self, data: MoleculeData) -> dict[str, Any]:
        """Return what a checkpoint keeps of the model and of its data."""
        splits, vocabulary = data.splits, data.fit_vocabulary()
        mean, deviation = data.target_scaling()
        summary = data.training_summary()
        if splits.task.kind == "regression":
            self.architecture = dataclasses.replace(self.architecture, **self._of_values)
        architecture = dataclasses.replace(
            self.architecture,
            extra_inputs=len(splits.extra_inputs),
            exclusive=bool(splits.task.one_of),
        )
        targets = len(splits.task.targets)
        if self.backbone is None:
            sizes = {"num_targets": targets, "mean_atoms": summary["atoms"]["mean"]}
            config = dataclasses.replace(architecture, **sizes).for_vocabulary(vocabulary)
        else:
            given = architecture, targets, vocabulary, splits.feature_version
            config, vocabulary = self.backbone.extended(*given)
        facts: dict[str, Any] = {
            "format_version": FORMAT_VERSION,
            "model": dataclasses.asdict(config),
            "task": splits.task.to_plain(),
            "target_mean": mean,
            "target_std": deviation,
            "vocabulary": vocabulary.to_plain(),
            "featurizer": splits.featurizer,
            "feature_version": splits.feature_version,
            "extra_inputs": {"columns": list(splits.extra_inputs)},
            "standardize": list(splits.standardize),
            "dataset": splits.name,
            "dataset_fingerprint": splits.fingerprint,
            "training_graphs": len(data.numbers.described),
            "from_pretrained": "" if self.backbone is None else self.backbone.name,
            "training_summary": summary,
            "weight_scale": data.weight_scale(),
            "data_options": data.table_options,
            "member_folds": 0 if data.member_folds is None else data.member_folds.count,
            "packages": package_versions(),
        }
        return plain(facts)
