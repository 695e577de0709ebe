"""Metrics of predictions for a table that has labels."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphormer_sepnorm.formatting import in_a_line
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.metrics import METRICS, metrics_of
from graphormer_sepnorm.tables.columns import (
    LARGEST,
    means,
    parse_class,
    parse_class_name,
    parse_number,
)


def label_of(task: Task, target: int, cell: object) -> float:
    """Return the label in a cell of a table; nan where it is missing.

    It is a number; of two classes 0 or 1, a word for them, or the names that the model has for them
    (where only one is known, any other name is the other class); of several classes the name of the
    molecule's.

    Raises:
        ValueError: It is not a label.
    """
    if task.one_of:
        name = cell.strip() if isinstance(cell, str) else ""
        if name not in task.classes:  # of an estimator 01 may be another class than 1
            name = parse_class_name(cell)
        if name and name not in task.classes:
            raise ValueError(f"{name!r} is none of the classes")
        return float(name == task.classes[target]) if name else math.nan
    one = task.ones[target] if task.ones else ""
    zero = task.zeros[target] if task.zeros else ""
    # As "inactive", by an estimator: its classes are in order.
    if one and (zero or not means(one, 1)):
        text = "" if cell is None else str(cell).strip()  # a class may be called None
        if text and text in (zero, one):
            return float(text == one)
        name = parse_class_name(cell).lower()
        if not name:
            return math.nan
        worded = means(one, 1)
        if name == parse_class_name(one).lower() or (worded and means(text, 1)):
            return 1.0
        if zero and name != parse_class_name(zero).lower() and not (worded and means(text, 0)):
            raise ValueError(f"{text!r} is neither {zero} nor {one}")
        return 0.0
    label = (parse_class if task.kind == "binary" else parse_number)(cell)
    if task.kind == "binary" and not math.isnan(label) and label not in (0, 1):
        raise ValueError(f"{label:g} is not 0 or 1")
    if abs(label) > LARGEST:
        raise ValueError(f"{label:g} is too large")
    return label


class Evaluation:
    """Collects labels and predictions row by row, 16 bytes each, and compares them at the end.

    `labels` has the position in a row of the label of each target that is compared. `known` is how
    many rows have the fingerprint of a molecule that the model was trained on.
    """

    def __init__(self, task: Task, labels: Mapping[int, int]) -> None:
        self.task = task
        self.known = 0
        self._positions = labels
        self._pairs = {target: array("d") for target in labels}  # label, prediction, label, ...
        self._unusable: dict[int, list[str]] = {target: [] for target in labels}

    def add_rows(
        self, rows: Sequence[Sequence[object]], found: Mapping[str, Sequence[Any]]
    ) -> None:
        """Add the cells of some rows, and the columns that were predicted for them.

        Missing labels are left out.
        """
        for target, position in self._positions.items():
            predictions = found[f"pred_{self.task.targets[target]}"]
            for cells, prediction in zip(rows, predictions, strict=True):
                try:
                    label = label_of(self.task, target, cells[position])
                except ValueError:
                    bad = self._unusable[target]
                    bad.append("" if bad else in_a_line(str(cells[position]))[:40])
                    continue
                if not math.isnan(label):
                    self._pairs[target].extend((label, prediction))
        self.known += sum(similarity == 1 for similarity in found.get("similarity", ()))

    def _compared(self, target: int) -> tuple[np.ndarray, np.ndarray]:
        """Labels and predictions of a target, where there are both."""
        pairs = np.frombuffer(self._pairs[target]).reshape(-1, 2)
        labels, predictions = pairs[~np.isnan(pairs[:, 1])].T.copy()
        return labels, predictions

    def metrics(self, target: int) -> dict[str, float]:
        """Return the metrics of one target by their names, in its unit; nan where undefined."""
        labels, predictions = self._compared(target)
        return {one.name: one.of(labels, predictions) for one in metrics_of(self.task.kind)}

    def text(self) -> str:
        """Return a line or two per target; of classes one of all of them before."""
        lines = []
        if self.task.one_of:
            both = zip(*map(self._compared, self._positions), strict=True)
            labels, predictions = (np.stack(columns, axis=1) for columns in both)
            values = self.task.evaluate(labels, predictions)
            shown = (f"{one.label} {one.shown(values[one.name])}" for one in self.task.metrics)
            lines.append(f"{self.task.one_of}  {', '.join(shown)}")
        for target in self._positions:
            name, unit = self.task.targets[target], self.task.units[target]
            labels, _ = self._compared(target)
            scores = [
                f"{METRICS[metric].label} {METRICS[metric].shown(value, unit)}"
                for metric, value in self.metrics(target).items()
            ]
            counts = [f"{len(labels):,} rows"]
            if self.task.kind == "binary":
                counts.append(f"{int(labels.sum()):,} of class 1")
            if unpredicted := len(self._pairs[target]) // 2 - len(labels):
                counts.append(f"{unpredicted:,} with a label but no prediction")
            if bad := self._unusable[target]:
                counts.append(f"{len(bad):,} with a label that cannot be used, such as {bad[0]!r}")
            lines.append(f"{name}  {', '.join(scores)}  ({'; '.join(counts)})")
        if len(self._positions) > 1 and not self.task.one_of:
            each = [*map(self.metrics, self._positions)]
            means = {
                one: float(np.mean([values[one.name] for values in each]))
                for one in metrics_of(self.task.kind)
                if self.task.has_mean(one)
            }
            shown = (f"{one.label} {one.shown(value)}" for one, value in means.items())
            lines.append(f"mean of {len(each)} targets  {', '.join(shown)}")
        if self.known:
            have = "row has" if self.known == 1 else "rows have"
            lines.append(
                f"{self.known:,} {have} the fingerprint of a molecule that the model was trained "
                "on: of others this says less"
            )
        return "\n".join(lines)
