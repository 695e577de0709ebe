"""The picture of a training can be read from its second epoch on."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from graphormer_sepnorm.pages import learning_curve
from graphormer_sepnorm.runs.directory import RunDirectory


def history(metrics: list[float], metric: str = "mae") -> list[dict[str, float]]:
    return [
        {"epoch": float(n), "step": 10.0 * n, "train_loss_epoch": 1 / n, "validation_loss": 2 / n}
        | {f"validation_{metric}": value}
        for n, value in enumerate(metrics, start=1)
    ]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, figures: list[Figure]):
    """Draw, and return the figure as it was written."""

    def draw(points: list[dict[str, float]], metric: str, selected: str | None = None) -> Figure:
        run = RunDirectory(tmp_path)
        monkeypatch.setattr(learning_curve, "metrics_by_epoch", lambda _: points)
        learning_curve.draw_learning_curve(run, metric, selected or metric)
        assert run.learning_curve_file.read_bytes().startswith(b"\x89PNG")
        return figures[-1]

    return draw


@pytest.mark.parametrize("epochs", [1, 3])
def test_loss_and_metric_have_axes_of_their_own(epochs: int, drawn) -> None:
    figure = drawn(history([1 / epoch for epoch in range(1, epochs + 1)]), "mae")
    losses, metrics = figure.axes
    assert not losses.bbox.overlaps(metrics.bbox)
    curves = {line.get_label(): list(line.get_xdata()) for line in [*losses.lines, *metrics.lines]}
    for name in ("training", "validation", "validation MAE"):
        assert curves[name] == list(range(1, epochs + 1))
    assert metrics.get_xlabel() == "epoch"
    texts = [text.get_text() for text in metrics.get_legend().get_texts()]
    assert texts == ["validation MAE", f"best epoch: {epochs}, {1 / epochs:.4g}"]


@pytest.mark.parametrize(
    ("metric", "values", "selected", "best"),
    [
        ("mae", [0.5, 0.2, 0.3, 0.4], "mae", 2),
        ("auroc", [0.5, 0.7, 0.7, 0.6], "auroc", 2),
        ("mae", [0.5, 0.2, 0.3], "loss", 3),  # which decides on the checkpoint
    ],
)
def test_best_epoch_is_marked(metric, values, selected, best, drawn):
    figure = drawn(history(values, metric), metric, selected)
    stars = [line for line in figure.axes[1].lines if line.get_marker() == "*"]
    places = [(line.get_xdata()[0], line.get_ydata()[0]) for line in stars]
    assert places == [(best, values[best - 1])]


def test_curves_of_runs_that_kept_less(drawn) -> None:
    """A checkpoint of an earlier version has no validation loss; an epoch can lack a validation."""
    points = [{"epoch": 1.0, "step": 5.0}, {"epoch": 2.0, "step": 9.0, "validation_mae": 0.5}]
    figure = drawn(points, "mae", selected="loss")
    assert figure.axes[0].get_legend() is None
    assert [line.get_label() for line in figure.axes[1].lines] == ["validation MAE"]
