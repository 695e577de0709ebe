"""Figures of the training runs: learning curves and the metric per seed; and the common style.

Colours are those of Okabe & Ito (2008), which people with any colour vision tell apart; each arm
has a marker and a line style of its own as well. A function that finds nothing to draw returns
None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib import image
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg  # needs no display
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from graphormer_sepnorm.compare.report.numbers import Metric, in_unit
from graphormer_sepnorm.compare.results_file import ArmResult, Results
from graphormer_sepnorm.files import replacing

WIDTH = 8.6  # inches: 946 pixels, the width of the page
_DPI = 110
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = "osD^vPX"
_LINES = ("-", "--", "-.", ":")
_FONT = 9


@dataclass(frozen=True)
class Style:
    """How an arm is drawn in all figures."""

    colour: str
    marker: str
    line: Any

    @property
    def curve(self) -> Style:
        """That of a curve with so many points that markers would hide it."""
        return replace(self, marker="")


def styles(results: Results) -> dict[str, Style]:
    """The style of each arm, by its place in the list."""
    return {
        arm.name: Style(*(kind[place % len(kind)] for kind in (_COLOURS, _MARKERS, _LINES)))
        for place, arm in enumerate(results.arms)
    }


def new_axes(
    height: float, rows: int, columns: int, *, width: float = WIDTH, **shared: Any
) -> tuple[Figure, np.ndarray]:
    """A figure of a size in inches, with a grid of axes ``[rows, columns]`` in the common style."""
    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, **shared)
    for axes in grid.flat:
        axes.grid(alpha=0.3, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=_FONT)
        axes.title.set_fontsize(_FONT + 1)
        axes.xaxis.label.set_fontsize(_FONT)
        axes.yaxis.label.set_fontsize(_FONT)
    return figure, grid


def panel_grid(
    names: Sequence[str], kinds: int, height: float
) -> tuple[Figure, list[dict[str, Axes]]]:
    """The figure, and for each kind of picture the axes of each arm; y in common.

    A panel is so many inches high; more than three arms are broken into several lines of panels.
    """
    lines = -(-len(names) // 3)
    columns = -(-len(names) // lines)
    size = height * kinds * lines + 0.3, kinds * lines, columns
    figure, grid = new_axes(*size, width=min(WIDTH, 3.6 * columns), sharey=True)
    of_kinds = []
    for kind in range(kinds):
        panels = grid[kind::kinds].flat
        of_kinds.append(dict(zip(names, panels, strict=False)))
        for axes in panels[len(names) :]:
            axes.set_visible(False)
    return figure, of_kinds


def label_panels(axes_of: dict[str, Axes], x: str, y: str) -> None:
    """Label the horizontal axes of all panels, the vertical ones of the first in each line."""
    for axes in axes_of.values():
        axes.set_xlabel(x)
        if axes.get_subplotspec().is_first_col():  # type: ignore[union-attr]
            axes.set_ylabel(y)


def add_legend(
    figure: Figure, shown: dict[str, Style], others: Sequence[Line2D] = (), lines: bool = True
) -> None:
    """Put one legend for all axes above them."""
    handles = []
    for name, style in shown.items():
        look: dict[str, Any] = {"color": style.colour, "marker": style.marker, "markersize": 5}
        handles.append(Line2D([], [], **look, linestyle=style.line if lines else "", label=name))
    handles += others
    # One line if it fits, else columns that are all as wide as the longest label.
    lengths = [len(str(handle.get_label())) + 7 for handle in handles]
    room = 13.5 * figure.get_figwidth()  # letters, of which a line sample takes seven
    columns = len(handles) if sum(lengths) <= room else max(1, int(room / max(lengths)))
    figure.legend(
        handles=handles, loc="outside upper center", ncols=columns, frameon=False, fontsize=_FONT
    )


def set_panel_title(axes: Axes, title: str) -> None:
    """Title one of three panels beside each other, on several lines if it is long."""
    axes.set_title(fill(title, 31))


def save(picture: Figure | bytes, path: Path) -> None:
    """Write a figure, or a picture that is a PNG already, as PNG with 16 levels per colour.

    Smooth edges need no more, and the file is half as large: a report holds each picture twice,
    and may lie in a repository.
    """
    if isinstance(picture, bytes):
        pixels = (255 * image.imread(BytesIO(picture))[..., :3]).round().astype(np.uint8)
    else:
        picture.set_dpi(_DPI)
        canvas = FigureCanvasAgg(picture)
        canvas.draw()
        pixels = np.asarray(canvas.buffer_rgba())[..., :3]
    levels = 255 - ((255 - pixels).astype(float) / 17).round() * 17
    with replacing(path) as partial:
        image.imsave(partial, levels.astype(np.uint8), format="png", pil_kwargs={"optimize": True})


def draw_band(axes: Axes, style: Style, x: np.ndarray, curves: np.ndarray) -> None:
    """Draw the mean of curves ``[seeds, points]`` and the range between their extremes.

    Where a curve has nan, the others are averaged.
    """
    seen = np.isfinite(curves).any(0)
    if not seen.any():
        return
    x, curves = x[seen], curves[:, seen]
    axes.plot(
        x,
        np.nanmean(curves, 0),
        color=style.colour,
        linestyle=style.line,
        marker=style.marker,
        markersize=4 if len(x) <= 30 else 0,
        linewidth=1.6,
    )
    if len(curves) > 1:
        low, high = np.nanmin(curves, 0), np.nanmax(curves, 0)
        axes.fill_between(x, low, high, color=style.colour, alpha=0.18, linewidth=0)


def learning_curves(results: Results) -> Figure | None:
    """Training loss and validation metric by epoch: mean and range over the seeds of each arm.

    The last half of the validation once more, on a scale of its own: at the end arms differ by
    much less than they have come down together.
    """
    shown = {name: style.curve for name, style in styles(results).items()}
    metric = Metric.of(results)
    figure, ((loss, validation, end),) = new_axes(3.6, 1, 3)
    for axes, key, title in (
        (loss, "train_loss", "Training loss"),
        (validation, "validation", f"Validation {metric.name}"),
        (end, "validation", f"Validation {metric.name}, last half"),
    ):
        for arm in results.arms:
            _draw_curves(axes, shown[arm.name], arm, key)
        axes.set_title(title)
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        values = np.concatenate([line.get_ydata() for line in axes.lines] or [[]])
        if len(values) and min(values) > 0 and max(values) > 10 * min(values):
            # With plain numbers at 1, 2, 5.
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.yaxis.set_minor_formatter(NullFormatter())
    if not (loss.lines or validation.lines):
        return None
    _show_last_half(end)
    loss.set_ylabel("loss")
    validation.set_ylabel(metric.label)
    add_legend(figure, shown)
    return figure


def _draw_curves(axes: Axes, style: Style, arm: ArmResult, key: str) -> None:
    """Draw the epochs that all finished runs have as a band, and thin lines beyond.

    A mean to which fewer and fewer seeds contribute would jump where one ends.
    """
    finished, others = [], []
    for run in arm.runs:
        curve = {point.epoch: getattr(point, key) for point in run.curve}
        curve = {epoch: value for epoch, value in curve.items() if not np.isnan(value)}
        if curve:
            (finished if run.status == "finished" else others).append(curve)
    common = sorted(set.intersection(*map(set, finished))) if finished else []
    if common:
        curves = np.array([[curve[epoch] for epoch in common] for curve in finished])
        draw_band(axes, style, np.array(common), curves)
    for curve in [{e: curve[e] for e in curve.keys() - set(common)} for curve in finished] + others:
        if curve:
            axes.plot(*zip(*sorted(curve.items()), strict=True), color=style.colour, linewidth=0.6)


def _show_last_half(axes: Axes) -> None:
    """Leave the first half of the epochs out, and fit the vertical axis to the rest."""
    x = np.concatenate([line.get_xdata() for line in axes.lines] or [[0.0]])
    y = np.concatenate([line.get_ydata() for line in axes.lines] or [[0.0]])
    middle = (x.min() + x.max()) / 2
    late = y[x >= middle]
    margin = 0.15 * (late.max() - late.min()) or 0.01
    axes.set_xlim(middle, x.max() + 0.03 * (x.max() - middle) + 0.01)
    axes.set_ylim(late.min() - margin, late.max() + margin)


def paired_seeds(results: Results) -> Figure | None:
    """The test metric of each seed under each arm; and the paired differences to the baseline."""
    arms = [arm for arm in results.arms if arm.finished]
    if not any(arm.tests for arm in arms):
        return None
    metric, shown = Metric.of(results), styles(results)
    figure, ((left, *right),) = new_axes(3.4, 1, 2 if results.made else 1)
    _draw_seeds(left, results, arms, shown)
    left.set_title(f"Test {metric.name} of each seed")
    left.set_ylabel(f"test {metric.label}, {results.better} is better")
    for axes in right:
        _draw_differences(axes, results, shown)
        axes.set_title(f"Difference to {results.baseline}, same seed")
        axes.set_ylabel(f"difference{in_unit(metric.unit)}, {results.better} is better")
    return figure


def _draw_seeds(
    axes: Axes, results: Results, arms: list[ArmResult], shown: dict[str, Style]
) -> None:
    for seed in results.seeds:
        places = [place for place, arm in enumerate(arms) if seed in arm.tests]
        values = [arms[place].tests[seed] for place in places]
        axes.plot(places, values, color="0.6", linewidth=0.8, zorder=1)
    for place, arm in enumerate(arms):
        style, values = shown[arm.name], list(arm.tests.values())
        x = [place] * len(values)
        axes.scatter(x, values, 28, color=style.colour, marker=style.marker, zorder=2)
        if values:
            mean = float(np.mean(values))
            axes.hlines(mean, place - 0.22, place + 0.22, style.colour, linewidth=2.5, zorder=3)
    _name_places(axes, [arm.name for arm in arms])


def _draw_differences(axes: Axes, results: Results, shown: dict[str, Style]) -> None:
    axes.axhline(0, color="0.3", linewidth=1)
    baseline = results.arms[0].tests
    for place, one in enumerate(results.made):
        style, test, runs = shown[one.arm], one.test, results.arm(one.arm).tests
        assert test is not None
        differences = [runs[seed] - baseline[seed] for seed in one.seeds]
        # Beside the interval, not on it.
        x = [place - 0.12] * len(differences)
        axes.scatter(x, differences, 22, color=style.colour, marker=style.marker, alpha=0.7)
        errors = None if np.isnan(test.low) else [[test.mean - test.low], [test.high - test.mean]]
        look: dict[str, Any] = {"markersize": 13, "markeredgewidth": 2.5, "capsize": 5}
        axes.errorbar(place + 0.12, test.mean, errors, fmt="_", color=style.colour, **look)
    _name_places(axes, [one.arm for one in results.made])


def _name_places(axes: Axes, names: list[str]) -> None:
    tilted = max(map(len, names)) * len(names) > 36
    axes.set_xticks(
        range(len(names)), names, rotation=25 if tilted else 0, ha="right" if tilted else "center"
    )
    axes.set_xlim(-0.6, len(names) - 0.4)
