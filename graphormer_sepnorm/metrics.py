"""The metrics: what each is called, which way is better, and how it is computed.

A new one is a line in `METRICS`: from there options, logs, summaries, tables and reports have it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from graphormer_sepnorm.errors import ConfigError, did_you_mean
from graphormer_sepnorm.formatting import four_digits, number

if TYPE_CHECKING:
    import numpy as np

Kind = Literal["regression", "binary"]


@dataclass(frozen=True)
class Metric:
    """A number that says how well predictions agree with labels.

    Attributes:
        name: In files and options, as ``rmse``.
        label: As it is printed.
        kind: Of the targets that it is for; None: of all, the loss.
        function: Of labels and predictions of one target, both float64 ``[n]`` without gaps: real
            values, or 0 and 1 and the probability of class 1.
        higher_is_better: Which way.
        in_unit: Whether it is in the unit of the target.
        needs_contrast: Whether it is undefined where all labels are the same.
        in_percent: Whether tables show it in per cent.
    """

    name: str
    label: str
    kind: Kind | None
    function: Callable[[np.ndarray, np.ndarray], float] | None
    higher_is_better: bool = False
    in_unit: bool = False
    needs_contrast: bool = False
    in_percent: bool = False

    @property
    def better(self) -> Literal["higher", "lower"]:
        """Which values are better, in a word."""
        return "higher" if self.higher_is_better else "lower"

    @property
    def column(self) -> str:
        """What the logs of validations call it."""
        return "step" if self.name == "last" else f"validation_{self.name}"

    @property
    def best(self) -> Callable[..., Any]:
        """`max` or `min`, whichever picks the best value."""
        return max if self.higher_is_better else min

    def of(self, labels: np.ndarray, predictions: np.ndarray) -> float:
        """Return the metric of one target; nan where it is undefined.

        A prediction that is not a finite number makes it nan: it is not left out.

        Args:
            labels: float64 ``[n]``; nan where missing.
            predictions: float64 ``[n]``.
        """
        import numpy as np

        present = ~np.isnan(labels)
        if not self.is_defined(labels) or not np.isfinite(predictions[present]).all():
            return math.nan
        assert self.function is not None
        with np.errstate(over="ignore", invalid="ignore"):
            return float(self.function(labels[present], predictions[present]))

    def is_defined(self, labels: np.ndarray) -> bool:
        """Whether there are the labels ``[n]`` (nan where missing) that it needs."""
        present = labels[labels == labels]
        contrast = len(present) > 0 and bool(present.min() < present.max())
        return contrast if self.needs_contrast else len(present) > 0

    @property
    def lacking(self) -> str:
        """What labels that do not define it lack."""
        if not self.needs_contrast:
            return "a label"
        return "both classes among its labels" if self.kind == "binary" else "two different labels"

    def shown(self, value: float, unit: str = "", decimals: int | None = None) -> str:
        """Return a value as it is printed, with the unit of its target if it is in that."""
        if math.isnan(value):
            return "undefined"
        text = four_digits(value) if decimals is None else number(value, decimals)
        return text + (f" {unit}" if unit and self.in_unit else "")


def _sklearn(name: str, **options: Any) -> Callable[[np.ndarray, np.ndarray], float]:
    """A function of scikit-learn, which is loaded when it is first called."""

    def function(labels: np.ndarray, predictions: np.ndarray) -> float:
        from sklearn import metrics

        return getattr(metrics, name)(labels, predictions, **options)

    return function


def _rank(name: str) -> Callable[[np.ndarray, np.ndarray], float]:
    """A rank correlation of scipy's, nan where all predictions are the same."""

    def function(labels: np.ndarray, predictions: np.ndarray) -> float:
        from scipy import stats

        if predictions.min() == predictions.max():  # which scipy warns of
            return math.nan
        return float(getattr(stats, name)(labels, predictions).statistic)

    return function


def _relative(labels: np.ndarray, predictions: np.ndarray) -> float:
    """The MAE relative to that of the labels' mean; its mean over targets is called MA-RAE."""
    return float(abs(labels - predictions).sum() / abs(labels - labels.mean()).sum())


_R, _B = "regression", "binary"
_AUROC, _AP = _sklearn("roc_auc_score"), _sklearn("average_precision_score")
# The first of a kind is the main metric of its data sets.
METRICS = {
    one.name: one
    for one in (
        Metric("mae", "MAE", _R, _sklearn("mean_absolute_error"), in_unit=True),
        Metric("rmse", "RMSE", _R, _sklearn("root_mean_squared_error"), in_unit=True),
        Metric("r2", "R2", _R, _sklearn("r2_score"), True, needs_contrast=True),
        Metric("spearman", "Spearman", _R, _rank("spearmanr"), True, needs_contrast=True),
        Metric("kendall", "Kendall", _R, _rank("kendalltau"), True, needs_contrast=True),
        Metric("rae", "RAE", _R, _relative, needs_contrast=True),
        Metric("auroc", "AUROC", _B, _AUROC, True, needs_contrast=True, in_percent=True),
        Metric("average_precision", "AP", _B, _AP, True, needs_contrast=True),
        Metric("brier", "Brier", _B, _sklearn("brier_score_loss", pos_label=1)),
        Metric("log_loss", "log loss", _B, _sklearn("log_loss", labels=[0, 1])),
        Metric("accuracy", "accuracy", None, None, True),  # of several classes, see `Task`
        Metric("loss", "loss", None, None),
        # What decides on a checkpoint if nothing is to decide: each is better than all before.
        Metric("last", "step", None, None, True),
    )
}
LAST = METRICS["last"]


def metrics_of(kind: Kind) -> list[Metric]:
    """Return the metrics of a kind of targets, the main one first."""
    return [one for one in METRICS.values() if one.kind == kind]


def chosen_metric(name: str, kind: Kind) -> Metric:
    """Return the metric that ``--metric`` names; a ConfigError where such targets have none."""
    names = [one.name for one in (*metrics_of(kind), METRICS["loss"], LAST)]
    if name not in names:
        raise ConfigError(
            f"--metric {name} is not for {kind} targets{did_you_mean(name, names)}: use "
            f"{', '.join(names[:-1])} or {names[-1]}"
        )
    return METRICS[name]


def monitored(column: str) -> Metric:
    """Return the metric of a column of the logs, as ``validation_rmse``; see `Metric.column`."""
    return LAST if column == LAST.column else METRICS[column.removeprefix("validation_")]
