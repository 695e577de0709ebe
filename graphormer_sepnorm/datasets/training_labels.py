"""What is known of the labels that a model is trained on: their scale, their spread.

n molecules · T targets.
"""

from __future__ import annotations

import numpy as np

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.graphs.task import Task


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
        DataError: There are labels of other targets, or a target has none.
    """
    if weights is not None:
        labels = np.where(weights[:, None] > 0, labels, np.nan)
    if labels.shape[1] != len(task.targets):
        raise DataError(
            f"{name}: graphs have {labels.shape[1]} labels, the task names "
            f"{len(task.targets)} targets ({', '.join(task.targets)})"
        )
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
    # A constant target cannot be scaled to deviation 1; it is only shifted.
    return mean.tolist(), np.where(deviation > 0, deviation, 1.0).tolist()


def summaries(labels: np.ndarray) -> list[dict[str, float]]:
    """Return of each target how many labels ``[n, T]`` there are, and their spread."""
    found = []
    for column in labels.T:
        present = column[~np.isnan(column)]
        spread = {
            "mean": present.mean(),
            "std": present.std(),
            "min": present.min(),
            "max": present.max(),
        }
        found.append(
            {"labels": len(present)} | {name: float(value) for name, value in spread.items()}
        )
    return found
