"""Predictions and embeddings of molecules, one row each, and the uncertainty of predictions.

n molecules · T targets · C channels.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

import numpy as np

from graphormer_sepnorm.chem.fingerprints import morgan_bits
from graphormer_sepnorm.formatting import listed
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.tables.columns import free_name
from graphormer_sepnorm.uncertainty.domain import Nearest, Neighbors
from graphormer_sepnorm.uncertainty.uncertainty import Inputs, Uncertainty


@dataclass(frozen=True, repr=False)
class Rows:
    """One row per molecule given, in the same order.

    Attributes:
        smiles: As given; empty where molecules were given.
        values: ``[n, T]`` or ``[n, C]``; nan where there is an error.
        errors: Why there is no value; the empty string where there is one.
        warnings: What to know about the value; mostly the empty string.
    """

    smiles: tuple[str, ...]
    values: np.ndarray
    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    table: ClassVar[Any]  # a property: the columns of a table, arrays of numbers, lists of text

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that hold numbers."""
        return tuple(name for name, cells in self.table.items() if isinstance(cells, np.ndarray))

    @classmethod
    def joined(cls, smiles: tuple[str, ...], parts: Sequence[Self]) -> Self:
        """Put those of several parts of some molecules behind each other."""

        def together(name: str) -> Any:
            each = [getattr(part, name) for part in parts]
            if isinstance(each[0], np.ndarray):
                return np.concatenate(each)
            if isinstance(each[0], dict):
                return {key: [*itertools.chain(*(one[key] for one in each))] for key in each[0]}
            if isinstance(each[0], tuple) and name != "targets":
                return tuple(itertools.chain(*each))
            return each[0]

        return cls(smiles, **{one.name: together(one.name) for one in fields(cls)[1:]})


@dataclass(frozen=True, repr=False)
class Predictions(Rows):
    """Predictions: `values` are real units, or the probability of class 1.

    Attributes:
        targets: Names of what is predicted.
        spread: float64 ``[n, T]``: standard deviation of the values of an ensemble's members
            (n - 1), nan where there is no value; None for a single network. How far they disagree,
            not a calibrated error bar.
        low: float64 ``[n, T]``: lower end of the intervals, see `Predictor.configure`; nan where
            there is none; None: they are not asked for, or the model has none.
        high: Upper end. Ends are infinite beyond the limits of an assay.
        expected_error: float64 ``[n, T]``: the absolute error that is to be expected, in the unit
            of the target; nan where there is no value, and beyond the limits of an assay; None: of
            classes, or the model does not know it.
        similarity: float64 ``[n]``, Tanimoto similarity to the most similar molecule of training;
            None: the model does not know them.
        distance: float64 ``[n]``, how far [CLS] is from that of molecules of training, see
            `TokenDistance`: 1 is usual. None: the model does not know it.
        cells: Columns of text by their names: what else was asked for, and whether a molecule is
            like those of training (``in_domain``; why not is among the warnings).
    """

    targets: tuple[str, ...]
    spread: np.ndarray | None = None
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    expected_error: np.ndarray | None = None
    similarity: np.ndarray | None = None
    distance: np.ndarray | None = None
    cells: dict[str, list[str]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Predictions({listed(self.columns)}; {len(self.errors):,} molecules)"

    @property
    def table(self) -> dict[str, Any]:
        """The columns that a table gets of them: arrays of numbers, then lists of text."""
        kinds = ("pred", "spread", "low", "high", "expected_error")
        parts = (self.values, self.spread, self.low, self.high, self.expected_error)
        columns: dict[str, Any] = {
            f"{kind}_{target}": part[:, number]
            for number, target in enumerate(self.targets)
            for kind, part in zip(kinds, parts, strict=True)
            if part is not None
        }
        for name, part in (("similarity", self.similarity), ("distance", self.distance)):
            columns |= {} if part is None else {name: part}
        return columns | self.cells

    def to_pandas(self) -> Any:
        """Return a data frame of what `predict.py` adds to a table; it needs pandas."""
        import pandas

        columns: dict[str, Any] = {"smiles": self.smiles} if self.smiles else {}
        columns |= self.table
        return pandas.DataFrame(columns | {"warning": self.warnings, "error": self.errors})


@dataclass(frozen=True, repr=False)
class Embeddings(Rows):
    """Embeddings: `values` are float32, the graph token ([CLS]) after the last norm.

    Predictions are read from it, if `note` does not say otherwise.

    Attributes:
        atoms: float32 ``[sum of atoms, C]``, the atoms after the last norm, molecule after
            molecule, those of a molecule in the order of its SMILES; None if not asked for. A
            molecule with an error has none.
        counts: int64 ``[n]``, how many atoms these are of each; None as `atoms`.
        note: What to know about [CLS] of this network; mostly the empty string.
        read_as: What the model read, in whose order the atoms stand, of a model that standardizes
            molecules; else empty, and it is `smiles`.
    """

    atoms: np.ndarray | None = None
    counts: np.ndarray | None = None
    note: str = ""
    read_as: tuple[str, ...] = ()

    @property
    def table(self) -> dict[str, Any]:
        """The columns that a table gets of them."""
        return {f"cls_{channel}": cells for channel, cells in enumerate(self.values.T)}


def estimate_uncertainty(
    uncertainty: Uncertainty | None,
    task: Task,
    inputs: Inputs,
    molecules: Sequence[Any],
    warnings: Sequence[str],
    interval: float | None,
    neighbors: int,
) -> tuple[dict[str, np.ndarray], dict[str, list[str]], Sequence[str]]:
    """Return what predictions come with: arrays, by the names of `Predictions`, and text columns.

    The inputs are of molecules that were predicted, without fingerprints. Also returned are the
    `warnings`, with why a molecule is outside the domain. `interval` and `neighbors` as in
    `Predictor.configure`.
    """
    arrays: dict[str, np.ndarray] = {"values": inputs.values}
    if inputs.spread is not None:
        arrays["spread"] = inputs.spread
    cells: dict[str, list[str]] = {}
    nearest = None
    if uncertainty is not None:
        if uncertainty.neighbors is not None:
            inputs = inputs._replace(fingerprints=morgan_bits(molecules))
        nearest = uncertainty.nearest(inputs, neighbors)
        values = arrays["values"] = uncertainty.calibrated(inputs.values)
        expected = uncertainty.expected(inputs, nearest)
        if inputs.distance is not None:
            arrays["distance"] = inputs.distance
        if uncertainty.expects_errors:
            arrays["expected_error"] = uncertainty.known(values, expected)
        if interval is not None and task.kind == "regression":
            arrays["low"], arrays["high"] = uncertainty.intervals(values, expected, interval)
    learned = arrays["values"]
    for name, one in arrays.items():
        if name in ("spread", "expected_error"):
            arrays[name] = task.widths_in_units(learned, one)
        elif name != "distance":
            arrays[name] = task.in_units(one)
    if task.one_of:
        best = arrays["values"].argmax(axis=1)
        cells[f"class_{task.one_of}"] = [task.classes[number] for number in best]
    if uncertainty is None:
        return arrays, cells, warnings
    if interval is not None and task.kind == "binary":
        names = (f"set_{target}" for target in task.targets)
        cells |= zip(names, uncertainty.sets(arrays["values"], interval), strict=True)
    domain, sketch = uncertainty.domain, uncertainty.neighbors
    if domain is not None and sketch is not None and nearest is not None:
        arrays["similarity"] = similarity = nearest.similarity[:, 0]
        both = zip(warnings, domain.reasons(similarity, inputs.distance), strict=True)
        warnings = ["; ".join(filter(None, texts)) for texts in both]
        inside = "yes" if domain.rule else ""
        cells["in_domain"] = ["no" if warning else inside for warning in warnings]
        for number in range(min(neighbors, len(sketch))):
            cells |= _neighbor(sketch, nearest, number, task.targets)
    return arrays, cells, warnings


def _neighbor(
    sketch: Neighbors, nearest: Nearest, number: int, targets: Sequence[str]
) -> dict[str, list[str]]:
    """Return the columns of one of the most similar molecules of training."""
    name = "nearest" if sketch.smiles else "nearest_row"
    names = [f"{name}_{number + 1}", f"similarity_{number + 1}"]
    if sketch.labels is not None:
        for target in targets:
            names.append(free_name(f"nearest_{target}_{number + 1}", names))
    rows = nearest.rows[:, number].tolist()
    known = sketch.smiles or tuple(map(str, sketch.numbers.tolist()))
    columns = [[known[row] for row in rows]]
    columns.append([f"{one:.3f}" for one in nearest.similarity[:, number].tolist()])
    if sketch.labels is not None:
        for labels in sketch.labels[rows].T.tolist():
            columns.append(["" if math.isnan(one) else f"{one:.6g}" for one in labels])
    return dict(zip(names, columns, strict=True))


def scattered(values: Any, places: list[int], errors: Sequence[str]) -> Any:
    """Return values or cells of some molecules for all of them: nan or empty for the others."""
    if isinstance(values, list):
        found = dict(zip(places, values, strict=True))
        return [found.get(place, "") for place in range(len(errors))]
    of_all = np.full((len(errors), *values.shape[1:]), np.nan)
    of_all[places] = values
    return of_all
