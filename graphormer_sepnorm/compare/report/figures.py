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

from graphormer_sepnorm.compare.report.data import (
    Results,
    arm_names,
    arm_of,
    made_comparisons,
    runs_of,
    values_of,
)
from graphormer_sepnorm.compare.report.text import metric_name
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


def without_marker(style: Style) -> Style:
    """The style of a curve with so many points that markers would hide it."""
    return replace(style, marker="")


def styles(results: Results) -> dict[str, Style]:
    """The style of each arm, by its place in the list."""
    return {
        name: Style(
            _COLOURS[place % len(_COLOURS)],
            _MARKERS[place % len(_MARKERS)],
            _LINES[place % len(_LINES)],
        )
        for place, name in enumerate(arm_names(results))
    }


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """An empty figure; sizes in inches."""
    return Figure(figsize=(width, height), layout="constrained")


def new_axes(
    figure: Figure, rows: int, columns: int, *, sharex: Any = False, sharey: Any = False
) -> np.ndarray:
    """A grid of axes ``[rows, columns]`` in the common style."""
    grid = figure.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=sharey)
    for axes in grid.flat:
        axes.grid(alpha=0.3, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=_FONT)
        axes.title.set_fontsize(_FONT + 1)
        axes.xaxis.label.set_fontsize(_FONT)
        axes.yaxis.label.set_fontsize(_FONT)
    return grid


def panel_grid(
    names: Sequence[str], kinds: int, height: float
) -> tuple[Figure, list[dict[str, Axes]]]:
    """Axes for each kind of picture and each arm, one kind below the other, y in common.

    More than three arms are broken into several lines of panels.

    Args:
        names: The arms.
        kinds: How many pictures of each.
        height: Of a panel, in inches.

    Returns:
        The figure, and for each kind the axes of each arm.
    """
    lines = -(-len(names) // 3)
    columns = -(-len(names) // lines)
    figure = new_figure(height * kinds * lines + 0.3, min(WIDTH, 3.6 * columns))
    grid = new_axes(figure, kinds * lines, columns, sharey=True)
    of_kinds: list[dict[str, Axes]] = [{} for _ in range(kinds)]
    for place in range(columns * lines):
        line, column = divmod(place, columns)
        for kind, axes_of in enumerate(of_kinds):
            axes = grid[line * kinds + kind, column]
            if place < len(names):
                axes_of[names[place]] = axes
            else:
                axes.set_visible(False)
    return figure, of_kinds


def label_y(axes_of: dict[str, Axes], label: str) -> None:
    """Label the vertical axes of the panels that are first in their line."""
    for axes in axes_of.values():
        if axes.get_subplotspec().is_first_col():  # type: ignore[union-attr]
            axes.set_ylabel(label)


def add_legend(
    figure: Figure, shown: dict[str, Style], others: Sequence[Line2D] = (), lines: bool = True
) -> None:
    """Put one legend for all axes above them."""
    handles = [
        Line2D(
            [],
            [],
            color=style.colour,
            marker=style.marker,
            linestyle=style.line if lines else "",
            markersize=5,
            label=name,
        )
        for name, style in shown.items()
    ]
    figure.legend(
        handles=[*handles, *others],
        loc="outside upper center",
        ncols=_legend_columns([*shown, *(str(line.get_label()) for line in others)], figure),
        frameon=False,
        fontsize=_FONT,
    )


def _legend_columns(labels: list[str], figure: Figure) -> int:
    """One line if it fits, else columns that are all as wide as the longest label."""
    room = 13.5 * figure.get_figwidth()  # letters, of which a line sample takes seven
    if sum(len(label) + 7 for label in labels) <= room:
        return len(labels)
    return max(1, int(room / (max(map(len, labels)) + 7)))


def set_panel_title(axes: Axes, title: str) -> None:
    """Title one of three panels beside each other, on several lines if it is long."""
    axes.set_title(fill(title, 31))


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG."""
    figure.set_dpi(_DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    _write_png(np.asarray(canvas.buffer_rgba())[..., :3], path)


def save_png(png: bytes, path: Path) -> None:
    """Write a picture that is a PNG already, as small as the others."""
    pixels = image.imread(BytesIO(png))[..., :3]
    _write_png((255 * pixels).round().astype(np.uint8), path)


def _write_png(pixels: np.ndarray, path: Path) -> None:
    """Write ``[height, width, 3]`` with 16 levels per colour.

    Smooth edges need no more, and the file is half as large: a report holds each picture twice,
    and may lie in a repository.
    """
    distance_from_white = (255 - pixels).astype(float)
    levels = (distance_from_white / 17).round() * 17
    with replacing(path) as partial:
        image.imsave(
            partial, (255 - levels).astype(np.uint8), format="png", pil_kwargs={"optimize": True}
        )


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
    shown = styles(results)
    metric = metric_name(results)
    figure = new_figure(3.6)
    grid = new_axes(figure, 1, 3)[0]
    for axes, key in zip(grid, ("train_loss", "validation", "validation"), strict=True):
        for name, style in shown.items():
            _draw_curves(axes, style, arm_of(results, name)["runs"], key)
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        values = np.concatenate([line.get_ydata() for line in axes.lines] or [[]])
        if len(values) and min(values) > 0 and max(values) > 10 * min(values):
            _logarithmic(axes)
    if not any(axes.lines for axes in grid):
        return None
    _show_last_half(grid[2])
    titles = ("Training loss", f"Validation {metric}", f"Validation {metric}, last half")
    for axes, title in zip(grid, titles, strict=True):
        axes.set_title(title)
    grid[0].set_ylabel("loss")
    grid[1].set_ylabel(f"{metric}{_unit(results)}")
    add_legend(figure, {name: without_marker(style) for name, style in shown.items()})
    return figure


def _draw_curves(axes: Axes, style: Style, runs: list[dict[str, Any]], key: str) -> None:
    """Draw the epochs that all finished runs have as a band, and thin lines beyond.

    A mean to which fewer and fewer seeds contribute would jump where one ends.
    """
    finished, others = [], []
    for run in runs:
        curve = {point["epoch"]: point.get(key) for point in run.get("curve") or []}
        curve = {epoch: value for epoch, value in curve.items() if value is not None}
        if curve:
            (finished if run["status"] == "finished" else others).append(curve)
    common = sorted(set.intersection(*map(set, finished))) if finished else []
    if common:
        curves = np.array([[curve[epoch] for epoch in common] for curve in finished])
        draw_band(axes, without_marker(style), np.array(common), curves)
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


def _logarithmic(axes: Axes) -> None:
    """Make y logarithmic, with plain numbers at 1, 2, 5."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def paired_seeds(results: Results) -> Figure | None:
    """The test metric of each seed under each arm; and the paired differences to the baseline."""
    shown = {name: style for name, style in styles(results).items() if runs_of(results, name)}
    if not any(len(values_of(results, name, "test")) for name in shown):
        return None
    comparisons = made_comparisons(results)
    metric = metric_name(results)
    figure = new_figure(3.4)
    columns = 2 if comparisons else 1
    axes = new_axes(figure, 1, columns)[0]
    _draw_seeds(axes[0], results, shown)
    axes[0].set_title(f"Test {metric} of each seed")
    axes[0].set_ylabel(f"test {metric}{_unit(results)}, {results['better']} is better")
    if comparisons:
        _draw_differences(axes[1], results, comparisons, shown)
        axes[1].set_title(f"Difference to {results['baseline']}, same seed")
        axes[1].set_ylabel(f"difference{_unit(results)}, {results['better']} is better")
    return figure


def _draw_seeds(axes: Axes, results: Results, shown: dict[str, Style]) -> None:
    tests = {name: _tests(results, name) for name in shown}
    for seed in results["seeds"]:
        places = [place for place, name in enumerate(shown) if seed in tests[name]]
        values = [tests[name][seed] for name in shown if seed in tests[name]]
        axes.plot(places, values, color="0.6", linewidth=0.8, zorder=1)
    for place, (name, style) in enumerate(shown.items()):
        values = list(tests[name].values())
        axes.scatter(
            [place] * len(values), values, 28, color=style.colour, marker=style.marker, zorder=2
        )
        if values:
            mean = float(np.mean(values))
            axes.hlines(mean, place - 0.22, place + 0.22, style.colour, linewidth=2.5, zorder=3)
    _name_places(axes, list(shown))


def _draw_differences(
    axes: Axes,
    results: Results,
    comparisons: list[dict[str, Any]],
    shown: dict[str, Style],
) -> None:
    axes.axhline(0, color="0.3", linewidth=1)
    baseline = _tests(results, results["baseline"])
    for place, one in enumerate(comparisons):
        style, test = shown[one["arm"]], one["test"]
        runs = _tests(results, one["arm"])
        differences = [runs[seed] - baseline[seed] for seed in one["seeds"]]
        # Beside the interval, not on it.
        axes.scatter(
            [place - 0.12] * len(differences),
            differences,
            22,
            color=style.colour,
            marker=style.marker,
            alpha=0.7,
        )
        errors = None
        if test["low"] is not None:
            errors = [[test["mean"] - test["low"]], [test["high"] - test["mean"]]]
        axes.errorbar(
            place + 0.12,
            test["mean"],
            errors,
            fmt="_",
            color=style.colour,
            markersize=13,
            markeredgewidth=2.5,
            capsize=5,
        )
    _name_places(axes, [one["arm"] for one in comparisons])


def _tests(results: Results, name: str) -> dict[int, float]:
    runs = runs_of(results, name)
    return {run["seed"]: run["test"] for run in runs if run["test"] is not None}


def _name_places(axes: Axes, names: list[str]) -> None:
    longest = max(map(len, names))
    tilted = longest * len(names) > 36
    axes.set_xticks(
        range(len(names)),
        names,
        rotation=25 if tilted else 0,
        ha="right" if tilted else "center",
    )
    axes.set_xlim(-0.6, len(names) - 0.4)


def _unit(results: Results) -> str:
    return f" in {results['unit']}" if results["unit"] else ""
