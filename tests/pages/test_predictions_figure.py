"""The picture of predictions: what is drawn is what they are."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.metrics import average_precision_score, roc_auc_score

from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.pages.predictions import draw_predictions

NAN = np.nan


def test_real_values_against_the_true_ones(tmp_path: Path, figures: list[Figure]) -> None:
    task = Task("regression", (r"a$\foo$", "b"), ("eV", ""), "mae")  # which is no formula
    labels = np.array([[1.0, 5.0], [2.0, NAN], [4.0, 7.0], [5.0, 8.0]])
    predictions = np.array([[1.5, 5.0], [2.0, 1.0], [3.0, 9.0], [NAN, 8.0]])
    draw_predictions(tmp_path / "it.png", task, labels, predictions)
    first, second = (axes for axes in figures[0].axes if axes.axison)
    points = np.asarray(first.collections[0].get_offsets())
    assert points.tolist() == [[1, 1.5], [2, 2], [4, 3]]
    assert np.asarray(second.collections[0].get_offsets()).tolist() == [[5, 5], [7, 9], [8, 8]]
    names = [name.replace(r"\$", "$") for name in (first.get_xlabel(), first.get_ylabel())]
    assert names == [r"true a$\foo$ (eV)", r"predicted a$\foo$ (eV)"]
    assert second.get_xlabel() == "true b"
    # (0.5 + 0 + 1) / 3, the root of 1.25 / 3, 1 - 1.25 / (14 / 3)
    assert first.get_title() == "3 molecules · MAE 0.5 · RMSE 0.645 · R2 0.732"
    assert first.get_xlim() == first.get_ylim()
    assert (tmp_path / "it.png").read_bytes().startswith(b"\x89PNG")


def test_curves_of_classes(tmp_path: Path, figures: list[Figure]) -> None:
    task = Task("binary", ("a", "all the same"), ("", ""), "auroc")
    labels = np.array([0, 1, 0, 1, 1, 0, 0, 1.0])
    said = np.array([0.1, 0.4, 0.45, 0.8, 0.9, 0.2, 0.8, 0.7])
    both = np.stack([labels, np.ones(8)], axis=1), np.stack([said, said], axis=1)
    draw_predictions(tmp_path / "it.png", task, *both)
    roc, recall = figures[0].axes
    curves = [axes.get_legend_handles_labels()[0] for axes in (roc, recall)]
    assert [len(one) for one in curves] == [1, 1]  # the other target has no curve
    x, y = map(np.asarray, roc.lines[0].get_data())
    area = np.trapezoid(y, x)
    assert area == pytest.approx(roc_auc_score(labels, said))
    label = recall.get_legend_handles_labels()[1][0]
    assert f" {average_precision_score(labels, said):.3f}, a, 4 of 8" in label


@pytest.mark.parametrize("label", [NAN, 1.0], ids=["none", "one class"])
def test_without_labels_to_draw_there_is_no_picture(tmp_path: Path, label: float) -> None:
    task = Task("binary", ("a",), ("",), "auroc")
    file = tmp_path / "it.png"
    file.write_bytes(b"of an earlier end")
    draw_predictions(file, task, np.full((3, 1), label), np.full((3, 1), 0.5))
    assert not file.exists()
