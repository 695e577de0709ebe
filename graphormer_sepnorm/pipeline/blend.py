"""Baselines of a run: what they reach, and the blend of network and trees.

n molecules · T targets.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np

from graphormer_sepnorm.baselines.evaluation import NAMES, baselines_of
from graphormer_sepnorm.datasets.molecule_data import MoleculeData
from graphormer_sepnorm.errors import ConfigError, DataError, GraphormerError
from graphormer_sepnorm.formatting import listed
from graphormer_sepnorm.pipeline.predicted import Outcome, Predicted
from graphormer_sepnorm.training.described import Described
from graphormer_sepnorm.uncertainty.uncertainty import Inputs

if TYPE_CHECKING:
    from graphormer_sepnorm.baselines.blend import Blend
    from graphormer_sepnorm.baselines.fit import Baselines

log = logging.getLogger(__name__)


def require_smiles(data: MoleculeData, members: Collection[str]) -> None:
    """Raise a ConfigError for members that cannot be made: trees take SMILES, and are evaluated."""
    if data.splits.smiles is None or data.splits.featurizer is None:
        raise ConfigError(
            f"--members: {data.splits.name} is made of graphs, and trees and kernel take SMILES: "
            "leave it out"
        )
    if not len(data.numbers.validated) and "networks" not in members:
        raise ConfigError(
            f"--members {','.join(members)}: {data.splits.name} has no validation split, by which "
            "they are evaluated: give it one, or --ensemble 5 --ensemble_by folds"
        )


def add_baselines(
    outcome: Outcome,
    module: Described,
    data: MoleculeData,
    baselines: bool,
    members: Collection[str],
) -> None:
    """Fit all baselines or members of the blend alone, and blend the networks with these.

    `outcome` has the predictions of the networks; it gets those of the blend, and the baselines.
    """
    own = {"trees": "boosting", "kernel": "kernel"}
    blended = [own[name] for name in members if name in own]
    try:
        found = baselines_of(data, tuple(NAMES) if baselines else blended)
        (outcome.baselines, outcome.left_out, fitted), unseen = found, outcome.unseen
        if unseen is None or fitted is None or not blended:
            return
        rows = fitted.rows["validation"]
        # Rows of their table are indices of the store: the splits follow one another in both.
        unseen = unseen.take(np.searchsorted(unseen.indices, rows))
        where = "validation molecules" if data.member_folds is None else "molecules out of fold"
        outcome.evaluated_on = f"{len(rows):,} {where}"
        made, unseen, test = _blend(outcome, module, data, fitted, unseen, blended)
        if made is not None:
            outcome.blend, outcome.unseen, outcome.test = made, unseen, test
    except GraphormerError as error:
        if not module.has_network:
            raise
        log.warning("no %s: %s", "blend" if blended else "baselines", error)


def _blend(
    outcome: Outcome,
    module: Described,
    data: MoleculeData,
    fitted: Baselines,
    unseen: Predicted,
    members: Collection[str],
) -> tuple[Blend | None, Predicted, Predicted | None]:
    """Blend all predictions; the weights are fitted on those that are out of sample.

    A target whose labels without one fold are too few for trees is left to the others: nobody
    knows how good its trees are. No test label is used.
    """
    from graphormer_sepnorm.baselines.blend import Blend, Stacking, fit_stacking, fit_weight
    from graphormer_sepnorm.baselines.trees import BoostedTrees

    task, labels = module.task, fitted.labels["validation"]
    nothing = {part: np.full(of.shape, np.nan) for part, of in fitted.labels.items()}
    kernel = fitted.kernel if "kernel" in members else None
    predicted, by_kernel = (
        fitted.predictions[name] if name in members else nothing for name in ("boosting", "kernel")
    )
    pair = trees_unseen, kernel_unseen = predicted["validation"], by_kernel["validation"]
    known = [bool(np.isfinite(column).all()) for column in trees_unseen.T]
    boosted = [one if use else None for one, use in zip(fitted.boosted, known, strict=True)]
    if module.has_network and not any(boosted) and ("boosting" in members or kernel is None):
        return None, unseen, outcome.test  # the baselines say why
    trees = BoostedTrees.from_fitted(fitted.columns, boosted, task.kind == "binary")
    exclusive, std = bool(task.one_of), np.asarray(module.facts["target_std"])
    sides = data.sides(unseen.indices)

    def stacked(first: np.ndarray, second: np.ndarray) -> tuple[Any, Stacking | None]:
        """Weigh the mean of predictions ``[K, n, T]`` against others ``[n, T]``."""
        if task.kind == "binary":
            return fit_stacking(labels, first, second, exclusive)
        return fit_weight(labels, first.mean(axis=0), second, std, sides), None

    # First the kernel is blended with the trees, then the networks with both.
    share = stacked(kernel_unseen[None], trees_unseen)[0] if any(boosted) else 1.0
    own = {"kernel": kernel, "kernel_share": share} if kernel is not None and np.any(share) else {}
    others = Blend.of_trees(trees, 1.0, **own).others(*pair)
    weight, stacking = stacked(unseen.networks if module.has_network else others[None], others)
    weight = weight if module.has_network else 0.0
    blend = Blend.of_trees(trees, weight, exclusive=exclusive, stacking=stacking, **own)
    if not module.has_network and not blend.known.all():
        without = listed([task.targets[target] for target in np.flatnonzero(~blend.known)])
        raise DataError(
            f"{data.splits.name}: neither trees nor a kernel for {without} (too few labels, or too "
            "many targets): give networks among --members, or leave it out"
        )
    unseen, test = _combined(blend, unseen, pair), outcome.test
    if test is not None:
        pair = predicted["test"], by_kernel["test"]
        if len(pair[0]) < len(test.values):  # some were not sampled, or have no label
            assert data.splits.smiles is not None
            pair = blend.pair_of(data.splits.smiles["test"], data.own_columns("test"))
        test = _combined(blend, test, pair)
    validation = task.evaluate_learned(labels, unseen.values)
    return dataclasses.replace(blend, validation=validation), unseen, test


def _combined(
    blend: Blend, predicted: Predicted, pair: tuple[np.ndarray, np.ndarray | None]
) -> Predicted:
    others = blend.others(*pair)
    values, spread = blend.combined(predicted.networks, others)
    gap = blend.apart(predicted.values, others, pair)
    return dataclasses.replace(predicted, inputs=Inputs(values, spread, gap))
