"""Cells of labels that are no plain numbers: words for no value, per cent, what cannot be used."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from table_files import RINGS, SPLIT, everything, failure, load, plain_rows, report_of, write_csv

from graphormer_sepnorm.datasets.user_table.report import report_text

BOTH = {"target_columns": ("a", "b"), **SPLIT}


def two_targets(folder: Path, seconds: dict[int, object], name: str = "t.csv") -> Path:
    """Molecules with two labels; of some rows, counted from 0, the second one is another."""
    rows = [(s, v, seconds.get(n, 2 * v)) for n, (s, v) in enumerate(plain_rows())]
    return write_csv(folder / name, rows, "smiles,a,b")


def in_a_line(path: Path, **options: object) -> str:
    return " ".join(report_text(report_of(load(path, **options))).split())


@pytest.mark.parametrize("word", ["#N/A", "n.d.", "ND", "not tested", "?"])
def test_a_word_for_no_value_leaves_the_other_labels(tmp_path: Path, word: str) -> None:
    path = two_targets(tmp_path, {3: word, 5: word})
    splits = load(path, **BOTH)
    report = report_of(splits)
    assert (report.valid, report.invalid, report.cells) == (12, (), ())
    np.testing.assert_array_equal(dict(everything(splits))[RINGS[3]], [0.5, np.nan])


def test_words_for_no_value_are_missing_where_they_are_all(tmp_path: Path) -> None:
    """Of one target such rows have no label, as before; of two classes too."""
    rows = [*plain_rows(), ("CC", "n.d."), ("CCC", "#DIV/0!")]
    path = write_csv(tmp_path / "a.csv", rows)
    report = report_of(load(path, **SPLIT))
    assert [row.reason for row in report.invalid] == ["no label in value"] * 2
    classes = [(s, ("Active", "inactive")[n % 2]) for n, s in enumerate(RINGS)]
    path = write_csv(tmp_path / "c.csv", [*classes, ("CC", "nt")])
    assert load(path, **SPLIT).task.kind == "binary"


def test_a_column_that_is_mostly_not_determined_is_one_of_numbers(tmp_path: Path) -> None:
    path = two_targets(tmp_path, dict.fromkeys(range(9), "n.d."))
    assert load(path, target_columns=("all",), **SPLIT).task.targets == ("a", "b")


def test_a_label_that_cannot_be_used_costs_only_itself(tmp_path: Path) -> None:
    path = two_targets(tmp_path, {3: "5 nM", 5: "~4", 6: "1e300"})
    with path.open("a") as file:
        file.write("CC,,high\nCCC(,1,2\n")
    splits = load(path, **BOTH)
    report = report_of(splits)
    assert report.valid == 12
    np.testing.assert_array_equal(dict(everything(splits))[RINGS[3]], [0.5, np.nan])
    assert [(cell.row, cell.column) for cell in report.cells] == [(4, "b"), (6, "b"), (7, "b")]
    # Without any label the row is as it was.
    assert report.reasons == {"unusable label": 1, "unreadable structure": 1}
    assert report.invalid[0].reason == "b is 'high': not a number, nor true or false"
    said = (
        "unusable 3 of 'b', in rows that are used for their other labels; the first: row 4, line "
        "5: b is '5 nM': not a number"
    )
    assert said in in_a_line(path, **BOTH)
    report.write_invalid(tmp_path / "bad.csv")
    with (tmp_path / "bad.csv").open(newline="") as file:
        listed = list(csv.DictReader(file))
    assert [row["row"] for row in listed] == ["4", "6", "7", "13", "14"]
    kept = [row["reason"].endswith("; the other labels of the row are used") for row in listed]
    assert kept == [True, True, True, False, False]
    assert len(report.to_plain()["cells"]) == 3
    message = failure(path, on_invalid="error", **BOTH)
    assert "t.csv, row 4, line 5: b is '5 nM': not" in message
    assert "; 4 more cannot be used either" in message


def test_a_bad_row_in_other_ways_is_left_out_with_its_labels(tmp_path: Path) -> None:
    rows = [(s, v, v / 2, 1) for s, v in plain_rows()]
    path = write_csv(tmp_path / "a.csv", [*rows, ("CC", 1, "~2", "much")], "smiles,a,b,w")
    report = report_of(load(path, weight_column="w", **BOTH))
    assert report.cells == ()
    assert report.reasons == {"unusable weight": 1}


@pytest.mark.parametrize(
    ("cells", "options", "said"),
    [
        (["5 nM"], {}, "none of the 12 labels of b can be used; row 1, line 2: b is '5 nM': not"),
        (["up", "down"], {}, "none of the 12 labels of b can be used; row 1, line 2: b is 'up'"),
        (
            ["0", "2.5", "7"],
            {"task": "binary"},
            "8 labels are not 0 or 1, the first in row 2",
        ),
    ],
)
def test_a_target_without_usable_labels_is_refused(
    tmp_path: Path, cells: list[str], options: dict, said: str
) -> None:
    """Though all rows could be used for the other one."""
    rows = [(smiles, n % 2, cells[n % len(cells)]) for n, smiles in enumerate(RINGS)]
    path = write_csv(tmp_path / "a.csv", rows, "smiles,a,b")
    assert said in failure(path, **BOTH, **options)


def test_labels_in_per_cent_are_these_numbers(tmp_path: Path) -> None:
    rows = [(s, f"{v}%" if n % 3 else v) for n, (s, v) in enumerate(plain_rows())]
    path = write_csv(tmp_path / "a.csv", rows, "smiles,yield")
    splits = load(path, **SPLIT)
    assert dict(everything(splits)) == {smiles: [value] for smiles, value in plain_rows()}
    commas = tmp_path / "b.csv"
    commas.write_text(path.read_text().replace(",", ";").replace(".", ","))
    assert dict(everything(load(commas, **SPLIT))) == dict(everything(splits))
