"""What a model knows of its own errors, kept in its file and asked with each prediction.

n molecules · m molecules of training · T targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from typing import Any, NamedTuple, Self, TypeVar, cast, get_type_hints

import numpy as np
import torch
from scipy.sparse import csr_array

from graphormer_sepnorm.metrics import Kind
from graphormer_sepnorm.uncertainty.calibration import (
    Calibration,
    entropy,
    log_loss,
    temperature_of,
    tempered,
)
from graphormer_sepnorm.uncertainty.conformal import Intervals
from graphormer_sepnorm.uncertainty.domain import (
    FEWEST,
    Domain,
    Nearest,
    Neighbors,
    TokenDistance,
)

# Neighbors whose errors are looked at.
_NEIGHBORS = 5
# Added before a logarithm is taken of what may be 0: in deviations of the labels, usual distances.
_SMALL = 0.01


class Inputs(NamedTuple):
    """What uncertainty is estimated from: predictions of molecules, and what is known beside them.

    All but the values may be missing.

    Attributes:
        values: float64 ``[n, T]``, the predictions: real units or probabilities.
        spread: ``[n, T]``, how far networks of an ensemble disagree; None: there is one.
        apart: ``[n, T]``, how far networks and trees of a blend are from each other; None: no
            blend; nan for targets without trees.
        distance: ``[n]``, how far [CLS] is from that of molecules of training, see
            `TokenDistance`; None: it is not known.
        fingerprints: What `morgan_counts` gives of them; None: they have none.
    """

    values: np.ndarray
    spread: np.ndarray | None = None
    apart: np.ndarray | None = None
    distance: np.ndarray | None = None
    fingerprints: csr_array | None = None

    def take(self, rows: np.ndarray) -> Inputs:
        """Return some of the molecules, by their numbers."""
        return Inputs(*(None if part is None else part[rows] for part in self))  # type: ignore[index]


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """How sure a model is, as measured on molecules that it had not seen.

    Attributes:
        targets: Of each target its intervals (real values) or its calibration (two classes); None
            where there were too few labels.
        domain: Which molecules are like those of training; None: of graphs without SMILES.
        neighbors: A sketch of the molecules of training; None as `domain`.
        errors: float64 ``[m, T]``, how wrong the model was on each of them before it had seen it;
            nan where that is not known. None: of classes, and of models that were not trained by
            folds.
        uses: Which of the signals ``spread`` and ``apart`` the intervals were made with.
        tokens: How far a molecule is from those of training as the networks see it; None: it is not
            known.
        temperature: Of classes of which a molecule is of one, see `tempered`.
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
        ranked: bool = False,
        bounds: np.ndarray | None = None,
        limits: Sequence[tuple[float | None, float | None]] = (),
    ) -> Self:
        """Measure it on molecules that were not trained on.

        Args:
            kind: Of the targets.
            labels: ``[n, T]``; nan = missing.
            inputs: What the model says of them.
            folds: int64 ``[n]``, from 0; those of a fold were held out together.
            std: ``[T]``, deviations of the training labels; 1 for classes.
            neighbors: The molecules of training, if they have SMILES.
            own_folds: int64 ``[m]``: the fold in which each of the `neighbors` was held out, of
                all networks but one; None: none of them was.
            places: int64 ``[m]``: which of the n each of these is, -1: none of them.
            exclusive: Whether a molecule is of one of the targets: they are calibrated together, or
                they would no longer add up to 1.
            tokens: What `inputs.distance` was measured with.
            ranked: Whether calibration must leave the order of probabilities as it is.
            bounds: Of missing labels what they are at least, and at most, ``[n, T, 2]``; nan where
                nothing is known.
            limits: What `limits_of` gives of each target; where there are bounds.
        """
        errors = nearest = None
        uses = tuple(name for name in ("spread", "apart") if getattr(inputs, name) is not None)
        residuals = inputs.values - labels
        if neighbors is not None and inputs.fingerprints is not None:
            if places is not None and kind == "regression":
                errors = np.where(places[:, None] >= 0, np.abs(residuals)[places], np.nan)
            nearest = neighbors.nearest(inputs.fingerprints, _NEIGHBORS, folds, own_folds)
        temperature = temperature_of(inputs.values, labels, folds) if exclusive else 1.0
        confidence = cls((), None, neighbors, errors, uses, tokens, temperature)
        said = confidence._tempered(inputs.values)
        targets: list[Intervals | Calibration | None] = []
        for target, column in enumerate(labels.T):
            known = ~np.isnan(column) & np.isfinite(inputs.values[:, target])
            signals = None
            if kind == "regression":
                signals = confidence._signals(inputs, nearest, target, std[target])
                known &= np.isfinite(signals).all(axis=1)
            if not known.any():
                targets.append(None)
            elif signals is None:
                values = said[known, target]
                tried_on = np.zeros(len(values)) if exclusive else folds[known]
                targets.append(Calibration.fit(values, column[known], tried_on, ranked))
            else:
                one = Intervals.fit(
                    residuals[known, target], signals[known], folds[known], std[target]
                )
                if bounds is not None:
                    beyond = _beyond(inputs.values[:, target], bounds[:, target])
                    own = np.isfinite(beyond) & np.isfinite(signals).all(axis=1)
                    one = one.with_bounds(beyond[own], signals[own], limits[target])
                targets.append(one)
        confidence = replace(confidence, targets=tuple(targets))
        if nearest is None:
            return confidence
        if kind == "regression":
            wrong = np.abs(residuals) / std
            expected = np.ones(wrong.shape)
        else:
            calibrated = confidence.calibrated(inputs.values)
            wrong, expected = log_loss(calibrated, labels), entropy(calibrated)
        seen = ~np.isnan(wrong).all(axis=1)
        wrong, expected = (
            np.nanmean(np.where(np.isnan(wrong), np.nan, one)[seen], axis=1)
            for one in (wrong, expected)
        )
        far = None if inputs.distance is None else inputs.distance[seen]
        domain = Domain.fit(nearest.similarity[seen, 0], wrong, far, expected)
        return replace(confidence, domain=domain)

    def of_mean(self, inputs: Inputs, networks: int) -> Self:
        """Return it for the mean of networks, where each residual was that of one.

        Args:
            inputs: What all of them say of molecules that none has seen.
            networks: How many.
        """
        nearest, targets = self.nearest(inputs), list(self.targets)
        for target, one in enumerate(self.targets):
            if isinstance(one, Intervals) and inputs.spread is not None:
                signals = self._signals(inputs, nearest, target, one.unit)
                known = np.isfinite(signals).all(axis=1) & np.isfinite(inputs.spread[:, target])
                if known.sum() >= FEWEST:
                    spread = inputs.spread[known, target]
                    targets[target] = one.of_mean(spread, signals[known], networks)
        return replace(self, targets=tuple(targets))

    def nearest(self, inputs: Inputs, count: int = _NEIGHBORS) -> Nearest | None:
        """Return the molecules of training that are most like these; None: they are not kept.

        They are at least as many as are looked at for an interval.
        """
        if self.neighbors is None or inputs.fingerprints is None:
            return None
        return self.neighbors.nearest(inputs.fingerprints, max(count, _NEIGHBORS))

    def expected(self, inputs: Inputs, nearest: Nearest | None) -> np.ndarray:
        """Return the absolute error to be expected of each value, ``[n, T]``.

        In units of the targets; nan for targets without intervals. Beyond the limits of an assay it
        is that of values inside, see `known`.
        """
        values = np.full(inputs.values.shape, np.nan)
        for target, one in enumerate(self.targets):
            if isinstance(one, Intervals):
                values[:, target] = one.expected(self._signals(inputs, nearest, target, one.unit))
        return values

    @property
    def expects_errors(self) -> bool:
        """Whether it knows `expected` of any target, by labels enough to be said."""
        return any(isinstance(one, Intervals) and one.labels >= FEWEST for one in self.targets)

    def known(self, values: np.ndarray, expected: np.ndarray) -> np.ndarray:
        """Return what `expected` gives of predictions, ``[n, T]``; nan beyond an assay's limits."""
        inside = [
            np.isfinite(one.ends(column, np.zeros(len(column)))).all(axis=0)
            if isinstance(one, Intervals)
            else np.zeros(len(column), bool)
            for one, column in zip(self.targets, values.T, strict=True)
        ]
        return np.where(np.stack(inside, axis=1), expected, np.nan)

    def scores(self, level: float) -> np.ndarray:
        """Return how many expected errors make half an interval of this level, ``[T]``.

        nan for targets that are classes, or have too few labels for it.
        """
        intervals = (one if isinstance(one, Intervals) else None for one in self.targets)
        return np.array([np.nan if one is None else one.score(level) for one in intervals])

    def intervals(
        self, values: np.ndarray, expected: np.ndarray, level: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return both ends of intervals, ``[n, T]``, infinite beyond the limits of an assay.

        nan where there is none.

        Args:
            values: Predictions, ``[n, T]``.
            expected: What `expected` gives, ``[n, T]``.
            level: Above 0, below 1.
        """
        half = expected * self.scores(level)
        low, high = values - half, values + half
        for target, one in enumerate(self.targets):
            if isinstance(one, Intervals):
                low[:, target], high[:, target] = one.ends(values[:, target], half[:, target])
        return low, high

    def calibrated_by(self, target: int) -> str:
        """Return how the probabilities of a target are calibrated; ``none``: they are as said."""
        if self.temperature != 1:
            return "temperature"
        one = self.targets[target]
        return one.map.name if isinstance(one, Calibration) else "none"

    def calibrated(self, values: np.ndarray) -> np.ndarray:
        """Return predictions in which probabilities are calibrated, ``[n, T]``."""
        columns = [
            one.map.of(column) if isinstance(one, Calibration) else column
            for one, column in zip(self.targets, self._tempered(values).T, strict=True)
        ]
        return np.stack(columns, axis=1)

    def _tempered(self, values: np.ndarray) -> np.ndarray:
        return values if self.temperature == 1 else tempered(values, self.temperature)

    def sets(self, values: np.ndarray, level: float) -> list[list[str]]:
        """Return for each target the classes that each molecule may be of, as text.

        ``0``, ``1``, ``0/1``, or ``none``; empty for a target of which nothing is known.

        Args:
            values: Calibrated, ``[n, T]``.
            level: Above 0, below 1.
        """
        names = [["none", "1"], ["0", "0/1"]]  # by whether it holds 0, and 1
        columns = []
        for one, column in zip(self.targets, values.T, strict=True):
            known = isinstance(one, Calibration)
            sets = one.sets(column, level).tolist() if known else ()
            columns.append([names[zero][both] for zero, both in sets] or [""] * len(column))
        return columns

    def _signals(
        self, inputs: Inputs, nearest: Nearest | None, target: int, unit: float
    ) -> np.ndarray:
        """What is known of each value beside it, ``[n, F]``."""
        parts = []
        if nearest is not None:
            parts.append(1 - nearest.similarity[:, 0])
            if self.errors is not None:
                few = Nearest(*(part[:, :_NEIGHBORS] for part in nearest))
                around = few.mean_errors(self.errors[:, target])
                parts.append(np.log(around / unit + _SMALL))
        if self.tokens is not None and inputs.distance is not None:
            parts.append(np.log(inputs.distance + _SMALL))
        for name in self.uses:
            far = np.nan_to_num(getattr(inputs, name)[:, target])
            parts.append(np.log(far / unit + _SMALL))
        return np.stack(parts, axis=1) if parts else np.empty((len(inputs.values), 0))

    @property
    def highest_level(self) -> float:
        """Up to which level intervals are finite, or sets of classes leave out any; 0: never."""
        known = [one for one in self.targets if one is not None]
        labels = [one.labels if isinstance(one, Intervals) else max(one.counts) for one in known]
        return max(labels) / (max(labels) + 1) if labels else 0.0

    def to_plain(self) -> dict[str, Any]:
        """Return it as a checkpoint holds it."""
        plain: dict[str, Any] = {
            "targets": [None if one is None else to_plain(one) for one in self.targets],
            "uses": list(self.uses),
        }
        if self.domain is not None:
            plain["domain"] = to_plain(self.domain)
        if self.neighbors is not None:
            plain["neighbours"] = self.neighbors.to_plain()
        if self.errors is not None:
            plain["errors"] = torch.from_numpy(self.errors.astype(np.float32))
        if self.tokens is not None:
            plain["tokens"] = self.tokens.to_plain()
        if self.temperature != 1:
            plain["temperature"] = self.temperature
        return plain

    @classmethod
    def from_plain(cls, plain: dict[str, Any], kind: Kind) -> Self:
        """Make it from what `to_plain` gave, of which the contents have been checked."""
        made = Calibration if kind == "binary" else Intervals
        domain, neighbors = plain.get("domain"), plain.get("neighbours")
        errors, tokens = plain.get("errors"), plain.get("tokens")
        return cls(
            tuple(None if one is None else from_plain(made, one) for one in plain["targets"]),
            None if domain is None else from_plain(Domain, domain),
            None if neighbors is None else Neighbors.from_plain(neighbors),
            None if errors is None else errors.numpy().astype(np.float64),
            tuple(plain["uses"]),
            None if tokens is None else TokenDistance.from_plain(tokens),
            plain.get("temperature", 1.0),
        )


def _beyond(values: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Return how far predictions ``[n]`` are on the wrong side of bounds ``[n, 2]``; nan: none."""
    least, most = bounds.T
    return np.maximum(np.fmax(least - values, values - most), 0)


Made = TypeVar("Made")


def to_plain(one: Any) -> dict[str, Any]:
    """Return dictionaries, lists and numbers."""

    def lists(parts: list[tuple[str, Any]]) -> dict[str, Any]:
        return {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in parts
        }

    return asdict(one, dict_factory=lists)


def from_plain(kind: type[Made], plain: dict[str, Any]) -> Made:
    """Make a dataclass of them, which may know more than this version; arrays are float64."""
    values: dict[str, Any] = {}
    for name, hint in get_type_hints(kind).items():
        if name not in plain:
            continue
        value = plain[name]
        if hint is np.ndarray:
            value = np.array(value, np.float64)
        elif is_dataclass(hint):
            value = from_plain(cast(Any, hint), value)
        values[name] = tuple(value) if isinstance(value, list) else value
    return kind(**values)
