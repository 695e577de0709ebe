"""Labels that nothing can be learned from, or not in the way that was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from table_files import RINGS, SPLIT, failure, four_each, load, plain_rows, report_of, write_csv

from graphormer_sepnorm.datasets.user_table.report import report_text
from graphormer_sepnorm.errors import ConfigError


def test_a_classification_of_numbers_blames_the_labels(tmp_path: Path) -> None:
    """And neither the split, which they leave without molecules, nor a single row."""
    path = write_csv(tmp_path / "a.csv", [*plain_rows(), ("CC", 0)])
    for options in ({}, SPLIT):
        message = failure(path, task="binary", **options)
        said = f"{path}: 10 labels are not 0 or 1, the first in row 1, line 2: value is -1: "
        assert message.startswith(said)
        assert "-c table_regression, or --data.task regression" in message
        assert "split" not in message


def test_what_cannot_be_used_is_said_of_an_empty_split(tmp_path: Path) -> None:
    rows = [*plain_rows(2), *[(smiles, "~3") for smiles in RINGS[2:]]]
    message = failure(write_csv(tmp_path / "a.csv", rows), target_columns=("value",))
    assert "10 of 12 rows cannot be used, the first, row 3, line 4: value is" in message
    few = write_csv(tmp_path / "b.csv", [*plain_rows(2), ("CC", "")])
    message = failure(few, split="random")
    assert "1 of 3 rows cannot be used, the first, row 3, line 4: no label in value" in message
    assert "give more molecules" in message


def test_true_and_false_are_no_regression(tmp_path: Path) -> None:
    rows = [(smiles, str(n % 2 == 0), n % 2) for n, smiles in enumerate(RINGS)]
    path = write_csv(tmp_path / "a.csv", rows, "smiles,active,hit")
    one = {"target_columns": ("active",), **SPLIT}
    message = failure(path, ConfigError, task="regression", **one)
    assert "a.csv: active is true and false, which is a classification" in message
    assert "-c table_classification, or --data.task binary" in message
    assert load(path, task="binary", **one).task.kind == "binary"
    # With 0 and 1 it may be meant.
    hit = load(path, task="regression", target_columns=("hit",), **SPLIT)
    assert hit.task.kind == "regression"
    assert report_of(load(path, task="binary", target_columns=("hit",), **SPLIT)).warnings == ()
    mixed = [(smiles, ["true", "0.5"][n % 2]) for n, smiles in enumerate(RINGS)]
    path = write_csv(tmp_path / "b.csv", mixed)
    assert load(path, task="regression", **SPLIT).task.kind == "regression"


@pytest.mark.parametrize(
    ("one", "zero"), [("Yes", "no"), ("Active", "inactive"), ("positive", "Negative"), (1, "no")]
)
@pytest.mark.parametrize("named", [{}, {"target_columns": ("value",)}])
def test_classes_may_be_words(tmp_path: Path, one: object, zero: object, named: dict) -> None:
    values = [one, zero, "inconclusive", "", *[one, zero] * 4]
    splits = load(four_each(tmp_path, values), split_column="set", **named)
    assert splits.task.kind == "binary"
    assert splits.task.ones == (() if one == 1 else (str(one).lower(),))
    assert splits.train.y.flatten().tolist() == [1, 0]
    assert splits.test.y.flatten().tolist() == [1, 0, 1, 0]
    report = report_of(splits)
    assert f"{str(zero).lower()} is 0" in report_text(report)
    unclear, missing = report.invalid
    assert unclear.reason == "value is 'inconclusive': not a number, nor true or false"
    assert missing.reason == "no label in value"
    message = failure(four_each(tmp_path, values), ConfigError, task="regression", **SPLIT, **named)
    assert "no, which is a classification" in message or "ive, which is" in message


def test_of_several_columns_of_classes_one_is_asked_for(tmp_path: Path) -> None:
    rows = [(smiles, ["yes", "no"][n % 2], ["no", "yes"][n % 2]) for n, smiles in enumerate(RINGS)]
    path = write_csv(tmp_path / "a.csv", rows, "smiles,toxic,soluble")
    message = failure(path, **SPLIT)
    assert "(toxic, soluble)" in message
    splits = load(path, target_columns=("toxic", "soluble"), **SPLIT)
    assert splits.task.targets == ("toxic", "soluble")


def test_a_word_among_numbers_is_no_class(tmp_path: Path) -> None:
    values = [5.1, 6.2, "inactive", 7.3, *[4.5, 5.5] * 4]
    splits = load(four_each(tmp_path, values), split_column="set", target_columns=("value",))
    assert splits.task.kind == "regression"
    assert [row.row for row in report_of(splits).invalid] == [3]


@pytest.mark.parametrize("values", [[0.1] * 12, [f"{n}e34" for n in range(12)], [1e5, 1e5 + 1] * 6])
def test_labels_that_can_be_standardised_are_not_refused(
    tmp_path: Path, values: list[object]
) -> None:
    splits = load(four_each(tmp_path, values), split_column="set", target_columns=("value",))
    assert len(splits.train) == 4


def warnings_of(folder: Path, values: Sequence[object], **options: object) -> tuple[str, ...]:
    """The warnings about 40 molecules with these labels, again and again."""
    smiles = [f"{'C' * length}{end}" for length in range(1, 11) for end in ("O", "N", "Cl", "F")]
    rows = [(one, values[n % len(values)]) for n, one in enumerate(smiles)]
    path = write_csv(folder / "a.csv", rows)
    chosen = {"task": "regression", "target_columns": ("value",), **SPLIT, **options}
    return report_of(load(path, **chosen)).warnings


PLAIN = [round(0.1 * n, 1) for n in range(40)]


def test_labels_without_a_doubt(tmp_path: Path) -> None:
    tail = [-16 if n == 7 else value for n, value in enumerate(PLAIN)]  # eight ranges away
    for values in (PLAIN, tail, [1.0, 2.0, 3.0], [0.0, 900.0, 20.0, 5.0]):
        assert warnings_of(tmp_path, values) == ()


@pytest.mark.parametrize("slip", ["-999", "1e30"])
def test_a_label_far_from_all_others_is_named(tmp_path: Path, slip: str) -> None:
    values = [slip if n == 7 else value for n, value in enumerate(PLAIN)]
    (warning,) = warnings_of(tmp_path, values)
    assert warning.startswith(f"value is {float(slip):.6g} in row 8, and half of the labels are ")
    assert warning.endswith(": if it stands for a missing value, empty the cell")
    (warning,) = warnings_of(tmp_path, [1000 if n == 7 else 100 + v for n, v in enumerate(PLAIN)])
    assert warning.startswith("value is 1000 in row 8")
    # The same number again and again is a code, however often.
    values = [slip if n % 8 == 7 else value for n, value in enumerate(PLAIN)]
    (warning,) = warnings_of(tmp_path, values)
    assert "; 4 more labels are far away too" in warning


def test_one_number_is_no_regression(tmp_path: Path) -> None:
    (warning,) = warnings_of(tmp_path, [3.5])
    assert warning == "all 20 training labels of value are 3.5: nothing can be learned from them"


def test_an_empty_row_is_no_structure_that_cannot_be_read(tmp_path: Path) -> None:
    rows = [*plain_rows(), ("", ""), ("CC(", 1), ("", 2)]
    report = report_of(load(write_csv(tmp_path / "a.csv", rows), **SPLIT))
    assert report.reasons == {"empty": 1, "no structure": 1, "unreadable structure": 1}
    assert report.invalid[0].reason == "the row is empty"
