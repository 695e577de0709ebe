"""The picture of the losses and the validation metric, epoch by epoch."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer

from graphormer_sepnorm.files import replacing
from graphormer_sepnorm.metrics import LAST, METRICS, monitored
from graphormer_sepnorm.runs.directory import RunDirectory


class LearningCurve(Callback):
    """Draws what ``metrics.csv`` has of each epoch when training ends or stops.

    Args:
        path: PNG file to write, in the run directory.
        metric: Name of the metric to draw.
        monitored: What decides on the best epoch: the metric (if None), ``loss`` or ``last``.
    """

    def __init__(self, path: Path, metric: str, monitored: str | None = None) -> None:
        self._path = path
        self._metric = metric
        self._monitor = METRICS[monitored or metric].column

    def on_train_end(self, trainer: Trainer, *_: Any) -> None:
        """Draw what there is."""
        if trainer.is_global_zero and trainer.state.fn == "fit":
            found = epochs(RunDirectory(self._path.parent))
            if found:
                draw_learning_curve(found, self._metric, self._path, self._monitor)

    on_exception = on_train_end  # type: ignore[assignment]


def epochs(run: RunDirectory) -> list[dict[str, float]]:
    """Return the newest values that ``metrics.csv`` has of each epoch, counted from 1."""
    points: dict[float, dict[str, float]] = {}
    for row in run.metrics():
        if "train_loss_epoch" in row or "validation_loss" in row:
            epoch = row["epoch"] + 1
            points[epoch] = {**points.get(epoch, {}), **row, "epoch": epoch}
    return [points[epoch] for epoch in sorted(points)]


def draw_learning_curve(
    history: list[dict[str, float]], metric: str, path: Path, monitor: str
) -> None:
    """Write a picture: the losses above, the validation metric below, the best epoch marked.

    Args:
        history: What `epochs` gives: points with ``epoch`` and, where there are,
            ``train_loss_epoch``, ``validation_loss`` and ``validation_<metric>``.
        metric: Name of the metric to draw.
        path: PNG file to write.
        monitor: What decides on the best epoch, as ``validation_loss``.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # needs no display
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 5.6), layout="constrained")
    FigureCanvasAgg(figure)
    losses, metrics = figure.subplots(2, sharex=True)
    name = f"validation {METRICS[metric].label}"
    for axes, key, label, colour in (
        (losses, "train_loss_epoch", "training", "tab:grey"),
        (losses, "validation_loss", "validation", "tab:orange"),
        (metrics, f"validation_{metric}", name, "tab:blue"),
    ):
        points = [(p["epoch"], p[key]) for p in history if math.isfinite(p.get(key, math.nan))]
        if points:
            axes.plot(*zip(*points, strict=True), color=colour, marker=".", label=label)
    decided = [point for point in history if math.isfinite(point.get(monitor, math.nan))]
    best = monitored(monitor).best(decided, key=lambda point: point[monitor], default=None)
    value = math.nan if best is None else best.get(f"validation_{metric}", math.nan)
    if best is not None and math.isfinite(value):
        which = "last" if monitor == LAST.column else "best"
        said = f"{which} epoch: {best['epoch']:.0f}, {value:.4g}"
        metrics.plot(best["epoch"], value, "*", color="black", markersize=11, label=said)
    for axes, label, falls in (
        (losses, "loss", True),
        (metrics, name, not METRICS[metric].higher_is_better),
    ):
        axes.set_ylabel(label)
        axes.set_yscale("log" if falls else "linear")
        axes.grid(alpha=0.3)
        if axes.lines:
            axes.legend()
    metrics.set_xlabel("epoch")
    with replacing(path) as partial:
        figure.savefig(partial, dpi=120, format="png")
