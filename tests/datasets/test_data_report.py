"""The report on a table: numbers, text, files."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from table_files import RINGS, SPLIT, load, plain_rows, report_of, write_csv

from graphormer_sepnorm.datasets.user_table.report import (
    DataReport,
    find_duplicates,
    find_leakage,
    report_text,
)
from graphormer_sepnorm.datasets.user_table.rows import ValidRow

NAN = float("nan")


def reported(path: Path, **options: object) -> DataReport:
    return report_of(load(path, **{**SPLIT, **options}))


def valid_rows(
    molecules: list[str], labels: list[list[float]], scaffolds: list[str] | None = None
) -> list[ValidRow]:
    """Rows 1, 2, ... of which only these are of interest."""
    rest = {"text": "", "smiles": "", "atoms": 1, "weight": 1.0, "split": ""}
    found = zip(molecules, labels, scaffolds or [""] * len(labels), strict=True)
    return [
        ValidRow(number=n, canonical=molecule, scaffold=scaffold, labels=tuple(targets), **rest)
        for n, (molecule, targets, scaffold) in enumerate(found, start=1)
    ]


def assert_fits(text: str) -> None:
    lines = text.splitlines()
    assert len(lines) <= 30, text
    assert max(map(len, lines)) <= 80, text
    assert all(line == line.rstrip() for line in lines)


def test_duplicates_and_conflicts() -> None:
    splits = {
        "train": valid_rows(["A", "B", "A", "C"], [[1, 2], [1, 2], [1, NAN], [5, 5]]),
        "test": valid_rows(["B", "D", "A"], [[1, 2.1], [0, 0], [1 + 1e-9, 2]]),
    }
    found = find_duplicates(splits, "regression")
    conflicting, agreeing = found.pop("examples")
    assert found == {"molecules": 2, "rows": 5, "conflicting": 1}
    rows = [("train", 2), ("test", 1)]
    assert conflicting == {"smiles": "B", "rows": rows, "labels": [(1, 2), (1, 2.1)]}
    assert agreeing["smiles"] == "A"


@pytest.mark.parametrize(
    ("kind", "first", "second", "conflict"),
    [
        ("regression", 1000.0, 1000.0005, 0),
        ("regression", 1000.0, 1000.01, 1),
        ("regression", -2.0, 2.0, 1),
        ("regression", NAN, 2.0, 0),
        ("binary", 0, 1, 1),
    ],
)
def test_when_labels_contradict(kind: str, first: float, second: float, conflict: int) -> None:
    splits = {"train": valid_rows(["A", "A"], [[first], [second]])}
    assert find_duplicates(splits, kind)["conflicting"] == conflict


@pytest.mark.parametrize(("cells", "conflict"), [(["<1", ">3"], 1), (["12", ">10"], 0)])
def test_bounds_contradict_too(tmp_path: Path, cells: list[str], conflict: int) -> None:
    rows = [*plain_rows(), *(("CCCN", one) for one in cells)]
    found = reported(write_csv(tmp_path / "a.csv", rows)).to_plain()["duplicates"]
    assert (found["molecules"], found["conflicting"]) == (1, conflict)


def test_leakage_of_each_pair() -> None:
    splits = {
        "train": valid_rows(["A", "B", "C"], [[0]] * 3, ["r", "s", ""]),
        "validation": valid_rows(["B", "D"], [[0]] * 2, ["s", ""]),
        "test": valid_rows(["C", "B", "B"], [[0]] * 3, ["", "s", "s"]),
    }
    leaks = {leak["splits"]: leak for leak in find_leakage(splits)}
    assert {pair: (leak["molecules"], leak["scaffolds"]) for pair, leak in leaks.items()} == {
        ("train", "validation"): (1, 1),
        ("train", "test"): (2, 1),
        ("validation", "test"): (1, 1),
    }
    assert leaks["train", "test"]["examples"] == ["B", "C"]


def test_unremarkable_table(tmp_path: Path) -> None:
    report = reported(write_csv(tmp_path / "fine.csv", plain_rows()))
    assert (report.to_plain()["valid"], report.invalid) == (12, [])
    assert report.to_plain()["atoms"] == (3, 5.75, 10)
    text = report_text(report)
    assert_fits(text)
    head = [line.split(maxsplit=1)[0] for line in text.split("\n\n")[0].splitlines()]
    assert head == ["data", "split", "atoms", "duplicates", "leakage"]
    assert "random, seed 0: 6 training, 3 validation, 3 test" in text


def test_remarkable_table(tmp_path: Path) -> None:
    """Atom maps and isotopes hide no duplicate."""
    sets = ["train", "valid", "test"]
    rows = [(s, v, sets[n % 3]) for n, (s, v) in enumerate(plain_rows())]
    rows += [("[13CH3][CH2:2]O", 7, "test"), ("c1ccccc1O", 0.5, "test")]
    rows += [("C1CC", 1, "test"), ("C", "x", "test")]
    path = write_csv(tmp_path / "mess.csv", rows, "smiles,value,set")
    report = reported(path, split="auto", split_fractions=(0.8, 0.1, 0.1), split_column="set")
    text = " ".join(report_text(report).split())
    for said in (
        "mess.csv: 14 of 16 rows can be used",
        "left out 1 unreadable structure, 1 unusable label; the first: row 15, line 16:",
        "by column 'set': 4 training, 4 validation, 6 test",
        "2 molecules in 4 rows; the labels of 2 differ",
        "CCO (rows 1, 13)",
        "molecules in two splits, which makes the test look too good: 1 in training and test",
        "ring scaffolds in two splits: 1 in validation and test",
    ):
        assert said in text
    assert_fits(report_text(report))
    plain = json.loads(json.dumps(report.to_plain(), allow_nan=False))
    assert (plain["rows"], plain["valid"], sum(plain["splits"].values())) == (16, 14, 14)
    assert plain["reasons"] == {"unreadable structure": 1, "unusable label": 1}
    assert plain["invalid"][0]["row"] == 15
    assert plain["duplicates"]["examples"][0]["smiles"] == "CCO"
    assert plain["targets"][0]["splits"]["train"]["labels"] == plain["splits"]["train"]


@pytest.mark.parametrize("kind", ["regression", "binary"])
def test_many_targets_stay_short(tmp_path: Path, kind: str) -> None:
    names = [f"a target with quite a long name {n}" for n in range(40)]
    rng = np.random.default_rng(0)
    draw = rng.integers(0, 2, (60, 40)) if kind == "binary" else rng.normal(size=(60, 40)) * 1e5
    rows = [(RINGS[n % 12] + "C" * (n // 12), *draw[n]) for n in range(60)]
    path = write_csv(tmp_path / "a.csv", rows, ",".join(["smiles", *names]))
    text = report_text(reported(path, target_columns=tuple(names), task=kind))
    assert_fits(text)
    assert "and 28 more targets" in text


def test_invalid_rows_are_written(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    good = "\n".join(f"{s},{v}" for s, v in plain_rows())
    # Quotes, a comma, a line break and a byte that is no UTF-8.
    path.write_bytes(f'smiles,value\n{good}\n"C,""x""\nC",1\n'.encode() + b"C\xff,1\nCC,?\n")
    report = reported(path)
    report.write_invalid(tmp_path / "bad.csv")
    with open(tmp_path / "bad.csv", newline="", encoding="utf-8", errors="surrogateescape") as file:
        header, *rows = csv.reader(file)
    assert header == ["file", "row", "line", "smiles", "reason"]
    assert [row[:4] for row in rows] == [
        [str(path), "13", "14", 'C,"x"\nC'],
        [str(path), "14", "16", "C\udcff"],
        [str(path), "15", "17", "CC"],
    ]
    assert all(row[4] and "\n" not in row[4] for row in rows)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.csv", "bad.csv"]
    report_text(report).encode()  # a text that a terminal can show


def test_splits_are_written_in_the_order_of_the_file(tmp_path: Path) -> None:
    rows = [*plain_rows(), ("C1C", 1), ("CCN", 1)]
    splits = load(write_csv(tmp_path / "a.csv", rows), **SPLIT)
    report = report_of(splits)
    report.write_splits(tmp_path / "splits.csv")
    with open(tmp_path / "splits.csv", newline="") as file:
        header, *written = csv.reader(file)
    assert header == ["row", "split", "smiles"]
    assert [int(row) for row, _, _ in written] == [*range(1, 13), 14]
    for row, split, smiles in written:
        assert rows[int(row) - 1][0] == smiles
        assert smiles in splits.smiles[split]
