"""Labels that are learned as logarithms: skewed ones, such as half-lives, clearances, IC50."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from graphormer_sepnorm.datasets.lazy_graphs import LazyGraphs, fingerprint_of
from graphormer_sepnorm.datasets.splits import DatasetSplits
from graphormer_sepnorm.errors import ConfigError, DataError, did_you_mean

AUTO, EVERY = "auto", "log"


def with_logarithms(splits: DatasetSplits, names: Sequence[str] | str) -> DatasetSplits:
    """Return a data set whose graphs have ln(y + shift) in place of the labels y of some targets.

    The shift is 0, but where there are labels of 0: half of the smallest one above.

    Args:
        splits: With labels in their units.
        names: Of the targets, or `EVERY`.

    Raises:
        ConfigError: There is no such target, or labels are classes, or not those of a table.
        DataError: A label, or a bound of one, is below 0.
    """
    task = splits.task
    option = f"--data.label_transform {names if names == EVERY else '[' + ','.join(names) + ']'}"
    parts = [part for part in splits.parts.values() if isinstance(part, LazyGraphs)]
    if task.kind != "regression" or len(parts) < len(splits.parts):
        raise ConfigError(f"{option} is for a table of numbers: leave it out")
    chosen = task.targets if names == EVERY else tuple(names)
    for name in chosen:
        if name not in task.targets:
            guess = did_you_mean(name, task.targets)
            raise ConfigError(f"{option}: there is no target {name!r}{guess}")
    count = len(task.targets)
    known = (
        np.concatenate([part.labels for part in parts]),
        *(side for part in parts for side in part.sides),
    )
    everything = np.concatenate([array.reshape(-1, count) for array in known])
    shifts: list[float | None] = []
    for name, column in zip(task.targets, everything.T, strict=True):
        values = column[~np.isnan(column)]
        if name in chosen and values.min(initial=0) < 0:
            raise DataError(
                f"{splits.name}: {name} is {values.min():g} somewhere, which has no logarithm: "
                "leave it out of --data.label_transform"
            )
        above = values[values > 0]
        shift = 0.0 if len(above) == len(values) else float(above.min(initial=np.inf)) / 2
        shifts.append((shift if np.isfinite(shift) else 1.0) if name in chosen else None)
    task = replace(task, shifts=tuple(shifts))
    made = [part.relabeled(task.as_learned) for part in parts]
    fingerprint = fingerprint_of(made, splits.feature_version, task)
    named = dict(zip(splits.parts, made, strict=True))
    return replace(splits, task=task, fingerprint=fingerprint, **named)
