"""The figures: what is drawn is what the results, and the predictions, are."""

from dataclasses import replace

import numpy as np
import pytest
from example_results import LAYERS, regression
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from graphormer_sepnorm.compare import figures
from graphormer_sepnorm.compare.results import ArmResult

RESULTS = regression()
COLORS = {name: style["color"] for name, style in figures.styles(RESULTS).items()}


def line_of(axes: Axes, name: str) -> Line2D:
    """The curve of an arm."""
    return next(line for line in axes.lines if line.get_color() == COLORS[name])


def test_learning_curves_are_means_and_bands_of_extremes() -> None:
    figure = figures.learning_curves(RESULTS)
    assert figure is not None
    curves = np.array([[point.validation for point in run.curve] for run in RESULTS.arms[1].runs])
    assert line_of(figure.axes[1], "sepnorm").get_ydata() == pytest.approx(curves.mean(0))
    band = figure.axes[1].collections[1].get_paths()[0].vertices
    assert band[:, 1].max() == pytest.approx(curves.max())


def test_seeds_show_each_run_and_the_interval() -> None:
    figure = figures.seeds(RESULTS)
    assert figure is not None
    left, right = figure.axes
    dots = [np.asarray(one.get_offsets()) for one in left.collections[::2]]
    assert [len(of_arm) for of_arm in dots] == [3, 3, 3]
    assert dots[1][:, 1] == pytest.approx([run.test for run in RESULTS.arms[1].runs])
    test = RESULTS.comparisons["sepnorm"]
    (interval,) = right.containers[0].lines[2][0].get_segments()  # type: ignore[union-attr]
    assert interval[:, 1] == pytest.approx(test.percent[1:])


def test_geometry_is_that_of_the_graph_token_after_each_layer() -> None:
    figure = figures.geometry(RESULTS)
    assert figure is not None
    runs = RESULTS.arms[0].runs
    clouds = [run.geometry for run in runs]
    floor = clouds[0][0].uniformity_floor
    uniformity, rank, cosine, probe = figure.axes
    assert any(list(line.get_ydata()) == [floor, floor] for line in uniformity.lines)
    for axes, name in ((uniformity, "uniformity"), (rank, "effective_rank")):
        mean = np.mean([[getattr(one, name) for one in of_run] for of_run in clouds], axis=0)
        assert line_of(axes, "sharenorm").get_ydata() == pytest.approx(mean)
        assert len(mean) == len(LAYERS)
        assert [text.get_text() for text in axes.get_xticklabels()][-1] == "out"
    assert line_of(cosine, "sepnorm").get_ydata()[0] == pytest.approx(0.5)
    assert line_of(probe, "sepnorm").get_ydata()[0] == pytest.approx(0.99)


def test_without_results_nothing_is_drawn() -> None:
    arms = tuple(ArmResult(arm.name, arm.options, 1, ()) for arm in RESULTS.arms)
    empty = replace(RESULTS, arms=arms)
    draws = (figures.seeds, figures.learning_curves, figures.geometry)
    assert [draw(empty) for draw in draws] == [None] * 3
