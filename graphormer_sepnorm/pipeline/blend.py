"""Baselines of a run: what they reach, the blend of network and trees, and which of them is better.

n molecules · T targets.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from graphormer_sepnorm.baselines.evaluation import NAMES, shares
from graphormer_sepnorm.compare.roc_statistics import delong
from graphormer_sepnorm.compare.statistics import MeanDifference, jackknifed
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.errors import ConfigError, GraphormerError
from graphormer_sepnorm.formatting import listed
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.inference.checkpoint import BLEND, CONFIDENCE, read_checkpoint
from graphormer_sepnorm.pipeline.predicted import Predicted, on_split
from graphormer_sepnorm.training.module import GraphormerModule

if TYPE_CHECKING:
    from graphormer_sepnorm.baselines.blend import Blend
    from graphormer_sepnorm.baselines.evaluation import Baseline, Found
    from graphormer_sepnorm.baselines.fit import Baselines

log = logging.getLogger(__name__)


@dataclass
class Blended:
    """The predictions of a run, blended where that was asked for, and the baselines.

    Attributes:
        unseen: Predictions for molecules that were not trained on; None: there are none.
        test: Predictions for the test split; None: they are not known of all its molecules.
        blend: Of network and trees; None: the predictions are those of the networks alone.
        baselines: Their metrics.
        left_out: What they leave out, in words.
        evaluated_on: The molecules that the blend was fitted on and models are compared on.
        differences: How much higher the main metric of each comparable baseline is there than that
            of the predictions, by its name.
        interrupted: Whether it was interrupted.
    """

    unseen: Predicted | None
    test: Predicted | None
    blend: Blend | None = None
    baselines: list[Baseline] = field(default_factory=list)
    left_out: str = ""
    evaluated_on: str = ""
    differences: dict[str, MeanDifference] = field(default_factory=dict)
    interrupted: bool = False


def require_smiles(data: MoleculeDataModule) -> None:
    """Raise a ConfigError for a blend that cannot be made: trees take SMILES."""
    if data.splits.smiles is None or data.splits.featuriser is None:
        raise ConfigError(
            f"--blend true: {data.splits.name} is made of graphs, and trees take SMILES: leave it "
            "out"
        )


def add_baselines(
    module: GraphormerModule,
    data: MoleculeDataModule,
    unseen: Predicted | None,
    test: Predicted | None,
    *,
    baselines: bool,
    blend: bool,
) -> Blended:
    """Fit the baselines that are asked for, and blend the networks with the best.

    Training is over, so that whatever happens here leaves its result as it is.

    Args:
        module: With the weights of the checkpoint.
        data: What it was trained on.
        unseen: Predictions of its networks for molecules that they were not trained on.
        test: Predictions of its networks for the test split.
        baselines: Whether all of them are wanted.
        blend: Whether gradient boosting is to be blended with the networks.
    """
    result = Blended(unseen, test)
    if not (baselines or blend):
        return result
    from graphormer_sepnorm.baselines.evaluation import baselines_of

    try:
        found = baselines_of(data, tuple(NAMES) if baselines else ("boosting",))
        result.baselines, result.left_out = found.baselines, found.left_out
        if unseen is None or found.fitted is None:
            return result
        rows = found.fitted.rows["validation"]
        # With folds they are counted from the first molecule of training, else of the data set.
        unseen = unseen.take(np.searchsorted(unseen.indices, rows))
        where = "validation molecules" if data.member_folds is None else "molecules out of fold"
        result.evaluated_on = f"{len(rows):,} {where}"
        if blend:
            unseen = _blend(module, data, found.fitted, unseen, result)
        result.differences = compare(module.task, unseen.values, found)
    except GraphormerError as error:
        log.warning("no %s: %s", "blend" if blend else "baselines", error)
    except KeyboardInterrupt:
        result.interrupted = True
    return result


def _blend(
    module: GraphormerModule,
    data: MoleculeDataModule,
    fitted: Baselines,
    unseen: Predicted,
    result: Blended,
) -> Predicted:
    """Blend all predictions; the weight is fitted on those that are out of sample.

    A target whose labels without one fold are too few for trees is left to the networks: nobody
    knows how good its trees are. No test label is used.
    """
    from graphormer_sepnorm.baselines.blend import Blend, fit_stacking, fit_weight
    from graphormer_sepnorm.baselines.trees import BoostedTrees

    task, predicted = module.task, fitted.predictions["boosting"]
    trees_unseen, labels = predicted["validation"], fitted.labels["validation"]
    known = [bool(np.isfinite(column).all()) for column in trees_unseen.T]
    alone = [
        name
        for name, trees, usable in zip(task.targets, fitted.boosted, known, strict=True)
        if trees and not usable
    ]
    if alone:
        result.left_out = (
            f"{result.left_out} Not blended: {listed(alone)}, of which without one fold the labels "
            "are too few for trees, or of one class."
        ).lstrip()
    boosted = [one if usable else None for one, usable in zip(fitted.boosted, known, strict=True)]
    if not any(boosted):  # the baselines say why
        return unseen
    trees = BoostedTrees.from_fitted(fitted.columns, boosted, task.kind == "binary")
    if task.kind == "binary":
        exclusive = bool(task.one_of)
        weight, stacking = fit_stacking(labels, unseen.networks, trees_unseen, exclusive)
        blend = Blend.of_trees(trees, weight, exclusive=exclusive, stacking=stacking)
    else:
        std = np.asarray(module.facts["target_std"])
        sides = data.sides(unseen.indices)
        blend = Blend.of_trees(trees, fit_weight(labels, unseen.values, trees_unseen, std, sides))
    unseen = _combined(blend, unseen, trees_unseen)
    blend = dataclasses.replace(blend, validation=task.evaluate(labels, unseen.values))
    test = result.test
    if test is not None:
        trees_test = predicted["test"]
        if len(trees_test) < len(test.values):  # some were not sampled, or have no label
            assert data.splits.smiles is not None
            trees_test = blend.trees_of_smiles(data.splits.smiles["test"], data.own_columns("test"))
        test = _combined(blend, test, trees_test)
    result.blend, result.unseen, result.test = blend, unseen, test
    return unseen


def _combined(blend: Blend, predicted: Predicted, trees: np.ndarray) -> Predicted:
    values, spread = blend.combined(predicted.networks, trees)
    gap = blend.apart(predicted.values, trees)
    return dataclasses.replace(predicted, values=values, spread=spread, gap=gap)


def compare(task: Task, values: np.ndarray, found: Found) -> dict[str, MeanDifference]:
    """Compare predictions ``[n, T]`` with baselines on the molecules they were evaluated on.

    Returns:
        How much higher the main metric of each comparable baseline is, by its name, with its
        interval; none where it is undefined.
    """
    assert found.fitted is not None
    labels, main = found.fitted.labels["validation"], task.main
    known = ~np.isnan(labels[:, 0])
    differences = {}
    for model, predicted in found.fitted.predictions.items():
        own = [one for one in found.baselines if one.name.startswith(NAMES[model])]
        if not own or not own[0].comparable:
            continue
        theirs = shares(predicted["validation"]) if task.one_of else predicted["validation"]
        if main.name == "auroc" and len(task.targets) == 1 and main.is_defined(labels[:, 0]):
            both = delong(*(one[known, 0] for one in (labels, values, theirs)))
            difference = MeanDifference(
                mean=both.difference,
                low=both.low,
                high=both.high,
                confidence=both.confidence,
                p_value=both.p_value,
            )
        else:

            def higher_by(rows: np.ndarray, theirs: np.ndarray = theirs) -> float:
                ours, other = (
                    task.evaluate(labels[rows], one[rows], [main])[main.name]
                    for one in (values, theirs)
                )
                return other - ours

            difference = jackknifed(higher_by, len(labels))
        if math.isfinite(difference.mean):
            differences[own[0].name] = difference
    return differences


def final_predictions(
    module: GraphormerModule,
    data: MoleculeDataModule,
    split: str,
    file: str,
    predictions: np.ndarray,
) -> tuple[np.ndarray | None, str]:
    """Return what a checkpoint predicts for an evaluated split, beyond its network's ``[n, T]``.

    Returns:
        The values, blended and calibrated; None if that changes nothing, or cannot be known. And a
        note, mostly empty.
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
        # Of classes the log-odds of each network are blended.
        stacked = blend.stacking is not None
        networks = on_split(module, data, split, values).networks if stacked else values[None]
        values, _ = blend.combined(networks, trees)
    if CONFIDENCE in checkpoint:
        values = Uncertainty.from_plain(checkpoint[CONFIDENCE], splits.task.kind).calibrated(values)
    return (values, "") if (values != predictions).any() else (None, "")
