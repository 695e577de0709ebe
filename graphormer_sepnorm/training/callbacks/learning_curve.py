"""The picture of the losses and the validation metric, epoch by epoch."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from lightning.pytorch import Callback, Trainer

from graphormer_sepnorm.files import replacing
from graphormer_sepnorm.metrics import LAST, METRICS, monitored


class LearningCurve(Callback):
    """Records the losses and the validation metric, and draws them when training ends or stops.

    Args:
        path: PNG file to write.
        metric: Name of the metric to draw.
        monitored: What decides on the best epoch: the metric (if None), ``loss`` or ``last``.
    """

    def __init__(self, path: Path, metric: str, monitored: str | None = None) -> None:
        self.path = path
        self.metric = metric
        self.monitored = monitored or metric
        self.history: list[dict[str, float]] = []
        self._validated = False

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Note that the validation's values are of this epoch."""
        self._validated = True

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Add a point."""
        values = trainer.callback_metrics
        point = {"epoch": float(trainer.current_epoch + 1), "step": float(trainer.global_step)}
        # Lightning keeps the values of the last validation through epochs without one.
        of_validation = ("validation_loss", f"validation_{self.metric}") if self._validated else ()
        for name in ("train_loss_epoch", *of_validation):
            if name in values:
                point[name] = float(values[name])
        self.history.append(point)
        self._validated = False

    def on_train_end(self, trainer: Trainer, *_: Any) -> None:
        """Draw what there is."""
        if self.history and trainer.is_global_zero and trainer.state.fn == "fit":
            monitor = METRICS[self.monitored].column
            draw_learning_curve(self.history, self.metric, self.path, monitor)

    on_exception = on_train_end  # type: ignore[assignment]

    def state_dict(self) -> dict[str, Any]:
        """Keep the curve in the checkpoint, so that a resumed run continues it."""
        return {"history": self.history}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue the curve of a checkpoint."""
        self.history = list(state_dict["history"])


def draw_learning_curve(
    history: list[dict[str, float]], metric: str, path: Path, monitor: str | None
) -> None:
    """Write a picture: the losses above, the validation metric below, the best epoch marked.

    Args:
        history: Points with ``epoch``, ``step`` and, where there are, ``train_loss_epoch``,
            ``validation_loss`` and ``validation_<metric>``.
        metric: Name of the metric to draw.
        path: PNG file to write.
        monitor: What decides on the best epoch, ``validation_loss`` or ``validation_<metric>`` (if
            None).
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # needs no display
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

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
            marker = "." if len(points) < 30 else ""
            axes.plot(*zip(*points, strict=True), color=colour, marker=marker, label=label)
    best = best_epoch(history, monitor or f"validation_{metric}")
    value = math.nan if best is None else best.get(f"validation_{metric}", math.nan)
    for axes, label in ((losses, "loss"), (metrics, name)):
        values = np.concatenate([np.zeros(0), *(line.get_ydata() for line in axes.lines)])
        positive = values[values > 0]
        if len(positive) and positive.max() > 10 * positive.min():  # else labels would crowd
            axes.set_yscale("log")
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
        if best is not None:
            axes.axvline(best["epoch"], color="black", linestyle=":", linewidth=1)
    if best is not None and math.isfinite(value):
        which = "last" if monitor == LAST.column else "best"
        said = f"{which} epoch: {best['epoch']:.0f}, {value:.4g}"
        metrics.plot(best["epoch"], value, "*", color="black", markersize=11, label=said)
    for axes in (losses, metrics):
        if axes.get_legend_handles_labels()[0]:
            axes.legend()
    metrics.set_xlabel("epoch")
    metrics.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(history) == 1:  # else there are fractions of an epoch around a single point
        metrics.set_xlim(history[0]["epoch"] - 1, history[0]["epoch"] + 1)
    with replacing(path) as partial:
        figure.savefig(partial, dpi=120, format="png")


def best_epoch(history: list[dict[str, float]], monitor: str) -> dict[str, float] | None:
    """Return the point whose checkpoint is kept as the best; None without a validation.

    Args:
        history: See `draw_learning_curve`.
        monitor: What decides, as ``validation_mae``.
    """
    known = [point for point in history if math.isfinite(point.get(monitor, math.nan))]
    return monitored(monitor).best(
        known, key=lambda point: point[monitor], default=None
    )  # the first of equals
