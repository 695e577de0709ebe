"""The uncertainty of a model: fitted to unseen molecules, stored in its file, used by predictions.

n molecules · m training molecules · T targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import torch

from graphormer_sepnorm.files import typed
from graphormer_sepnorm.metrics import Kind
from graphormer_sepnorm.uncertainty.calibration import (
    Calibration,
    entropy,
    log_loss,
    temperature_of,
    tempered,
)
from graphormer_sepnorm.uncertainty.conformal import Intervals
from graphormer_sepnorm.uncertainty.domain import FEWEST, Domain, Nearest, Neighbors, TokenDistance

# How many neighbors' errors are a signal.
_NEIGHBORS = 5
# Added to what may be 0 before a logarithm, in standard deviations of labels or usual distances.
_SMALL = 0.01


class Inputs(NamedTuple):
    """What uncertainty is estimated from; all but the values may be missing.

    Attributes:
        values: float64 ``[n, T]``, predictions: real units or probabilities.
        spread: ``[n, T]``, standard deviation over the networks of an ensemble.
        apart: ``[n, T]``, distance between networks and trees of a blend; nan: no trees.
        distance: ``[n]``, of [CLS] from training molecules, see `TokenDistance`.
        fingerprints: By `morgan_bits`.
    """

    values: np.ndarray
    spread: np.ndarray | None = None
    apart: np.ndarray | None = None
    distance: np.ndarray | None = None
    fingerprints: np.ndarray | None = None

    def take(self, rows: np.ndarray) -> Inputs:
        """Return some of the molecules."""
        return Inputs(*(None if part is None else part[rows] for part in self))  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """The uncertainty of a model, as measured on molecules that it had not seen.

    Attributes:
        targets: Intervals (real values) or calibration (two classes) of each target; None: too few
            labels.
        domain: Which molecules are like the training molecules; None: graphs without SMILES.
        neighbors: A sketch of the training molecules; None as `domain`.
        errors: ``[m, T]``, absolute errors on these before they had been seen, nan =
            unknown; None: of classes, and of models that were not trained by folds.
        uses: Which of the signals ``spread`` and ``apart`` the intervals depend on.
        tokens: Measures the distance of [CLS] from training molecules; None: unknown.
        temperature: Of classes that exclude each other, see `tempered`.
    """

    targets: tuple[Intervals | Calibration | None, ...]
    domain: Domain | None = None
    neighbors: Neighbors | None = None
    errors: np.ndarray | None = None
    uses: tuple[str, ...] = ()
    tokens: TokenDistance | None = None
    temperature: float = 1.0

    @classmethod
    def fit(
        cls,
        kind: Kind,
        labels: np.ndarray,
        inputs: Inputs,
        folds: np.ndarray,
        std: np.ndarray,
        neighbors: Neighbors | None,
        own_folds: np.ndarray | None = None,
        places: np.ndarray | None = None,
        exclusive: bool = False,
        tokens: TokenDistance | None = None,
        bounds: np.ndarray | None = None,
        limits: Sequence[tuple[float | None, float | None]] = (),
    ) -> Self:
        """Measure it on molecules that were not trained on.

        Args:
            kind: Of the targets.
            labels: ``[n, T]``; nan = missing.
            inputs: Of these molecules.
            folds: int64 ``[n]``, from 0; those of a fold were held out together.
            std: ``[T]``, standard deviations of the training labels; 1 for classes.
            neighbors: The training molecules, if they have SMILES.
            own_folds: int64 ``[m]``: the fold in which each of the `neighbors` was held out, of all
                networks but one; None: none of them was.
            places: int64 ``[m]``: index of each of these among the n, -1: it is not there.
            exclusive: Whether the targets are classes that exclude each other: these are calibrated
                together, since they add up to 1.
            tokens: What `inputs.distance` was measured with.
            bounds: Lower and upper bounds of missing labels, ``[n, T, 2]``; nan = unknown.
            limits: By `limits_of`, for each target; where there are bounds.
        """
        errors = nearest = None
        uses = tuple(name for name in ("spread", "apart") if getattr(inputs, name) is not None)
        residuals = inputs.values - labels
        if neighbors is not None and inputs.fingerprints is not None:
            if places is not None and kind == "regression":
                errors = np.where(places[:, None] >= 0, np.abs(residuals)[places], np.nan)
            nearest = neighbors.nearest(inputs.fingerprints, _NEIGHBORS, folds, own_folds)
        temperature = temperature_of(inputs.values, labels, folds) if exclusive else 1.0
        found = cls((), None, neighbors, errors, uses, tokens, temperature)
        values = tempered(inputs.values, temperature)
        targets: list[Intervals | Calibration | None] = []
        for target, unit in enumerate(std):
            known = np.isfinite(residuals[:, target])
            if kind == "binary":
                parts = (np.zeros(len(folds)) if exclusive else folds)[known]
                given = values[known, target], labels[known, target], parts
                targets.append(Calibration.fit(*given) if known.any() else None)
                continue
            signals = found._signals(inputs, nearest, target, unit)
            finite = np.isfinite(signals).all(axis=1)
            known &= finite
            if not known.any():
                targets.append(None)
                continue
            given = residuals[known, target], signals[known], folds[known]
            made = Intervals.fit(*given, unit)
            if bounds is not None:
                low, high = bounds[:, target].T
                wrong_side = np.fmax(low - values[:, target], values[:, target] - high)
                known = np.isfinite(wrong_side) & finite
                beyond = np.maximum(wrong_side[known], 0)
                made = made.with_bounds(beyond, signals[known], limits[target])
            targets.append(made)
        found = replace(found, targets=tuple(targets))
        if nearest is None:
            return found
        if kind == "regression":
            losses = np.abs(residuals) / std
            expected = np.ones(losses.shape)
        else:
            values = found.calibrated(inputs.values)
            losses, expected = log_loss(values, labels), entropy(values)
        missing = np.isnan(losses)
        seen = ~missing.all(axis=1)
        losses, expected = (
            np.nanmean(np.where(missing, np.nan, part)[seen], axis=1) for part in (losses, expected)
        )
        distance = None if inputs.distance is None else inputs.distance[seen]
        domain = Domain.fit(nearest.similarity[seen, 0], losses, distance, expected)
        return replace(found, domain=domain)

    def of_mean(self, inputs: Inputs, networks: int) -> Self:
        """Return it for the mean of networks, where each residual was that of one network.

        `inputs` are of molecules that none of the networks has seen.
        """
        nearest, targets = self.nearest(inputs), list(self.targets)
        for target, fitted in enumerate(self.targets):
            if isinstance(fitted, Intervals) and inputs.spread is not None:
                signals = self._signals(inputs, nearest, target, fitted.unit)
                known = np.isfinite(signals).all(axis=1) & np.isfinite(inputs.spread[:, target])
                if known.sum() >= FEWEST:
                    spread = inputs.spread[known, target]
                    targets[target] = fitted.of_mean(spread, signals[known], networks)
        return replace(self, targets=tuple(targets))

    def nearest(self, inputs: Inputs, count: int = _NEIGHBORS) -> Nearest | None:
        """Return the most similar training molecules, those that are signals in any case."""
        if self.neighbors is None or inputs.fingerprints is None:
            return None
        return self.neighbors.nearest(inputs.fingerprints, max(count, _NEIGHBORS))

    def expected(self, inputs: Inputs, nearest: Nearest | None) -> np.ndarray:
        """Return the expected absolute error of each value, ``[n, T]``, in units of the targets.

        nan for targets without intervals. Beyond the limits of an assay it is that of values
        inside, see `known`.
        """
        values = np.full(inputs.values.shape, np.nan)
        for target, fitted in enumerate(self.targets):
            if isinstance(fitted, Intervals):
                signals = self._signals(inputs, nearest, target, fitted.unit)
                values[:, target] = fitted.expected(signals)
        return values

    @property
    def expects_errors(self) -> bool:
        """Whether it has `expected` errors of any target, by enough labels to show them."""
        return any(isinstance(one, Intervals) and one.labels >= FEWEST for one in self.targets)

    def known(self, values: np.ndarray, expected: np.ndarray) -> np.ndarray:
        """Return the `expected` errors of predictions, ``[n, T]``; nan beyond an assay's limits."""
        low, high = self._ends(values, np.zeros(values.shape))
        return np.where(np.isfinite(low) & np.isfinite(high), expected, np.nan)

    def intervals(
        self, values: np.ndarray, expected: np.ndarray, level: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return both ends of intervals of a level (0 to 1), ``[n, T]``.

        By predictions and their `expected` errors, ``[n, T]``. Infinite beyond the limits of an
        assay; nan for targets that are classes, or have too few labels for the level.
        """
        scores = [
            one.score(level) if isinstance(one, Intervals) else np.nan for one in self.targets
        ]
        return self._ends(values, expected * scores)

    def _ends(self, values: np.ndarray, half: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        low, high = np.full((2, *values.shape), np.nan)
        for target, fitted in enumerate(self.targets):
            if isinstance(fitted, Intervals):
                low[:, target], high[:, target] = fitted.ends(values[:, target], half[:, target])
        return low, high

    def calibrated_by(self, target: int) -> str:
        """Return how the probabilities of a target are calibrated, in a word; ``none``: not."""
        if self.temperature != 1:
            return "temperature"
        fitted = self.targets[target]
        return fitted.map.name if isinstance(fitted, Calibration) else "none"

    def calibrated(self, values: np.ndarray) -> np.ndarray:
        """Return predictions ``[n, T]`` in which probabilities are calibrated."""
        values = tempered(values, self.temperature)
        columns = [
            fitted.map.of(column) if isinstance(fitted, Calibration) else column
            for fitted, column in zip(self.targets, values.T, strict=True)
        ]
        return np.stack(columns, axis=1)

    def sets(self, values: np.ndarray, level: float) -> list[list[str]]:
        """Return for each target which classes molecules may be of, by calibrated ``[n, T]``.

        ``0``, ``1``, ``0/1``, or ``none``; empty for a target without labels.
        """
        names = [["none", "1"], ["0", "0/1"]]  # by whether it has 0, and 1
        columns = []
        for fitted, column in zip(self.targets, values.T, strict=True):
            sets = fitted.sets(column, level).tolist() if isinstance(fitted, Calibration) else ()
            columns.append([names[zero][one] for zero, one in sets] or [""] * len(column))
        return columns

    def _signals(
        self, inputs: Inputs, nearest: Nearest | None, target: int, unit: float
    ) -> np.ndarray:
        """Return what the expected error depends on, ``[n, F]``."""
        signals = []
        if nearest is not None:
            signals.append(1 - nearest.similarity[:, 0])
            if self.errors is not None:
                few = Nearest(*(part[:, :_NEIGHBORS] for part in nearest))
                signals.append(np.log(few.mean_errors(self.errors[:, target]) / unit + _SMALL))
        if self.tokens is not None and inputs.distance is not None:
            signals.append(np.log(inputs.distance + _SMALL))
        for name in self.uses:
            disagreement = np.nan_to_num(getattr(inputs, name)[:, target])
            signals.append(np.log(disagreement / unit + _SMALL))
        return np.stack(signals, axis=1) if signals else np.empty((len(inputs.values), 0))

    @property
    def highest_level(self) -> float:
        """Up to which level intervals are finite, or sets of classes leave out any; 0: never."""
        most = max((fitted.labels for fitted in self.targets if fitted is not None), default=0)
        return most / (most + 1)

    def to_plain(self) -> dict[str, Any]:
        """Return it as a checkpoint holds it: without what it has not, arrays as tensors."""

        def stored(parts: list[tuple[str, Any]]) -> dict[str, Any]:
            return {
                name: torch.from_numpy(one) if isinstance(one, np.ndarray) else one
                for name, one in parts
                if one is not None and not (name == "smiles" and not one)
            }

        errors = None if self.errors is None else self.errors.astype(np.float32)
        return asdict(replace(self, errors=errors), dict_factory=stored)

    @classmethod
    def from_plain(cls, plain: dict[str, Any], kind: Kind) -> Self:
        """Make it from what `to_plain` gave."""
        made = Calibration if kind == "binary" else Intervals
        targets = tuple(one and typed(made, one) for one in plain["targets"])
        return replace(typed(cls, {**plain, "targets": ()}), targets=targets)
