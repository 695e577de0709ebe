"""What simple models reach on the splits of a data set: the bar for Graphormer."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.datasets.splits import SPLITS
from graphormer_sepnorm.formatting import StatusLine, listed
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.metrics import metrics_of

if TYPE_CHECKING:
    from graphormer_sepnorm.baselines.fit import Baselines


MEAN = "mean of the training labels"
NAMES = {
    "mean": MEAN,
    "forest": "random forest on Morgan fingerprints and descriptors",
    "boosting": "gradient boosting on Morgan fingerprints and descriptors",
}


@dataclass(frozen=True)
class Baseline:
    """A simple model: metrics by their names, means over the targets for which it is defined.

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

    def to_plain(self) -> dict[str, Any]:
        """Return it as a dict."""
        return asdict(self)

    def by(self, metric: str) -> dict[str, Any]:
        """Return it as a dict that has one metric."""
        return {
            **self.to_plain(),
            "validation": self.validation[metric],
            "test": self.test[metric],
        }


class Found(NamedTuple):
    """The baselines of a data set.

    Attributes:
        baselines: Those that have a test metric.
        left_out: In words, what was not looked at; mostly nothing.
        fitted: What they say of each molecule; None for a data set without SMILES.
    """

    baselines: list[Baseline]
    left_out: str
    fitted: Baselines | None

    def comparable(self, task: Task) -> dict[str, np.ndarray]:
        """Return what the comparable ones say of the molecules of `fitted` under ``validation``.

        By their names, float64 ``[n, T]``.
        """
        fitted = {} if self.fitted is None else self.fitted.predictions
        return {
            one.name: shares(of["validation"]) if task.one_of else of["validation"]
            for model, of in fitted.items()
            for one in self.baselines
            if one.comparable and one.name.startswith(NAMES[model])
        }


def baselines_of(data: MoleculeDataModule, models: Collection[str] = tuple(NAMES)) -> Found:
    """Return the baselines; shows on stderr how far it is.

    There are none for a data set without SMILES. Where the members of an ensemble have folds, they
    are trained on training and validation split too, and validated out of fold.

    Args:
        data: The data set.
        models: Which, of `NAMES`.
    """
    from graphormer_sepnorm.baselines.fit import fit_baselines

    splits = data.splits
    if splits.smiles is None:
        return Found([], "", None)
    targets = {split: data.labels(data.indices(split)) for split in SPLITS}
    line = StatusLine()

    def show(what: str, done: int, total: int) -> None:
        if line.is_due():
            line.show(f"baselines: {what}, {done:,} of {total:,}")

    try:
        folds = None if data.member_folds is None else data.numbers.dealt
        fitted = fit_baselines(
            splits.smiles,
            targets,
            splits.task.kind,
            show,
            models,
            folds,
            {split: data.own_columns(split) for split in SPLITS},
            splits.extra_inputs.columns,
            {split: data.bounds(split) for split in SPLITS},
            _weights(data),
        )
    finally:
        line.clear()
    own = splits.extra_inputs.columns
    beside = f", with {listed(own)}" if own else ""
    found, undefined, lacking = [], [], dict[str, None]()
    for name, predictions in fitted.predictions.items():
        validation, test = (
            _metrics(splits.task, fitted.labels[split], predictions[split]) for split in SPLITS[1:]
        )
        if math.isnan(test[splits.task.metric]):
            undefined.append(name)
            continue
        without = [
            place
            for place, (values, labels) in enumerate(
                zip(predictions["test"].T, targets["test"].T, strict=True)
            )
            if not np.isfinite(values).all() and splits.task.main.is_defined(labels)
        ]
        lacking |= dict.fromkeys(
            splits.task.targets[place] for place in without if place < fitted.targets
        )
        found.append(
            Baseline(NAMES[name] + beside * (name != "mean"), validation, test, not without)
        )
    undefined = undefined if len(targets["test"]) else []  # of no test split the report says it
    return Found(found, _left_out(fitted, splits.task, undefined, [*lacking]), fitted)


def _weights(data: MoleculeDataModule) -> dict[str, np.ndarray] | None:
    """The weights of the rows of what models are trained on; None if all weigh the same."""
    parts = SPLITS[:1] if data.member_folds is None else SPLITS[:2]
    numbers = {split: data.indices(split) for split in parts}
    weights = data.row_weights(np.concatenate([*numbers.values()]))
    if weights is None:
        return None
    ends = np.cumsum([len(part) for part in numbers.values()])[:-1]
    return dict(zip(numbers, np.split(weights, ends), strict=True))


def shares(probabilities: np.ndarray) -> np.ndarray:
    """Return probabilities of classes of which a molecule is of one, ``[n, T]``, adding up to 1."""
    total = probabilities.sum(axis=1, keepdims=True)
    even = np.full_like(probabilities, 1 / probabilities.shape[1])
    return np.divide(probabilities, total, out=even, where=total > 0)


def _metrics(task: Task, targets: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """Means over the targets that there is a model for, and whose labels define the metric.

    Of several classes, of which a molecule is of one, as a network's, of probabilities that add up
    to 1; where a class has no model, what is of all classes is undefined.
    """
    if task.one_of and np.isfinite(predictions).all():
        found = task.evaluate(targets, shares(predictions))  # of single classes, too
        return {one.name: found[one.name] for one in task.metrics if one.name in found}
    pairs = [
        pair for pair in zip(targets.T, predictions.T, strict=True) if np.isfinite(pair[1]).all()
    ]
    values = {}
    for metric in metrics_of(task.kind):
        if task.is_of_all_classes(metric):
            values[metric.name] = math.nan
        elif metric is task.main or task.has_mean(metric):
            each = [metric.of(*pair) for pair in pairs if metric.is_defined(pair[0])]
            values[metric.name] = statistics.fmean(each) if each else math.nan
    return values


def _left_out(fitted: Baselines, task: Task, undefined: list[str], lacking: list[str]) -> str:
    parts = [
        f"{len(fitted.rows[split]):,} of {there:,} {split} molecules, drawn at random"
        for split, there in fitted.labelled.items()
        if len(fitted.rows[split]) < there
    ]
    if fitted.targets < len(task.targets):
        parts.append(f"the first {fitted.targets:,} of {len(task.targets):,} targets")
    needed = "both classes" if task.kind == "binary" else "enough labels"
    texts = [
        f"No {NAMES[name]}: no target has {needed} in the training and the test split."
        for name in undefined
    ]
    if lacking:
        texts.append(
            f"No trees for {listed(lacking)}, of which the training labels are too few, or of one "
            "class: each baseline is of the targets that it knows."
        )
    texts += [f"The baselines are of {', '.join(parts)}."] if parts else []
    return " ".join(texts)
