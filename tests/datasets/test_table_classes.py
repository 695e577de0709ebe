"""A table whose target is one of several classes."""

from __future__ import annotations

from pathlib import Path

import pytest
from table_files import RINGS, failure, four_each, load, report_of, write_csv

from graphormer_sepnorm.tables.columns import parse_class_name

HEADER = "smiles,tier,set"
OPTIONS = {"task": "multiclass", "target_columns": ("tier",), "split_column": "set"}


@pytest.mark.parametrize(
    ("cell", "name"),
    [
        ("low", "low"),
        (" High ", "High"),
        ("1", "1"),
        ("1.0", "1"),
        (" 01", "1"),
        (2.0, "2"),
        (None, ""),
        ("", ""),
        ("NA", ""),
        ("nan", ""),
        (float("nan"), ""),
        ("none", "none"),
        *((word, "") for word in ("#N/A", "#NV", "#DIV/0!", "#value!", "N.D.", "n/d", "n.t.")),
        *((word, "") for word in ("nd", "<NA>", "n.a.", "not tested", "?")),
        ("NT", "NT"),
        ("-", "-"),
        ("2.5", "2.5"),
        ("True", "True"),
        ("inf", "inf"),
        ("1234567", "1234567"),
        ("1234568.0", "1234568"),
        ("1_0", "1_0"),
        ("0123", "123"),
        ("00", "0"),
        pytest.param("1" * 5000, "1" * 5000, id="long"),
        (str(10**17 + 1), str(10**17 + 1)),
    ],
)
def test_what_a_class_is_called(cell: object, name: str) -> None:
    assert parse_class_name(cell) == name


VALUES: list[object] = ["mid", "low", "high", "low", *["mid", "", "low", "high"] * 2]


def test_each_class_is_a_target_of_0_and_1(tmp_path: Path) -> None:
    splits = load(four_each(tmp_path, VALUES, HEADER), **OPTIONS)
    task = splits.task
    assert (task.kind, task.one_of, task.metric) == ("binary", "tier", "auroc")
    assert task.targets == ("tier_high", "tier_low", "tier_mid")
    assert task.classes == ("high", "low", "mid")
    assert splits.train.y.tolist() == [[0, 0, 1], [0, 1, 0], [1, 0, 0], [0, 1, 0]]
    assert splits.test.y.tolist() == [[0, 0, 1], [0, 1, 0], [1, 0, 0]]
    report = report_of(splits)
    assert report.one_of == "tier"
    assert [target.splits["train"].positives for target in report.targets] == [1, 2, 1]
    assert [row.reason for row in report.invalid] == ["no label in tier"] * 2


def test_a_class_of_rows_that_are_left_out_is_none(tmp_path: Path) -> None:
    rows = [
        ("CC", "control", ""),
        *((s, "ab"[n % 2], ["train", "valid", "test"][n // 4]) for n, s in enumerate(RINGS)),
    ]
    path = write_csv(tmp_path / "a.csv", rows, "smiles,kind,set")
    splits = load(path, task="multiclass", split_column="set", target_columns=("kind",))
    assert splits.task.classes == ("a", "b")


def test_words_for_no_value_are_no_class(tmp_path: Path) -> None:
    values = ["mid", "low", "#N/A", "high", *["mid", "low", "n.d.", "high"] * 2]
    splits = load(four_each(tmp_path, values, HEADER), **OPTIONS)
    assert splits.task.classes == ("high", "low", "mid")
    report = report_of(splits)
    assert [row.reason for row in report.invalid] == ["no label in tier"] * 3


@pytest.mark.parametrize(
    ("tiers", "said"),
    [
        (("High", "HIGH", "high "), "classes 'High', 'HIGH', 'high' of column 'tier' differ in"),
        (("low", "Low", "mid"), "classes 'low', 'Low' of column 'tier' differ in capitals only"),
    ],
)
def test_classes_that_differ_in_capitals_only_are_refused(
    tmp_path: Path, tiers: tuple[str, ...], said: str
) -> None:
    message = failure(four_each(tmp_path, tiers * 4, HEADER), **OPTIONS)
    assert said in message
    assert message.endswith("capitals only: write them alike")


def test_numbers_are_in_the_order_of_numbers(tmp_path: Path) -> None:
    values = [10, "2.0", 1, 2, *["10", 1, "02", "1.0"] * 2]
    splits = load(four_each(tmp_path, values, HEADER), **OPTIONS)
    assert splits.task.classes == ("1", "2", "10")
    assert splits.train.y.argmax(dim=1).tolist() == [2, 1, 0, 1]


def test_files_of_their_own_have_the_same_classes(tmp_path: Path) -> None:
    """Though they name them in another order."""
    for name, values in (("a", "xyz"), ("b", "zyx"), ("c", "yzz")):
        write_csv(tmp_path / f"{name}.csv", zip(RINGS, values * 4, strict=True), "smiles,tier")
    splits = load(
        tmp_path / "a.csv",
        validation_table=tmp_path / "b.csv",
        test_table=tmp_path / "c.csv",
        task="multiclass",
        target_columns=("tier",),
    )
    assert splits.task.classes == ("x", "y", "z")
    assert splits.train.y[:3].argmax(dim=1).tolist() == [0, 1, 2]
    assert splits.validation.y[:3].argmax(dim=1).tolist() == [2, 1, 0]
    assert splits.test.y[:3].argmax(dim=1).tolist() == [1, 2, 2]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["low"] * 12, "tier has 1 different values (low), and classes are 2 to 100"),
        (["a", "b", "a", "b", "c", *"abababa"], "no training molecule is c, one of the classes of"),
    ],
)
def test_what_cannot_be_learned(tmp_path: Path, values: list[object], said: str) -> None:
    assert said in failure(four_each(tmp_path, values, HEADER), **OPTIONS)
