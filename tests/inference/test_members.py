"""An ensemble in one checkpoint: the mean of its members, and how far they disagree."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from reference.checkpoints import make_checkpoint, with_column

from graphormer_sepnorm.cli.predict import main as predict
from graphormer_sepnorm.errors import CheckpointError
from graphormer_sepnorm.inference import predict_table
from graphormer_sepnorm.inference.checkpoint import KEY, joined
from graphormer_sepnorm.inference.predictor import Predictor
from graphormer_sepnorm.tables.opening import open_table

SMILES = ["CCO", "no molecule", "c1ccccc1", "CN", "CC(=O)N", "C#N", "c1ccncc1", "", "OCC"]
TWO: dict[str, Any] = {"targets": ("first", "second")}


def members(count: int = 3, make: Any = make_checkpoint, **options: Any) -> list[dict[str, Any]]:
    return [make(norm="bn+bn", **options) for _ in range(count)]


def ensemble(each: list[dict[str, Any]]) -> dict[str, Any]:
    return joined({f"member seed {seed}": one for seed, one in enumerate(each)})


@pytest.mark.parametrize("options", [TWO, {"kind": "binary"}, {"make": with_column}])
def test_values_are_the_mean_of_the_members(options: dict[str, Any]) -> None:
    """Each with its own read-out of the numbers beside the graph, if there are any."""
    each, columns = members(**options), {"pH": 60.0} if "make" in options else None
    del each[0][KEY]["model"]["drop_path"]  # made before there was this option
    found = Predictor(ensemble(each), "cpu").predict(SMILES, columns=columns)
    alone = [Predictor(one, "cpu").predict(SMILES, columns=columns) for one in each]
    assert alone[0].spread is None
    assert found.errors == alone[0].errors
    values = np.stack([one.values for one in alone])
    np.testing.assert_array_equal(found.values, values.mean(axis=0))
    np.testing.assert_array_equal(found.spread, values.std(axis=0, ddof=1))
    assert np.nanmin(found.spread) > 0
    assert np.isnan(found.spread[[1, 7]]).all()


def test_columns_have_a_spread_behind_each_value(tmp_path: Path, capsys, monkeypatch) -> None:
    torch.save(ensemble(members(**TWO)), file := tmp_path / "ensemble.ckpt")
    expected = Predictor.load(file, "cpu").predict(SMILES)
    table, output = tmp_path / "in.csv", tmp_path / "out.parquet"
    table.write_text("smiles,a,b\n" + "".join(f"{one},1,2\n" for one in SMILES))
    monkeypatch.setattr(predict_table, "CHUNK_ROWS", 4)
    options = ["-i", str(table), "-o", str(output), "--device", "cpu", "--jobs", "2", "--quiet"]
    assert predict([str(file), *options, "--evaluate", "a", "--evaluate", "b"]) == 0
    with open_table(output) as reader:
        columns = reader.columns[3:]
        written = [[cell or np.nan for cell in row.cells[3:7]] for row in reader]
    assert columns == ("pred_first", "spread_first", "pred_second", "spread_second", *columns[4:])
    numbers = np.stack([*expected.table.values()], axis=1)
    np.testing.assert_allclose(np.array(written, float), numbers, rtol=2e-5)
    # The labels are compared with the mean.
    known = ~np.isnan(expected.values[:, 1])
    error = np.abs(expected.values[known, 1] - 2).mean()
    assert f"second  MAE {error:#.4g} mol/L" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert predict([str(file), "CCO", "--device", "cpu"]) == 0
    names = capsys.readouterr().out.splitlines()[0]
    assert names.split() == ["smiles", "first", "[mol/L]", "spread", "second", "[mol/L]", "spread"]


@pytest.mark.parametrize("fact", ["target_mean", "vocabulary", "task", "model", "dataset"])
def test_members_of_different_kinds_are_not_joined(fact: str) -> None:
    each = members(3)
    each[2][KEY][fact] = {"target_mean": [0.0], "dataset": "another"}.get(fact, {})
    with pytest.raises(CheckpointError, match=f"member seed 0 and member seed 2 differ in {fact}:"):
        ensemble(each)
