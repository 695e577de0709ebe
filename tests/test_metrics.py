"""Metrics of a task by their definitions, with missing labels, several targets and units."""

import math

import numpy as np
import pytest

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.metrics import METRICS, chosen_metric, monitored
from graphormer_sepnorm.pipeline.decisions import monitored_metric

BINARY = Task("binary", ("a", "b"), ("", ""), "auroc")
VALUES = Task("regression", ("a", "b"), ("eV", "eV"), "mae")
MIXED = Task("regression", ("a", "b"), ("eV", "K"), "mae")


def test_regression_over_the_labels_that_are_there() -> None:
    rng = np.random.default_rng(0)
    labels, predictions = rng.normal(size=(23, 2)), rng.normal(size=(23, 2))
    labels[3, 0] = labels[20:, 1] = np.nan
    found = VALUES.evaluate(labels, predictions)
    for column, name in enumerate("ab"):
        present = ~np.isnan(labels[:, column])
        truth, said = labels[present, column], predictions[present, column]
        errors = np.abs(said - truth)
        assert found[f"mae_{name}"] == pytest.approx(errors.mean())
        assert found[f"rmse_{name}"] == pytest.approx(math.sqrt((errors**2).mean()))
        ranks = [np.argsort(np.argsort(values)) for values in (truth, said)]
        assert found[f"spearman_{name}"] == pytest.approx(np.corrcoef(*ranks)[0, 1])
        deviation = np.abs(truth - truth.mean()).mean()
        assert found[f"rae_{name}"] == pytest.approx(errors.mean() / deviation)
    for name in ("mae", "rmse", "r2", "spearman", "kendall", "rae"):
        assert found[name] == pytest.approx((found[f"{name}_a"] + found[f"{name}_b"]) / 2)


def test_classification_with_ties_and_missing_labels() -> None:
    rng = np.random.default_rng(0)
    labels = (rng.random((41, 2)) < 0.4).astype(float)
    labels[::5, 1] = np.nan
    said = rng.integers(1, 10, (41, 2)) / 10
    found = BINARY.evaluate(labels, said)
    for column, name in enumerate("ab"):
        present = ~np.isnan(labels[:, column])
        truth, p = labels[present, column], said[present, column]
        difference = p[truth == 1][:, None] - p[truth == 0]
        pairs = ((difference > 0) + 0.5 * (difference == 0)).mean()
        assert found[f"auroc_{name}"] == pytest.approx(pairs)
        assert found[f"brier_{name}"] == pytest.approx(((p - truth) ** 2).mean())
        likelihood = np.log(np.where(truth == 1, p, 1 - p)).mean()
        assert found[f"log_loss_{name}"] == pytest.approx(-likelihood)


def test_metric_that_labels_do_not_define_is_nan_and_left_out_of_the_mean() -> None:
    labels = np.array([[0.0, 1.0], [1.0, 1.0], [0.0, math.nan]])
    said = np.array([[0.1, 0.5], [0.9, 0.2], [0.4, 0.3]])
    found = BINARY.evaluate(labels, said)
    assert found["auroc"] == found["auroc_a"] == 1.0
    assert math.isnan(found["auroc_b"])
    assert math.isnan(found["average_precision_b"])
    assert found["brier_b"] == pytest.approx((0.25 + 0.64) / 2)  # one class is enough
    assert found["log_loss_b"] == pytest.approx(-(math.log(0.5) + math.log(0.2)) / 2)
    nothing = np.full((3, 2), math.nan)
    for task in (BINARY, VALUES):
        assert all(math.isnan(value) for value in task.evaluate(nothing, said).values())
    same = VALUES.evaluate(np.ones((3, 2)), said)
    assert same["mae"] > 0
    assert math.isnan(same["r2"])
    assert math.isnan(VALUES.evaluate(said, np.ones((3, 2)))["spearman"])


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_prediction_that_is_no_number_is_not_hidden(value: float) -> None:
    labels, said = np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[0.2, value], [0.7, 0.1]])
    for task in (VALUES, BINARY):
        found = task.evaluate(labels, said)
        assert math.isnan(found[task.metric])
        assert not math.isnan(found[f"{task.metric}_a"])
    labels[0, 1] = math.nan  # nobody asks for it there
    assert VALUES.evaluate(labels, said)["mae_b"] == pytest.approx(0.1)


def test_errors_in_several_units_have_no_mean_but_the_main_metric_stays() -> None:
    labels, said = np.array([[0.0, 1.0], [1.0, 3.0]]), np.zeros((2, 2))
    found = MIXED.evaluate(labels, said)
    assert "rmse" not in found
    assert {"mae", "rmse_a", "rmse_b", "r2"} <= found.keys()
    assert (VALUES.unit_of(METRICS["rmse"]), MIXED.unit_of(METRICS["rmse"])) == ("eV", "")
    assert VALUES.unit_of(METRICS["r2"]) == ""


def test_direction_and_words() -> None:
    assert all(monitored(one.column) is one for one in METRICS.values())
    assert monitored("validation_rmse").best(2.0, 1.0) == 1.0
    assert monitored("validation_r2").best(2.0, 1.0) == 2.0
    rising = {name for name, one in METRICS.items() if one.higher_is_better}
    assert rising == {"r2", "spearman", "kendall", "auroc", "average_precision", "accuracy", "last"}
    assert METRICS["rmse"].shown(0.5, "eV") == "0.5000 eV"
    assert METRICS["r2"].shown(0.5, "eV") == "0.5000"
    assert METRICS["r2"].shown(math.nan, "eV") == "undefined"


LABELS = np.array([[0.0, 1.0], [1.0, 1.0]])


@pytest.mark.parametrize(
    ("task", "chosen", "expected"),
    [
        (Task("regression", ("y",), ("",), "mae"), None, "mae"),
        (VALUES, None, "loss"),  # a mean of errors, as ever
        (VALUES, "rmse", "rmse"),
        (MIXED, "spearman", "spearman"),
        (BINARY, None, "auroc"),
        (BINARY, "brier", "brier"),
        (BINARY, "loss", "loss"),
        (BINARY, "last", "last"),
        (MIXED, "last", "last"),
    ],
)
def test_what_decides_on_the_best_checkpoint(task: Task, chosen: str | None, expected: str) -> None:
    labels = LABELS[:, : len(task.targets)]
    assert monitored_metric(task, labels, chosen).name == expected


@pytest.mark.parametrize(
    ("task", "labels", "lacking"),
    [
        (BINARY, np.ones((2, 2)), "both classes among its labels"),
        (VALUES, np.full((3, 2), np.nan), "a label"),  # a split of bounds, which the loss counts
    ],
)
def test_labels_that_define_no_metric_let_the_loss_decide(task, labels, lacking):
    assert monitored_metric(task, labels).name == "loss"
    with pytest.raises(ConfigError, match=f"no target has {lacking} there"):
        monitored_metric(task, labels, task.metric)


def test_choice_that_cannot_be_is_refused_in_one_line() -> None:
    with pytest.raises(ConfigError, match=r"--metric rsme .*did you mean 'rmse'.* or last") as one:
        monitored_metric(VALUES, LABELS, "rsme")
    assert "auroc" not in str(one.value)
    with pytest.raises(ConfigError, match="nothing can say when to stop early"):
        monitored_metric(VALUES, LABELS, "last", patience=3)
    with pytest.raises(ConfigError, match="is not for binary targets"):
        chosen_metric("rmse", "binary")
    with pytest.raises(ConfigError, match=r"several units \(K, eV\)"):
        monitored_metric(MIXED, LABELS, "rmse")
