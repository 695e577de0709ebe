"""The evaluation of a whole split: its predictions and its loss are collected, then evaluated.

An average of per-batch metrics is not the metric: the last batch is smaller, and an AUROC has no
meaning per batch at all.

B graphs of a batch · G graphs of a split · T targets.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch
import torchmetrics
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor
from torch.nn.functional import logsigmoid
from torchmetrics.utilities import dim_zero_cat

from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.errors import CheckpointError
from graphormer_sepnorm.formatting import listed
from graphormer_sepnorm.graphs.batch import GraphBatch
from graphormer_sepnorm.graphs.extra_inputs import columns_of
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.metrics import Metric
from graphormer_sepnorm.model.config import FROM_DATA, REGULARIZATION, GraphormerConfig
from graphormer_sepnorm.training.described import Described
from graphormer_sepnorm.training.loss import LossName, summed_loss

log = logging.getLogger(__name__)


class MeanLoss(torchmetrics.Metric):
    """Mean of a loss over the labels of many batches, of all processes; nan stays visible."""

    full_state_update = False
    total: Tensor
    labels: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("total", "labels"):
            zero = torch.tensor(0.0, dtype=torch.float64)
            self.add_state(name, default=zero, dist_reduce_fx="sum")

    def update(self, total: Tensor, labels: Tensor) -> None:
        """Add a batch: the sum of its losses and the number of its labels."""
        self.total = self.total + total.detach()
        self.labels = self.labels + labels

    def compute(self) -> Tensor:
        """Return the mean, float64; 0 where there is no label."""
        return self.total / self.labels.clamp(min=1)


class SplitPredictions(torchmetrics.Metric):
    """Collects what is predicted for one split.

    Under several processes the rows of all of them are gathered; a graph that several of them
    evaluated counts once.
    """

    full_state_update = False
    predictions: list[Tensor]
    targets: list[Tensor]
    graph_ids: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        for name in ("predictions", "targets", "graph_ids"):
            self.add_state(name, default=[], dist_reduce_fx="cat")

    def update(self, predictions: Tensor, targets: Tensor, graph_ids: Tensor) -> None:
        """Add a batch: predictions and targets ``[B, T]`` of the graphs with these ids, ``[B]``."""
        self.predictions.append(predictions.detach().double())
        self.targets.append(targets.double())
        self.graph_ids.append(graph_ids)

    def compute(self) -> tuple[np.ndarray, np.ndarray]:
        """Return targets and predictions, each float64 ``[G, T]``, by graph id."""
        ids, targets, predictions = (
            dim_zero_cat(state).cpu().numpy()
            for state in (self.graph_ids, self.targets, self.predictions)
        )
        _, first = np.unique(ids, return_index=True)
        return targets[first], predictions[first]


class EvaluatedModule(Described, LightningModule):
    """Evaluates validation and test splits; a subclass builds the network and trains it."""

    loss_name: LossName
    target_mean: Tensor
    target_std: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.facts = {}
        splits = ("validation", "test")
        self.collected = torch.nn.ModuleDict({split: SplitPredictions() for split in splits})
        self.losses = torch.nn.ModuleDict({split: MeanLoss() for split in splits})
        self._evaluated: dict[str, np.ndarray] = {}
        self._undefined: set[str] = set()

    @property
    def has_network(self) -> bool:
        """Whether it is built."""
        return "model" in self._modules

    def summed_loss(
        self, outputs: Tensor, targets: Tensor, weights: Tensor | None, bounds: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the sum of the losses of labels and bounds that are present, and their number."""
        scaled = (targets - self.target_mean) / self.target_std
        if bounds is not None and bounds.shape[1]:
            bounds = (bounds - self.target_mean.repeat(2)) / self.target_std.repeat(2)
        if weights is not None:
            weights = weights * self.facts.get("weight_scale", 1.0)
        return summed_loss(self.loss_name, outputs, scaled, weights, bounds)

    def validation_step(self, batch: GraphBatch, batch_idx: int) -> None:
        """Collect the predictions of a batch."""
        self._collect("validation", batch)

    def test_step(self, batch: GraphBatch, batch_idx: int) -> None:
        """Collect the predictions of a batch."""
        self._collect("test", batch)

    def on_validation_epoch_end(self) -> None:
        """Evaluate the whole validation split."""
        self._evaluate("validation")

    def on_test_epoch_end(self) -> None:
        """Evaluate the whole test split."""
        self._evaluate("test")

    def on_validation_start(self) -> None:
        """Have the members of an ensemble where the network is."""
        for network in self.members:
            network.to(self.device).eval()

    on_test_start = on_predict_start = on_validation_start

    def check_codes(self, batch: GraphBatch) -> None:
        """Refuse a batch of another vocabulary: the network would take one atom for another."""
        if batch.vocabulary not in ("", self.vocabulary.digest):
            raise CheckpointError(
                "the batch is of a loader that was made for other training graphs than the "
                "model's: predict with trainer.predict(model, data), or test with "
                "trainer.test(model, data)"
            )

    def predict_step(self, batch: GraphBatch, batch_idx: int) -> Tensor:
        """Return real values in their units, or probabilities of class 1, ``[B, T]``."""
        values, task = self._values(self.outputs(batch)), self.task
        if task.shifts:
            values = torch.from_numpy(task.in_units(values.cpu().numpy())).to(values.device)
        return values.float()

    def outputs(self, batch: GraphBatch) -> Tensor:
        """Return the outputs of the network, of an ensemble those that stand for its mean value."""
        self.check_codes(batch)
        outputs = self.model(batch)
        if not self.members:
            return outputs
        each = torch.stack([outputs, *(network(batch) for network in self.members)]).double()
        if self.task.kind == "regression":
            return each.mean(dim=0)
        # The logit of the mean of the probabilities.
        yes, no = (torch.logsumexp(logsigmoid(sign * each), dim=0) for sign in (1, -1))
        return yes - no

    def _collect(self, split: str, batch: GraphBatch) -> None:
        outputs = self.outputs(batch)
        values = self._values(outputs)
        cast(SplitPredictions, self.collected[split]).update(values, batch.targets, batch.graph_ids)
        total, labels = self.summed_loss(outputs, batch.targets, None, batch.bounds)
        mean = cast(MeanLoss, self.losses[split])
        mean.update(total, labels)
        self.log(f"{split}_loss", mean, on_step=False, on_epoch=True)

    def _values(self, outputs: Tensor) -> Tensor:
        values = outputs.double() * self.target_std.double() + self.target_mean.double()
        return values.sigmoid() if self.task.kind == "binary" else values

    def _evaluate(self, split: str) -> None:
        collected = cast(SplitPredictions, self.collected[split])
        targets, predictions = collected.compute()
        collected.reset()
        self._evaluated[split] = predictions
        values = self.task.evaluate_learned(targets, predictions, self._wanted_metrics(split))
        main = self.task.main
        if math.isnan(values[main.name]) and split not in self._undefined:
            self._undefined.add(split)  # once, and not after every epoch
            what = "%s %s is undefined: no target has %s there, or a prediction is not a number"
            log.warning(what, split, main.label, main.lacking)
        # float64, or Lightning would round. The same in every process already; a mean over them
        # would round too.
        named = {
            f"{split}_{name}": torch.tensor(value, dtype=torch.float64, device=self.device)
            for name, value in values.items()
        }
        self.log_dict(named, sync_dist=True, reduce_fx="max")

    def _wanted_metrics(self, split: str) -> list[Metric]:
        """All of the task; while training the main one and those that callbacks go by."""
        task = self.task
        if self.trainer.state.fn != "fit":
            return task.metrics
        callbacks: list[Any] = self.trainer.callbacks  # type: ignore[attr-defined]
        watched = {getattr(callback, "monitor", None) for callback in callbacks}
        watched.add(f"{split}_{task.main.name}")
        return [metric for metric in task.metrics if f"{split}_{metric.name}" in watched]

    def evaluated(self, split: str) -> np.ndarray:
        """Return what the last evaluation of a split predicted: values, as they are learned."""
        return self._evaluated[split]


def check_same_data(facts: Mapping[str, Any], trainer: Trainer) -> None:
    """Refuse to continue with other data than those of a checkpoint; warn where they are tested.

    Raises:
        CheckpointError: The trainer trains, and its data are other ones; or they have other extra
            features, other targets, or labels of another kind.
    """
    data = trainer.datamodule  # type: ignore[attr-defined]
    if not isinstance(data, MoleculeDataModule):
        return  # evaluated with a loader
    splits = data.splits
    task, own = Task.from_plain(facts["task"]), splits.task
    differences = {  # of what the model has and what the data have
        "kind of label": ([task.kind], [own.kind]),
        # Predictions and labels meet by their index alone.
        "targets": (task.targets, own.targets),
        "classes": ([task.one_of], [own.one_of]),
        "shifts of logarithms": ([*map(str, task.shifts)], [*map(str, own.shifts)]),
        "descriptor columns": (columns_of(facts), splits.extra_inputs),
    }
    for what, (wanted, found) in differences.items():
        if wanted != found:
            raise CheckpointError(
                f"the model was trained with the {what} {listed(wanted) or 'none'}, {splits.name} "
                f"has {listed(found) or 'none'}: give data with the same, in the same order"
            )
    if splits.fingerprint == facts["dataset_fingerprint"]:
        return
    what = f"{splits.name} here is not the {facts['dataset']} that the model was trained on"
    if trainer.state.fn == "fit":
        raise CheckpointError(f"{what}: training cannot continue with other data")
    if splits.name == facts["dataset"]:
        log.warning("%s: its splits may differ", what)


def check_same_network(facts: Mapping[str, Any], asked_for: GraphormerConfig) -> None:
    """Raise a CheckpointError where a network differs in more than regularization."""
    saved, own = (
        dataclasses.asdict(one) for one in (GraphormerConfig(**facts["model"]), asked_for)
    )
    # What the data decide is not asked for: rows of tables, unless given.
    open_rows = [name for name in ("atom_rows", "bond_rows") if own[name] is None]
    for name, there in saved.items():
        if own[name] != there and name not in (*FROM_DATA, *REGULARIZATION, *open_rows):
            what = f"the checkpoint's network has {name} {there}, this one {own[name]}"
            raise CheckpointError(f"{what}: training cannot continue with another network")
