"""The picture of the training loss and the validation metric."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from graphormer_sepnorm.files import replacing
from graphormer_sepnorm.training.report import METRIC_NAMES


class LearningCurve(Callback):
    """Records the loss and the validation metric, and draws them when training ends or stops.

    Args:
        path: PNG file to write.
        metric: Main metric of the task, ``mae`` or ``auroc``.
    """

    def __init__(self, path: Path, metric: str) -> None:
        self.path = path
        self.metric = metric
        self.history: list[dict[str, float]] = []

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Add a point."""
        values = trainer.callback_metrics
        point = {"epoch": float(trainer.current_epoch + 1), "step": float(trainer.global_step)}
        for name in ("train_loss_epoch", f"validation_{self.metric}"):
            if name in values:
                point[name] = float(values[name])
        self.history.append(point)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draw."""
        self._draw(trainer)

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Draw what there is."""
        self._draw(trainer)

    def state_dict(self) -> dict[str, Any]:
        """Keep the curve in the checkpoint, so that a resumed run continues it."""
        return {"history": self.history}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue the curve of a checkpoint."""
        self.history = list(state_dict["history"])

    def _draw(self, trainer: Trainer) -> None:
        if self.history and trainer.is_global_zero and trainer.state.fn == "fit":
            draw_learning_curve(self.history, self.metric, self.path)


def draw_learning_curve(history: list[dict[str, float]], metric: str, path: Path) -> None:
    """Write a picture of the training loss and the validation metric against the step.

    Args:
        history: Points with ``step``, ``train_loss_epoch`` and ``validation_<metric>``.
        metric: ``mae`` or ``auroc``.
        path: PNG file to write.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # needs no display
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    left = figure.subplots()
    right = left.twinx()
    name = METRIC_NAMES[metric]
    for axes, key, label, colour in (
        (left, "train_loss_epoch", "training loss", "tab:grey"),
        (right, f"validation_{metric}", f"validation {name}", "tab:blue"),
    ):
        points = [(point["step"], point[key]) for point in history if key in point]
        if points:
            axes.plot(
                *zip(*points, strict=True), color=colour, marker="." if len(points) < 30 else ""
            )
            values = [value for _, value in points if value > 0]
            if values and max(values) > 10 * min(values):  # in a narrow range labels would crowd
                axes.set_yscale("log")
        axes.set_ylabel(label, color=colour)
    left.set_xlabel("optimiser step")
    left.grid(alpha=0.3)
    with replacing(path) as partial:
        figure.savefig(partial, dpi=120, format="png")
