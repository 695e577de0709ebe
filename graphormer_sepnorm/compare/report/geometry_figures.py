"""Figures of the geometry of [CLS] and of the atoms, per layer and at the output."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import zip_longest
from operator import attrgetter

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from graphormer_sepnorm.compare.model_geometry import ATOMS, GRAPH_TOKEN, OUTPUT, CloudGeometry
from graphormer_sepnorm.compare.report.figures import (
    Style,
    add_legend,
    draw_band,
    label_panels,
    new_axes,
    panel_grid,
    set_panel_title,
    styles,
)
from graphormer_sepnorm.compare.results_file import Results

_TITLES = {GRAPH_TOKEN: "[CLS]", ATOMS: "atoms"}
_LOWEST_R2 = -0.2
# Share of the embeddings within the horizontal axis of the heat maps.
_WITHIN = 0.998


def uniformity(results: Results) -> Figure | None:
    """L_U of [CLS] and of the atoms after each layer, with its floor for this width."""
    draw = partial(_draw_layers, results=results, value=attrgetter("uniformity"))
    figure = _token_and_atoms(3.4, "uniformity L_U", draw)
    if figure is None:
        return None
    runs = [run for arm in results.arms for run in arm.analysed]
    floors = {cloud.uniformity_floor for run in runs for cloud in run.geometry}
    floors = {floor for floor in floors if not math.isnan(floor)}
    dotted = (0, (1, 1))
    for axes in figure.axes:
        for floor in floors:
            axes.axhline(floor, color="0.3", linewidth=1, linestyle=dotted)
        axes.axhline(0, color="0.3", linewidth=0.8)
        axes.set_ylim(min([-4.0, *floors]) - 0.15, 0.15)
    lines = [
        Line2D([], [], color="0.3", linewidth=1, linestyle=dotted, label="floor (even)"),
        Line2D([], [], color="0.3", linewidth=0.8, label="0 (one direction)"),
    ]
    add_legend(figure, _shown(results), lines)
    return figure


def effective_rank(results: Results) -> Figure | None:
    """Effective rank of the centred embeddings after each layer."""
    draw = partial(_draw_layers, results=results, value=attrgetter("effective_rank_centred"))
    figure = _token_and_atoms(3.4, "effective rank (centred)", draw)
    if figure is not None:
        figure.axes[0].set_ylim(bottom=0)
        add_legend(figure, _shown(results))
    return figure


def singular_values(results: Results) -> Figure | None:
    """Logarithms of the first 100 singular values at the output."""
    shown = {name: style.curve for name, style in _shown(results).items()}

    def draw(axes: Axes, what: str) -> None:
        for name, style in shown.items():
            clouds = (run.cloud(OUTPUT, what) for run in results.arm(name).analysed)
            spectra = [cloud.log_singular_values if cloud else () for cloud in clouds]
            curves = np.array(list(zip_longest(*spectra, fillvalue=math.nan))).T
            if curves.size:
                draw_band(axes, style, np.arange(1, curves.shape[1] + 1), curves)
        axes.set_xlabel("number of the singular value")

    figure = _token_and_atoms(3.5, "ln(singular value)", draw)
    if figure is not None:
        add_legend(figure, shown)
    return figure


def cosine(results: Results) -> Figure | None:
    """Mean cosine between [CLS] and the atoms of its molecule after each layer."""
    figure, ((axes,),) = new_axes(3.2, 1, 1, width=6.5)
    _draw_layers(axes, GRAPH_TOKEN, results, attrgetter("cosine_to_atoms"))
    if not axes.lines:
        return None
    axes.axhline(0, color="0.3", linewidth=0.8)
    axes.set_ylabel("mean cosine of [CLS] to its atoms")
    add_legend(figure, _shown(results))
    return figure


def features(results: Results) -> Figure | None:
    """Histograms of the first 50 features at the output, one row of colours per feature."""
    edges: dict[tuple[str, str], np.ndarray] = {}
    shares: dict[tuple[str, str], np.ndarray] = {}
    for arm in results.arms:
        for what in _TITLES:
            clouds = (run.cloud(OUTPUT, what) for run in arm.analysed)
            found = next((one.histogram for one in clouds if one and one.histogram), None)
            if found:
                counts = np.array(found["counts"], dtype=float)
                edges[arm.name, what] = np.array(found["edges"])
                shares[arm.name, what] = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    if not shares:
        return None
    names = list(dict.fromkeys(name for name, _ in shares))
    figure, kinds = panel_grid(names, len(_TITLES), 2.4)
    norm = PowerNorm(0.5, 0, max(float(share.max()) for share in shares.values()))
    limits = [_central(edges[key], share) for key, share in shares.items()]
    mesh = None
    for panels, what in zip(kinds, _TITLES, strict=True):
        for name, axes in panels.items():
            axes.grid(False)
            set_panel_title(axes, f"{name}: {_TITLES[what]}")
            if (name, what) not in shares:
                continue
            # Drawn as counted, so the bins of each panel are its own; a share per bin of the same
            # width would be a density, and a collapsed feature would outshine the rest.
            share = shares[name, what]
            rows = np.arange(len(share) + 1) + 0.5
            mesh = axes.pcolormesh(edges[name, what], rows, share, norm=norm, cmap="magma_r")
            axes.set_facecolor(mesh.cmap(0.0))  # beyond its bins a panel has no counts either
            axes.axvline(0, color="0.4", linewidth=0.6, linestyle=":")
            axes.set_xlim(min(low for low, _ in limits), max(high for _, high in limits))
        label_panels(panels, "value", "feature")
    kinds[0][names[0]].invert_yaxis()  # of all: y is common
    if mesh is not None:
        bar = figure.colorbar(mesh, ax=figure.axes, shrink=min(0.6, 3 / figure.get_figheight()))
        bar.set_label("share of the embeddings", fontsize=9)
        bar.ax.tick_params(labelsize=9)
    return figure


def probes(results: Results) -> Figure | None:
    """R^2 of linear probes on [CLS] after each layer, one panel per quantity."""
    runs = (run for arm in results.arms for run in arm.analysed)
    clouds = (cloud for run in runs for cloud in run.geometry)
    quantities = list(dict.fromkeys(name for cloud in clouds for name in cloud.probes or {}))
    if not quantities:
        return None
    columns = min(3, len(quantities))
    rows = -(-len(quantities) // columns)
    figure, grid = new_axes(0.7 + 2.5 * rows, rows, columns, sharey=True)
    for axes in grid.flat[len(quantities) :]:
        axes.set_visible(False)
    for axes, quantity in zip(grid.flat, quantities, strict=False):

        def r2(cloud: CloudGeometry, quantity: str = quantity) -> float:
            value = (cloud.probes or {}).get(quantity)
            # Far below 0 all values mean the same: worse than the mean.
            return math.nan if value is None else max(value, _LOWEST_R2)

        _draw_layers(axes, GRAPH_TOKEN, results, r2, labels=7)
        axes.set_title(f"probe for {quantity}")
        axes.set_ylim(_LOWEST_R2 - 0.05, 1.05)
        axes.axhline(0, color="0.3", linewidth=0.8)
    for row in grid:
        row[0].set_ylabel("R² on other molecules")
    add_legend(figure, _shown(results))
    return figure


def _shown(results: Results) -> dict[str, Style]:
    return {name: one for name, one in styles(results).items() if results.arm(name).analysed}


def _token_and_atoms(height: float, label: str, draw: Callable[[Axes, str], None]) -> Figure | None:
    """Two panels, [CLS] on the left and the atoms on the right."""
    figure, (grid,) = new_axes(height, 1, 2, sharey=True)
    for axes, (what, title) in zip(grid, _TITLES.items(), strict=True):
        draw(axes, what)
        axes.set_title(title)
    grid[0].set_ylabel(label)
    return figure if any(axes.lines for axes in grid) else None


def _draw_layers(
    axes: Axes,
    what: str,
    results: Results,
    value: Callable[[CloudGeometry], float],
    labels: int = 13,
) -> None:
    layers = results.layers
    places = np.arange(len(layers))
    for name, style in _shown(results).items():
        runs = results.arm(name).analysed
        clouds = [[run.cloud(layer, what) for layer in layers] for run in runs]
        curves = np.array([[value(one) if one else math.nan for one in row] for row in clouds])
        draw_band(axes, style, places, curves)
    every = -(-len(layers) // labels)
    texts = [layer.removeprefix("layer ").replace(OUTPUT, "out") for layer in layers]
    # The output keeps its label however many layers there are.
    kept = [place for place in places if (len(layers) - 1 - place) % every == 0]
    axes.set_xticks(kept, [texts[place] for place in kept])
    axes.set_xlabel("layer")


def _central(edges: np.ndarray, share: np.ndarray) -> tuple[float, float]:
    """The range that holds all but the outermost values of all features together."""
    mass = np.cumsum(share.sum(0)) / share.sum()
    low, high = np.searchsorted(mass, [(1 - _WITHIN) / 2, (1 + _WITHIN) / 2])
    return float(edges[low]), float(edges[min(high + 1, len(edges) - 1)])
