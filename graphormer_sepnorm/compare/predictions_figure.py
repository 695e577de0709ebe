"""Predictions of molecules that a model has not learned from beside their labels, in a picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from graphormer_sepnorm.files import replacing
from graphormer_sepnorm.formatting import in_figure
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.metrics import METRICS

_BLUE, _GREY = "#0072B2", "0.5"  # Okabe and Ito's blue
_MOST = 6  # targets that are drawn


def draw_predictions(path: Path, task: Task, labels: np.ndarray, predictions: np.ndarray) -> None:
    """Draw the targets, the first ones if they are many, as PNG; nothing if there are no labels.

    Real values: predicted against true, a panel for each target. Classes: the ROC and the
    precision-recall curve of each target that has both.

    Args:
        path: The file to write; one that is there goes if there is nothing to draw.
        task: What the targets are.
        labels: In the unit of the target, or 0 and 1, ``[n, T]``; nan where missing.
        predictions: The same, or probabilities of class 1, ``[n, T]``; nan where there is none.
    """
    known = {}
    for number, target in enumerate(task.targets):
        both = np.isfinite(labels[:, number]) & np.isfinite(predictions[:, number])
        truth = labels[both, number]
        if task.main.is_defined(truth):
            known[target] = truth, predictions[both, number], task.units[number]
    shown = dict(list(known.items())[:_MOST])
    if not shown:
        path.unlink(missing_ok=True)
        return
    figure = _of_values(shown) if task.kind == "regression" else _of_classes(shown)
    with replacing(path) as partial:
        figure.savefig(partial, dpi=130, format="png", metadata={"Software": None})


_Shown = dict[str, tuple[np.ndarray, np.ndarray, str]]


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
        axes.plot([low, high], [low, high], color=_GREY, linewidth=1)
        opacity = float(np.clip(250 / len(truth), 0.05, 0.7))
        axes.scatter(truth, predicted, 10, color=_BLUE, linewidths=0, alpha=opacity)
        inside = low - margin, high + margin
        of_target = in_figure(f"{target} ({unit})" if unit else target)
        axes.set(xlim=inside, ylim=inside, aspect="equal")
        axes.locator_params(nbins=6)
        axes.set(xlabel=f"true {of_target}", ylabel=f"predicted {of_target}")
        said = [f"{len(truth):,} molecules"]
        for name in ("mae", "rmse", "r2"):
            if METRICS[name].is_defined(truth):
                said.append(f"{METRICS[name].label} {METRICS[name].of(truth, predicted):.3g}")
        axes.set_title(" · ".join(said), fontsize=8)
    return figure


def _of_classes(shown: _Shown) -> Figure:
    from sklearn.metrics import precision_recall_curve, roc_curve

    figure = Figure(figsize=(8.4, 4.3), layout="constrained")
    roc, recall = figure.subplots(1, 2)
    roc.plot([0, 1], [0, 1], color=_GREY, linewidth=1)
    for target, (truth, predicted, _) in shown.items():
        colour = _BLUE if len(shown) == 1 else None
        false, true, _ = roc_curve(truth, predicted)
        label = _legend(target, "auroc", truth, predicted)
        roc.plot(false, true, linewidth=1.5, color=colour, label=label)
        precision, found, _ = precision_recall_curve(truth, predicted)
        label = _legend(target, "average_precision", truth, predicted)
        # A step, as the average precision sums it: between two of its points no line is reached.
        recall.step(found, precision, where="post", linewidth=1.5, color=colour, label=label)
        if len(shown) == 1:
            recall.axhline(truth.mean(), color=_GREY, linewidth=1)  # by chance
    roc.set(xlabel="false positive rate", ylabel="true positive rate", xlim=(0, 1), ylim=(0, 1.02))
    recall.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.02))
    for axes in (roc, recall):
        axes.set_aspect("equal")
        axes.legend(frameon=False, fontsize=8)
    return figure


def _legend(target: str, metric: str, truth: np.ndarray, predicted: np.ndarray) -> str:
    value = f"{METRICS[metric].label} {METRICS[metric].of(truth, predicted):.3f}"
    return in_figure(f"{value}, {target}, {truth.sum():,.0f} of {len(truth):,}")
