"""What user tables do not do yet. A test that passes goes where it belongs, without its mark."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import Any

import pytest

from graphormer_sepnorm.cli.predict import main as predict
from graphormer_sepnorm.cli.train import main as train
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.datasets.splits import DatasetSplits
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


def splits_of(table: Path, **options: Any) -> DatasetSplits:
    return MoleculeDataModule(dataset="table", table=str(table), **options).splits


def labels_of(splits: DatasetSplits) -> dict[str, list[float]]:
    """All labels of each molecule, whatever the split."""
    assert splits.smiles is not None
    found: dict[str, list[float]] = {}
    for name, part in splits.parts.items():
        for smiles, graph in zip(splits.smiles[name], part, strict=True):
            found.setdefault(smiles, []).append(round(float(graph.y), 4))
    return found


def parts_of(splits: DatasetSplits) -> dict[str, set[str]]:
    assert splits.smiles is not None
    return {name: set(smiles) for name, smiles in splits.smiles.items()}


# --- Identifiers


@pytest.mark.xfail(strict=True, reason="identifiers of compounds are lost in the files of a run")
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


@pytest.mark.xfail(strict=True, reason="there is no --data.id_column")
def test_the_column_of_identifiers_can_be_named(tmp_path: Path) -> None:
    rows = [(n, s, n / 10, f"batch {n}") for n, s in enumerate(sample())]
    table = written(tmp_path / "t.csv", "row_id,smiles,y,remark", rows)
    assert fit(tmp_path, table, "--data.target_columns=y", "--data.id_column=remark") == 0
    found = records(tmp_path / "run" / "test_predictions.csv")
    known = {smiles: name for _, smiles, _, name in rows}
    assert [row["remark"] for row in found] == [known[row["smiles"]] for row in found]


@pytest.mark.xfail(strict=True, reason="identifiers of compounds are not on the explanation's page")
def test_identifiers_stand_on_the_page_of_explanations(tmp_path: Path) -> None:
    rows = [("CPD-one", "CCO"), ("CPD-two", "CCN")]
    table, page = written(tmp_path / "t.csv", "id,smiles", rows), tmp_path / "page.html"
    assert predict(["explain", "esol", "-i", str(table), "-o", str(page), "--quiet"]) == 0
    assert "CCN" in page.read_text()
    assert all(name in page.read_text() for name, _ in rows)


# --- Replicates, salts


@pytest.mark.xfail(strict=True, reason="there is no --data.duplicates")
@pytest.mark.parametrize(
    ("choice", "labels"), [("keep", [1.0, 2.0, 6.0]), ("mean", [3.0]), ("median", [2.0])]
)
def test_replicates_are_kept_or_brought_to_one_row(
    tmp_path: Path, choice: str, labels: list[float]
) -> None:
    """Whatever spelling they have."""
    rows = [(s, 100 + n) for n, s in enumerate(sample())]
    rows += [("OCC", 1), ("CCO", 2), ("C(O)C", 6)]
    table = written(tmp_path / "t.csv", "smiles,y", rows)
    splits = splits_of(table, split="random", duplicates=choice)
    found = labels_of(splits)
    ethanol = [label for one in ("OCC", "CCO", "C(O)C") for label in found.get(one, [])]
    assert sorted(ethanol) == labels
    assert sum(map(len, found.values())) == ROWS + len(labels)


@pytest.mark.xfail(strict=True, reason="-c table does not take the parent structure by itself")
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


# --- Splits


@pytest.mark.xfail(strict=True, reason="there is no --data.split group")
def test_no_group_stands_in_two_splits(tmp_path: Path) -> None:
    rows = [(s, n / 10, f"series {n % 12}") for n, s in enumerate(sample())]
    table = written(tmp_path / "t.csv", "smiles,y,series", rows)
    splits = splits_of(table, target_columns=["y"], **{"split": "group", "group_column": "series"})
    series = {smiles: name for smiles, _, name in rows}
    groups = [{series[smiles] for smiles in part} for part in parts_of(splits).values()]
    assert all(groups)
    assert sum(map(len, groups)) == 12


@pytest.mark.xfail(strict=True, reason="there is no --data.split time")
def test_the_newest_rows_are_the_test_split(tmp_path: Path) -> None:
    """By the date, not by the row."""
    rows = [(s, n, f"2024-{1 + n // 28:02}-{1 + n % 28:02}") for n, s in enumerate(sample())]
    for name, in_order in (("a.csv", rows), ("b.csv", rows[::-1])):
        table = written(tmp_path / name, "smiles,y,date", in_order)
        splits = splits_of(table, target_columns=["y"], **{"split": "time", "time_column": "date"})
        parts, order = parts_of(splits), sample()
        assert parts["train"] == set(order[:48])
        assert parts["validation"] == set(order[48:54])
        assert parts["test"] == set(order[54:])


# --- Classes


@pytest.mark.xfail(strict=True, reason="there is no --data.positive")
@pytest.mark.parametrize(("positive", "labels"), [("BBB+", (1.0, 0.0)), ("BBB-", (0.0, 1.0))])
def test_the_positive_class_can_be_named(
    tmp_path: Path, positive: str, labels: tuple[float, float]
) -> None:
    rows = [(s, ("BBB+", "BBB-")[n % 2]) for n, s in enumerate(sample())]
    table = written(tmp_path / "t.csv", "smiles,class", rows)
    options = {"target_columns": ["class"], "split": "random", "positive": positive}
    splits = splits_of(table, **options)
    assert splits.task.kind == "binary"
    assert labels_of(splits) == {s: [labels[n % 2]] for n, (s, _) in enumerate(rows)}


@pytest.mark.xfail(strict=True, reason="there is no --data.class_weight")
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
