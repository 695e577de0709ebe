"""The picture of a training: losses and the validation metric over the epochs."""

from __future__ import annotations

import math

from graphormer_sepnorm.files import replacing
from graphormer_sepnorm.metrics import LAST, METRICS, monitored
from graphormer_sepnorm.runs.directory import RunDirectory


def metrics_by_epoch(run: RunDirectory) -> list[dict[str, float]]:
    """Return the newest values of each epoch, counted from 1."""
    points: dict[float, dict[str, float]] = {}
    for row in run.metrics():
        if any(name.startswith(("train_loss_epoch", "validation_")) for name in row):
            epoch = row["epoch"] + 1
            points[epoch] = {**points.get(epoch, {}), **row, "epoch": epoch}
    return [points[epoch] for epoch in sorted(points)]


def draw_learning_curve(run: RunDirectory, metric: str, selected: str) -> None:
    """Write a picture: the losses above, the validation metric below, the best epoch marked.

    Args:
        run: Its ``metrics.csv`` is drawn; nothing is, if that has no epoch yet.
        metric: Name of the metric to draw.
        selected: What decides on the best epoch: the metric, ``loss`` or ``last``.
    """
    if not (history := metrics_by_epoch(run)):
        return
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 5.6), layout="constrained")
    losses, metrics = figure.subplots(2, sharex=True)
    shown, column, monitor = METRICS[metric], f"validation_{metric}", METRICS[selected].column
    for axes, key, label, color in (
        (losses, "train_loss_epoch", "training", "tab:gray"),
        (losses, "validation_loss", "validation", "tab:orange"),
        (metrics, column, f"validation {shown.label}", "tab:blue"),
    ):
        points = [(p["epoch"], p[key]) for p in history if math.isfinite(p.get(key, math.nan))]
        if points:
            axes.plot(*zip(*points, strict=True), color=color, marker=".", label=label)
    decided = [point for point in history if math.isfinite(point.get(monitor, math.nan))]
    best = monitored(monitor).best(decided, key=lambda point: point[monitor], default={})
    if math.isfinite(value := best.get(column, math.nan)):
        label = "last" if monitor == LAST.column else "best"
        label += f" epoch: {best['epoch']:.0f}, {value:.4g}"
        metrics.plot(best["epoch"], value, "*", color="black", markersize=11, label=label)
    losses.set(ylabel="loss", yscale="log")
    scale = "linear" if shown.higher_is_better else "log"
    metrics.set(ylabel=f"validation {shown.label}", yscale=scale, xlabel="epoch")
    for axes in (losses, metrics):
        axes.grid(alpha=0.3)
        if axes.lines:
            axes.legend()
    with replacing(run.learning_curve_file) as partial:
        figure.savefig(partial, dpi=120, format="png")
