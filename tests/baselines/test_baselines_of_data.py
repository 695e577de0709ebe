"""The metrics of baselines on a data set's splits, their words, and their progress."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from graphormer_sepnorm.baselines import fit as baselines
from graphormer_sepnorm.baselines.evaluation import NAMES, baselines_of
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.metrics import metrics_of

SMILES = {
    "train": ["C" * n for n in range(1, 21)] + ["C" * n + "O" for n in range(1, 21)],
    "validation": ["CC(C)C", "CC(C)O", "CCN"],
    "test": ["CC(C)CC", "CCC(C)O", "CCCN"],
}


@pytest.fixture(autouse=True)
def _few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("regression", "binary"):
        monkeypatch.setitem(baselines.BOOSTED, kind, 20)
        monkeypatch.setitem(baselines.FOREST, kind, 5)


def data(
    targets: dict[str, list[list[float]]], kind: Any, smiles: Any = SMILES, units: Any = ("", "")
) -> Any:
    columns = {split: np.array(rows, np.float32) for split, rows in targets.items()}
    starts = {"train": 0, "validation": 40, "test": 43}
    names = tuple("ab"[: columns["test"].shape[1]])
    return SimpleNamespace(
        splits=SimpleNamespace(
            smiles=smiles,
            task=Task(kind, names, units[: len(names)], metrics_of(kind)[0].name),
            extra_inputs=(),
        ),
        labels=np.concatenate([columns[split] for split in starts]).__getitem__,
        indices=lambda split: np.arange(len(columns[split])) + starts[split],
        member_folds=None,
        own_columns=lambda split: np.empty((len(columns[split]), 0), np.float32),
        row_weights=lambda numbers: None,
        sides=lambda indices: np.full((len(indices), len(names), 2), np.nan),
    )


def two_targets(kind: str) -> dict[str, list[list[float]]]:
    return {
        split: [
            [float("O" in text), float(len(text) > 4) if kind == "binary" else len(text)]
            for text in texts
        ]
        for split, texts in SMILES.items()
    }


def test_every_metric_is_a_mean_over_the_targets() -> None:
    found, left_out, fitted = baselines_of(data(two_targets("regression"), "regression"))
    assert left_out == ""
    assert [one.name for one in found] == [*NAMES.values()]
    truth = two_targets("regression")
    errors = np.array(truth["test"]) - np.mean(truth["train"], axis=0)
    assert found[0].test["mae"] == pytest.approx(np.abs(errors).mean(), rel=1e-6)
    assert found[0].test["rmse"] == pytest.approx(np.sqrt((errors**2).mean(axis=0)).mean())
    assert found[2].test["mae"] < found[0].test["mae"]
    assert fitted is not None
    for one, name in zip(found, fitted.predictions, strict=True):
        assert one.comparable
        for split, values in (("validation", one.validation), ("test", one.test)):
            own = ("mae", "rmse", "r2", "spearman", "kendall", "rae")
            assert [*values] == [f"{name}{end}" for name in own for end in ("", "_a", "_b")]
            apart = np.abs(np.array(truth[split]) - fitted.predictions[name][split])
            assert values["mae"] == pytest.approx(apart.mean(), rel=1e-6)
            assert values["mae_b"] == pytest.approx(apart[:, 1].mean(), rel=1e-6)


def test_one_of_several_classes_is_evaluated_as_a_network_is() -> None:
    """By probabilities that add up to 1, of all classes together."""
    classes = {
        split: [[float("O" in text), float("O" not in text)] for text in texts]
        for split, texts in SMILES.items()
    }
    given = data(classes, "binary")
    names = given.splits.task.targets
    given.splits.task = Task("binary", names, ("", ""), "auroc", one_of="kind")
    found, _, fitted = baselines_of(given)
    forest = fitted.predictions["forest"]["test"]
    shares = forest / forest.sum(axis=1, keepdims=True)
    labels = np.array(classes["test"])
    test = found[0].test
    assert test["log_loss"] == pytest.approx(-np.log((shares * labels).sum(axis=1)).mean())
    assert {"auroc", "auroc_a", "auroc_b", "brier", "average_precision", "accuracy"} < test.keys()
    assert test["accuracy"] == (shares.argmax(axis=1) == labels.argmax(axis=1)).mean()


def test_a_target_that_a_split_lacks() -> None:
    """Trees cannot learn the second target, where other models may have a test error."""
    targets = two_targets("regression")
    targets["train"] = [[one, math.nan] for one, _ in targets["train"]]
    found, left_out, _ = baselines_of(data(targets, "regression"))
    assert [one.comparable for one in found] == [False] * 4
    assert left_out.startswith("No model for b,")
    # A few labels have a mean, which is of both targets then.
    targets["train"] = [
        [one, 3.0 if row < 5 else math.nan] for row, (one, _) in enumerate(targets["train"])
    ]
    found, left_out, _ = baselines_of(data(targets, "regression"))
    assert [one.comparable for one in found] == [True, False, False, False]
    assert left_out.startswith("No model for b,")
    # Without a test label no model has an error.
    targets = two_targets("regression")
    targets["test"] = [[one, math.nan] for one, _ in targets["test"]]
    found, left_out, _ = baselines_of(data(targets, "regression"))
    assert [one.comparable for one in found] == [True] * 4
    assert left_out == ""


def test_undefined_for_every_target() -> None:
    targets = two_targets("binary")
    targets["train"] = [[0.0, 1.0]] * 40
    found, left_out, _ = baselines_of(data(targets, "binary"))
    assert not found
    assert left_out.startswith("No model for a, b,")


def test_what_is_left_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "MOST_MOLECULES", 30)
    monkeypatch.setattr(baselines, "MOST_TARGETS", 1)
    found, left_out, _ = baselines_of(data(two_targets("regression"), "regression"))
    assert "30 of 40 train molecules, sampled at random, the first 1 of 2 targets" in left_out
    assert [one.comparable for one in found] == [False] * 4
