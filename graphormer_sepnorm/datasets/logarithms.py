"""Labels that are learned as logarithms: skewed ones, such as half-lives, clearances, IC50."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from graphormer_sepnorm.datasets.lazy_graphs import LazyGraphs
from graphormer_sepnorm.datasets.splits import DatasetSplits
from graphormer_sepnorm.errors import ConfigError, DataError, did_you_mean
from graphormer_sepnorm.graphs.task import Task

AUTO, EVERY = "auto", "log"


def with_logarithms(splits: DatasetSplits, names: Sequence[str] | str) -> DatasetSplits:
    """Return a data set whose task is to learn ln(y + shift) in place of labels y of some targets.

    Args:
        splits: With labels in their units.
        names: Of the targets, or `EVERY`.

    Raises:
        ConfigError: There is no such target, or labels are classes, or not those of a table.
        DataError: A label, or a bound of one, is below 0.
    """
    task = splits.task
    option = f"--data.label_transform {names if names == EVERY else '[' + ','.join(names) + ']'}"
    if not numbers_of_table(splits):
        raise ConfigError(f"{option} is for a table of numbers: leave it out")
    chosen = task.targets if names == EVERY else tuple(names)
    for name in chosen:
        if name not in task.targets:
            guess = did_you_mean(name, (*task.targets, AUTO, EVERY))
            raise ConfigError(f"{option}: there is no target {name!r}{guess}")
    return replace(splits, task=logarithmic(splits, chosen))


def numbers_of_table(splits: DatasetSplits) -> list[LazyGraphs]:
    """Return the three splits of a table whose labels are numbers; none of other data sets."""
    parts = [part for part in splits.parts.values() if isinstance(part, LazyGraphs)]
    whole = len(parts) == len(splits.parts) and splits.task.kind == "regression"
    return parts if whole else []


def known_values(splits: DatasetSplits, first: int = 3) -> np.ndarray:
    """Return all labels and bounds, ``[..., T]``, of the first splits of `numbers_of_table`."""
    parts = numbers_of_table(splits)[:first]
    return np.concatenate([array for part in parts for array in (part.y, *part.sides)])


def logarithmic(splits: DatasetSplits, chosen: Sequence[str]) -> Task:
    """Return the task of which some targets are logarithms: ln(y + shift).

    The shift is 0, but where there are labels of 0: half of the smallest one above, the test split
    left aside.

    Raises:
        DataError: A label, or a bound of one, is below 0.
    """
    task, taught = splits.task, known_values(splits, first=2).T
    shifts: list[float | None] = []
    for name, column, own in zip(task.targets, known_values(splits).T, taught, strict=True):
        if name not in chosen:
            shifts.append(None)
            continue
        values = column[~np.isnan(column)]
        if values.min(initial=0) < 0:
            raise DataError(
                f"{splits.name}: {name} is {values.min():g} somewhere, which has no logarithm: "
                "leave it out of --data.label_transform"
            )
        smallest = own[own > 0].min(initial=np.inf)
        half = float(smallest) / 2 if np.isfinite(smallest) else 1.0
        shifts.append(0.0 if (values > 0).all() else half)
    return replace(task, shifts=tuple(shifts))
