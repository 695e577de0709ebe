"""Labels against predictions, by their definitions."""

import math

import numpy as np
import pytest

from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.inference.evaluation import Evaluation, label_of


def evaluation(kind: str, cells: list[object], predictions: list[float]) -> Evaluation:
    metric = "mae" if kind == "regression" else "auroc"
    result = Evaluation(Task(kind, ("y",), ("",), metric), [0])
    for cell, prediction in zip(cells, predictions, strict=True):
        result.add(0, cell, prediction)
    return result


def test_regression_by_its_definitions():
    labels, predictions = [1.0, 2.0, 4.0, 9.0], [1.5, 2.0, 3.0, 7.0]
    metrics = evaluation("regression", [str(label) for label in labels], predictions).metrics(0)
    errors = np.subtract(predictions, labels)
    assert metrics["mae"] == pytest.approx((0.5 + 0 + 1 + 2) / 4)
    assert metrics["rmse"] == pytest.approx(math.sqrt((0.25 + 0 + 1 + 4) / 4))
    spread = np.square(np.subtract(labels, 4.0)).sum()
    assert metrics["r2"] == pytest.approx(1 - np.square(errors).sum() / spread)


def test_auroc_is_the_share_of_pairs_in_order():
    cells, predictions = ["1", "0", "true", "0.0", "False"], [0.9, 0.2, 0.4, 0.4, 0.6]
    metrics = evaluation("binary", cells, predictions).metrics(0)
    # Of the pairs (0.9, 0.4) x (0.2, 0.4, 0.6): five in order, one of them a tie, one not.
    assert metrics["auroc"] == pytest.approx((3 + 1 + 0.5 + 0) / 6)


@pytest.mark.parametrize("cells", [["3"], ["3", "3"], []])
def test_what_is_undefined_is_said(cells):
    text = evaluation("regression", cells, [1.0] * len(cells)).text()
    assert "R2 undefined" in text
    assert ("MAE undefined" in text) == (not cells)


def test_a_label_that_training_refuses_is_none_here():
    text = evaluation("regression", ["1", "1e39", "-1e39"], [1.5, 1.5, 1.5]).text()
    assert "MAE 0.5000" in text
    assert "(1 rows; 2 with a label that cannot be used, such as '1e39')" in text


def test_words_for_no_value_are_left_out_as_in_training():
    text = evaluation("regression", ["1", "n.d.", "#N/A", "3", "?"], [1.5] * 5).text()
    assert "(2 rows)" in text
    text = evaluation("binary", ["1", "0", "not tested", "N.T."], [0.5] * 4).text()
    assert "(2 rows; 1 of class 1)" in text


def test_rows_that_training_had_are_said():
    result = Evaluation(Task("regression", ("y",), ("",), "mae"), [0])
    result.add(0, "1", 1.5)
    assert "fingerprint" not in result.text()
    result.known = 2
    assert "2 rows have the fingerprint of a molecule that" in result.text()


def test_rows_that_do_not_count_are_counted():
    cells = ["1", "0", "NA", None, 0.0, "2", "maybe", "Active"]
    predictions = [0.5, 0.5, 0.5, 0.5, math.nan, 0.5, 0.5, 0.5]
    text = evaluation("binary", cells, predictions).text()
    assert "(3 rows; 2 of class 1; 1 with a label but no prediction; 2 with a label" in text
    assert "cannot be used, such as '2')" in text


@pytest.mark.parametrize(
    ("zero", "one", "cells"),
    [
        ("-1", "1", [1, -1, "-1.0", None]),
        ("-1", "1", ["yes", -1, "-1", None]),
        ("01", "1", ["1", "01", " 01", None]),
        ("active", "positive", ["positive", "active", "active", ""]),
        ("active", "positive", ["Positive", "active", "active", ""]),
        ("bad", "true", ["true", "bad", "bad", "NA"]),
        ("bad", "true", ["True", "Bad", "no", ""]),
        ("active", "inactive", ["Inactive", "active", "Active", ""]),
        ("None", "Severe", ["Severe", "None", "none", None]),
    ],
)
def test_class_0_is_what_the_model_calls_so(zero: str, one: str, cells: list[object]) -> None:
    task = Task("binary", ("y",), ("",), "auroc", ones=(one,), zeros=(zero,))
    labels = [label_of(Task.from_plain(task.to_plain()), 0, cell) for cell in cells]
    assert labels[:3] == [1, 0, 0]
    assert math.isnan(labels[3])


@pytest.mark.parametrize(("zero", "one"), [("safe", "toxic"), ("active", "inactive")])
def test_what_is_neither_class_is_no_label(zero: str, one: str) -> None:
    task = Task("binary", ("y",), ("",), "auroc", ones=(one,), zeros=(zero,))
    for cell in ("inconclusive", "0", 2):
        with pytest.raises(ValueError, match=f"is neither {zero} nor {one}"):
            label_of(task, 0, cell)


@pytest.mark.parametrize(
    ("one", "cells"),
    [
        ("inactive", ["inactive", "active", "Active", ""]),
        ("2", ["2", 1, "1.0", None]),
        ("active or yes", ["active", "no", 0, "nan"]),
    ],
)
def test_class_1_is_what_the_model_calls_so(one: str, cells: list[object]) -> None:
    task = Task("binary", ("y",), ("",), "auroc", ones=(one,))
    labels = [label_of(task, 0, cell) for cell in cells]
    assert labels[:3] == [1, 0, 0]
    assert math.isnan(labels[3])
