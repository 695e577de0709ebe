"""Labels of a table: numbers, bounds, words for classes, and what nothing can be learned from."""

from pathlib import Path

import numpy as np
import pytest
from reference.tables import read_csv
from table_files import (
    RINGS,
    SPLIT,
    everything,
    failure,
    four_each,
    load,
    plain_rows,
    report_of,
    write_csv,
)

from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.datasets.user_table.report import report_text
from graphormer_sepnorm.tables.columns import parse_class_name, split_bound

BOTH = {"target_columns": ("a", "b"), **SPLIT}
OF_COLUMN = {"split_column": "set", "target_columns": ("value",)}


# Cells that cannot be used.


def test_a_label_that_cannot_be_used_costs_only_itself(tmp_path: Path) -> None:
    bad = {3: "5 nM", 5: "~4", 6: "1e300"}
    rows = [(s, v, bad.get(n, 2 * v)) for n, (s, v) in enumerate(plain_rows())]
    rows += [("CC", "", "high"), ("CCC(", 1, 2)]
    path = write_csv(tmp_path / "t.csv", rows, "smiles,a,b")
    splits = load(path, **BOTH)
    report = report_of(splits)
    assert report.to_plain()["valid"] == 12
    np.testing.assert_array_equal(dict(everything(splits))[RINGS[3]], [0.5, np.nan])
    assert [(cell.row, cell.column) for cell in report.cells] == [(4, "b"), (6, "b"), (7, "b")]
    # Without any label the row is as it was.
    assert report.to_plain()["reasons"] == {"unusable label": 1, "unreadable structure": 1}
    assert report.invalid[0].reason == "b is 'high': not a number, nor true or false"
    assert "3 of 'b', in rows that are used" in " ".join(report_text(report).split())
    report.write_invalid(tmp_path / "bad.csv")
    listed = {row["row"]: row["reason"] for row in read_csv(tmp_path / "bad.csv")}
    assert [*listed] == ["4", "6", "7", "13", "14"]
    used = [reason.endswith("; the other labels of the row are used") for reason in listed.values()]
    assert used == [True, True, True, False, False]
    message = failure(path, on_invalid="error", **BOTH)
    assert "5 rows or labels cannot be used, the first is row 4, line 5: b is '5 nM'" in message
    assert "--data.on_invalid skip" in message


@pytest.mark.parametrize(
    ("cells", "options", "said"),
    [
        (["5 nM"], {}, "12 of 12 labels of b cannot be used, the first is row 1, line 2: b is '5"),
        (["0", "2.5", "7"], {"task": "binary"}, "8 of 12 labels of b cannot be used"),
        (["yes", "no"], {"task": "regression"}, "12 of 12 labels of b cannot be used"),
    ],
)
def test_a_target_most_of_whose_labels_cannot_be_used_is_refused(tmp_path, cells, options, said):
    """Though all rows could be used for the other one."""
    rows = [(smiles, n % 2, cells[n % len(cells)]) for n, smiles in enumerate(RINGS)]
    path = write_csv(tmp_path / "a.csv", rows, "smiles,a,b")
    assert said in failure(path, **BOTH, **options)


# Bounds.


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        *((text, (">", "10")) for text in (" > 10", ">=10", "≥10")),
        *((text, ("<", "-0.5")) for text in ("<-0.5", "≤ -0.5")),
        *((cell, ("", cell)) for cell in ("10", "", "=10", ">", "~10", None, 3.5)),
    ],
)
def test_what_a_bound_is(cell: object, expected: tuple[str, object]) -> None:
    assert split_bound(cell) == expected


VALUES = [0.1, ">2", "<= -1.5", 0.4, 0.2, 0.3, ">1", "<0", 0.5, "≥7", 0.1, "-"]


def test_bounds_are_no_labels_and_go_with_their_graphs(tmp_path: Path) -> None:
    path, nan = four_each(tmp_path, VALUES), np.nan
    splits = load(path, **OF_COLUMN)
    assert splits.task.kind == "regression"
    (packed,) = splits.train.packed()
    np.testing.assert_array_equal(packed.targets[:, 0], np.float32([0.1, nan, nan, 0.4]))
    np.testing.assert_array_equal(packed.bounds, [[nan] * 2, [2, nan], [nan, -1.5], [nan] * 2])
    report = report_of(splits)
    assert report.to_plain()["bounds"] == {"value": (3, 2)}
    text = " ".join(report_text(report).split())
    assert "bounds value 3 at least (>) and 2 at most (<): learned from one side, left out" in text
    data = MoleculeDataModule(table=str(path), root=str(tmp_path), **OF_COLUMN)
    sides = [[[nan, nan]], [[2, nan]], [[nan, -1.5]], [[nan, nan]]]
    np.testing.assert_array_equal(data.sides(data.indices("train")), sides)
    assert data.labels_per_graph.tolist() == [1] * 11


def test_several_targets_have_their_own_bounds(tmp_path: Path) -> None:
    rows = [(smiles, n, f">{n}" if n % 3 else n) for n, smiles in enumerate(RINGS)]
    splits = load(write_csv(tmp_path / "a.csv", rows, "smiles,a,b"), **BOTH)
    assert report_of(splits).to_plain()["bounds"] == {"b": (8, 0)}
    (packed,) = splits.train.packed()
    first = packed.targets[:, 0]
    np.testing.assert_array_equal(packed.bounds[:, 1], np.where(first % 3 == 0, np.nan, first))
    assert np.isnan(packed.bounds[:, [0, 2, 3]]).all()


def test_zeros_and_ones_with_a_bound_are_numbers(tmp_path: Path) -> None:
    path = four_each(tmp_path, [*[0, 1] * 5, ">1", 0])
    assert load(path, split_column="set").task.kind == "regression"
    report = report_of(load(path, split_column="set", task="binary"))
    (row,) = report.invalid
    assert row.reason == "value is '>1': not a number, nor true or false"
    path = four_each(tmp_path, [">1", ">2", "<3", ">4", *[0.2, 0.3] * 4])
    assert "value has no label in the training split but bounds" in failure(path, **OF_COLUMN)


# Two classes.


@pytest.mark.parametrize(
    ("one", "zero"), [("Yes", "no"), ("positive", "Negative"), (1, "inactive"), ("TRUE", "false")]
)
def test_classes_may_be_words(tmp_path: Path, one: object, zero: object) -> None:
    values = [one, zero, "inconclusive", "", *[one, zero] * 4]
    splits = load(four_each(tmp_path, values), split_column="set")
    assert splits.task.kind == "binary"
    assert splits.task.ones == (() if one == 1 else (str(one).lower(),))
    assert splits.train.y.flatten().tolist() == [1, 0]
    assert splits.test.y.flatten().tolist() == [1, 0, 1, 0]
    report = report_of(splits)
    assert f"{str(zero).lower()} is 0" in report_text(report)
    unclear, missing = report.invalid
    assert unclear.reason == "value is 'inconclusive': not a number, nor true or false"
    assert missing.reason == "no label in value"


def test_a_word_among_numbers_is_no_class(tmp_path: Path) -> None:
    values = [5.1, 6.2, "inactive", 7.3, *[4.5, 5.5] * 4]
    splits = load(four_each(tmp_path, values), **OF_COLUMN)
    assert splits.task.kind == "regression"
    assert [row.row for row in report_of(splits).invalid] == [3]


# More than two.

TIERS = "smiles,tier,set"
OPTIONS = {"task": "multiclass", "target_columns": ("tier",), "split_column": "set"}


@pytest.mark.parametrize(
    ("cell", "name"),
    [
        *((text, text.strip()) for text in ("low", " High ", "none", "NT", "-", "2.5", "1_0")),
        *((text, text) for text in ("True", "inf", str(10**17 + 1), "unknown")),
        *((cell, "1") for cell in ("1", "1.0", " 01", 1.0)),
        *((cell, "") for cell in (None, "", "NA", float("nan"), "#N/A", "N.D.", "not tested")),
        ("00", "0"),
        pytest.param("1" * 5000, "1" * 5000, id="long"),
    ],
)
def test_what_a_class_is_called(cell: object, name: str) -> None:
    assert parse_class_name(cell) == name


def test_each_class_is_a_target_of_0_and_1(tmp_path: Path) -> None:
    values = ["mid", "low", "high", "low", *["mid", "", "low", "high"] * 2]
    splits = load(four_each(tmp_path, values, TIERS), **OPTIONS)
    task = splits.task
    assert (task.kind, task.one_of, task.metric) == ("binary", "tier", "auroc")
    assert task.targets == ("tier_high", "tier_low", "tier_mid")
    assert task.classes == ("high", "low", "mid")
    assert splits.train.y.tolist() == [[0, 0, 1], [0, 1, 0], [1, 0, 0], [0, 1, 0]]
    assert splits.test.y.tolist() == [[0, 0, 1], [0, 1, 0], [1, 0, 0]]
    report = report_of(splits)
    targets = report.to_plain()["targets"]
    assert [target["splits"]["train"]["positives"] for target in targets] == [1, 2, 1]
    assert [row.reason for row in report.invalid] == ["no label in tier"] * 2
    values = [10, "2.0", 1, 2, *["10", 1, "02", "1.0"] * 2]  # in the order of numbers
    assert load(four_each(tmp_path, values, TIERS), **OPTIONS).task.classes == ("1", "2", "10")


def test_files_of_their_own_have_the_same_classes(tmp_path: Path) -> None:
    """Though they name them in another order."""
    files = [
        write_csv(tmp_path / f"{values}.csv", zip(RINGS, values * 4, strict=True), "smiles,tier")
        for values in ("xyz", "zyx", "yzz")
    ]
    options = OPTIONS | {"split_column": None}
    splits = load(files[0], validation_table=files[1], test_table=files[2], **options)
    assert splits.task.classes == ("x", "y", "z")
    found = [part.y[:3].argmax(axis=1).tolist() for part in splits.parts.values()]
    assert found == [[0, 1, 2], [2, 1, 0], [1, 2, 2]]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["low"] * 12, "tier has 1 different values (low), and classes are 2 to 100"),
        (["a", "b", "a", "b", "c", *"abababa"], "no training molecule is c, one of the classes of"),
    ],
)
def test_classes_that_cannot_be_learned(tmp_path: Path, values: list[object], said: str) -> None:
    assert said in failure(four_each(tmp_path, values, TIERS), **OPTIONS)
