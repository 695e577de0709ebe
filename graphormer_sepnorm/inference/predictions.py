"""What a model says of molecules, one row for each."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from graphormer_sepnorm.formatting import listed


@dataclass(frozen=True, repr=False)
class Predictions:
    """One row per molecule given, in the same order.

    Attributes:
        smiles: As given; empty where molecules were given.
        values: float64 ``[n, targets]``: real units, or the probability of class 1; nan where
            there is an error.
        errors: Why there is no value; the empty string where there is one.
        warnings: What to know about the value; mostly the empty string.
        spread: float64 ``[n, targets]``: standard deviation of the values of an ensemble's members
            (n - 1), nan where there is no value; None for a single network. How far they disagree,
            not a calibrated error bar.
        low: float64 ``[n, targets]``: lower end of the intervals, see `Predictor.ask`; nan where
            there is none; None: they are not asked for, or the model has none.
        high: Upper end. Ends are infinite beyond the limits of an assay.
        expected_error: float64 ``[n, targets]``: the absolute error that is to be expected, in the
            unit of the target; nan where there is no value, and beyond the limits of an assay;
            None: of classes, or the model does not know it.
        similarity: float64 ``[n]``, Tanimoto similarity to the most similar molecule of training;
            None: the model does not know them.
        distance: float64 ``[n]``, how far [CLS] is from that of molecules of training, see
            `TokenDistance`: 1 is usual. None: the model does not know it.
        texts: A row for each molecule: what else was asked for and whether it is like molecules of
            training (``in_domain``; why not is among the warnings), in the columns of
            `Predictor.text_columns`. Empty where there are none.
        columns: What the columns of `numbers` are called in a table.
        text_columns: What those of `texts` are.
    """

    smiles: tuple[str, ...]
    values: np.ndarray
    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    spread: np.ndarray | None = None
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    expected_error: np.ndarray | None = None
    similarity: np.ndarray | None = None
    distance: np.ndarray | None = None
    texts: tuple[tuple[str, ...], ...] = ()
    columns: tuple[str, ...] = ()
    text_columns: tuple[str, ...] = ()

    def __repr__(self) -> str:
        shown = f"{listed(self.columns)}; " if self.columns else ""
        errors = sum(map(bool, self.errors))
        return f"Predictions({shown}{len(self.errors):,} molecules, {errors:,} without a value)"

    def to_pandas(self) -> Any:
        """Return a data frame with the columns that `predict.py` adds to a table."""
        import pandas

        columns: dict[str, Any] = {"smiles": self.smiles} if self.smiles else {}
        columns |= zip(self.columns, self.numbers.T, strict=True)
        columns |= zip(self.text_columns, zip(*self.texts, strict=True), strict=bool(self.texts))
        return pandas.DataFrame(columns | {"warning": self.warnings, "error": self.errors})

    @property
    def numbers(self) -> np.ndarray:
        """What a table holds of them, float64 ``[n, columns]``, see `Predictor.columns`."""
        parts = (self.values, self.spread, self.low, self.high, self.expected_error)
        stacked = np.stack([part for part in parts if part is not None], axis=2)
        numbers = stacked.reshape(len(stacked), stacked.shape[1] * stacked.shape[2])
        beside = [part for part in (self.similarity, self.distance) if part is not None]
        return np.column_stack([numbers, *beside])

    @classmethod
    def joined(cls, smiles: tuple[str, ...], parts: Sequence[Predictions]) -> Predictions:
        """Put those of several parts of some molecules behind each other."""

        def together(name: str) -> Any:
            each = [getattr(part, name) for part in parts]
            if name in ("columns", "text_columns"):
                return each[0]
            if isinstance(each[0], tuple):
                return tuple(itertools.chain(*each))
            return None if each[0] is None else np.concatenate(each)

        names = [one.name for one in fields(cls)][1:]
        return cls(smiles, **{name: together(name) for name in names})
