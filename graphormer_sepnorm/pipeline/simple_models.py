"""Simple models beside a trained network: what they reach, and a blend of it with the best."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from graphormer_sepnorm.baselines.evaluation import MEAN
from graphormer_sepnorm.compare.statistics import MeanDifference, holm, jackknifed
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.errors import ConfigError, GraphormerError
from graphormer_sepnorm.formatting import interval, listed
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.inference.checkpoint import BLEND, CONFIDENCE, read_checkpoint
from graphormer_sepnorm.metrics import Metric
from graphormer_sepnorm.pipeline.held_out import HeldOut, networks_of
from graphormer_sepnorm.training.module import GraphormerModule
from graphormer_sepnorm.uncertainty.uncertainty import Inputs

if TYPE_CHECKING:
    from graphormer_sepnorm.baselines.blend import Blend
    from graphormer_sepnorm.baselines.evaluation import Baseline, Found
    from graphormer_sepnorm.baselines.fit import Baselines, Scaled

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BlendedRun:
    """What a run predicts when its network is blended with trees.

    Attributes:
        blend: In its checkpoint now.
        weighed_on: The molecules that its weight was chosen by, in words.
        held: What it says of them.
        predictions: float64 ``[n, T]`` of the test split; None: only a part of it was tested.
        spread: ``[n, T]``, how far the members of an ensemble disagree there; None as these, or
            there is one network.
        apart: ``[n, T]``, how far network and trees are from each other there; None as these.
        test: Metrics of them, by their names.
    """

    blend: Blend
    weighed_on: str
    held: HeldOut
    predictions: np.ndarray | None = None
    spread: np.ndarray | None = None
    apart: np.ndarray | None = None
    test: dict[str, float] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """What it is, in a table."""
        weight = self.blend.weight
        return f"blend, {weight:g} Graphormer + {1 - weight:g} gradient boosting"

    @property
    def inputs(self) -> Inputs:
        """What it says of the test split."""
        assert self.predictions is not None
        return Inputs(self.predictions, self.spread, self.apart)

    def in_summary(self, result: dict[str, Any]) -> dict[str, Any]:
        """Return what came out: of the blend, and of the network, as given, under ``network``."""
        stacking = self.blend.stacking
        slope = {} if stacking is None else {"slope": stacking.slope}
        result = {**result, "blend": {"network_weight": self.blend.weight, **slope}}
        if self.predictions is None:
            return result
        names = [name for name in result if name.startswith(("test_", "best_validation_"))]
        network = {name: result.pop(name) for name in names}
        own = {f"test_{name}": value for name, value in self.test.items()}
        own |= {f"best_validation_{name}": value for name, value in self.blend.validation.items()}
        return {**result, **{name: own[name] for name in names if name in own}, "network": network}


@dataclass
class SimpleModels:
    """What was asked for beside the network, as far as it was made.

    Attributes:
        baselines: The simple models.
        left_out: What they leave out.
        interrupted: Whether they were stopped.
        blended: The blend, if it was asked for and could be made.
        compared: How much higher the main metric of each comparable model is, by its name, than
            that of what the checkpoint predicts, on molecules that neither was trained on.
        compared_on: These molecules, in words.
    """

    baselines: list[Baseline] = field(default_factory=list)
    left_out: str = ""
    interrupted: bool = False
    blended: BlendedRun | None = None
    compared: dict[str, MeanDifference] = field(default_factory=dict)
    compared_on: str = ""

    def said(self, metric: Metric, unit: str = "") -> str:
        """Return sentences: how the blend was weighed, and if a simple model is better.

        That is said where molecules resolve it, and never by the test split: who chooses by that
        has no test any more.

        Args:
            metric: The main one.
            unit: Its unit.
        """
        said = []
        if self.blended is not None:
            validation = metric.shown(self.blended.blend.validation[metric.name])
            said.append(
                f"The network has the weight {self.blended.blend.weight:g} in the blend, chosen by "
                f"the loss on {self.blended.weighed_on}; {metric.label} of the blend there "
                f"{validation}."
            )
        if self.compared:
            change = 1 if metric.higher_is_better else -1
            name, found = max(self.compared.items(), key=lambda one: change * one[1].mean)
            p_values = holm([one.p_value for one in self.compared.values()])
            p = float(p_values[[*self.compared].index(name)])
            limits = interval(found.low, found.high, 4)
            size = (
                f"{metric.label} {metric.shown(abs(found.mean), unit)} "
                f"{'higher' if found.mean > 0 else 'lower'}, {found.confidence:.0%} interval of "
                f"the difference {limits}, over {self.compared_on}"
            )
            if not p <= 1 - found.confidence:
                said.append(f"Not resolved: {name} against the model, {size}.")
            elif change * found.mean < 0:
                said.append(f"{name} is worse than the model: {size}.")
            else:
                advice = "use it" if self.blended is not None else "use it, or --blend true"
                if name == MEAN:
                    advice = "the network has learned nothing that helps there"
                said.append(f"{name} is better than the model: {size}: {advice}.")
        return " ".join(sentence[0].upper() + sentence[1:] for sentence in said)


def require_smiles(data: MoleculeDataModule) -> None:
    """Raise a ConfigError for a blend that cannot be made: trees take SMILES."""
    if data.splits.smiles is None or data.splits.featuriser is None:
        raise ConfigError(
            f"--blend true: {data.splits.name} is made of graphs, and trees take SMILES: leave it "
            "out"
        )


def simple_models(
    module: GraphormerModule,
    data: MoleculeDataModule,
    predictions: np.ndarray | None,
    held: HeldOut | None,
    *,
    baselines: bool,
    blend: bool,
) -> SimpleModels:
    """Fit the simple models that are asked for, and blend the network with the best.

    Training is over, so that whatever happens here leaves its result as it is.

    Args:
        module: With the weights of the checkpoint.
        data: What it was trained on.
        predictions: Of the network for the test split, ``[n, T]``; None: it is not known of all.
        held: What the network says of molecules that it has not seen; for a blend.
        baselines: Whether all of them are wanted.
        blend: Whether gradient boosting is to be blended with the network.
    """
    if not (baselines or blend):
        return SimpleModels()
    from graphormer_sepnorm.baselines.evaluation import baselines_of

    models = {} if baselines else {"models": ("boosting",)}
    result = SimpleModels()
    try:
        found = baselines_of(data, **models)
        result.baselines, result.left_out = found.baselines, found.left_out
        # Without trees for any target there is nothing to blend; the baselines say why.
        if held is not None and blend and found.fitted is not None:
            boosted = _judged(found.fitted)
            alone = [
                name
                for name, fitted, judged in zip(
                    module.task.targets, found.fitted.boosted, boosted, strict=True
                )
                if fitted and not judged
            ]
            if alone:
                said = (
                    f"Not blended: {listed(alone)}, of which without one fold the labels are too "
                    "few for trees, or of one class."
                )
                result.left_out = " ".join(filter(None, (result.left_out, said)))
            if any(boosted):
                blended = _blend(module, data, found, boosted, predictions, held)
                result.blended = blended
        if held is not None and found.fitted is not None:
            own = result.blended.held if result.blended else held.take(_places(data, found, held))
            labels = found.fitted.labels["validation"]
            fair = found.comparable(module.task)
            result.compared = compare(module.task, labels, own.values, fair)
            result.compared_on = _judged_on(data, found.fitted)
    except GraphormerError as error:
        log.warning("no %s: %s", "blend" if blend else "baselines", error)
    except KeyboardInterrupt:
        result.interrupted = True
    return result


def final_predictions(
    module: GraphormerModule,
    data: MoleculeDataModule,
    split: str,
    file: str,
    predictions: np.ndarray,
) -> tuple[np.ndarray | None, str]:
    """Return what a checkpoint says of an evaluated split, beyond its network's ``[n, T]``.

    Returns:
        The values with what it is blended with, and calibrated; None if that changes nothing, or
        cannot be known. And a line to be said, mostly empty.
    """
    from graphormer_sepnorm.baselines.blend import Blend
    from graphormer_sepnorm.uncertainty.uncertainty import Uncertainty

    checkpoint, splits, values = read_checkpoint(file), data.splits, predictions
    if {BLEND, CONFIDENCE} & checkpoint.keys() and len(predictions) != len(data.indices(split)):
        return None, "these are of the network alone: what comes after it takes the whole split"
    if BLEND in checkpoint:
        if splits.smiles is None:
            return None, "these are of the network alone: a blend takes SMILES"
        blend = Blend.from_plain(checkpoint[BLEND])
        trees = blend.trees_of_smiles(splits.smiles[split], data.own_columns(split))
        networks = predictions[None]
        if blend.stacking is not None:  # what is blended is not the mean that was evaluated
            networks = networks_of(module, data, split, predictions)
        values, _ = blend.combined(networks, trees)
    if CONFIDENCE in checkpoint:
        values = Uncertainty.from_plain(checkpoint[CONFIDENCE], splits.task.kind).calibrated(values)
    return (values, "") if (values != predictions).any() else (None, "")


def evaluate(
    data: MoleculeDataModule, task: Task, split: str, predictions: np.ndarray
) -> dict[str, float]:
    """Return the metrics of predictions ``[n, T]``."""
    return task.evaluate(data.labels(data.indices(split)), predictions)


def _judged(fitted: Baselines) -> list[Scaled | None]:
    """Return the trees of each target that can be weighed; None where there are none.

    Without one fold the labels may be too few for trees, or all of one class: then nobody knows
    what they say of its molecules, and the target goes by the network alone.
    """
    values = fitted.predictions["boosting"]["validation"]
    return [
        trees if np.isfinite(column).all() else None
        for trees, column in zip(fitted.boosted, values.T, strict=True)
    ]


def _places(data: MoleculeDataModule, found: Found, held: HeldOut) -> np.ndarray:
    """Return which of the molecules of `held` simple models were judged on."""
    assert found.fitted is not None
    rows = found.fitted.rows["validation"]
    if data.member_folds is None:
        return rows
    return np.searchsorted(held.numbers, data.numbers.described[rows])  # from the first of training


def _judged_on(data: MoleculeDataModule, fitted: Baselines) -> str:
    where = "validation molecules" if data.member_folds is None else "molecules out of fold"
    return f"{len(fitted.rows['validation']):,} {where}"


def compare(
    task: Task, labels: np.ndarray, values: np.ndarray, others: Mapping[str, np.ndarray]
) -> dict[str, MeanDifference]:
    """Compare a model with others on molecules that none has learned from.

    Args:
        task: What is predicted.
        labels: ``[n, T]``; nan = missing.
        values: What the model says of them, ``[n, T]``.
        others: What the others say, by their names.

    Returns:
        By these names, how much higher the main metric of each is; none where it is undefined.
    """
    found = {name: _difference(task, labels, values, one) for name, one in others.items()}
    return {name: one for name, one in found.items() if math.isfinite(one.mean)}


def _difference(
    task: Task, labels: np.ndarray, ours: np.ndarray, theirs: np.ndarray
) -> MeanDifference:
    main = task.main

    def value(rows: np.ndarray, predictions: np.ndarray) -> float:
        return task.evaluate(labels[rows], predictions[rows], [main])[main.name]

    return jackknifed(lambda rows: value(rows, theirs) - value(rows, ours), len(labels))


def _blend(
    module: GraphormerModule,
    data: MoleculeDataModule,
    found: Found,
    boosted: Sequence[Scaled | None],
    predictions: np.ndarray | None,
    held: HeldOut,
) -> BlendedRun:
    """Weigh network and trees where neither was trained; no test label is looked at for it."""
    from graphormer_sepnorm.baselines.blend import Blend, weigh_classes, weigh_values
    from graphormer_sepnorm.baselines.trees import BoostedTrees

    task, fitted = module.task, found.fitted
    assert fitted is not None
    trees = BoostedTrees.from_fitted(fitted.columns, boosted, task.kind == "binary")
    boosting, labels = fitted.predictions["boosting"], fitted.labels["validation"]
    held = held.take(_places(data, found, held))
    network, unseen = held.values, boosting["validation"]
    if task.kind == "binary":
        exclusive = bool(task.one_of)
        weight, stacking = weigh_classes(labels, held.networks, unseen, exclusive)
        blend = Blend.of_trees(trees, weight, exclusive, stacking)
    else:
        std = np.asarray(module.facts["target_std"])
        bounds = np.asarray(data.store.bounds[held.numbers], np.float64)
        given = bounds if bounds.shape[1] else None
        blend = Blend.of_trees(trees, weigh_values(labels, network, unseen, std, given))
    combined, spread = blend.combined(held.networks, unseen)
    blend = dataclasses.replace(blend, validation=task.evaluate(labels, combined))
    held = dataclasses.replace(
        held,
        values=combined,
        spread=spread,
        apart=blend.apart(network, unseen),
    )
    result = BlendedRun(blend, _judged_on(data, fitted), held)
    if predictions is None:
        return result
    say = boosting["test"]
    if len(fitted.rows["test"]) < len(predictions):  # some were not drawn, or have no label
        assert data.splits.smiles is not None
        say = blend.trees_of_smiles(data.splits.smiles["test"], data.own_columns("test"))
    networks = networks_of(module, data, "test", predictions)
    blended, spread = blend.combined(networks, say)
    return dataclasses.replace(
        result,
        predictions=blended,
        spread=spread,
        apart=blend.apart(predictions, say),
        test=evaluate(data, task, "test", blended),
    )
