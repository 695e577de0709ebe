"""What is predicted: the kind of target, its names and its units."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
    """

    kind: Kind
    targets: tuple[str, ...]
    units: tuple[str, ...]
    metric: str

    @property
    def main(self) -> Metric:
        """The main metric."""
        return METRICS[self.metric]

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
        """Return metrics under their names and, with several targets, one entry for each.

        The first is the mean over the targets whose labels define it, as in OGB; nan if none does.
        Where it has no meaning it is left out, but for the main metric's.

        Args:
            targets: Real units or 0/1, float64 ``[n, targets]``; nan where missing.
            predictions: Real units or probabilities, as `targets`.
            metrics: Which; None: all of this kind.
        """
        values: dict[str, float] = {}
        for metric in metrics_of(self.kind) if metrics is None else metrics:
            each = [metric.of(*pair) for pair in zip(targets.T, predictions.T, strict=True)]
            if metric is self.main or self.has_mean(metric):
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

    def to_plain(self) -> dict[str, str | list[str]]:
        """Return the task as lists and strings, for a checkpoint."""
        return {
            "kind": self.kind,
            "targets": list(self.targets),
            "units": list(self.units),
            "metric": self.metric,
        }

    def values_of(self, outputs: Tensor, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
        """Return what the outputs of a model say: real units, or probabilities of class 1.

        Args:
            outputs: ``[n, targets]`` of the model: standardised values, or logits.
            mean: ``[targets]`` by which real values were standardised.
            std: ``[targets]``, as `mean`.

        Returns:
            float64 ``[n, targets]``.
        """
        outputs = outputs.double()
        if self.kind == "binary":
            return outputs.sigmoid().cpu().numpy()
        return outputs.cpu().numpy() * std + mean

    @classmethod
    def from_plain(cls, plain: dict) -> Task:
        """Make a task from what `to_plain` gave."""
        return cls(plain["kind"], tuple(plain["targets"]), tuple(plain["units"]), plain["metric"])
