"""The labels that a model is trained on: whether they can be learned, their scale, their spread.

n molecules · T targets.
"""

from __future__ import annotations

import hashlib
import logging
from itertools import accumulate

import numpy as np

from graphormer_sepnorm.datasets.lazy_graphs import LazyGraphs
from graphormer_sepnorm.datasets.splits import DatasetSplits
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.graphs.packed_graphs import labels_and_weight
from graphormer_sepnorm.graphs.task import Task

log = logging.getLogger(__name__)

# Labels are kept in float32; the rounding of the largest may be this part of their deviation.
_COARSE = 1000


def labels_digest(splits: DatasetSplits) -> str:
    """Hash labels and weights of all graphs, in their order.

    The fingerprint of a data set that is somebody else's says which graphs these are, if its author
    thought of all that they depend on; labels that are wrong would be seen by nobody.

    Raises:
        DataError: A label or a weight cannot be.
    """
    digest = hashlib.sha256()
    for name, part in splits.parts.items():
        if isinstance(part, LazyGraphs):  # whose graphs would be made for it
            weights = np.ones(len(part)) if part.weights is None else part.weights.numpy()
            digest.update(np.column_stack([part.y.numpy(), weights]).astype(np.float32).tobytes())
            continue
        for number, graph in enumerate(part):
            where = f"{splits.name}, {name}: graph {number}"
            labels, weight = labels_and_weight(graph, where)
            digest.update(np.append(labels, np.float32(weight)).tobytes())
    return digest.hexdigest()


def check_labels(labels: np.ndarray, splits: DatasetSplits) -> None:
    """Refuse labels that cannot be learned.

    Args:
        labels: Of all graphs, split after split, ``[n, T]``; nan = missing.
        splits: The data set.

    Raises:
        DataError: There are those of more or fewer targets, or one is not what its task takes.
    """
    task = splits.task
    if labels.shape[1] != len(task.targets):
        raise DataError(
            f"{splits.name}: graphs have {labels.shape[1]} labels, the task names "
            f"{len(task.targets)} targets ({', '.join(task.targets)}): give y a value for each, "
            "nan where it is missing"
        )
    if task.kind == "binary":
        wrong = ~np.isin(labels, (0, 1)) & ~np.isnan(labels)
        wanted = "give 0 or 1, as a binary target takes"
    else:
        wrong, wanted = np.isinf(labels), "give a finite number"
    if wrong.any():
        graph, target = np.argwhere(wrong)[0].tolist()
        raise DataError(
            f"{_place(graph, splits)}: the label of {task.targets[target]} is "
            f"{labels[graph, target]:g}: {wanted}, or nan where it is missing"
        )


def _place(number: int, splits: DatasetSplits) -> str:
    """Say which graph of which split has this number in the store."""
    ends = dict(zip(splits.parts, accumulate(map(len, splits.parts.values())), strict=True))
    split = next(name for name, end in ends.items() if number < end)
    first = ends[split] - len(splits.parts[split])
    return f"{splits.name}, graph {number - first} of the {split} split"


def scaling(
    labels: np.ndarray, weights: np.ndarray | None, task: Task, name: str
) -> tuple[list[float], list[float]]:
    """Return mean and standard deviation of the labels of each target, by the rows' weights.

    Missing labels are left out. Binary targets are not scaled: mean 0, deviation 1.

    Args:
        labels: float64 ``[n, T]``; nan where missing.
        weights: ``[n]``; None: all weigh the same.
        task: What is predicted.
        name: Of the data set, for messages.

    Raises:
        DataError: A target has no label.
    """
    if weights is not None:
        labels = np.where(weights[:, None] > 0, labels, np.nan)
    empty = np.asarray(np.isnan(labels).all(axis=0))
    if empty.any():
        names = [target for target, none in zip(task.targets, empty, strict=True) if none]
        raise DataError(f"{name}: no training label for {', '.join(names)}")
    if task.kind == "binary":
        return [0.0] * len(task.targets), [1.0] * len(task.targets)
    if weights is None:
        mean, deviation = np.nanmean(labels, axis=0), np.nanstd(labels, axis=0)
    else:
        shares = np.where(np.isnan(labels), 0.0, weights[:, None])
        shares /= shares.sum(axis=0)
        mean = np.nansum(shares * labels, axis=0)
        deviation = np.sqrt(np.nansum(shares * (labels - mean) ** 2, axis=0))
    # By inexact shares the deviation of a constant target would be a little above 0.
    deviation = np.where(np.nanmin(labels, axis=0) == np.nanmax(labels, axis=0), 0.0, deviation)
    for target, column, spread in zip(task.targets, labels.T, deviation.tolist(), strict=True):
        step = float(np.spacing(np.nanmax(np.abs(column)).astype(np.float32)))
        if step > spread / _COARSE > 0:
            log.warning(
                "%s: labels of %s are kept to within %.2g, and differ by %.2g: subtract what all "
                "of them have in common",
                name,
                target,
                step,
                spread,
            )
    # A constant target cannot be scaled to deviation 1; it is only shifted.
    return mean.tolist(), np.where(deviation > 0, deviation, 1.0).tolist()
