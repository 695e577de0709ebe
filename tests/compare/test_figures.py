"""The figures: what is drawn is what the results, and the predictions, are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from example_results import LAYERS, regression
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from sklearn.metrics import average_precision_score, roc_auc_score

from graphormer_sepnorm.compare import figures
from graphormer_sepnorm.compare.figures import draw_predictions
from graphormer_sepnorm.compare.results import ArmResult
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.metrics import Kind

NAN = np.nan

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
    # A seed that ended early does not bend the mean.
    first, *others = RESULTS.arms
    runs = (replace(first.runs[0], curve=first.runs[0].curve[:10]), *first.runs[1:])
    figure = figures.learning_curves(replace(RESULTS, arms=(replace(first, runs=runs), *others)))
    assert figure is not None
    assert list(line_of(figure.axes[1], "sharenorm").get_xdata()) == list(range(1, 11))


def test_seeds_show_each_run_and_the_interval() -> None:
    figure = figures.seeds(RESULTS)
    assert figure is not None
    left, right = figure.axes
    dots = [np.asarray(one.get_offsets()) for one in left.collections[::2]]
    assert [len(of_arm) for of_arm in dots] == [3, 3, 3]
    assert dots[1][:, 1] == pytest.approx([run.test for run in RESULTS.arms[1].runs])
    test = RESULTS.comparisons[0].test
    assert test is not None
    (interval,) = right.containers[0].lines[2][0].get_segments()  # type: ignore[union-attr]
    assert interval[:, 1] == pytest.approx([test.low, test.high])


def test_geometry_is_that_of_the_graph_token_after_each_layer() -> None:
    figure = figures.geometry(RESULTS)
    assert figure is not None
    runs = RESULTS.arms[0].runs
    clouds = [[one for one in run.geometry if one.what == "graph token"] for run in runs]
    floor = clouds[0][0].uniformity_floor
    uniformity, rank, cosine, probe = figure.axes
    assert any(list(line.get_ydata()) == [floor, floor] for line in uniformity.lines)
    for axes, name in ((uniformity, "uniformity"), (rank, "effective_rank_centred")):
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


def test_many_arms_are_told_apart() -> None:
    more = [replace(RESULTS.arms[2], name=f"$a long name of an arm_, {n}") for n in range(6)]
    results = replace(RESULTS, arms=(*RESULTS.arms, *more))
    shown = figures.styles(results).values()
    assert len({(style["color"], style["linestyle"]) for style in shown}) == len(shown) == 9
    figure = figures.seeds(results)
    assert figure is not None
    assert figures.png(figure).startswith(b"\x89PNG")


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are written."""
    figures: list[Figure] = []
    save = Figure.savefig

    def keep(figure: Figure, *arguments: object, **options: object) -> None:
        figures.append(figure)
        save(figure, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Figure, "savefig", keep)
    return figures


def test_real_values_against_the_true_ones(tmp_path: Path, drawn: list[Figure]) -> None:
    task = Task("regression", ("a", "b"), ("eV", ""), "mae")
    labels = np.array([[1.0, 5.0], [2.0, NAN], [4.0, 7.0], [5.0, 8.0]])
    predictions = np.array([[1.5, 5.0], [2.0, 1.0], [3.0, 9.0], [NAN, 8.0]])

    draw_predictions(tmp_path / "it.png", task, labels, predictions)

    first, second = (axes for axes in drawn[0].axes if axes.axison)
    points = np.asarray(first.collections[0].get_offsets())
    assert points.tolist() == [[1, 1.5], [2, 2], [4, 3]]
    assert np.asarray(second.collections[0].get_offsets()).tolist() == [[5, 5], [7, 9], [8, 8]]
    assert (first.get_xlabel(), first.get_ylabel()) == ("true a (eV)", "predicted a (eV)")
    assert second.get_xlabel() == "true b"
    # (0.5 + 0 + 1) / 3, the root of 1.25 / 3, 1 - 1.25 / (14 / 3)
    assert first.get_title() == "3 molecules · MAE 0.5 · RMSE 0.645 · R2 0.732"
    assert first.get_xlim() == first.get_ylim()
    assert (tmp_path / "it.png").read_bytes().startswith(b"\x89PNG")


def test_curves_of_classes(tmp_path: Path, drawn: list[Figure]) -> None:
    task = Task("binary", ("a", "all the same"), ("", ""), "auroc")
    labels = np.array([0, 1, 0, 1, 1, 0, 0, 1.0])
    said = np.array([0.1, 0.4, 0.45, 0.8, 0.9, 0.2, 0.8, 0.7])

    both = np.stack([labels, np.ones(8)], axis=1), np.stack([said, said], axis=1)
    draw_predictions(tmp_path / "it.png", task, *both)

    roc, recall = drawn[0].axes
    curves = [axes.get_legend_handles_labels()[0] for axes in (roc, recall)]
    assert [len(one) for one in curves] == [1, 1]  # the other target has no curve
    x, y = map(np.asarray, roc.lines[0].get_data())
    area = np.trapezoid(y, x)
    assert area == pytest.approx(roc_auc_score(labels, said))
    label = recall.get_legend_handles_labels()[1][0]
    assert f" {average_precision_score(labels, said):.3f}, a, 4 of 8" in label


@pytest.mark.parametrize("name", [r"a$\foo$", "_y"])
@pytest.mark.parametrize(("kind", "metric"), [("regression", "mae"), ("binary", "auroc")])
def test_names_are_drawn_as_they_are(
    name: str, kind: Kind, metric: str, tmp_path: Path, drawn: list[Figure]
) -> None:
    labels = np.array([[0.0], [1.0], [1.0]])
    draw_predictions(tmp_path / "it.png", Task(kind, (name,), ("$",), metric), labels, labels)
    axes = drawn[0].axes[0]
    text = axes.get_xlabel() if kind == "regression" else axes.get_legend().get_texts()[0]
    shown = text if isinstance(text, str) else text.get_text()
    assert name in shown.replace(r"\$", "$")


def test_six_targets_at_most(tmp_path: Path, drawn: list[Figure]) -> None:
    task = Task("regression", tuple("abcdefgh"), ("",) * 8, "mae")
    values = np.random.default_rng(0).normal(size=(5, 8))
    draw_predictions(tmp_path / "it.png", task, values, values)
    assert [axes.get_xlabel() for axes in drawn[0].axes] == [f"true {name}" for name in "abcdef"]


@pytest.mark.parametrize("label", [NAN, 1.0], ids=["none", "one class"])
def test_without_labels_to_draw_there_is_no_picture(tmp_path: Path, label: float) -> None:
    task = Task("binary", ("a",), ("",), "auroc")
    file = tmp_path / "it.png"
    file.write_bytes(b"of an earlier end")

    draw_predictions(file, task, np.full((3, 1), label), np.full((3, 1), 0.5))

    assert not file.exists()
