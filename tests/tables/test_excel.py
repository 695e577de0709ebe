"""Workbooks of Excel, read and written; made by openpyxl here."""

import datetime
import io
import math
import sys
import zipfile
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from reference.workbooks import workbook
from tables_io import read, read_cells, refused, write

from graphormer_sepnorm.tables import excel
from graphormer_sepnorm.tables.opening import open_table
from graphormer_sepnorm.tables.reader import Layout
from graphormer_sepnorm.tables.writer import create_table


def book(path: Path, *sheets: list[list[Any]]) -> Path:
    return workbook(path, **{f"sheet {number}": rows for number, rows in enumerate(sheets)})


def test_values_have_their_types_and_empty_rows_stay_in_between(tmp_path: Path) -> None:
    day = datetime.datetime(2026, 1, 2)
    path = book(
        tmp_path / "t.xlsx",
        [
            [None],
            [" smiles", "y ", None, "when", None],
            ["C", 1, "x", day],
            [None, None, None],
            ["N", 0.5],
            ["O", True, None, None, "more"],
            [None],
            [""],
        ],
        [["another"]],
    )
    columns, rows = read(path, layout=Layout("sheet 0"))
    assert columns == ("smiles", "y", "column_3", "when")
    assert [row.cells for row in rows] == [
        ("C", 1, "x", day),
        (None, None, None, None),
        ("N", 0.5, None, None),
        ("O", True, None, None),
    ]
    assert [(row.number, row.line) for row in rows] == [(1, 3), (2, 4), (3, 5), (4, 6)]
    assert [row.problem for row in rows] == ["", "", "", "the row has 5 cells, the header names 4"]


def test_what_is_written_is_read_again_and_no_text_becomes_a_formula(tmp_path: Path) -> None:
    rows = [("=1+1", 0.1, None), ("+A1", math.nan, "a\x07b"), ("007", 3, "ä")]
    path = write(tmp_path / "t.xlsx", ["smiles", "y", "name"], rows)
    assert read_cells(path) == [rows[0], ("+A1", None, "a\ufffdb"), rows[2]]
    cell = openpyxl.load_workbook(path).worksheets[0]["A2"]
    assert (cell.value, cell.data_type) == ("=1+1", "s")
    when = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)  # what Excel has no cells for is text
    path = write(tmp_path / "u.xlsx", ["a", "b", "c"], [([1, 2], when, -math.inf)])
    assert read_cells(path) == [("[1, 2]", "2026-01-02 00:00:00+00:00", "-inf")]
    path = write(tmp_path / "v.xlsx", ["a", "b"], [(datetime.date(1898, 7, 1), "x" * 40_000)])
    assert read_cells(path) == [("1898-07-01", "x" * 32_767)]


@pytest.mark.parametrize("said", ["A1", "A1:B4"])
def test_a_sheet_that_says_a_wrong_size_is_read_whole(tmp_path: Path, said: str) -> None:
    path = book(tmp_path / "t.xlsx", [["smiles", "y"], *(["C", n] for n in range(10))])
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    sheet = "xl/worksheets/sheet1.xml"
    assert b'<dimension ref="A1:B11"' in members[sheet]
    members[sheet] = members[sheet].replace(b'ref="A1:B11"', f'ref="{said}"'.encode())
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    assert read_cells(path) == [("C", n) for n in range(10)]


def test_more_rows_than_a_sheet_has_are_refused(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(excel, "_MOST_ROWS", 3)
    writer = create_table(tmp_path / "t.xlsx", ["a"])
    writer.write([("C",), ("N",)])
    with refused("a sheet of Excel has 3 rows, and this table has more: name a .csv"):
        writer.write([("O",)])
    writer.discard()


def test_what_is_no_workbook_is_one_line(tmp_path: Path) -> None:
    whole = book(tmp_path / "whole.xlsx", [["smiles", "y"], ["C", 1]]).read_bytes()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a.txt", "nothing")
    path = tmp_path / "t.xlsx"
    for content in (b"", b"smiles,y\nC,1\n", whole[: len(whole) // 2], packed.getvalue()):
        path.write_bytes(content)
        with refused(str(path), "is cut off, damaged or not a workbook at its beginning"):
            open_table(path)
    book(path, [[None, ""]])
    with refused(f"{path} has no header: name its row with --header_row"):
        open_table(path)


DATA = [["id", "SMILES", "y"], ["a", "CCO", -1], ["b", "CC", 2]]
COVER = [["Assay of May"], [], ["made by", "us"]]


@pytest.mark.parametrize("state", ["hidden", "veryHidden"])
def test_the_only_sheet_that_is_not_hidden_is_read_and_named(tmp_path, state: str) -> None:
    path = workbook(tmp_path / "t.xlsx", state, Hidden=[["smiles"], ["N"]], Data=DATA)
    with open_table(path) as table:
        assert table.columns == ("id", "SMILES", "y")
        assert table.name == f"{path} (sheet 'Data')"
        assert [row.cells for row in table] == [("a", "CCO", -1), ("b", "CC", 2)]
    for sheet in ("Hidden", "1"):  # where it is asked for
        assert read_cells(path, layout=Layout(sheet)) == [("N",)]
    path = workbook(tmp_path / "u.xlsx", state, Hidden=DATA, About=COVER)
    assert read(path, layout=Layout("2", header_row=3))[0] == ("made by", "us")
    assert read(workbook(tmp_path / "n.xlsx", **{"2": DATA, "b": COVER}), layout=Layout("2"))


def test_which_sheet_is_meant_is_asked_for(tmp_path: Path) -> None:
    path = workbook(tmp_path / "t.xlsx", Train=DATA, Test=DATA)
    with refused(str(path), "which sheet is meant; name one of Train, Test with --data.sheet"):
        open_table(path, layout=Layout(options="--data."))
    assert len(read_cells(path, layout=Layout("Test"))) == 2
    for sheet in ("test", "0", "3"):
        with refused(f"no sheet {sheet!r}; name one of Train, Test with --sheet"):
            open_table(path, layout=Layout(sheet))
    with refused("(sheet 'Test') has no header: name its row with --header_row"):
        open_table(path, layout=Layout("Test", header_row=9))
    assert read(path, layout=Layout("Test", header_row=2))[0] == ("a", "CCO", "-1")


def test_without_openpyxl_there_is_one_line(tmp_path: Path, monkeypatch) -> None:
    path = book(tmp_path / "t.xlsx", [["smiles"], ["C"]])
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    monkeypatch.delitem(sys.modules, excel.__name__)
    with refused("Excel files need openpyxl: pip install openpyxl, or use CSV"):
        open_table(path)
