"""What predictions come with, beside values: intervals, classes, the most similar molecules.

n molecules · T targets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from graphormer_sepnorm.chem.fingerprints import morgan_counts
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.inference.predictions import Predictions
from graphormer_sepnorm.uncertainty.neighbours import Nearest
from graphormer_sepnorm.uncertainty.uncertainty import Inputs, Uncertainty
from graphormer_sepnorm.values import is_number, is_whole

# Of intervals, unless another one is asked for.
LEVEL = 0.9
MOST_NEIGHBOURS = 20


@dataclass(frozen=True)
class Asked:
    """What is wanted, see `Predictor.ask`.

    Attributes:
        interval: Level of intervals (real values) or of sets of classes; None: none.
        neighbours: How many of the most similar molecules of training.
    """

    interval: float | None = None
    neighbours: int = 0

    @classmethod
    def by_default(cls, confidence: Uncertainty | None, task: Task) -> Self:
        """Return what a model gives unasked: intervals for real values, if it can."""
        can = confidence is not None and confidence.highest_level >= LEVEL
        return cls(LEVEL if can and task.kind == "regression" else None)

    def check(self, confidence: Uncertainty | None) -> None:
        """See whether a model can give it.

        Raises:
            ConfigError: It cannot, or a value cannot be.
        """
        level, count = self.interval, self.neighbours
        if level is not None and not (is_number(level) and 0 < level < 1):
            raise ConfigError(f"--interval is {level!r}: give a number between 0 and 1, as 0.9")
        if not (is_whole(count) and 0 <= count <= MOST_NEIGHBOURS):
            raise ConfigError(f"--neighbours is {count!r}: give a number up to {MOST_NEIGHBOURS}")
        for name, wanted, there in (
            ("interval", level, confidence),
            ("neighbours", count or None, confidence and confidence.neighbours),
        ):
            if wanted is not None and there is None:
                raise ConfigError(
                    f"--{name} {wanted}: the model does not know it; models that train.py fit "
                    "makes of a table do, without --keep none"
                )
        if level is not None and confidence is not None and level > confidence.highest_level:
            highest = math.floor(confidence.highest_level * 1000) / 1000
            raise ConfigError(
                f"--interval {level:g}: the model was tried on too few molecules for it; the "
                f"highest is {highest:g}"
            )


class Beside:
    """Adds to predictions what is asked for.

    Raises:
        ConfigError: The model cannot give it.
    """

    def __init__(self, asked: Asked, confidence: Uncertainty | None, task: Task) -> None:
        asked.check(confidence)
        self.asked = asked
        self._confidence = confidence
        self._targets = task.targets
        self._one_of, self._class_names = task.one_of, task.classes
        self._sketch = None if confidence is None else confidence.neighbours
        self._measures = confidence is not None and confidence.tokens is not None
        self._expects = confidence is not None and confidence.expects_errors
        self._interval = asked.interval if task.kind == "regression" else None
        self._sets = asked.interval if task.kind == "binary" else None

    def columns(self, several: bool) -> tuple[str, ...]:
        """Return the names of `Predictions.numbers`; `several` networks have a spread."""
        kinds = ["pred"] + ["spread"] * several
        kinds += [] if self._interval is None else ["low", "high"]
        kinds += ["expected_error"] * self._expects
        names = [f"{kind}_{target}" for target in self._targets for kind in kinds]
        names += [] if self._sketch is None else ["similarity"]
        return (*names, *(["distance"] if self._measures else []))

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Names of `Predictions.texts`."""
        names = [f"class_{self._one_of}"] if self._one_of else []
        names += [] if self._sets is None else [f"set_{target}" for target in self._targets]
        if self._sketch is not None:
            names.append("in_domain")
            each = ["nearest" if self._sketch.smiles else "nearest_row", "similarity"]
            if self._sketch.labels is not None:
                each += [f"nearest_{target}" for target in self._targets]
            numbers = range(1, self.asked.neighbours + 1)
            names += [f"{name}_{number}" for number in numbers for name in each]
        return tuple(names)

    def added(
        self, predictions: Predictions, inputs: Inputs, molecules: Sequence[Any]
    ) -> Predictions:
        """Return predictions with what is asked for.

        `inputs` is without fingerprints; `molecules` are RDKit's, of those with an error anything.
        """
        confidence = self._confidence
        if confidence is None and not self._one_of:
            return predictions
        places = np.flatnonzero([not error for error in predictions.errors])
        inputs, warnings = inputs.take(places), list(predictions.warnings)
        values, nearest, given = inputs.values, None, {}
        if confidence is not None:
            if self._sketch is not None:
                known = [molecules[place] for place in places.tolist()]
                inputs = inputs._replace(fingerprints=morgan_counts(known))
            nearest = confidence.nearest(inputs, self.asked.neighbours)
            given["values"] = values = confidence.calibrated(values)
            if inputs.distance is not None:
                given["distance"] = inputs.distance
            expected = confidence.expected(inputs, nearest)
            if self._expects:
                given["expected_error"] = confidence.known(values, expected)
            if self._interval is not None:
                ends = confidence.intervals(values, expected, self._interval)
                given |= dict(zip(("low", "high"), ends, strict=True))
        columns: list[list[str]] = []
        if self._one_of:
            columns.append([self._class_names[number] for number in values.argmax(axis=1)])
        if confidence is not None and self._sets is not None:
            columns += confidence.sets(values, self._sets)
        if confidence is not None and confidence.domain is not None and nearest is not None:
            given["similarity"] = nearest.similarity[:, 0]
            for number, place in enumerate(places):
                far = None if inputs.distance is None else inputs.distance[number]
                reason = confidence.domain.said(given["similarity"][number], far)
                warnings[place] = "; ".join(filter(None, (warnings[place], reason)))
            inside = "yes" if confidence.domain.has_border else ""
            columns.append(["no" if warnings[place] else inside for place in places])
            columns += self._neighbours(nearest)
        texts = [("",) * len(columns)] * len(molecules)
        for place, row in zip(places, zip(*columns, strict=True), strict=bool(columns)):
            texts[place] = row
        return replace(
            predictions,
            warnings=tuple(warnings),
            texts=tuple(texts),
            **{name: _spread_out(part, places, len(molecules)) for name, part in given.items()},
        )

    def _neighbours(self, nearest: Nearest) -> list[list[str]]:
        """Return the columns of the most similar molecules of training."""
        sketch, columns = self._sketch, []
        assert sketch is not None
        for number in range(self.asked.neighbours):
            if number >= nearest.rows.shape[1]:  # the model was trained on fewer
                width = 2 + (0 if sketch.labels is None else sketch.labels.shape[1])
                columns += [[""] * len(nearest.rows)] * width
                continue
            rows = nearest.rows[:, number].tolist()
            names = sketch.smiles or tuple(map(str, sketch.numbers.tolist()))
            columns.append([names[row] for row in rows])
            columns.append([f"{one:.3f}" for one in nearest.similarity[:, number].tolist()])
            if sketch.labels is not None:
                for labels in sketch.labels[rows].T.tolist():
                    columns.append(["" if math.isnan(one) else f"{one:.6g}" for one in labels])
        return columns


def _spread_out(values: np.ndarray, places: np.ndarray, count: int) -> np.ndarray:
    """Return `values` of some of so many molecules, nan for the others."""
    of_all = np.full((count, *values.shape[1:]), np.nan)
    of_all[places] = values
    return of_all
