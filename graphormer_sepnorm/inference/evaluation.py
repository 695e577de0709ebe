"""Metrics of predictions for a table that has labels."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphormer_sepnorm.formatting import count, in_a_line
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.metrics import metrics_of
from graphormer_sepnorm.tables.columns import (
    LARGEST,
    is_word_for,
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
    if one and (zero or not is_word_for(one, 1)):
        text = "" if cell is None else str(cell).strip()  # a class may be called None
        if text and text in (zero, one):
            return float(text == one)
        if not (name := parse_class_name(cell).lower()):
            return math.nan
        for label, known in ((1, one), (0, zero)):
            if name == parse_class_name(known).lower() or (
                is_word_for(one, 1) and is_word_for(text, label)
            ):
                return float(label)
        if zero:
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

    `labels` has the position in a row of the label of each target that is compared.

    Attributes:
        known: How many rows have the fingerprint of a molecule that the model was trained on.
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

    def text(self) -> str:
        """Return a line per target; of classes one of all of them before, else their mean."""
        task, lines = self.task, []

        def shown(values: Mapping[str, float], unit: str = "") -> str:
            metrics = [one for one in task.metrics if one.name in values]
            return ", ".join(f"{one.label} {one.shown(values[one.name], unit)}" for one in metrics)

        if task.one_of:
            both = zip(*map(self._compared, self._positions), strict=True)
            labels, predictions = (np.stack(columns, axis=1) for columns in both)
            values = task.evaluate(labels, predictions)
            lines.append(f"{task.one_of}  {shown(values)}")
        each = []
        for target in self._positions:
            labels, predictions = self._compared(target)
            values = {one.name: one.of(labels, predictions) for one in metrics_of(task.kind)}
            each.append(values)
            counts = [f"{len(labels):,} rows"]
            if task.kind == "binary":
                counts.append(f"{int(labels.sum()):,} of class 1")
            if unpredicted := len(self._pairs[target]) // 2 - len(labels):
                counts.append(f"{unpredicted:,} with a label but no prediction")
            if bad := self._unusable[target]:
                counts.append(f"{len(bad):,} with a label that cannot be used, such as {bad[0]!r}")
            scores = shown(values, task.units[target])
            lines.append(f"{task.targets[target]}  {scores}  ({'; '.join(counts)})")
        if len(each) > 1 and not task.one_of:
            means = {
                one.name: float(np.mean([values[one.name] for values in each]))
                for one in task.metrics
                if task.has_mean(one)
            }
            lines.append(f"mean of {len(each)} targets  {shown(means)}")
        if self.known:
            lines.append(
                f"{count(self.known, 'row')} with the fingerprint of a molecule that the model was "
                "trained on: on new ones errors may be larger"
            )
        return "\n".join(lines)
