"""Figures of the predictions for the test molecules: where the arms err, and where they differ."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike
from scipy.stats import binomtest
from sklearn.metrics import precision_recall_curve, roc_curve

from graphormer_sepnorm.chem.drawing import molecules_png
from graphormer_sepnorm.compare.predictions import Predictions
from graphormer_sepnorm.compare.report.figures import (
    Style,
    add_legend,
    label_panels,
    new_axes,
    panel_grid,
    set_panel_title,
    styles,
)
from graphormer_sepnorm.compare.report.numbers import in_unit
from graphormer_sepnorm.compare.results_file import Results

_BINS = 10
MOLECULES = 12
# Share of the residuals within the vertical axis; the rest is drawn at its edge.
_WITHIN = 0.995


def predicted_against_true(results: Results, predictions: Predictions) -> Figure:
    """One panel per arm, all with the same axes, and the diagonal."""
    figure, (panels,) = panel_grid(list(predictions.arms), 1, 3.0)
    both = np.concatenate([predictions.target, *predictions.arms.values()])
    low, high = float(both.min()), float(both.max())
    margin = 0.03 * (high - low or 1)
    for name, axes in panels.items():
        axes.plot([low, high], [low, high], color="0.3", linewidth=0.9)
        _cloud(axes, predictions.target, predictions.arms[name], styles(results)[name])
        axes.set(xlim=(low - margin, high + margin), ylim=(low - margin, high + margin))
        axes.set_box_aspect(1)
        set_panel_title(axes, f"{name}: MAE {predictions.errors(name).mean():.4g}")
    unit = in_unit(results.task.units[0])
    label_panels(panels, f"true{unit}", f"predicted{unit}")
    return figure


def residuals(results: Results, predictions: Predictions) -> Figure:
    """Predicted minus true of each arm against the number of atoms and against the target."""
    figure, kinds = panel_grid(list(predictions.arms), 2, 2.4)
    of_arms = {name: column - predictions.target for name, column in predictions.arms.items()}
    largest = np.quantile(np.abs(list(of_arms.values())), _WITHIN)
    edge = 1.1 * float(largest) or 1.0
    unit = in_unit(results.task.units[0])
    quantities = (predictions.atoms, "number of atoms"), (predictions.target, f"target{unit}")
    for panels, (x, label) in zip(kinds, quantities, strict=True):
        for name, axes in panels.items():
            residual, style = of_arms[name], styles(results)[name]
            inside = np.abs(residual) <= edge
            _cloud(axes, x[inside], residual[inside], style)
            for sign, marker in ((1, "^"), (-1, "v")):
                beyond = x[~inside & (residual * sign > 0)]
                y = np.full(len(beyond), sign * edge)
                axes.scatter(beyond, y, 16, color=style.colour, marker=marker)
            axes.axhline(0, color="0.3", linewidth=0.9)
            # The means of x and of the residual in each tenth by x.
            group = _tenths(x)
            means = (np.bincount(group, column) / np.bincount(group) for column in (x, residual))
            axes.plot(*means, color="black", linewidth=1.6)
            axes.set_ylim(-1.07 * edge, 1.07 * edge)
            set_panel_title(axes, name)
        label_panels(panels, label, f"predicted minus true{unit}")
    return figure


def error_by_size(results: Results, predictions: Predictions) -> Figure | None:
    """Mean absolute error in each tenth of the molecules by size, and its change."""
    group = _tenths(predictions.atoms)
    labels = []
    for one in range(group.max() + 1):
        sizes = predictions.atoms[group == one]
        low, high = f"{sizes.min():.0f}", f"{sizes.max():.0f}"
        labels.append(f"{low if low == high else f'{low} to {high}'}\n({len(sizes)})")
    if len(labels) < 2:
        return None
    shown = {name: styles(results)[name] for name in predictions.arms}
    baseline, unit = results.baseline, in_unit(results.task.units[0])
    others = [name for name in shown if name != baseline] if baseline in shown else []
    rows = 2 if others else 1
    figure, grid = new_axes(5.0 if others else 3.0, rows, 1, sharex=True)
    upper, *lower = grid[:, 0]
    places = np.arange(len(labels))
    shift = min(0.17, 0.8 / len(shown))
    for number, (name, style) in enumerate(shown.items()):
        x = places + (number - (len(shown) - 1) / 2) * shift
        _draw_groups(upper, x, style, predictions.errors(name), group)
        if name in others:
            change = predictions.errors(name) - predictions.errors(baseline)
            _draw_groups(lower[0], x, style, change, group)
    upper.set_ylabel(f"mean |error|{unit}")
    upper.set_ylim(bottom=0)
    for axes in lower:
        axes.axhline(0, color="0.3", linewidth=1)
        axes.set_ylabel(f"change from {baseline}{unit}")
    grid[-1, 0].set_xticks(places, labels)
    grid[-1, 0].set_xlabel("number of atoms (in brackets: how many molecules)")
    add_legend(figure, shown, lines=False)
    return figure


def roc_and_precision(results: Results, predictions: Predictions) -> Figure | None:
    """ROC and precision-recall curves of the seed-averaged probabilities."""
    positive = predictions.target == 1
    if positive.all() or not positive.any():
        return None
    shown = {name: styles(results)[name].curve for name in predictions.arms}
    figure, ((left, right),) = new_axes(4.2, 1, 2)
    left.plot([0, 1], [0, 1], color="0.6", linewidth=0.9)
    right.axhline(positive.mean(), color="0.6", linewidth=0.9)
    for name, style in shown.items():
        scores = predictions.arms[name]
        false_rate, true_rate, _ = roc_curve(positive, scores, drop_intermediate=False)
        precision, recall, _ = precision_recall_curve(positive, scores)
        plain = {"color": style.colour, "linestyle": style.line, "linewidth": 1.6}
        left.plot(false_rate, true_rate, **plain)
        # From the highest threshold on, without its end at (0, 1), where nothing is predicted.
        right.step(recall[-2::-1], precision[-2::-1], where="pre", **plain)
    left.set(xlabel="false positive rate", ylabel="true positive rate", title="ROC")
    right.set(xlabel="recall", ylabel="precision", title="Precision and recall")
    for axes in (left, right):
        axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        axes.set_box_aspect(1)
    add_legend(figure, shown, [Line2D([], [], color="0.6", linewidth=0.9, label="chance")])
    return figure


def calibration(results: Results, predictions: Predictions) -> Figure:
    """Share of positives against the predicted probability, in ten groups of equal size."""
    figure, (panels,) = panel_grid(list(predictions.arms), 1, 3.2)
    largest = 0.0
    for name, axes in panels.items():
        predicted = predictions.arms[name]
        order = np.argsort(predicted, kind="stable")
        groups = [part for part in np.array_split(order, _BINS) if len(part)]
        expected = np.array([predicted[part].mean() for part in groups])
        share = np.array([predictions.target[part].mean() for part in groups])
        # Wilson's interval: that of 0 of n does not shrink to a point.
        tests = [binomtest(int(predictions.target[part].sum()), len(part)) for part in groups]
        low, high = np.transpose([one.proportion_ci(method="wilson") for one in tests])
        # Rounding may leave a limit on the wrong side of the share by 1e-17.
        errors = [np.maximum(share - low, 0), np.maximum(high - share, 0)]
        _intervals(axes, styles(results)[name], expected, share, errors)
        largest = max(largest, float(expected.max()), float(high.max()))
        score = ((predicted - predictions.target) ** 2).mean()
        set_panel_title(axes, f"{name}: Brier score {score:.4g}")
    for axes in panels.values():
        axes.plot([0, 1], [0, 1], color="0.3", linewidth=0.9)
        axes.set(xlim=(-0.03 * largest, 1.05 * largest), ylim=(-0.03 * largest, 1.05 * largest))
        axes.set_box_aspect(1)
    label_panels(panels, "predicted probability", "share of positives")
    return figure


def largest_changes(results: Results, predictions: Predictions, arm: str) -> bytes | None:
    """Draw the molecules whose absolute error an arm changes most, as a PNG.

    None if neither has a SMILES, or if there is no baseline to differ from.
    """
    baseline = results.baseline
    if not any(predictions.smiles) or not {arm, baseline} <= predictions.arms.keys():
        return None
    changes = predictions.errors(arm) - predictions.errors(baseline)
    order = np.argsort(-np.abs(changes), kind="stable")[:MOLECULES].tolist()
    binary = results.task.kind == "binary"
    legends = []
    for place in order:
        change, true = float(changes[place]), float(predictions.target[place])
        before, after = (float(predictions.arms[name][place]) for name in (baseline, arm))
        legends.append(
            f"{predictions.numbers[place]}: true {f'{true:g}' if binary else _short(true)}, "
            f"{'better' if change < 0 else 'worse'} by {_short(abs(change))}\n"
            f"{baseline} {_short(before)}, {arm} {_short(after)}"
        )
    return molecules_png([predictions.smiles[place] for place in order], legends)


def _cloud(axes: Axes, x: np.ndarray, y: np.ndarray, style: Style) -> None:
    opacity = float(np.clip(250 / max(len(x), 1), 0.08, 0.7))
    axes.scatter(x, y, 9, color=style.colour, linewidths=0, alpha=opacity)


def _tenths(x: np.ndarray) -> np.ndarray:
    """Number from 0 of the group of each x: ten of about equal size.

    Fewer where many x are equal, which stay together.
    """
    edges = np.unique(np.quantile(x, np.linspace(0, 1, _BINS + 1)[1:-1]))
    return np.unique(np.searchsorted(edges, x, side="left"), return_inverse=True)[1]


def _draw_groups(
    axes: Axes, places: np.ndarray, style: Style, values: np.ndarray, group: np.ndarray
) -> None:
    """Draw the mean of each group with its normal 95 % interval."""
    parts = [values[group == one] for one in range(len(places))]
    half_widths = [
        1.96 * part.std(ddof=1) / len(part) ** 0.5 if len(part) > 1 else 0 for part in parts
    ]
    _intervals(axes, style, places, [part.mean() for part in parts], half_widths)


def _intervals(axes: Axes, style: Style, x: ArrayLike, y: ArrayLike, errors: ArrayLike) -> None:
    """Draw points with the distances to the ends of their intervals, of both or of each end."""
    axes.errorbar(
        x, y, errors, fmt=style.marker, color=style.colour, markersize=5, capsize=2.5, linewidth=1.1
    )


def _short(value: float) -> str:
    return f"{value:.2f}" if 0.01 <= abs(value) < 1000 or value == 0 else f"{value:.2g}"
