"""The picture of a run: its predictions of molecules that it has not learned from."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from graphormer_sepnorm.files import replacing
from graphormer_sepnorm.formatting import in_figure
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.metrics import METRICS

_BLUE, _GRAY = "#0072B2", "0.5"
_MOST_TARGETS, _DPI = 6, 130  # the latter in pixels per inch


def draw_predictions(path: Path, task: Task, labels: np.ndarray, predictions: np.ndarray) -> None:
    """Draw predictions of molecules that a model has not learned from, as PNG.

    Of the first targets that have labels. Real values: predicted against true, a panel for each
    target. Classes: the ROC and the precision-recall curve of each target.

    Args:
        path: The file to write; one that is there is removed if there is nothing to draw.
        task: What the targets are.
        labels: In the unit of the target, or 0 and 1, ``[n, T]``; nan where missing.
        predictions: The same, or probabilities of class 1, ``[n, T]``; nan where there is none.
    """
    shown = {}
    for target, unit, *columns in zip(
        task.targets, task.units, labels.T, predictions.T, strict=True
    ):
        truth, predicted = (column[np.isfinite(columns).all(0)] for column in columns)
        if task.main.is_defined(truth) and len(shown) < _MOST_TARGETS:
            shown[target] = truth, predicted, unit
    if not shown:
        path.unlink(missing_ok=True)
        return
    figure = _of_values(shown) if task.kind == "regression" else _of_classes(shown)
    with replacing(path) as unfinished:
        figure.savefig(unfinished, format="png", dpi=_DPI, metadata={"Software": None})


_Shown = Mapping[str, tuple[np.ndarray, np.ndarray, str]]


def _of_values(shown: _Shown) -> Figure:
    columns = min(len(shown), 3)
    rows = -(-len(shown) // columns)
    figure = Figure(figsize=(3.9 * columns, 4.1 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid[len(shown) :]:
        axes.set_axis_off()
    for axes, (target, (truth, predicted, unit)) in zip(grid, shown.items(), strict=False):
        both = np.concatenate([truth, predicted])
        low, high = both.min(), both.max()
        margin = 0.03 * (high - low or 1)
        axes.plot([low, high], [low, high], color=_GRAY, linewidth=1)
        opacity = float(np.clip(250 / len(truth), 0.05, 0.7))
        axes.scatter(truth, predicted, 10, color=_BLUE, linewidths=0, alpha=opacity)
        inside = low - margin, high + margin
        of_target = in_figure(f"{target} ({unit})" if unit else target)
        axes.set(xlim=inside, ylim=inside, aspect="equal")
        axes.locator_params(nbins=6)
        axes.set(xlabel=f"true {of_target}", ylabel=f"predicted {of_target}")
        metrics = [METRICS[name] for name in ("mae", "rmse", "r2")]
        parts = [f"{m.label} {m.of(truth, predicted):.3g}" for m in metrics if m.is_defined(truth)]
        axes.set_title(" · ".join([f"{len(truth):,} molecules", *parts]), fontsize=8)
    return figure


def _of_classes(shown: _Shown) -> Figure:
    from sklearn.metrics import precision_recall_curve, roc_curve

    figure = Figure(figsize=(8.4, 4.3), layout="constrained")
    roc, recall = figure.subplots(1, 2)
    for target, (truth, predicted, _) in shown.items():
        color = _BLUE if len(shown) == 1 else None
        false, true, _ = roc_curve(truth, predicted)
        precision, found, _ = precision_recall_curve(truth, predicted)
        # A step, as the average precision sums it.
        for name, draw, *curve in (
            ("auroc", roc.plot, false, true),
            ("average_precision", partial(recall.step, where="post"), found, precision),
        ):
            value = f"{METRICS[name].label} {METRICS[name].of(truth, predicted):.3f}"
            label = f"{value}, {target}, {truth.sum():,.0f} of {len(truth):,}"
            draw(*curve, color=color, label=in_figure(label))
    roc.plot([0, 1], [0, 1], color=_GRAY, linewidth=1)
    roc.set(xlabel="false positive rate", ylabel="true positive rate")
    recall.set(xlabel="recall", ylabel="precision")
    for axes in (roc, recall):
        axes.set(xlim=(0, 1), ylim=(0, 1.02), aspect="equal")
        axes.legend(frameon=False, fontsize=8)
    return figure
