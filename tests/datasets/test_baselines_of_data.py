"""The simple models on a data set's splits: their words, and how far they are."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from graphormer_sepnorm import formatting
from graphormer_sepnorm.chem import baselines
from graphormer_sepnorm.datasets.baselines import NAMES, baselines_of

SMILES = {
    "train": ["C" * n for n in range(1, 21)] + ["C" * n + "O" for n in range(1, 21)],
    "validation": ["CC(C)C", "CC(C)O", "CCN"],
    "test": ["CC(C)CC", "CCC(C)O", "CCCN"],
}


def data(targets: dict[str, list[list[float]]], kind: str, smiles: Any = SMILES) -> Any:
    columns = {split: np.array(rows, np.float32) for split, rows in targets.items()}
    starts = {"train": 0, "validation": 40, "test": 43}
    return SimpleNamespace(
        splits=SimpleNamespace(
            smiles=smiles,
            task=SimpleNamespace(kind=kind, targets=tuple("ab"[: columns["test"].shape[1]])),
        ),
        store=SimpleNamespace(targets=np.concatenate([columns[split] for split in starts])),
        indices=lambda split: np.arange(len(columns[split])) + starts[split],
    )


def two_targets(kind: str) -> dict[str, list[list[float]]]:
    return {
        split: [
            [float("O" in text), float(len(text) > 4) if kind == "binary" else len(text)]
            for text in texts
        ]
        for split, texts in SMILES.items()
    }


def test_a_mean_over_the_targets() -> None:
    found, left_out = baselines_of(data(two_targets("regression"), "regression"))
    assert left_out == ""
    assert [one.name for one in found] == [NAMES["mean"], NAMES["ridge"]]
    truth = two_targets("regression")
    means = np.mean(truth["train"], axis=0)
    assert found[0].test == pytest.approx(np.abs(np.array(truth["test"]) - means).mean(), rel=1e-6)
    assert found[1].test < found[0].test
    assert all(one.comparable for one in found)


def test_no_smiles_no_baselines() -> None:
    assert baselines_of(data(two_targets("regression"), "regression", smiles=None)) == ([], "")


def test_a_target_that_a_split_lacks() -> None:
    """Without a validation label there is no penalty, where other models have a test error."""
    targets = two_targets("regression")
    targets["validation"] = [[one, math.nan] for one, _ in targets["validation"]]
    found, _ = baselines_of(data(targets, "regression"))
    assert [one.comparable for one in found] == [False, False]
    # Without a test label no model has an error.
    targets = two_targets("regression")
    targets["test"] = [[one, math.nan] for one, _ in targets["test"]]
    found, _ = baselines_of(data(targets, "regression"))
    assert [one.comparable for one in found] == [True, True]


def test_undefined_for_every_target() -> None:
    targets = two_targets("binary")
    targets["validation"] = [[0.0, 1.0]] * 3
    found, said = baselines_of(data(targets, "binary"))
    assert not found
    assert said.startswith(
        "No logistic regression on Morgan fingerprints: no target has both classes"
    )


def test_what_is_left_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "MOST_MOLECULES", 30)
    monkeypatch.setattr(baselines, "MOST_LABELS", 30)
    found, left_out = baselines_of(data(two_targets("regression"), "regression"))
    assert left_out == (
        "The baselines are of 30 of 40 train molecules, drawn at random, the first 1 of 2 targets."
    )
    assert [one.comparable for one in found] == [False, False]
    monkeypatch.undo()
    monkeypatch.setattr(baselines, "_ITERATIONS", 1)
    _, left_out = baselines_of(data(two_targets("binary"), "binary"))
    assert left_out.startswith("Logistic regression was stopped before it had converged for ")


@pytest.mark.parametrize("terminal", [True, False])
def test_how_far_it_is(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    for name in ("PATIENCE_SECONDS", "TERMINAL_SECONDS", "LOG_SECONDS"):
        monkeypatch.setattr(formatting, name, 0.0)
    baselines_of(data(two_targets("regression"), "regression"))
    shown = capsys.readouterr().err
    lines = [f"baselines: fingerprints, {n} of 46" for n in range(1, 47)]
    lines.append("baselines: ridge, 0 of 1")
    if terminal:
        assert shown == "".join(f"\r\033[K{line}" for line in lines) + "\r\033[K"
    else:
        assert shown.splitlines() == lines


def test_what_is_done_in_a_moment_needs_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    baselines_of(data(two_targets("regression"), "regression"))
    assert capsys.readouterr().err == ""
