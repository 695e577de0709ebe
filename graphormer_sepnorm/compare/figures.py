"""The figures of a comparison: its seeds, learning curves, and the geometry of [CLS].

Colors are those of Okabe & Ito (2008), which people with any color vision tell apart; each arm
has a marker and a line style of its own as well. A figure that would show nothing is None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from io import BytesIO
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from graphormer_sepnorm.compare.geometry import OUTPUT, LayerGeometry
from graphormer_sepnorm.compare.results import Results
from graphormer_sepnorm.formatting import in_figure

_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = "osD^vPX"
_LINES = ("-", "--", "-.", ":")
_WIDTH, _DPI = 8.6, 110  # inches, pixels per inch
_FONT = 9
_LOOK: Any = {
    **dict.fromkeys(
        ("axes.titlesize", "axes.labelsize", "xtick.labelsize", "ytick.labelsize"), _FONT
    ),
    **{"axes.grid": True, "grid.alpha": 0.3, "grid.linewidth": 0.6, "axes.axisbelow": True},
    **{"axes.spines.top": False, "axes.spines.right": False},
}
_MANY_POINTS = 30  # on which markers would hide a curve
_LOWEST_R2 = -0.2  # below, all values mean the same: worse than the mean

Style = dict[str, Any]


def styles(results: Results) -> dict[str, Style]:
    """Return the style of each arm, by its index in the list."""
    names, looks = [arm.name for arm in results.arms], map(cycle, (_COLORS, _MARKERS, _LINES))
    return {
        name: {"color": color, "marker": marker, "linestyle": line}
        for name, color, marker, line in zip(names, *looks, strict=False)
    }


def png(figure: Figure) -> bytes:
    """Return a figure as PNG."""
    stream = BytesIO()
    figure.savefig(stream, format="png", dpi=_DPI, metadata={"Software": None})
    return stream.getvalue()


def seeds(results: Results) -> Figure | None:
    """Draw the test metric of each seed under each arm, and the changes from the baseline."""
    arms = {arm.name: arm.tests for arm in results.arms if arm.tests}
    if not arms:
        return None
    of_arm = styles(results)
    made = results.comparisons
    figure, (left, *right) = _figure(results, 1, 2 if made else 1)
    for x, (name, tests) in enumerate(arms.items()):
        values = list(tests.values())
        _points(left, x, values, of_arm[name])
        left.hlines(np.mean(values), x - 0.22, x + 0.22, of_arm[name]["color"], linewidth=2.5)
    _name_ticks(left, [*arms], f"Test {results.label} of each seed")
    left.set_ylabel(f"test {results.label}{results.in_unit}, {results.task.main.better} is better")
    for axes in right:
        axes.axhline(0, color="0.3", linewidth=1)
        before = np.mean([*results.errors[results.baseline].values()])
        for x, (arm, one) in enumerate(made.items()):
            # Next to the interval, not on it.
            changes = 100 * np.expm1(np.array([*results.errors[arm].values()]) - before)
            _points(axes, x - 0.12, changes.tolist(), of_arm[arm])
            mean, low, high = one.percent
            errors = None if math.isnan(low) else [[mean - low], [high - mean]]
            look: Style = {"fmt": "_", "markersize": 13, "capsize": 5}
            axes.errorbar(x + 0.12, mean, errors, color=of_arm[arm]["color"], **look)
        _name_ticks(axes, [*made], f"Change from {in_figure(results.baseline)}")
        axes.set_ylabel(f"change of {results.error_label}, %")
    return figure


def learning_curves(results: Results) -> Figure | None:
    """Draw training loss and validation metric by epoch: mean and range over an arm's seeds."""
    figure, panels = _figure(results, 1, 2)
    titles = ("Training loss", f"Validation {results.label}{results.in_unit}")
    columns = ("train_loss", "validation")
    for axes, what, title in zip(panels, columns, titles, strict=True):
        for arm in results.arms:
            curves = [
                {p.epoch: y for p in run.curve if not math.isnan(y := getattr(p, what))}
                for run in (arm.finished or arm.runs)
            ]
            curves = [curve for curve in curves if curve]
            # A mean to which fewer and fewer seeds contribute would jump where one ends.
            common = sorted(set.intersection(*map(set, curves))) if curves else []
            values = np.array([[curve[epoch] for epoch in common] for curve in curves])
            _band(axes, common, values, styles(results)[arm.name])
        axes.set(title=title, xlabel="epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.set_visible(bool(axes.lines))
    return figure if any(axes.lines for axes in panels) else None


def geometry(results: Results) -> Figure | None:
    """Draw the geometry of [CLS] after each layer and at the output, one quantity a panel."""

    def probe(cloud: LayerGeometry) -> float:
        found = (cloud.probes or {}).get("atoms")
        return math.nan if found is None else max(found, _LOWEST_R2)

    quantities: Mapping[str, Callable[[LayerGeometry], float]] = {
        "uniformity L_U (dotted: an even spread)": lambda cloud: cloud.uniformity,
        "effective rank (centered)": lambda cloud: cloud.effective_rank,
        "mean cosine to the atoms": lambda cloud: cloud.cosine_to_atoms,
        "R² of a probe for the number of atoms": probe,
    }
    of_arms = {
        arm.name: [{one.layer: one for one in run.geometry} for run in arm.finished if run.geometry]
        for arm in results.arms
    }
    runs = [run for of_arm in of_arms.values() for run in of_arm]
    if not runs:
        return None
    layers = list(max(runs, key=len))
    figure, panels = _figure(results, 2, 2)
    for axes, (title, value) in zip(panels, quantities.items(), strict=True):
        for name, of_arm in of_arms.items():
            rows = [[value(run[n]) if n in run else math.nan for n in layers] for run in of_arm]
            _band(axes, range(len(layers)), np.array(rows), styles(results)[name])
        axes.set(title=title, xlabel="layer")
        ticks = range(len(layers))[:: -len(layers) // 13][::-1]  # 13 at most, the last one too
        texts = [layers[n].removeprefix("layer ").replace(OUTPUT, "out") for n in ticks]
        axes.set_xticks(ticks, texts)
    for floor in {cloud.uniformity_floor for run in runs for cloud in run.values()}:
        panels[0].axhline(floor, color="0.3", linewidth=1, linestyle=":")
    return figure


def _figure(results: Results, rows: int, columns: int) -> tuple[Figure, list[Axes]]:
    """A figure with a grid of axes in the common style, and a legend of all arms above them."""
    figure = Figure(figsize=(_WIDTH, 0.5 + 3.0 * rows), layout="constrained")
    with rc_context(_LOOK):
        panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    of_arm = styles(results)
    handles = [Line2D([], [], label=in_figure(n), markersize=5, **of_arm[n]) for n in of_arm]
    columns = max(1, min(len(handles), int(115 / (8 + max(map(len, of_arm))))))
    look: Style = {"loc": "outside upper center", "frameon": False, "fontsize": _FONT}
    figure.legend(handles=handles, ncols=columns, **look)
    return figure, panels


def _band(axes: Axes, x: Any, curves: np.ndarray, style: Style) -> None:
    """Draw the mean of curves ``[seeds, points]`` and the range between their extremes.

    Where a curve has nan, the others are averaged.
    """
    seen = np.isfinite(curves).any(0) if curves.size else np.zeros(0, dtype=bool)
    if not seen.any():
        return
    x, curves = np.asarray(x)[seen], curves[:, seen]
    size = 4 if len(x) <= _MANY_POINTS else 0
    axes.plot(x, np.nanmean(curves, 0), markersize=size, linewidth=1.6, **style)
    if len(curves) > 1:
        ends = np.nanmin(curves, 0), np.nanmax(curves, 0)
        axes.fill_between(x, *ends, color=style["color"], alpha=0.18, linewidth=0)


def _points(axes: Axes, x: float, values: list[float], style: Style) -> None:
    look = {"color": style["color"], "marker": style["marker"], "alpha": 0.8, "zorder": 2}
    axes.scatter([x] * len(values), values, 26, **look)


def _name_ticks(axes: Axes, names: list[str], title: str) -> None:
    tilted = max(map(len, names)) * len(names) > 36
    look: Style = {"rotation": 25, "ha": "right"} if tilted else {}
    axes.set_xticks(range(len(names)), list(map(in_figure, names)), **look)
    axes.set(title=title, xlim=(-0.6, len(names) - 0.4))
