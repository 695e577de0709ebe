"""What file it is, and of what format."""

import bz2
import gc
import gzip
import lzma
import sys
from pathlib import Path

import pytest
from tables_io import read_cells, refused, saved, standard_stream

from graphormer_sepnorm.tables.opening import format_of, open_table

_SDF = "title\n\n\n  0  0  0  0  0  0  0  0  0  0999 V2000\nM  END\n>  <y>\n1\n\n$$$$\n"


@pytest.mark.parametrize(
    ("name", "format"),
    [("a.CSV.GZ", "csv"), ("a.tab", "tsv"), ("a.txt", "smi"), ("a.sd", "sdf"), ("a.pq", "parquet")],
)
def test_the_name_says_the_format(name: str, format: str) -> None:
    assert format_of(f"some.folder/{name}") == format


@pytest.mark.parametrize("name", ["table", "t.ods", "t.xlsx.gz", "t.gz", ".csv/x", "-"])
def test_a_name_that_says_no_format_is_refused(name: str) -> None:
    with refused(name, "what format", ".csv"):
        format_of(name)


def test_files_that_are_none(tmp_path: Path) -> None:
    file = saved(tmp_path / "file", "")
    for suffix in ("csv", "smi", "sdf", "parquet"):
        with refused(f"there is no file {tmp_path / 'no'}.{suffix}"):
            open_table(tmp_path / f"no.{suffix}")
        folder = tmp_path / f"folder.{suffix}"
        folder.mkdir()
        with refused(str(folder), "is a directory"):
            open_table(folder)
        with refused(str(file), "cannot be opened"):
            open_table(file / f"t.{suffix}")


def test_gzip_is_known_by_its_first_bytes(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(gzip.compress(b"a\n1\n"))
    (tmp_path / "t.csv.gz").write_bytes(b"a\n1\n")  # not gzipped
    assert read_cells(tmp_path / "t.csv") == read_cells(tmp_path / "t.csv.gz") == [("1",)]


@pytest.mark.parametrize(
    ("content", "format", "cells"),
    [
        ("id,SMILES\n1,C\n", "csv", ("1", "C")),
        ('"SMILES";"id"\nC;1\n', "csv", ("C", "1")),
        ("id\trdkit SMILES\n1\tC\n", "tsv", ("1", "C")),
        ("smiles\nC\n", "csv", ("C",)),
        ("\ufeffsmiles,y\r\nC,1\r\n", "csv", ("C", "1")),
        ("C\tmethane", "smi", ("C", "methane")),
        ("Drug_ID,Drug,Y\na,C,1\n", "csv", ("a", "C", "1")),
        ("C a,b\n", "smi", ("C", "a,b")),
        ("smiles zinc_id\nC 1\n", "smi", ("C", "1")),
        ("SMILES string\nC\n", "csv", ("C",)),
    ],
)
def test_the_format_of_standard_input_and_of_text_files_is_guessed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str, format: str, cells: tuple[str]
) -> None:
    data = content.encode()
    for raw in (data, gzip.compress(data)):
        monkeypatch.setattr(sys, "stdin", standard_stream(raw))
        with open_table("-") as table:
            assert (table.name, table.format) == ("standard input", format)
            assert table.fraction() is None
            assert [row.cells for row in table] == [cells]
    assert read_cells(saved(tmp_path / "t.txt", data)) == [cells]


@pytest.mark.parametrize("name", ["x", "x.gz"])
def test_standard_input_stays_open(monkeypatch, tmp_path: Path, name: str) -> None:
    path = saved(tmp_path / name, "smiles\nC\n")
    with path.open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        table = open_table("-")
        assert [row.cells for row in table] == [("C",)]
        table.close()
        table.close()
        del table
        gc.collect()
        assert not stdin.buffer.closed


def test_an_sd_file_is_not_read_as_something_else(tmp_path: Path, monkeypatch) -> None:
    data = gzip.compress(_SDF.encode())
    for name in ("t.csv", "t.smi", "t.txt"):
        path = tmp_path / name
        path.write_bytes(data)
        with refused(str(path), "looks like SDF", "say this format"):
            open_table(path)
        assert read_cells(path, format="sdf") == [("title", "1")]
    monkeypatch.setattr(sys, "stdin", standard_stream(data))
    with refused("standard input looks like SDF", "name the file"):
        open_table("-")
    monkeypatch.setattr(sys, "stdin", standard_stream(data))
    with refused("SDF cannot be read from standard input"):
        open_table("-", format="sdf")
    monkeypatch.setattr(sys, "stdin", None)
    with refused("standard input is closed"):
        open_table("-", format="csv")


@pytest.mark.parametrize("header", ["smiles,y", "id;SMILES", '"compound id","smiles"'])
def test_a_table_is_not_read_as_a_file_of_smiles(tmp_path: Path, header: str) -> None:
    path = saved(tmp_path / "t.smi", f"{header}\nC,1\n")
    with refused(str(path), "looks like CSV", "say this format"):
        open_table(path)
    assert len(read_cells(path, format="smi")) == 2


def test_a_suffix_that_lies(tmp_path: Path) -> None:
    packed = (bz2.compress(b"smiles\nC\n"), lzma.compress(b"smiles\nC\n"))
    for data in (b"PAR1\x15\x04", b"PK\x03\x04\x14", *packed):
        with refused("t.csv", "not text"):
            open_table(saved(tmp_path / "t.csv", data))
    path = saved(tmp_path / "t.parquet", "smiles,y\nC,1\n")
    with refused(str(path), "not Parquet"):
        open_table(path)
    path = saved(tmp_path / "t.sdf", "smiles,y\nC,1\n")
    with refused(str(path), "not an SD file"):
        open_table(path)
