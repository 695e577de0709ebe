"""What a model says of its own errors, in a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from graphormer_sepnorm.confidence.quality import KEPT, OfIntervals, OfProbabilities
from graphormer_sepnorm.files import replacing
from graphormer_sepnorm.formatting import in_figure

# Okabe and Ito's, which the colour-blind can tell apart.
_BLUE, _ORANGE, _GREY = "#0072B2", "#D55E00", "#999999"
_MOST = 6  # targets of which lines are drawn


def draw(path: Path, found: Mapping[str, OfIntervals | OfProbabilities], unit: str) -> None:
    """Draw the quality of the targets, all of one kind, the first ones if they are many, as PNG.

    The unit of the errors is empty where there is none or they differ.
    """
    shown = {in_figure(name): one for name, one in list(found.items())[:_MOST]}
    intervals = {name: one for name, one in shown.items() if isinstance(one, OfIntervals)}
    classes = {name: one for name, one in shown.items() if isinstance(one, OfProbabilities)}
    figure = Figure(figsize=(8.4, 3.6) if intervals else (4.4, 4), layout="constrained")
    if intervals:
        left, right = figure.subplots(1, 2)
        _draw_coverage(left, intervals)
        _draw_surest(right, intervals, unit)
    else:
        _draw_reliability(figure.subplots(), classes)
    with replacing(path) as partial:
        figure.savefig(partial, dpi=130, format="png", metadata={"Software": None})


def _draw_coverage(axes: Axes, intervals: Mapping[str, OfIntervals]) -> None:
    axes.plot([0, 1], [0, 1], color=_GREY, linewidth=1, label="as they should be")
    for name, one in intervals.items():
        # Two standard errors of a share of so many labels.
        error = [2 * np.sqrt(level * (1 - level) / one.labels) for level in one.levels]
        axes.errorbar(
            one.levels,
            one.inside,
            yerr=error,
            marker="o",
            capsize=3,
            color=_BLUE if len(intervals) == 1 else None,
            label=f"{name}, {one.labels:,} labels",
        )
    axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="level of the interval")
    axes.set(ylabel="share of test labels inside")
    axes.legend(frameon=False, fontsize=8)


def _draw_surest(axes: Axes, intervals: Mapping[str, OfIntervals], unit: str) -> None:
    for name, one in intervals.items():
        color = _BLUE if len(intervals) == 1 else None
        axes.plot(
            [100 * kept for kept in KEPT], one.mae_of_surest, marker="o", color=color, label=name
        )
    axes.set(xlabel="% of the molecules kept, the surest", ylim=(0, None))
    axes.set(ylabel=f"test MAE ({in_figure(unit)})" if unit else "test MAE")
    axes.invert_xaxis()
    if len(intervals) > 1:
        axes.legend(frameon=False, fontsize=8)


def _draw_reliability(axes: Axes, classes: Mapping[str, OfProbabilities]) -> None:
    axes.plot([0, 1], [0, 1], color=_GREY, linewidth=1)
    for name, one in classes.items():
        alone = len(classes) == 1
        if alone and one.map != "none":
            before = np.array([bin[:2] for bin in one.bins_before])
            axes.plot(
                *before.T,
                marker="o",
                color=_ORANGE,
                label=f"not calibrated, error {one.error_before:.3f}",
            )
        after = np.array([bin[:2] for bin in one.bins])
        label = f"{'predicted' if alone else name}, error {one.error:.3f}"
        axes.plot(*after.T, marker="o", color=_BLUE if alone else None, label=label)
    axes.set(
        xlim=(0, 1), ylim=(0, 1), xlabel="mean predicted probability, tenths of the test split"
    )
    axes.set(ylabel="share of class 1 there", aspect="equal")
    axes.legend(frameon=False, fontsize=8)
