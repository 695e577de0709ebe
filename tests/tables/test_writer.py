"""Tables are written whole, or to be continued; never half under their own name."""

import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tables_io import read_cells, refused, saved, standard_stream, write

from graphormer_sepnorm.tables.opening import open_table
from graphormer_sepnorm.tables.reader import TableReader
from graphormer_sepnorm.tables.writer import TableWriter, create_table

_ROWS = [(f"C{n}", n, n / 3) for n in range(5)]
_RECORDS = [f"molecule {n}\n\n\nM  END\n" for n in range(5)]
_NAMES = ["t.csv", "t.tsv", "t.csv.gz", "t.tsv.gz", "t.sdf", "t.sdf.gz"]


@pytest.fixture
def sd_file(tmp_path: Path) -> Any:
    (tmp_path / "in").mkdir()
    content = "".join(f"{record}$$$$\n" for record in _RECORDS)
    with open_table(saved(tmp_path / "in" / "t.sdf", content)) as table:
        yield table


def _write(writer: TableWriter, start: int, stop: int) -> None:
    records = _RECORDS[start:stop]
    writer.write(_ROWS[start:stop], records)


def _create(path: Path, like: TableReader, resume: int | None = None) -> TableWriter:
    source = like if ".sdf" in path.name else None
    return create_table(path, ["title", "number", "third"], like=source, resume=resume)


def test_cells_as_text(tmp_path: Path) -> None:
    rows: Sequence[Sequence[object]] = [
        ("a", None, math.nan, 0.1, 7, True),
        ('say "x"', "a,b", " a", "1\t2", "\udcff", "ä"),
    ]
    path = write(tmp_path / "t.csv", list("abcdef"), rows)
    assert path.read_bytes().splitlines() == [
        b"a,b,c,d,e,f",
        b"a,,,0.1,7,True",
        b'"say ""x""","a,b"," a","1\t2",\xff,\xc3\xa4',
    ]


@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize("junk", [b"", b"junk behind the mark", b"\x1f\x8b\x08 half a member"])
def test_a_continued_file_is_the_same_byte_by_byte(tmp_path, sd_file, name, junk):
    straight = _create(tmp_path / name, sd_file)
    for start, stop in ((0, 2), (2, 2), (2, 4), (4, 5)):
        _write(straight, start, stop)
    straight.commit()
    expected = (tmp_path / name).read_bytes()

    (tmp_path / "again").mkdir()
    path = tmp_path / "again" / name
    writer = _create(path, sd_file)
    _write(writer, 0, 2)
    mark = writer.mark()
    assert writer.partial is not None
    assert writer.partial.stat().st_size == mark
    _write(writer, 2, 3)
    writer.close()
    assert not path.exists()
    with writer.partial.open("ab") as file:
        file.write(junk)

    writer = _create(path, sd_file, mark)
    mark = writer.mark()
    writer.close()
    writer = _create(path, sd_file, mark)
    _write(writer, 2, 4)
    _write(writer, 4, 5)
    writer.commit()
    assert path.read_bytes() == expected
    if name.endswith(".gz"):
        assert expected[4:8] == bytes(4)  # no time stamp
    assert [row[0] for row in read_cells(path)] == (
        [f"molecule {n}" for n in range(5)] if "sdf" in name else [row[0] for row in _ROWS]
    )


def test_a_partial_file_that_became_shorter_cannot_be_continued(tmp_path: Path) -> None:
    writer = create_table(tmp_path / "t.csv", ["a"])
    writer.write([("123",)])
    mark = writer.mark()
    writer.close()
    assert writer.partial is not None
    os.truncate(writer.partial, mark - 1)
    with refused(str(writer.partial), "shorter", "start again"):
        create_table(tmp_path / "t.csv", ["a"], resume=mark)
    writer.partial.unlink()
    with refused(str(writer.partial), "gone", "start again"):
        create_table(tmp_path / "t.csv", ["a"], resume=mark)


def test_standard_output(monkeypatch: pytest.MonkeyPatch, sd_file: TableReader) -> None:
    monkeypatch.setattr(sys, "stdout", standard_stream())
    writer = create_table("-", ["a", "b"])
    assert writer.partial is None
    assert sys.stdout.buffer.getvalue() == b"a,b\n"  # type: ignore[attr-defined]
    writer.write([("1\udcff", None)])
    with refused("standard output cannot be continued"):
        writer.mark()
    writer.commit()
    writer.close()
    writer.discard()
    assert sys.stdout.buffer.getvalue() == b"a,b\n1\xff,\n"  # type: ignore[attr-defined]

    monkeypatch.setattr(sys, "stdout", standard_stream())
    writer = create_table("-", ["title", "y"], format="sdf", like=sd_file)
    writer.write([("molecule 0", 1.5)], _RECORDS[:1])
    writer.commit()
    expected = f"{_RECORDS[0]}>  <y>\n1.5\n\n$$$$\n".encode()
    assert sys.stdout.buffer.getvalue() == expected  # type: ignore[attr-defined]


@pytest.mark.parametrize(("suffix", "name"), [("parquet", "Parquet"), ("xlsx", "Excel")])
def test_a_packed_file_is_neither_continued_nor_a_stream(tmp_path, suffix: str, name: str) -> None:
    writer = create_table(tmp_path / f"t.{suffix}", ["a"])
    writer.write([("C",)])
    assert [path.name for path in tmp_path.iterdir()] == [f"t.{suffix}.partial"]
    with refused(f"t.{suffix} cannot be continued", ".csv"):
        writer.mark()
    writer.discard()
    assert not [*tmp_path.iterdir()]
    with refused(f"{name} cannot be written to standard output"):
        create_table("-", ["a"], format=suffix)
    with refused(f"{name} cannot be read from standard input"):
        open_table("-", format=suffix)
    os.mkfifo(tmp_path / f"pipe.{suffix}")
    with refused("cannot be read from the pipe", f"pipe.{suffix}: name the file"):
        open_table(tmp_path / f"pipe.{suffix}")


@pytest.mark.parametrize("name", ["t.smi", "t.sdf", "t.ods", "t.pq.gz"])
def test_formats_that_cannot_be_written(tmp_path: Path, name: str) -> None:
    with open_table(saved(tmp_path / "t.csv", "smiles\nC\n")) as table:
        for like in (None, table):
            with refused(".csv"):
                create_table(tmp_path / name, ["smiles"], like=like)
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


@pytest.mark.parametrize("suffix", ["csv", "parquet", "xlsx"])
def test_places_that_cannot_be_written(tmp_path: Path, suffix: str) -> None:
    with refused("t." + suffix, "No such file", "choose another place"):
        create_table(tmp_path / "missing" / f"t.{suffix}", ["a"])
    saved(tmp_path / "file", "")
    with refused("t." + suffix, "choose another place"):
        create_table(tmp_path / "file" / f"t.{suffix}", ["a"])
    (tmp_path / f"t.{suffix}").mkdir()
    with refused("t." + suffix, "is a directory"):
        create_table(tmp_path / f"t.{suffix}", ["a"])


@pytest.mark.parametrize("suffix", ["csv", "parquet", "xlsx"])
def test_a_link_stays_and_its_file_is_written(tmp_path: Path, suffix: str) -> None:
    link = tmp_path / f"link.{suffix}"
    (tmp_path / "folder").mkdir()
    link.symlink_to(f"folder/t.{suffix}")
    write(link, ["a"], [["1"]])
    assert link.is_symlink()
    assert [path.name for path in (tmp_path / "folder").iterdir()] == [f"t.{suffix}"]
    assert read_cells(link) == [("1",)]


def test_a_reader_of_our_output_that_has_gone_is_no_mistake(monkeypatch) -> None:
    end, start = os.pipe()
    os.close(end)
    with open(start, "wb", buffering=0) as pipe:
        monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=pipe))
        with pytest.raises(BrokenPipeError):
            create_table("-", ["a"])
