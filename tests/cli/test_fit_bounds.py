"""A model that learns from bounds, and is judged by labels alone."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from tiny_run import TINY

from graphormer_sepnorm.cli.train import main as train
from graphormer_sepnorm.inference.predictor import Predictor

ALKANES = [f"{'C' * length}{end}" for length in range(1, 21) for end in ("O", "N", "F")]
RINGS = [f"{'C' * length}c1ccccc1{end}" for length in range(1, 21) for end in ("O", "N", "F")]


def fitted(folder: Path, rings: str, *more: str) -> Path:
    """Train on chains with labels around 0, and on rings that say no more than `rings`."""
    folder.mkdir()
    rows = [f"{smiles},{len(smiles) % 3 - 1}" for smiles in ALKANES]
    rows += [f"{smiles},{rings}" for smiles in RINGS]
    path = folder / "a.csv"
    path.write_text("\n".join(["smiles,a", *rows]))
    options = [f"--data.table={path}", f"--data.root={folder / 'root'}", "--data.split=random"]
    options += [
        "--trainer.max_steps=120",
        "--model.learning_rate=0.01",
        "--model.warmup_steps=2",
        "--metric=loss",
        "--trainer.check_val_every_n_epoch=20",
    ]
    arguments = [*TINY, *options, f"--output={folder / 'run'}", *more]
    assert train(["fit", "-c", "table_regression", *arguments]) == 0
    return folder / "run"


@pytest.mark.slow
def test_what_lies_beyond_is_predicted_beyond(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    above, below = (
        Predictor.load(fitted(tmp_path / name, bound), "cpu").predict(RINGS).values.mean()
        for name, bound in (("above", ">8"), ("below", "<-8"))
    )
    assert above > 4
    assert below < -4
    assert "a 60 at least (>) and 0 at most (<)" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_metrics_are_those_of_the_labels(tmp_path: Path) -> None:
    run = fitted(tmp_path / "a", ">8", "--blend=true", "--trainer.max_steps=4")
    with (run / "test_predictions.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    known = [row for row in rows if row["label_a"] != ""]
    assert 0 < len(known) < len(rows)
    assert all("c1" not in row["smiles"] for row in known)
    errors = [abs(float(row["label_a"]) - float(row["pred_a"])) for row in known]
    summary = json.loads((run / "summary.json").read_text())
    assert summary["test_mae"] == pytest.approx(np.mean(errors), rel=1e-4)
