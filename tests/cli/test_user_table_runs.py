"""Runs on a user's table: identifiers, parent structures, weights of classes."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from graphormer_sepnorm.cli.predict import main as predict
from graphormer_sepnorm.cli.train import main as train
from graphormer_sepnorm.resources import sample_path

TINY = [
    *("--model.layers=1", "--model.width=16", "--model.heads=2", "--model.ffn_width=16"),
    *("--trainer.accelerator=cpu", "--trainer.max_steps=2", "--trainer.max_epochs=-1"),
    *("--baselines=false", "--blend=false"),
]
ROWS = 60


def sample(count: int = ROWS) -> list[str]:
    lines = gzip.decompress(sample_path().read_bytes()).decode().splitlines()
    return [line.split(",")[0] for line in lines[1 : 1 + count]]


def written(path: Path, header: str, rows: list[tuple[Any, ...]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header.split(","), *rows])
    return path


def records(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def fit(folder: Path, table: Path, *more: str, config: str = "table_regression") -> int:
    data = [f"--data.table={table}", f"--data.root={folder / 'root'}", "--data.split=random"]
    return train(["fit", "-c", config, *data, *TINY, *more, "-o", str(folder / "run")])


def test_identifiers_go_through_into_the_files_of_a_run(tmp_path: Path) -> None:
    """The first column that names rows, wherever it stands; also of rows that are left out."""
    rows = [(s, n / 10, f"CPD-{n:03}", "x") for n, s in enumerate(sample())]
    rows.append(("C1CC", 1, "CPD-bad", "x"))
    table = written(tmp_path / "t.csv", "smiles,y,compound_id,remark", rows)
    assert fit(tmp_path, table, "--data.target_columns=y") == 0
    known = {smiles: name for smiles, _, name, _ in rows}
    for name in ("test_predictions.csv", "splits.csv"):
        found = records(tmp_path / "run" / name)
        assert [row.get("compound_id") for row in found] == [known[row["smiles"]] for row in found]
    (bad,) = records(tmp_path / "run" / "invalid_rows.csv")
    assert bad.get("compound_id") == "CPD-bad"


@pytest.mark.parametrize("given", [("train",), ("train", "valid")])
def test_a_column_may_leave_out_validation_and_test(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: tuple[str, ...]
) -> None:
    rows = [(s, n / 10, given[n % len(given)]) for n, s in enumerate(sample())]
    table = written(tmp_path / "t.csv", "smiles,y,set", rows)
    more = ["--data.split=column", "--data.split_column=set", "--trainer.max_steps=4"]
    assert fit(tmp_path, table, *more) == 0
    out = capsys.readouterr().out
    for name, words in (("validation", "valid"), ("test", "test")):
        assert (f"no {name} split:" in out) == (words not in given)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert ("test_mae" in summary) == ("test" in given)
    assert summary["steps"] == 4
    assert predict([str(tmp_path / "run"), "CCO"]) == 0


def test_the_first_configuration_takes_the_parent_structure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says so in one line, and the model does it again."""
    rows = [(f"{s}.Cl" if n % 10 == 0 else s, n / 10) for n, s in enumerate(sample())]
    table = written(tmp_path / "t.csv", "smiles,y", rows)
    alone = ["--ensemble=1", "--ensemble_by=seeds", "--model.from_pretrained=null"]
    assert fit(tmp_path, table, *alone, config="table") == 0
    assert "parent structure" in " ".join(capsys.readouterr().out.split())
    run = str(tmp_path / "run")
    assert predict([run, "CCCN", "CCCN.Cl", "--interval", "none"]) == 0
    base, salt = csv.DictReader(capsys.readouterr().out.splitlines())
    assert base["pred_y"] == salt["pred_y"] != ""


def test_balanced_classes_change_what_is_learned(tmp_path: Path) -> None:
    rows = [(s, int(n % 10 == 0)) for n, s in enumerate(sample())]
    table = written(tmp_path / "t.csv", "smiles,y", rows)
    means = {}
    for name, more in (("balanced", ["--data.class_weight=balanced"]), ("plain", [])):
        folder = tmp_path / name
        folder.mkdir()
        options = ["--model.learning_rate=1e-2", "--model.warmup_steps=0", *more]
        assert fit(folder, table, *options, config="table_classification") == 0
        found = records(folder / "run" / "test_predictions.csv")
        column = next(one for one in found[0] if one.startswith("pred"))
        means[name] = sum(float(row[column]) for row in found) / len(found)
    assert means["balanced"] > means["plain"]
