"""The metrics of baselines on the splits of a data set: the bar for Graphormer."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from graphormer_sepnorm.datasets.molecule_data import MoleculeData
from graphormer_sepnorm.datasets.splits import SPLITS
from graphormer_sepnorm.formatting import StatusLine, listed
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.metrics import metrics_of

if TYPE_CHECKING:
    from graphormer_sepnorm.baselines.fit import Baselines


# In the order in which they are shown.
NAMES = {
    "mean": "mean of the training labels",
    "forest": "random forest on Morgan fingerprints and descriptors",
    "boosting": "gradient boosting on Morgan fingerprints and descriptors",
    "kernel": "kernel ridge regression on counts of substructures",
}


@dataclass(frozen=True)
class Baseline:
    """A baseline: metrics by their names, means over the targets for which it is defined.

    Attributes:
        name: In words, for a table.
        validation: Over the validation split; nan if it is defined for no target.
        test: Over the test split, in the same way.
        comparable: Whether they are means over the same targets as those of any other model.
    """

    name: str
    validation: dict[str, float]
    test: dict[str, float]
    comparable: bool


def baselines_of(
    data: MoleculeData, models: Collection[str] = tuple(NAMES)
) -> tuple[list[Baseline], str, Baselines | None]:
    """Return the baselines, or some of `NAMES`; shows on stderr how far it is.

    There are none for a data set without SMILES. Where the members of an ensemble have folds, they
    are trained on training and validation split too, and validated out of fold.

    Returns:
        Those that have a test metric, without a test split all of them; in words, what was not
        used, mostly nothing; and their predictions, None without SMILES.
    """
    splits, task = data.splits, data.splits.task
    if splits.smiles is None:
        return [], "", None
    from graphormer_sepnorm.baselines.fit import Table, fit_baselines

    parts = [data.indices(split) for split in SPLITS]
    indices, own = np.concatenate(parts), splits.extra_inputs
    table = Table(
        [str(text) for split in SPLITS for text in splits.smiles[split]],
        np.repeat(np.arange(len(parts)), [len(part) for part in parts]),
        data.labels(indices),
        np.fmax.reduce(data.sides(indices), axis=2),
        data.row_weights(indices),
        np.concatenate([data.own_columns(split) for split in SPLITS]),
        own,
        None if data.member_folds is None else data.numbers.assigned,
    )
    line, kind = StatusLine(), "baselines" if "forest" in models else "trees and kernel"

    def show(what: str, done: int, total: int) -> None:
        if line.is_due():
            line.show(f"{kind}: {what}, {done:,} of {total:,}")

    try:
        fitted = fit_baselines(table, task.kind, show, models)
    finally:
        line.clear()
    labels = table.labels[table.split == SPLITS.index("test")]
    defined = np.array([task.main.is_defined(column) for column in labels.T], dtype=bool)
    found, lacking = [], np.zeros(len(defined), dtype=bool)
    for model, predictions in fitted.predictions.items():
        validation, test = (
            _metrics(task, task.in_units(fitted.labels[split]), task.in_units(predictions[split]))
            for split in SPLITS[1:]
        )
        without = defined & ~np.isfinite(predictions["test"]).all(axis=0)
        lacking |= without
        if len(labels) and math.isnan(test[task.metric]):
            continue
        name = NAMES[model] + (f", with {listed(own)}" if own and model != "mean" else "")
        found.append(Baseline(name, validation, test, not without.any()))
    lacking[fitted.targets :] = False
    names = [task.targets[target] for target in np.flatnonzero(lacking)]
    return found, _left_out(fitted, task, names), fitted


def _metrics(task: Task, targets: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """Means over the targets that there is a model for, and whose labels define the metric.

    Where there are several targets, also those of each, named as by `Task.evaluate`. Of mutually
    exclusive classes they are those of probabilities that add up to 1; where a class has no model,
    what is of all classes is undefined.
    """
    if task.one_of and np.isfinite(predictions).all():
        total = predictions.sum(axis=1, keepdims=True)
        even = np.full_like(predictions, 1 / predictions.shape[1])
        shares = np.divide(predictions, total, out=even, where=total > 0)
        return task.evaluate(targets, shares)
    known = [bool(np.isfinite(column).all()) for column in predictions.T]
    found = task.evaluate(np.where(known, targets, np.nan), predictions, metrics_of(task.kind))
    without = [f"_{target}" for target, there in zip(task.targets, known, strict=True) if not there]
    unknown = {f"{one.name}{end}" for one in task.metrics for end in without}
    return {name: value for name, value in found.items() if name not in unknown}


def _left_out(fitted: Baselines, task: Task, lacking: list[str]) -> str:
    texts = []
    if lacking:
        texts.append(
            f"No model for {listed(lacking)}, of which the training labels are too few, or of one "
            "class: each baseline is of the targets that it knows."
        )
    parts = [
        f"{used:,} of {there:,} {split} molecules, sampled at random"
        for split, (used, there) in fitted.sampled.items()
        if used < there
    ]
    if fitted.targets < len(task.targets):
        parts.append(f"the first {fitted.targets:,} of {len(task.targets):,} targets")
    texts += [f"The baselines are of {', '.join(parts)}."] if parts else []
    return " ".join(texts)
