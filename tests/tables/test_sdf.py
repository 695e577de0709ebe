"""SD files, read and written."""

import gzip
from pathlib import Path

import pytest
from rdkit import Chem
from tables_io import read, refused, saved

from graphormer_sepnorm.chem.molecules import parse_molblock
from graphormer_sepnorm.tables.opening import open_table
from graphormer_sepnorm.tables.writer import create_table

_BLOCK = """{title}
  made by hand

  1  0  0  0  0  0  0  0  0  0999 V2000
    0.0000    0.0000    0.0000 C   0  0  0  0  0  0  0  0  0  0  0  0
M  END
"""
_FIRST = (
    _BLOCK.format(title="methane")
    + ">  <gap>  (1)\n1.5\n\n> 25 <note>\none\n> two\n three\n\n>  <a>b>\n<x>\n\n"
)
_SECOND = _BLOCK.format(title="") + ">  <gap>\n\n\n>  <id>\n7\n\n\n"
_THIRD = _BLOCK.format(title="last")


def _two_ends(text: str, end: str) -> bytes:
    return text.replace("\n", end).encode()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", ["$$$$\n", "$$$$", "", "\n\n"])
@pytest.mark.parametrize("name", ["t.sdf", "t.sdf.gz"])
def test_records_are_rows(tmp_path: Path, end: str, last: str, name: str) -> None:
    content = f"{_FIRST}$$$$\n{_SECOND}$$$$\n{_THIRD}{last}"
    columns, rows = read(saved(tmp_path / name, _two_ends(content, end)))
    assert columns == ("title", "gap", "note", "a>b", "id")
    assert [row.cells for row in rows] == [
        ("methane", "1.5", "one\n> two\n three", "<x>", ""),
        ("", "", "", "", "7"),
        ("last", "", "", "", ""),
    ]
    assert [(row.number, row.line) for row in rows] == [(1, 1), (2, 19), (3, 33)]
    assert rows[0].record == _FIRST.replace("\n", end)
    assert rows[1].record == _SECOND.replace("\n", end)
    molecules = [parse_molblock(row.record).molecule for row in rows]
    assert [molecule.GetNumAtoms() for molecule in molecules] == [1, 1, 1]


def test_an_sd_file_that_is_cut_off_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "t.sdf.gz"
    path.write_bytes(gzip.compress(f"{_THIRD}$$$$\n".encode() * 3)[:-8])
    with refused(str(path), "not text after record 3"):
        open_table(path)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_records_are_written_as_they_were(tmp_path: Path, end: str) -> None:
    content = _two_ends(f"{_FIRST}$$$$\n{_SECOND}$$$$\n{_THIRD}$$$$\n", end)
    content = content.replace(b"one", b"\xff\xc3\xa4")  # not UTF-8
    with open_table(saved(tmp_path / "t.sdf", content)) as table:
        writer = create_table(tmp_path / "u.sdf", table.columns, like=table)
        rows = list(table)
        writer.write([row.cells for row in rows], [row.record for row in rows])
        writer.commit()
    assert (tmp_path / "u.sdf").read_bytes() == content


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("name", ["u.sdf", "u.sdf.gz"])
def test_added_fields_are_read_again(tmp_path: Path, end: str, name: str) -> None:
    bare = _THIRD + ">  <gap>\n3"  # neither its last empty line nor $$$$
    content = _two_ends(f"{_FIRST}$$$$\n{_SECOND}$$$$\n{_THIRD}$$$$\n{bare}", end)
    with open_table(saved(tmp_path / "t.sdf", content)) as table:
        columns = (*table.columns, "new\ny", "error")
        writer = create_table(tmp_path / name, columns, like=table)
        rows = list(table)
        added = [(0.25, None), (float("nan"), "two\nlines"), (1e-9, ""), (-1.0, None)]
        cells = [(*row.cells, *new) for row, new in zip(rows, added, strict=True)]
        writer.write(cells, [row.record for row in rows])
        writer.commit()
        known = table.columns
    columns, again = read(tmp_path / name)
    assert set(columns) == {*known, "new y", "error"}
    assert [row.cells[columns.index("new y")] for row in again] == ["0.25", "", "1e-09", "-1.0"]
    assert [row.cells[columns.index("error")] for row in again] == ["", "two\nlines", "", ""]
    for before, after in zip(rows, again, strict=True):
        assert after.record.startswith(before.record)
        assert [after.cells[columns.index(known[k])] for k in range(len(known))] == [*before.cells]
    if name == "u.sdf" and end != "\r":  # another reader sees the same
        found = [molecule.GetPropsAsDict() for molecule in Chem.SDMolSupplier(str(tmp_path / name))]
        assert found[0]["new y"] == 0.25
        assert found[3] == {"gap": 3, "new y": -1.0}


def test_data_headers_are_those_that_rdkit_finds(tmp_path: Path) -> None:
    """A value goes on to the next empty line, whatever its lines look like."""
    block = _BLOCK.format(title="> 1 <title>").replace("  made by hand", "> 95% <pure>")
    text = (
        f"{block}>  <activity>\n> 5 uM <estimated>\n10\n\n> 25 <MELTING.POINT>\na\n\n"
        "> <BOIL> (MD-00)\nb\n\n><nosp>\ne\n\n> (MD-1) <afterreg> FROM ARCHIVES\ng\n\n$$$$\n"
    )
    path = saved(tmp_path / "t.sdf", text)
    columns, rows = read(path)
    assert dict(zip(columns, rows[0].cells, strict=True)) == {
        **{"title": "> 1 <title>", "activity": "> 5 uM <estimated>\n10", "MELTING.POINT": "a"},
        **{"BOIL": "b", "nosp": "e", "afterreg": "g"},
    }
    (molecule,) = Chem.SDMolSupplier(str(path))
    assert [molecule.GetProp(name) for name in columns[1:]] == [*rows[0].cells[1:]]
    note = ">  <note>\n\nfirst\n \n\nsecond\n> 5 mg\n\n>  <y>\n1\n\n\n>  <y>\n2\n\n"
    columns, rows = read(saved(tmp_path / "u.sdf", f"{_BLOCK.format(title='')}{note}$$$$\n"))
    assert rows[0].cells == ("first\n\n\nsecond\n> 5 mg", "1\n2")
