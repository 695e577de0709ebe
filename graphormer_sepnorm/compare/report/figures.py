"""The pictures of a report: the metric of each seed, learning curves, the geometry of [CLS].

Colors are those of Okabe & Ito (2008), which people with any color vision tell apart; each arm
has a marker and a line style of its own as well. A picture that would show nothing is None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from graphormer_sepnorm.compare.model_geometry import GRAPH_TOKEN, OUTPUT, CloudGeometry
from graphormer_sepnorm.compare.report.numbers import Metric, in_unit
from graphormer_sepnorm.compare.results import Results
from graphormer_sepnorm.formatting import in_figure

_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = "osD^vPX"
_LINES = ("-", "--", "-.", ":")
_WIDTH, _DPI = 8.6, 110  # inches, pixels per inch
_FONT = 9
_MANY_POINTS = 30  # on which markers would hide a curve
_LOWEST_R2 = -0.2  # below, all values mean the same: worse than the mean

Style = dict[str, Any]


def styles(results: Results) -> dict[str, Style]:
    """The style of each arm, by its place in the list."""
    return {
        arm.name: {
            "color": _COLORS[place % len(_COLORS)],
            "marker": _MARKERS[place % len(_MARKERS)],
            "linestyle": _LINES[place % len(_LINES)],
        }
        for place, arm in enumerate(results.arms)
    }


def png(figure: Figure) -> bytes:
    """Return a figure as PNG."""
    stream = BytesIO()
    figure.savefig(stream, format="png", dpi=_DPI, metadata={"Software": None})
    return stream.getvalue()


def seeds(results: Results) -> Figure | None:
    """The test metric of each seed under each arm; and the paired differences to the baseline."""
    arms = [arm for arm in results.arms if arm.tests]
    if not arms:
        return None
    metric, made = Metric.of(results), [one for one in results.comparisons if one.test]
    figure, (left, *right) = _figure(results, 1, 2 if made else 1)
    tests = {arm.name: arm.tests for arm in arms}
    for seed in results.seeds:
        places = [place for place, arm in enumerate(arms) if seed in arm.tests]
        values = [arms[place].tests[seed] for place in places]
        left.plot(places, values, color="0.7", linewidth=0.8, zorder=1)
    for place, arm in enumerate(arms):
        values, style = list(arm.tests.values()), styles(results)[arm.name]
        _points(left, place, values, style)
        left.hlines(np.mean(values), place - 0.22, place + 0.22, style["color"], linewidth=2.5)
    _name_places(left, [arm.name for arm in arms])
    left.set(title=f"Test {metric.name} of each seed")
    left.set_ylabel(f"test {metric.label}, {results.better} is better")
    for axes in right:
        axes.axhline(0, color="0.3", linewidth=1)
        for place, one in enumerate(made):
            test, style = one.test, styles(results)[one.arm]
            assert test is not None
            before, after = tests[results.baseline], tests[one.arm]
            # Beside the interval, not on it.
            _points(axes, place - 0.12, [after[s] - before[s] for s in one.seeds], style)
            errors = (
                None if math.isnan(test.low) else [[test.mean - test.low], [test.high - test.mean]]
            )
            axes.errorbar(
                place + 0.12,
                test.mean,
                errors,
                fmt="_",
                color=style["color"],
                markersize=13,
                capsize=5,
            )
        _name_places(axes, [one.arm for one in made])
        axes.set(title=f"Difference to {in_figure(results.baseline)}, same seed")
        axes.set_ylabel(f"difference{in_unit(metric.unit)}")
    return figure


def learning_curves(results: Results) -> Figure | None:
    """Training loss and validation metric by epoch: mean and range over the seeds of each arm.

    The last half of the validation once more: at the end arms differ by much less than they have
    come down together.
    """
    metric = Metric.of(results)
    figure, panels = _figure(results, 1, 3)
    named = ("Training loss", f"Validation {metric.label}", "Validation, last half")
    for axes, what, title in zip(
        panels, ("train_loss", "validation", "validation"), named, strict=True
    ):
        for arm in results.arms:
            curves = [
                {
                    point.epoch: value
                    for point in run.curve
                    if (value := getattr(point, what)) == value
                }
                for run in (arm.finished or arm.runs)
            ]
            curves = [curve for curve in curves if curve]
            # A mean to which fewer and fewer seeds contribute would jump where one ends.
            common = sorted(set.intersection(*map(set, curves))) if curves else []
            values = np.array([[curve[epoch] for epoch in common] for curve in curves])
            _band(axes, common, values, styles(results)[arm.name])
        axes.set(title=title, xlabel="epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    lines = panels[-1].lines
    if not any(axes.lines for axes in panels):
        return None
    if lines:
        x, y = np.concatenate([np.asarray(line.get_xydata()) for line in lines]).T
        late = y[x >= x.max() / 2]
        margin = 0.15 * np.ptp(late) or 0.01
        panels[-1].set(
            xlim=(x.max() / 2, x.max() + 0.5), ylim=(late.min() - margin, late.max() + margin)
        )
    return figure


def geometry(results: Results) -> Figure | None:
    """The geometry of [CLS] after each layer and at the output, one quantity a panel."""
    quantities: Mapping[str, Callable[[CloudGeometry], float]] = {
        "uniformity L_U (dotted: an even spread)": lambda cloud: cloud.uniformity,
        "effective rank (centered)": lambda cloud: cloud.effective_rank_centred,
        "mean cosine to the atoms": lambda cloud: cloud.cosine_to_atoms,
        "R² of a probe for the number of atoms": _probe,
    }
    of_arms = {
        arm.name: [
            {one.layer: one for one in run.geometry if one.what == GRAPH_TOKEN}
            for run in arm.finished
            if run.geometry
        ]
        for arm in results.arms
    }
    runs = [run for of_arm in of_arms.values() for run in of_arm]
    if not runs:
        return None
    layers = list(max(runs, key=len))
    figure, panels = _figure(results, 2, 2)
    for axes, (title, value) in zip(panels, quantities.items(), strict=True):
        for name, of_arm in of_arms.items():
            rows = [
                [value(run[one]) if one in run else math.nan for one in layers] for run in of_arm
            ]
            _band(axes, range(len(layers)), np.array(rows), styles(results)[name])
        axes.set(title=title, xlabel="layer")
        every = -(-len(layers) // 13)
        places = [n for n in range(len(layers)) if (len(layers) - 1 - n) % every == 0]
        texts = [layers[n].removeprefix("layer ").replace(OUTPUT, "out") for n in places]
        axes.set_xticks(places, texts)
    for floor in {cloud.uniformity_floor for run in runs for cloud in run.values()}:
        panels[0].axhline(floor, color="0.3", linewidth=1, linestyle=":")
    return figure


def _probe(cloud: CloudGeometry) -> float:
    found = (cloud.probes or {}).get("atoms")
    return math.nan if found is None else max(found, _LOWEST_R2)


def _figure(results: Results, rows: int, columns: int) -> tuple[Figure, list[Axes]]:
    """A figure with a grid of axes in the common style, and a legend of all arms above them."""
    figure = Figure(figsize=(_WIDTH, 0.5 + 3.0 * rows), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in panels:
        axes.grid(alpha=0.3, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=_FONT)
        for text in (axes.title, axes.xaxis.label, axes.yaxis.label):
            text.set_fontsize(_FONT)
    handles = [
        Line2D([], [], label=in_figure(name), markersize=5, **style)
        for name, style in styles(results).items()
    ]
    columns = max(1, min(len(handles), int(115 / (8 + max(map(len, styles(results)))))))
    figure.legend(
        handles=handles, loc="outside upper center", ncols=columns, frameon=False, fontsize=_FONT
    )
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


def _points(axes: Axes, place: float, values: list[float], style: Style) -> None:
    x = [place] * len(values)
    axes.scatter(x, values, 26, color=style["color"], marker=style["marker"], alpha=0.8, zorder=2)


def _name_places(axes: Axes, names: list[str]) -> None:
    tilted = max(map(len, names)) * len(names) > 36
    look: dict[str, Any] = {"rotation": 25, "ha": "right"} if tilted else {}
    axes.set_xticks(range(len(names)), list(map(in_figure, names)), **look)
    axes.set_xlim(-0.6, len(names) - 0.4)
