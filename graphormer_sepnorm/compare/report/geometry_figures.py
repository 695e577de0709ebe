"""Figures of the geometry of [CLS] and of the atoms, per layer and at the output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from graphormer_sepnorm.compare.embeddings import OUTPUT
from graphormer_sepnorm.compare.model_geometry import ATOMS, GRAPH_TOKEN
from graphormer_sepnorm.compare.report.data import (
    Results,
    at_layer,
    geometry_of,
    layer_names,
)
from graphormer_sepnorm.compare.report.figures import (
    Style,
    add_legend,
    draw_band,
    label_y,
    new_axes,
    new_figure,
    panel_grid,
    set_panel_title,
    styles,
    without_marker,
)

_TITLES = {GRAPH_TOKEN: "[CLS]", ATOMS: "atoms"}
_LOWEST_R2 = -0.2
# Share of the embeddings within the horizontal axis of the heat maps.
_WITHIN = 0.998

Entry = dict[str, Any]


def uniformity_per_layer(results: Results) -> Figure | None:
    """L_U of [CLS] and of the atoms after each layer, with its floor for this width."""
    figure = _two_panels(results, lambda entry: entry.get("uniformity"), "uniformity L_U")
    if figure is None:
        return None
    floors = {
        entry["uniformity_floor"]
        for arm in styles(results)
        for run in geometry_of(results, arm)
        for entry in run
        if entry.get("uniformity_floor") is not None
    }
    for axes in figure.axes:
        for floor in floors:
            axes.axhline(floor, color="0.3", linewidth=1, linestyle=(0, (1, 1)))
        axes.axhline(0, color="0.3", linewidth=0.8)
        axes.set_ylim(min([-4.0, *floors]) - 0.15, 0.15)
    lines = [
        Line2D([], [], color="0.3", linewidth=1, linestyle=(0, (1, 1)), label="floor (even)"),
        Line2D([], [], color="0.3", linewidth=0.8, label="0 (one direction)"),
    ]
    add_legend(figure, _shown(results), lines)
    return figure


def effective_rank_per_layer(results: Results) -> Figure | None:
    """Effective rank of the centred embeddings after each layer."""
    figure = _two_panels(
        results, lambda entry: entry.get("effective_rank_centred"), "effective rank (centred)"
    )
    if figure is None:
        return None
    figure.axes[0].set_ylim(bottom=0)
    add_legend(figure, _shown(results))
    return figure


def singular_values_at_output(results: Results) -> Figure | None:
    """Logarithms of the first 100 singular values at the output."""
    shown = _shown(results)
    figure = new_figure(3.5)
    grid = new_axes(figure, 1, 2, sharey=True)[0]
    for axes, what in zip(grid, _TITLES, strict=True):
        for name, style in shown.items():
            spectra = [
                at_layer(run, OUTPUT, what).get("log_singular_values") or []
                for run in geometry_of(results, name)
            ]
            length = max(map(len, spectra), default=0)
            # Null stands for the logarithm of 0: the embeddings do not fill all dimensions.
            curves = np.array(
                [[*spectrum, *[None] * (length - len(spectrum))] for spectrum in spectra]
            )
            if length:
                draw_band(
                    axes, without_marker(style), np.arange(1, length + 1), curves.astype(float)
                )
        axes.set_title(_TITLES[what])
        axes.set_xlabel("number of the singular value")
    if not any(axes.lines for axes in grid):
        return None
    grid[0].set_ylabel("ln(singular value)")
    add_legend(figure, {name: without_marker(style) for name, style in shown.items()})
    return figure


def cosine_per_layer(results: Results) -> Figure | None:
    """Mean cosine between [CLS] and the atoms of its molecule after each layer."""
    figure = new_figure(3.2, width=6.5)
    axes = new_axes(figure, 1, 1)[0, 0]
    _draw_layers(axes, results, GRAPH_TOKEN, lambda entry: entry.get("cosine_to_atoms"))
    if not axes.lines:
        return None
    axes.axhline(0, color="0.3", linewidth=0.8)
    axes.set_ylabel("mean cosine of [CLS] to its atoms")
    add_legend(figure, _shown(results))
    return figure


def feature_heat_maps(results: Results) -> Figure | None:
    """Histograms of the first 50 features at the output, one row of colours per feature."""
    found: dict[tuple[str, str], Entry] = {}
    for name in _shown(results):
        for what in _TITLES:
            entries = (at_layer(run, OUTPUT, what) for run in geometry_of(results, name))
            histogram = next((one["histogram"] for one in entries if one.get("histogram")), None)
            if histogram:
                found[name, what] = histogram
    if not found:
        return None
    names = list(dict.fromkeys(name for name, _ in found))
    figure, kinds = panel_grid(names, len(_TITLES), 2.4)
    shares = {key: _shares(histogram["counts"]) for key, histogram in found.items()}
    norm = PowerNorm(0.5, 0, max(float(share.max()) for share in shares.values()))
    limits = [_central(found[key]["edges"], share) for key, share in shares.items()]
    mesh = None
    for panels, what in zip(kinds, _TITLES, strict=True):
        for name, axes in panels.items():
            axes.grid(False)
            set_panel_title(axes, f"{name}: {_TITLES[what]}")
            if (name, what) not in found:
                continue
            share, edges = shares[name, what], np.array(found[name, what]["edges"])
            # Drawn as counted, so the bins of each panel are its own; a share per bin of the same
            # width would be a density, and a collapsed feature would outshine the rest.
            mesh = axes.pcolormesh(
                edges, np.arange(len(share) + 1) + 0.5, share, norm=norm, cmap="magma_r"
            )
            axes.set_facecolor(mesh.cmap(0.0))  # beyond its bins a panel has no counts either
            axes.axvline(0, color="0.4", linewidth=0.6, linestyle=":")
            axes.set_xlim(min(low for low, _ in limits), max(high for _, high in limits))
            axes.set_xlabel("value")
        label_y(panels, "feature")
    kinds[0][names[0]].invert_yaxis()  # of all: y is common
    if mesh is not None:
        bar = figure.colorbar(mesh, ax=figure.axes, shrink=min(0.6, 3 / figure.get_figheight()))
        bar.set_label("share of the embeddings", fontsize=9)
        bar.ax.tick_params(labelsize=9)
    return figure


def probes_per_layer(results: Results) -> Figure | None:
    """R^2 of linear probes on [CLS] after each layer, one panel per quantity."""
    quantities = list(
        dict.fromkeys(
            quantity
            for name in _shown(results)
            for run in geometry_of(results, name)
            for entry in run
            for quantity in entry.get("probes") or {}
        )
    )
    if not quantities:
        return None
    columns = min(3, len(quantities))
    rows = -(-len(quantities) // columns)
    figure = new_figure(0.7 + 2.5 * rows)
    grid = new_axes(figure, rows, columns, sharey=True)
    for axes, quantity in zip(grid.flat, quantities, strict=False):
        _draw_layers(
            axes,
            results,
            GRAPH_TOKEN,
            # Far below 0 all values mean the same: worse than the mean.
            lambda entry, quantity=quantity: _at_least((entry.get("probes") or {}).get(quantity)),
            labels=7,
        )
        axes.set_title(f"probe for {quantity}")
        axes.set_ylim(_LOWEST_R2 - 0.05, 1.05)
        axes.axhline(0, color="0.3", linewidth=0.8)
    for axes in grid.flat[len(quantities) :]:
        axes.set_visible(False)
    for row in grid:
        row[0].set_ylabel("R² on other molecules")
    add_legend(figure, _shown(results))
    return figure


def _shown(results: Results) -> dict[str, Style]:
    return {name: style for name, style in styles(results).items() if geometry_of(results, name)}


def _two_panels(
    results: Results, value: Callable[[Entry], float | None], label: str
) -> Figure | None:
    """A quantity per layer, for [CLS] on the left and the atoms on the right."""
    figure = new_figure(3.4)
    grid = new_axes(figure, 1, 2, sharey=True)[0]
    for axes, what in zip(grid, _TITLES, strict=True):
        _draw_layers(axes, results, what, value)
        axes.set_title(_TITLES[what])
    grid[0].set_ylabel(label)
    return figure if any(axes.lines for axes in grid) else None


def _draw_layers(
    axes: Axes,
    results: Results,
    what: str,
    value: Callable[[Entry], float | None],
    labels: int = 13,
) -> None:
    layers = layer_names(results)
    places = np.arange(len(layers))
    for name, style in _shown(results).items():
        curves = [
            [value(at_layer(run, layer, what)) for layer in layers]
            for run in geometry_of(results, name)
        ]
        draw_band(axes, style, places, np.array(curves, dtype=float))
    every = -(-len(layers) // labels)
    texts = [layer.removeprefix("layer ").replace(OUTPUT, "out") for layer in layers]
    # The output keeps its label however many layers there are.
    kept = [place for place in places if (len(layers) - 1 - place) % every == 0]
    axes.set_xticks(kept, [texts[place] for place in kept])
    axes.set_xlabel("layer")


def _shares(counts: list[list[int]]) -> np.ndarray:
    table = np.array(counts, dtype=float)
    return table / np.maximum(table.sum(1, keepdims=True), 1)


def _central(edges: list[float], share: np.ndarray) -> tuple[float, float]:
    """The range that holds all but the outermost values of all features together."""
    mass = np.cumsum(share.sum(0)) / share.sum()
    low = int(np.searchsorted(mass, (1 - _WITHIN) / 2))
    high = int(np.searchsorted(mass, (1 + _WITHIN) / 2))
    return edges[low], edges[min(high + 1, len(edges) - 1)]


def _at_least(value: float | None) -> float | None:
    return None if value is None else max(value, _LOWEST_R2)
