"""From the outputs of a model to the values that they stand for."""

import math

import numpy as np
import pytest
import torch

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.metrics import METRICS

MEAN, STD = np.array([1.0, -2.0]), np.array([0.5, 10.0])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("reg", ("a",), ("",), "mae"), "kind 'reg' is 'mae': it must be of regression or binary"),
        (("regression", ("a",), ("",), "r3"), "is 'r3': it must be of mae"),
        (("regression", ("a",), ("",), "auroc"), "is 'auroc': it must be of mae"),
        (("binary", ("a",), ("",), "loss"), "is 'loss': it must be of auroc"),
        (("regression", ("a", "b"), ("",), "mae"), r"units are \('',\) for 2 targets"),
        (("regression", ("a", "b"), "eV", "mae"), "units are 'eV' for 2 targets: give a tuple"),
        (("regression", "size", ("",) * 4, "mae"), "targets are 'size': give a tuple"),
        (("regression", (), (), "mae"), r"targets are \(\): give a tuple"),
    ],
)
def test_what_is_no_task_is_refused(options, said) -> None:
    with pytest.raises(ConfigError, match=said):
        Task(*options)


def test_logits_become_probabilities_however_large_they_are() -> None:
    task = Task("binary", ("a", "b"), ("", ""), "auroc")
    values = task.values_of(torch.tensor([[-1e4, 1e4], [0.0, math.log(3)]]), MEAN, STD)
    assert np.allclose(values, [[0, 1], [0.5, 0.75]], rtol=1e-7, atol=0)
    # In float64: of float32 nothing but 1 would be left.
    assert 0 < 1 - task.values_of(torch.tensor([[30.0]]), MEAN[:1], STD[:1])[0, 0] < 1e-12


@pytest.mark.parametrize(("number", "apart"), [(1, 0), (2, 2), (100, 100), (101, 0)])
def test_a_value_of_each_target_where_there_are_several_but_not_hundreds(number, apart) -> None:
    names = tuple(f"t{place}" for place in range(number))
    task = Task("regression", names, ("",) * number, "mae")
    labels = np.arange(2.0 * number).reshape(2, number)
    values = task.evaluate(labels, labels + 1, [METRICS["mae"]])
    assert values == dict.fromkeys(["mae", *(f"mae_{name}" for name in names[:apart])], 1.0)


def test_log_loss_is_of_shares_that_add_up_to_one() -> None:
    task = Task("binary", ("a", "b"), ("", ""), "auroc", one_of="kind")
    labels = np.array([[1.0, 0], [0, 1], [np.nan, np.nan]])
    values = task.evaluate(labels, np.array([[0.3, 0.1], [0.2, 0.2], [0, 1]]))
    assert values["log_loss"] == pytest.approx(-(math.log(0.75) + math.log(0.5)) / 2)
    assert values["accuracy"] == 0.5
    # Of targets that do not exclude each other it is the mean.
    apart = Task("binary", ("a", "b"), ("", ""), "auroc")
    values = apart.evaluate(labels, np.array([[0.3, 0.1], [0.2, 0.2], [0, 1]]))
    each = [math.log(0.3) + math.log(0.8), math.log(0.9) + math.log(0.2)]
    assert values["log_loss"] == pytest.approx(-sum(each) / 4)
    assert "accuracy" not in values


def test_a_target_goes_by_its_name_and_the_only_one_without() -> None:
    task = Task("regression", ("a", "long name"), ("", ""), "mae")
    assert [task.number_of(name, "explain") for name in task.targets] == [0, 1]
    assert Task("regression", ("a",), ("",), "mae").number_of(None, "explain") == 0
    with pytest.raises(ConfigError, match=r"2 targets: name the one to explain \(a, long name\)"):
        task.number_of(None, "explain")
    with pytest.raises(ConfigError, match=r"no target 'long nam' \(did you mean 'long name'"):
        task.number_of("long nam", "explain")
