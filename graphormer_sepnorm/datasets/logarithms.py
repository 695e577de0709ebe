"""Labels that are learned as logarithms: skewed ones, such as half-lives, clearances, IC50."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from graphormer_sepnorm.datasets.lazy_graphs import LazyGraphs
from graphormer_sepnorm.datasets.splits import DatasetSplits
from graphormer_sepnorm.errors import ConfigError, DataError, did_you_mean

AUTO, EVERY = "auto", "log"


def with_logarithms(splits: DatasetSplits, names: Sequence[str] | str) -> DatasetSplits:
    """Return a data set whose task is to learn ln(y + shift) instead of labels y of some targets.

    The shift is 0, but where there are labels of 0: half of the smallest one above, the test split
    left aside.

    Args:
        splits: With labels in their units; the graphs keep these.
        names: Of the targets, or `EVERY`.

    Raises:
        ConfigError: There is no such target, or labels are classes, or not those of a table.
        DataError: A label, or a bound of one, is below 0.
    """
    task, parts = splits.task, numbers_of_table(splits)
    option = f"--data.label_transform {names if names == EVERY else '[' + ','.join(names) + ']'}"
    if not parts:
        raise ConfigError(f"{option} is for a table of numbers: leave it out")
    chosen = task.targets if names == EVERY else tuple(names)
    for name in chosen:
        if name not in task.targets:
            guess = did_you_mean(name, (*task.targets, AUTO, EVERY))
            raise ConfigError(f"{option}: there is no target {name!r}{guess}")
    shifts: list[float | None] = []
    columns = known_values(parts).T, known_values(parts[:2]).T
    for name, column, taught in zip(task.targets, *columns, strict=True):
        if name not in chosen:
            shifts.append(None)
            continue
        values = column[~np.isnan(column)]
        if values.min(initial=0) < 0:
            raise DataError(
                f"{splits.name}: {name} is {values.min():g} somewhere, which has no logarithm: "
                "leave it out of --data.label_transform"
            )
        smallest = taught[taught > 0].min(initial=np.inf)
        half = float(smallest) / 2 if np.isfinite(smallest) else 1.0
        shifts.append(0.0 if (values > 0).all() else half)
    return replace(splits, task=replace(task, shifts=tuple(shifts)))


def numbers_of_table(splits: DatasetSplits) -> list[LazyGraphs]:
    """Return the three splits of a table whose labels are numbers; none of other data sets."""
    parts = [part for part in splits.parts.values() if isinstance(part, LazyGraphs)]
    whole = len(parts) == len(splits.parts) and splits.task.kind == "regression"
    return parts if whole else []


def known_values(parts: Sequence[LazyGraphs]) -> np.ndarray:
    """Return all labels and bounds of some splits, ``[..., T]``; nan = missing."""
    return np.concatenate([array for part in parts for array in (part.y, *part.sides)])
