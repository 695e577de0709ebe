"""The table of several comparisons beside the paper's numbers."""

from __future__ import annotations

import csv
import errno
from pathlib import Path

import pytest
from example_results import binary, incomplete, regression, written

from graphormer_sepnorm.compare.comparison_set import write_names
from graphormer_sepnorm.compare.report.set_table import write_set_table
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import require_json, write_json


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A regression, a classification, one that is not complete, and one without results."""
    for name, make in (("a", regression), ("b", binary), ("c", incomplete)):
        written(make(), tmp_path / name)
    write_names(tmp_path, ["b", "a", "d", "c"])
    return tmp_path


def rows_of(directory: Path) -> dict[tuple[str, str], dict[str, str]]:
    with (directory / "comparisons.csv").open(newline="", encoding="utf-8") as file:
        return {(row["comparison"], row["arm"]): row for row in csv.DictReader(file)}


def test_numbers_of_the_paper_stand_beside_its_arms(directory: Path) -> None:
    shown = write_set_table(directory)
    rows = rows_of(directory)
    assert {place: row["paper"] for place, row in rows.items() if place[0] in "ab"} == {
        ("a", "sharenorm"): "0.164",
        ("a", "sepnorm"): "0.144",
        ("a", "bn+bn"): "0.144",
        ("b", "sharenorm"): "0.7336",
        ("b", "sepnorm"): "0.7564",
    }
    assert rows["a", "sepnorm"]["better"] == "lower"
    assert rows["b", "sepnorm"]["better"] == "higher"
    assert float(rows["a", "sepnorm"]["difference"]) < 0 < float(rows["b", "sepnorm"]["difference"])
    assert shown is not None
    lines = [[cell.strip() for cell in line.split("|")] for line in shown.splitlines()]
    # In the order of the set.
    assert [line[1] for line in lines[2:10]] == [*"bbaaaccc"]
    assert (lines[4][1:4], lines[4][-2]) == (["a", "MAE", "sharenorm"], "0.1640")
    markdown = (directory / "comparisons.md").read_text()
    assert shown in markdown
    assert "[a](a/summary.md)" in markdown
    assert "No results yet: d" in shown


def test_a_table_of_the_users_is_no_data_set_of_the_papers(directory: Path) -> None:
    """Whatever its file is called."""
    path = directory / "a" / "results.json"
    results = require_json(path)
    assert results["dataset"] == "zinc-subset"
    results["configuration"]["data"] = {"table": "zinc-subset.csv"}
    write_json(path, results)
    write_set_table(directory)
    assert {row["paper"] for place, row in rows_of(directory).items() if place[0] == "a"} == {""}


def test_what_is_not_finished_is_said_and_not_counted(directory: Path) -> None:
    write_set_table(directory)
    rows = rows_of(directory)
    assert [rows["c", arm]["seeds"] for arm in ("sharenorm", "sepnorm", "bn+bn")] == ["3", "2", "1"]
    assert rows["c", "bn+bn"]["test_sd"] == ""  # of one seed
    assert rows["c", "bn+bn"]["difference"] != ""
    assert rows["c", "bn+bn"]["low"] == ""


def test_there_is_no_table_of_nothing(tmp_path: Path) -> None:
    write_names(tmp_path, ["a"])
    assert write_set_table(tmp_path) is None
    assert [path.name for path in tmp_path.iterdir()] == ["set.yaml"]


def test_a_full_disk_leaves_the_table_that_was_there(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_set_table(directory)
    before = (directory / "comparisons.md").read_bytes()

    def full(path: Path, text: str, **options: object) -> None:
        path.write_bytes(text[:9].encode())
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(DataError, match=r"cannot be written: .*No space left"):
        write_set_table(directory)
    assert (directory / "comparisons.md").read_bytes() == before
