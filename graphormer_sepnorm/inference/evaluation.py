"""Metrics of predictions for a table that has labels."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.metrics import METRICS, metrics_of
from graphormer_sepnorm.tables.columns import (
    LARGEST,
    means,
    parse_class,
    parse_class_name,
    parse_label,
)


def label_of(task: Task, target: int, cell: object) -> float:
    """Return the label in a cell of a table; nan where it is missing.

    Args:
        task: What is predicted.
        target: Index of the target.
        cell: A number; of two classes 0 or 1, a word for them, or the names that the model has for
            them (where only one is known, any other name is the other class); of several classes
            the name of the molecule's.

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
    label = (parse_class if task.kind == "binary" else parse_label)(cell)
    if task.kind == "binary" and not math.isnan(label) and label not in (0, 1):
        raise ValueError(f"{label:g} is not 0 or 1")
    if abs(label) > LARGEST:
        raise ValueError(f"{label:g} is too large")
    return label


class Evaluation:
    """Collects labels and predictions row by row, 16 bytes each, and compares them at the end.

    Args:
        task: What is predicted.
        labels: Of each target that is compared the position of its label in a row.

    Attributes:
        known: How many rows have the fingerprint of a molecule that the model was trained on.
    """

    def __init__(self, task: Task, labels: Mapping[int, int]) -> None:
        self.task = task
        self._positions = labels
        self._labels = [array("d") for _ in task.targets]
        self._predictions = [array("d") for _ in task.targets]
        self._unpredicted = [0] * len(task.targets)
        self._unusable = [0] * len(task.targets)
        self._example = [""] * len(task.targets)
        self.known = 0

    def add_rows(
        self, rows: Sequence[Sequence[object]], found: Mapping[str, Sequence[Any]]
    ) -> None:
        """Add the cells of some rows, and the columns that were predicted for them."""
        for target, position in self._positions.items():
            predictions = found[f"pred_{self.task.targets[target]}"]
            for cells, prediction in zip(rows, predictions, strict=True):
                self.add(target, cells[position], prediction)
        self.known += sum(similarity == 1 for similarity in found.get("similarity", ()))

    def add(self, target: int, cell: object, prediction: float) -> None:
        """Add a label as it stands in the table, and its prediction, nan if there is none.

        Missing labels are left out.
        """
        try:
            label = label_of(self.task, target, cell)
        except ValueError:
            self._example[target] = self._example[target] or " ".join(str(cell).split())[:40]
            self._unusable[target] += 1
            return
        if not math.isnan(label) and math.isnan(prediction):
            self._unpredicted[target] += 1
        elif not math.isnan(label):
            self._labels[target].append(label)
            self._predictions[target].append(prediction)

    def metrics(self, target: int) -> dict[str, float]:
        """Return the metrics of one target by their names, in its unit; nan where undefined."""
        labels = np.frombuffer(self._labels[target])
        predictions = np.frombuffer(self._predictions[target])
        return {one.name: one.of(labels, predictions) for one in metrics_of(self.task.kind)}

    def text(self) -> str:
        """Return a line or two per target; of classes one of all of them before."""
        lines = []
        if self.task.one_of:
            labels, predictions = (
                np.stack([np.frombuffer(column) for column in columns], axis=1)
                for columns in (self._labels, self._predictions)
            )
            values = self.task.evaluate(labels, predictions)
            shown = (f"{one.label} {one.shown(values[one.name])}" for one in self.task.metrics)
            lines.append(f"{self.task.one_of}  {', '.join(shown)}")
        for number in self._positions:
            name, unit = self.task.targets[number], self.task.units[number]
            labels = np.frombuffer(self._labels[number])
            scores = [
                f"{METRICS[metric].label} {METRICS[metric].shown(value, unit)}"
                for metric, value in self.metrics(number).items()
            ]
            counts = [f"{len(labels):,} rows"]
            if self.task.kind == "binary":
                counts.append(f"{int(labels.sum()):,} of class 1")
            unusable = f"with a label that cannot be used, such as {self._example[number]!r}"
            for count, what in (
                (self._unpredicted[number], "with a label but no prediction"),
                (self._unusable[number], unusable),
            ):
                counts += [f"{count:,} {what}"] if count else []
            lines.append(f"{name}  {', '.join(scores)}  ({'; '.join(counts)})")
        if self.known:
            have = "row has" if self.known == 1 else "rows have"
            lines.append(
                f"{self.known:,} {have} the fingerprint of a molecule that the model was trained "
                "on: of others this says less"
            )
        return "\n".join(lines)
