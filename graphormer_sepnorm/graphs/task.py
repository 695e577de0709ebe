"""What is predicted: the kind of target, its names and its units."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graphormer_sepnorm.errors import ConfigError, did_you_mean
from graphormer_sepnorm.files import typed
from graphormer_sepnorm.formatting import in_a_line, listed
from graphormer_sepnorm.metrics import METRICS, Kind, Metric, metrics_of

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor


_MOST_TOLD_APART = 100


@dataclass(frozen=True)
class Task:
    """The targets of a data set.

    Attributes:
        kind: ``regression`` (real values) or ``binary`` (0 or 1, one logit per target).
        targets: Names, one per column of ``y``.
        units: Units, one per target; the empty string for a dimensionless one.
        metric: Name of the main metric, ``mae`` or ``auroc``: what models are selected by if
            nothing else is chosen, and compared by.
        one_of: Name of the property of which the targets are the classes, each named
            ``<one_of>_<class>``: a molecule is of one of them, so that their probabilities add up
            to 1. Empty: targets are independent.
        ones: What class 1 of each target is called, as ``active``; the empty string where it is
            just 1. Empty: so it is for all.
        zeros: In the same way what class 0 is called, where a table would not take that for 0.
        shifts: Of targets that are learned as logarithms, ln(y + shift), the shift; None of others.
            Empty: none is. See `in_units`.

    Raises:
        ConfigError: There is no such kind or metric, or units and targets are not as many.
    """

    kind: Kind
    targets: tuple[str, ...]
    units: tuple[str, ...]
    metric: str
    one_of: str = ""
    ones: tuple[str, ...] = ()
    zeros: tuple[str, ...] = ()
    shifts: tuple[float | None, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.targets, str) or not self.targets:
            raise ConfigError(f"targets are {self.targets!r}: give a tuple of one name or more")
        if isinstance(self.units, str) or len(self.units) != len(self.targets):
            raise ConfigError(
                f"units are {self.units!r} for {len(self.targets)} targets: give a tuple of one "
                "for each, '' where it has none"
            )
        metric = METRICS.get(self.metric)
        if metric is None or metric.function is None or metric.kind != self.kind:
            known = [one.name for one in metrics_of(self.kind)]
            raise ConfigError(
                f"the metric of a task of kind {self.kind!r} is {self.metric!r}: it must be of "
                f"{listed(known) or 'regression or binary targets'}"
            )

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes of which a molecule is of one, in the order of the targets."""
        return tuple(name.removeprefix(f"{self.one_of}_") for name in self.targets)

    def number_of(self, target: str | None, verb: str) -> int:
        """Return the index of the target of this name; None: of the only one.

        Raises:
            ConfigError: There is no such target, or none of several is named, one of which it is
                to `verb`.
        """
        if target is None and len(self.targets) > 1:
            raise ConfigError(
                f"the model has {len(self.targets):,} targets: name the one to {verb} "
                f"({listed(self.targets)})"
            )
        if target is not None and target not in self.targets:
            raise ConfigError(
                f"the model has no target {target!r}{did_you_mean(target, self.targets)}; it has: "
                f"{listed(self.targets)}"
            )
        return 0 if target is None else self.targets.index(target)

    @property
    def metrics(self) -> list[Metric]:
        """What it is evaluated by, the main metric of its kind first."""
        return [*metrics_of(self.kind), *([METRICS["accuracy"]] if self.one_of else [])]

    @property
    def main(self) -> Metric:
        """The main metric."""
        return METRICS[self.metric]

    @property
    def of_all(self) -> Metric:
        """What all targets together are reported by: RAE where errors are in several units."""
        return self.main if self.has_mean(self.main) else METRICS["rae"]

    @property
    def titles(self) -> list[str]:
        """Names of the targets with their units, for tables."""
        pairs = zip(self.targets, self.units, strict=True)
        return [in_a_line(name) + (f" [{unit}]" if unit else "") for name, unit in pairs]

    @property
    def tells_targets_apart(self) -> bool:
        """Whether results are said of each target: of several, if they are not hundreds."""
        return 1 < len(self.targets) <= _MOST_TOLD_APART

    def unit_of(self, metric: Metric) -> str:
        """Unit of the mean of a metric over the targets; empty where it has none or they differ."""
        return self.units[0] if metric.in_unit and self.has_mean(metric) else ""

    def has_mean(self, metric: Metric) -> bool:
        """Whether a mean over the targets has a meaning: errors in several units have none."""
        return not metric.in_unit or len(set(self.units)) == 1

    def evaluate(
        self, targets: np.ndarray, predictions: np.ndarray, metrics: Sequence[Metric] | None = None
    ) -> dict[str, float]:
        """Return metrics, of this kind's or these, and, with several targets, one entry for each.

        The first is the mean over the targets whose labels define it, as in OGB; nan if none does.
        Where it has no meaning it is left out, but for the main metric's. Targets are real units or
        0/1, float64 ``[n, targets]``, nan where missing, predictions real units or probabilities.
        """
        values: dict[str, float] = {}
        for metric in self.metrics if metrics is None else metrics:
            # Of all classes together, where a molecule is of one of them.
            of_all = bool(self.one_of) and metric.name in _OF_CLASSES
            if of_all:
                known = targets[:, 0] == targets[:, 0]
                pair = targets[known], predictions[known]
                sound = known.any() and math.isfinite(pair[1].sum())
                values[metric.name] = _OF_CLASSES[metric.name](*pair) if sound else math.nan
            if metric.function is None:
                continue
            each = [metric.of(*pair) for pair in zip(targets.T, predictions.T, strict=True)]
            if not of_all and (metric is self.main or self.has_mean(metric)):
                defined = [
                    value
                    for value, labels in zip(each, targets.T, strict=True)
                    if metric.is_defined(labels)
                ]
                values[metric.name] = statistics.fmean(defined) if defined else math.nan
            if self.tells_targets_apart:
                names = (f"{metric.name}_{target}" for target in self.targets)
                values |= zip(names, each, strict=True)
        return values

    @property
    def logarithmic(self) -> tuple[str, ...]:
        """Names of the targets that are learned as logarithms."""
        pairs = zip(self.targets, self.shifts, strict=False)
        return tuple(name for name, shift in pairs if shift is not None)

    def as_learned(self, values: np.ndarray) -> np.ndarray:
        """Return labels or bounds in units, ``[n, T]``, as networks and trees learn them."""
        import numpy as np

        learned = np.array(values, np.float64)
        for target, shift in enumerate(self.shifts):
            if shift is not None:
                learned[:, target] = np.log(learned[:, target] + shift)
        return learned

    def in_units(self, learned: np.ndarray) -> np.ndarray:
        """Return values in units, ``[n, T]``, of what `as_learned` gave, or of predictions of it.

        What was learned as a logarithm is never below 0.
        """
        if not self.shifts:
            return learned
        import numpy as np

        values = np.array(learned, np.float64)
        for target, shift in enumerate(self.shifts):
            if shift is not None:
                values[:, target] = np.maximum(np.exp(values[:, target]) - shift, 0)
        return values

    def widths_in_units(self, learned: np.ndarray, widths: np.ndarray) -> np.ndarray:
        """Return errors or deviations of `learned` values, ``[n, T]``, in units: half of ± one."""
        if not self.shifts:
            return widths
        return (self.in_units(learned + widths) - self.in_units(learned - widths)) / 2

    def evaluate_learned(
        self, labels: np.ndarray, values: np.ndarray, metrics: Sequence[Metric] | None = None
    ) -> dict[str, float]:
        """Return `evaluate` of labels and predictions that are as they are learned."""
        return self.evaluate(self.in_units(labels), self.in_units(values), metrics)

    def to_plain(self) -> dict[str, Any]:
        """Return the task as lists and strings, without what is empty, for a checkpoint."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in vars(self).items()
            if value
        }

    def values_of(self, outputs: Tensor, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
        """Return what the outputs of a model mean: values, or probabilities of class 1.

        Outputs ``[n, targets]`` are standardized values (by `mean` and `std` of each target), or
        logits; the values are float64 ``[n, targets]``, as they are learned (see `in_units`).
        """
        outputs = outputs.double()
        if self.kind == "binary":
            return outputs.sigmoid().cpu().numpy()
        return outputs.cpu().numpy() * std + mean

    @classmethod
    def from_plain(cls, plain: dict) -> Task:
        """Make a task from what `to_plain` gave."""
        return typed(cls, plain)


def _accuracy(targets: np.ndarray, predictions: np.ndarray) -> float:
    """Share of the molecules whose most probable class is theirs, of 0/1 ``[n, C]``."""
    return float((targets.argmax(axis=1) == predictions.argmax(axis=1)).mean())


def _cross_entropy(targets: np.ndarray, predictions: np.ndarray) -> float:
    """Mean of -ln of the probability of the class of a molecule, made to add up to 1."""
    import numpy as np

    shares = predictions / predictions.sum(axis=1, keepdims=True)
    own = (shares * targets).sum(axis=1)
    return float(-np.log(np.clip(own, np.finfo(np.float64).eps, 1)).mean())


# What is of a whole set of classes, and no mean over them.
_OF_CLASSES = {"accuracy": _accuracy, "log_loss": _cross_entropy}
