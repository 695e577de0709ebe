"""Labels that are bounds, as ``>10``: measured beyond the range of an assay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from table_files import RINGS, SPLIT, failure, four_each, load, plain_rows, report_of, write_csv
from torch_geometric.data import Data

from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.datasets.user_table.report import report_text
from graphormer_sepnorm.tables.columns import split_bound


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        *((text, (">", "10")) for text in (">10", " > 10", ">=10", "≥10", ">= 10")),
        *((text, ("<", "-0.5")) for text in ("<-0.5", "≤ -0.5", "<=-0.5")),
        *((cell, ("", cell)) for cell in ("10", "", "=10", ">", "~10", None, 3.5)),
    ],
)
def test_what_a_bound_is(cell: object, expected: tuple[str, object]) -> None:
    assert split_bound(cell) == expected


VALUES = [0.1, ">2", "<= -1.5", 0.4, 0.2, 0.3, ">1", "<0", 0.5, "≥7", 0.1, "-"]


def test_bounds_are_no_labels_and_go_with_their_graphs(tmp_path: Path) -> None:
    splits = load(four_each(tmp_path, VALUES), split_column="set", target_columns=("value",))
    assert splits.task.kind == "regression"
    nan = np.nan
    (packed,) = splits.train.packed()
    np.testing.assert_array_equal(packed.targets[:, 0], np.float32([0.1, nan, nan, 0.4]))
    np.testing.assert_array_equal(packed.bounds, [[nan] * 2, [2, nan], [nan, -1.5], [nan] * 2])
    (packed,) = splits.test.packed()
    np.testing.assert_array_equal(packed.bounds[:, 0], [nan, 7, nan])
    assert isinstance(splits.train[1], Data)
    report = report_of(splits)
    assert report.bounds == {"value": (3, 2)}
    assert report.to_plain()["bounds"] == {"value": (3, 2)}
    text = " ".join(report_text(report).split())
    assert "bounds value 3 at least (>) and 2 at most (<): learned from one side, left out" in text
    assert "11 of 12 rows can be used" in text


def test_a_bound_counts_as_a_label_of_the_loss_and_stands_beside_the_labels(
    tmp_path: Path,
) -> None:
    table = str(four_each(tmp_path, VALUES))
    columns = {"split_column": "set", "target_columns": "value"}
    data = MoleculeDataModule(table=table, root=str(tmp_path), **columns)
    nan = np.nan
    np.testing.assert_array_equal(data.bounds("train"), [[nan], [2], [-1.5], [nan]])
    np.testing.assert_array_equal(
        data.labels(np.arange(4)), [[np.float32(0.1)], [nan], [nan], [np.float32(0.4)]]
    )
    assert data.labels_per_graph().tolist() == [1] * 11


def test_several_targets_have_their_own(tmp_path: Path) -> None:
    rows = [(smiles, n, f">{n}" if n % 3 else n) for n, smiles in enumerate(RINGS)]
    path = write_csv(tmp_path / "a.csv", rows, "smiles,a,b")
    splits = load(path, target_columns=("a", "b"), **SPLIT)
    assert report_of(splits).bounds == {"b": (8, 0)}
    for packed in splits.train.packed():
        has_label = packed.targets[:, 0] % 3 == 0
        np.testing.assert_array_equal(
            packed.bounds[:, 1], np.where(has_label, np.nan, packed.targets[:, 0])
        )
        assert np.isnan(packed.bounds[:, [0, 2, 3]]).all()


def test_a_table_of_bounds_is_another_one_than_before(tmp_path: Path) -> None:
    """Where rows with bounds were left out: its store must not be taken."""
    options = {"split_column": "set", "target_columns": ("value",)}
    without = load(four_each(tmp_path, [0.5 * n for n in range(12)]), **options)
    assert without.train.packed().__next__().bounds.shape == (4, 0)
    assert report_of(without).bounds == {}
    with_bounds = load(four_each(tmp_path, VALUES), **options)
    assert with_bounds.fingerprint != without.fingerprint


def test_zeros_and_ones_with_a_bound_are_numbers(tmp_path: Path) -> None:
    path = four_each(tmp_path, [*[0, 1] * 5, ">1", 0])
    assert load(path, split_column="set").task.kind == "regression"
    splits = load(path, split_column="set", task="binary")
    assert [row.reason for row in report_of(splits).invalid] == [
        "value is '>1': not a number, nor true or false"
    ]


def test_the_only_column_of_numbers_may_be_mostly_bounds(tmp_path: Path) -> None:
    rows = [
        (smiles, f"<{value}" if n % 4 else value) for n, (smiles, value) in enumerate(plain_rows())
    ]
    assert load(write_csv(tmp_path / "a.csv", rows), **SPLIT).task.targets == ("value",)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([">1", ">2", "<3", ">4", *[0.2, 0.3] * 4], "all training labels of value are bounds, and"),
    ],
)
def test_bounds_that_cannot_be_learned_from(tmp_path: Path, values: list, said: str) -> None:
    path = four_each(tmp_path, values)
    assert said in failure(path, split_column="set", target_columns=("value",))


def test_a_bound_that_is_no_number_takes_out_its_row(tmp_path: Path) -> None:
    path = four_each(tmp_path, [">ten", "<1e300", *[0.1, 0.2] * 5])
    report = report_of(load(path, split_column="set", target_columns=("value",)))
    assert [row.reason for row in report.invalid] == [
        "value is 'ten': not a number, nor true or false",
        "value is 1e+300: too large",
    ]
