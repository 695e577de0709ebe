"""Labels against predictions, by their definitions."""

import math

import pytest

from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.inference.evaluation import Evaluation, label_of


def evaluation(kind: str, cells: list[object], predictions: list[float]) -> Evaluation:
    metric = "mae" if kind == "regression" else "auroc"
    result = Evaluation(Task(kind, ("y",), ("",), metric), {0: 0})
    result.add_rows([[cell] for cell in cells], {"pred_y": predictions})
    return result


@pytest.mark.parametrize(
    ("kind", "cells", "said"),
    [
        ("regression", ["3"], "MAE 1.500, RMSE 1.500, R2 undefined"),
        ("regression", [], "MAE undefined"),
        ("regression", ["1", "1e39", "-1e39"], "(1 rows; 2 with a label that cannot be used, such"),
        ("regression", ["1", "n.d.", "#N/A", "3", "?"], "(2 rows)"),
        ("binary", ["1", "0", "not tested", "N.T."], "(2 rows; 1 of class 1)"),
        (
            "binary",
            ["1", "0", "NA", None, "2", "maybe", "Active"],
            "(3 rows; 2 of class 1; 2 with a label that cannot be used, such as '2')",
        ),
    ],
)
def test_labels_are_read_as_in_training(kind: str, cells: list[object], said: str) -> None:
    value = 1.5 if kind == "regression" else 0.5
    assert said in evaluation(kind, cells, [value] * len(cells)).text()


def test_rows_without_a_prediction_and_those_of_training_are_counted() -> None:
    result = evaluation("regression", ["1", "2"], [1.5, math.nan])
    assert "(1 rows; 1 with a label but no prediction)" in result.text()
    assert "fingerprint" not in result.text()
    result.known = 2
    assert "2 rows with the fingerprint of a molecule that" in result.text()


@pytest.mark.parametrize(
    ("zero", "one", "cells"),
    [
        ("-1", "1", [1, -1, "-1.0", None]),
        ("01", "1", ["1", "01", " 01", None]),
        ("bad", "true", ["True", "Bad", "no", ""]),
        ("active", "inactive", ["Inactive", "active", "Active", ""]),
        ("None", "Severe", ["Severe", "None", "none", None]),
        ("", "inactive", ["inactive", "active", "Active", ""]),
        ("", "2", ["2", 1, "1.0", None]),
        ("", "active or yes", ["active", "no", 0, "nan"]),
    ],
)
def test_classes_are_those_that_the_model_calls_so(zero, one, cells):
    zeros = (zero,) if zero else ()
    task = Task("binary", ("y",), ("",), "auroc", ones=(one,), zeros=zeros)
    labels = [label_of(Task.from_plain(task.to_plain()), 0, cell) for cell in cells]
    assert labels[:3] == [1, 0, 0]
    assert math.isnan(labels[3])


@pytest.mark.parametrize("cell", ["inconclusive", "0", 2])
def test_what_is_neither_class_is_no_label(cell: object) -> None:
    for zero, one in (("safe", "toxic"), ("active", "inactive")):
        task = Task("binary", ("y",), ("",), "auroc", ones=(one,), zeros=(zero,))
        with pytest.raises(ValueError, match=f"{zero} nor {one}"):
            label_of(task, 0, cell)
