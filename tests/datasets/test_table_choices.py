"""Choices about a user's table: replicates, groups, times, classes."""

from pathlib import Path

import pytest
from table_files import everything, failure, load, plain_rows, report_of, write_csv

from graphormer_sepnorm.datasets.splits import DatasetSplits

MOLECULES = [f"{'C' * length}{end}" for length in range(1, 16) for end in ("O", "N", "Cl", "C1CC1")]


def parts_of(splits: DatasetSplits) -> dict[str, set[str]]:
    assert splits.smiles is not None
    return {name: set(smiles) for name, smiles in splits.smiles.items()}


@pytest.mark.parametrize("folds", [{}, {"folds": 3, "fold": 1}])
def test_no_group_stands_in_two_splits(tmp_path: Path, folds: dict[str, int]) -> None:
    rows = [(s, n / 10, f"series {n % 12}") for n, s in enumerate(MOLECULES)]
    table = write_csv(tmp_path / "t.csv", rows, "smiles,y,series")
    series = {smiles: name for smiles, _, name in rows}
    splits = load(table, target_columns=("y",), group_column="series", **folds)
    groups = [{series[smiles] for smiles in part} for part in parts_of(splits).values()]
    assert all(groups)
    assert sum(map(len, groups)) == 12
    assert {group for group, _ in splits.groups["train"]} == groups[0]


@pytest.mark.parametrize("form", ["2024-{}-{:02}", "{}.{:02}"])
def test_the_newest_rows_are_the_test_split(tmp_path: Path, form: str) -> None:
    """By the date, not by the row."""
    rows = [(s, n, form.format(10 + n // 28, 1 + n % 28)) for n, s in enumerate(MOLECULES)]
    for name, in_order in (("a.csv", rows), ("b.csv", rows[::-1])):
        table = write_csv(tmp_path / name, in_order, "smiles,y,date")
        splits = load(table, target_columns=("y",), time_column="date")
        parts = parts_of(splits)
        assert parts["train"] == set(MOLECULES[:48])
        assert parts["validation"] == set(MOLECULES[48:54])
        assert parts["test"] == set(MOLECULES[54:])
        assert {scaffold for scaffold, _ in splits.groups["train"]} == {"", "C1CC1"}  # for folds


def test_times_have_to_sort(tmp_path: Path) -> None:
    rows = [(s, v, "2024-01-01" if n else "May") for n, (s, v) in enumerate(plain_rows())]
    table = write_csv(tmp_path / "t.csv", [*rows, ("CC", 1, "")], "smiles,y,date")
    options = {"target_columns": ("y",), "time_column": "date"}
    message = failure(table, **options)
    assert "row 1" in message
    assert "'May'" in message
    rows = [(s, v, f"{n:02}:{v}"[:2]) for n, (s, v) in enumerate(plain_rows())]
    table = write_csv(tmp_path / "u.csv", [*rows, ("CC", 1, "")], "smiles,y,date")
    (bad,) = report_of(load(table, **options)).invalid
    assert bad.kind == "unknown split"


@pytest.mark.parametrize(("positive", "labels"), [("BBB+", (1.0, 0.0)), ("bbb-", (0.0, 1.0))])
def test_the_positive_class_can_be_named(tmp_path, positive, labels):
    rows = [(s, ("BBB+", "BBB-")[n % 2]) for n, s in enumerate(MOLECULES)]
    table = write_csv(tmp_path / "t.csv", rows, "smiles,class")
    options = {"target_columns": ("class",), "split": "random", "positive": positive}
    splits = load(table, **options)
    assert splits.task.kind == "binary"
    assert splits.task.ones == (positive,)
    assert dict(everything(splits)) == {s: [labels[n % 2]] for n, (s, _) in enumerate(rows)}
    assert "class" in failure(table, **{**options, "positive": "BBB"})
