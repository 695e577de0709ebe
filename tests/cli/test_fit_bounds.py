"""A model that learns from bounds, and is judged by labels alone."""

from pathlib import Path

import numpy as np
import pytest
from tiny_run import Fitted, fitted, write_csv

from graphormer_sepnorm.inference.predictor import Predictor

ALKANES = [f"{'C' * length}{end}" for length in range(1, 21) for end in ("O", "N", "F")]
RINGS = [f"{'C' * length}c1ccccc1{end}" for length in range(1, 21) for end in ("O", "N", "F")]


def trained(folder: Path, rings: str, *more: str) -> Fitted:
    """Train on chains with labels around 0, and on rings that say no more than `rings`."""
    folder.mkdir()
    rows = [(smiles, len(smiles) % 3 - 1) for smiles in ALKANES]
    path = write_csv(folder / "a.csv", [("smiles", "a"), *rows, *((one, rings) for one in RINGS)])
    options = ["--data.split=random", "--trainer.max_steps=120", "--model.learning_rate=0.01"]
    options += ["--model.warmup_steps=2", "--metric=loss", "--trainer.check_val_every_n_epoch=20"]
    return fitted(folder, path, *options, *more)


@pytest.mark.slow
def test_what_lies_beyond_is_predicted_beyond(tmp_path: Path) -> None:
    above, below = trained(tmp_path / "above", ">8"), trained(tmp_path / "below", "<-8")
    values = [Predictor.load(one.run, "cpu").predict(RINGS).values.mean() for one in (above, below)]
    assert values[0] > 4
    assert values[1] < -4
    assert "a 60 at least (>) and 0 at most (<)" in " ".join(above.out.split())


@pytest.mark.slow
def test_metrics_are_those_of_the_labels(tmp_path: Path) -> None:
    run = trained(tmp_path / "a", ">8", "--members=networks,trees,kernel", "--trainer.max_steps=4")
    rows = run.predictions
    known = [row for row in rows if row["label_a"] != ""]
    assert 0 < len(known) < len(rows)
    assert all("c1" not in row["smiles"] for row in known)
    errors = [abs(float(row["label_a"]) - float(row["pred_a"])) for row in known]
    assert run.summary["test_mae"] == pytest.approx(np.mean(errors), rel=1e-4)
    # All bounds are at least 8: an interval that reaches 8 has no upper end.
    told = run.summary["uncertainty"]
    assert told["bounds"] == len(rows) - len(known)
    highs = np.array([float(row["high_a"]) for row in rows])
    wrong = [high < 8 for row, high in zip(rows, highs, strict=True) if row["label_a"] == ""]
    assert told["contradicted_90"] == sum(wrong)
    assert not ((highs >= 8) & np.isfinite(highs)).any()
    found = Predictor.load(run.run, "cpu").predict([row["smiles"] for row in rows])
    np.testing.assert_array_equal(np.isinf(found.high[:, 0]), np.isinf(highs))
