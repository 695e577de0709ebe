"""CSV, TSV and files of SMILES."""

import gzip
import tempfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables_io import read, read_cells, refused, saved, write

from graphormer_sepnorm.tables.opening import open_table
from graphormer_sepnorm.tables.reader import Layout

# Any text a file can hold: all of Unicode, and bytes that are not UTF-8 as lone surrogates.
_characters = st.one_of(
    st.sampled_from("\",;\t\n\r' \0\ufeff\x85\u2028\udc80\udcff"),
    st.characters(exclude_categories=["Cs"]),
)
_cells = st.text(_characters, max_size=6).map(
    # Bytes that are UTF-8 when put together are read as what they are.
    lambda text: text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
)
_names = _cells.map(str.strip).filter(lambda name: name and name[0] not in "\ufeff\udcff")


@st.composite
def _tables(draw: st.DrawFn) -> tuple[list[str], list[tuple[str, ...]]]:
    columns = draw(st.lists(_names, min_size=1, max_size=4))
    row = st.tuples(*[_cells] * len(columns))
    return columns, draw(st.lists(row, max_size=5))


@settings(deadline=None, max_examples=150)
@given(_tables(), st.sampled_from(["t.csv", "t.tsv", "t.csv.gz", "t.tsv.gz"]))
def test_what_is_written_is_read_again(table, name):
    columns, rows = table
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / name, columns, rows)
        found, read_again = read(path)
    assert list(found) == columns
    assert [row.cells for row in read_again] == rows
    assert [row.number for row in read_again] == list(range(1, len(rows) + 1))
    assert not any(row.problem for row in read_again)


def test_rows_know_their_lines(tmp_path: Path) -> None:
    path = saved(tmp_path / "t.csv", 'a,b\n1,"x\ny"\n\n2,z\r\n3,w')
    rows = read(path)[1]
    assert [(row.number, row.line, row.cells) for row in rows] == [
        (1, 2, ("1", "x\ny")),
        (2, 4, ("", "")),
        (3, 5, ("2", "z")),
        (4, 6, ("3", "w")),
    ]


def test_ragged_rows(tmp_path: Path) -> None:
    path = saved(tmp_path / "t.csv", "a,b\n1\n1,2,\n1,2,3\n1,2,,\n1,2,3,4\n")
    rows = read(path)[1]
    assert [row.cells for row in rows] == [("1", ""), *[("1", "2")] * 4]
    problem = "the row has {} cells, the header names 2".format
    assert [row.problem for row in rows] == ["", "", problem(3), "", problem(4)]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_blank_lines_count_but_not_at_the_end(tmp_path: Path, end: str) -> None:
    path = saved(tmp_path / "t.csv", end.join(["a", "1", "", "", "2", "", "", ""]))
    assert read_cells(path) == [("1",), ("",), ("",), ("2",)]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-8"])
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_byte_order_marks(tmp_path: Path, encoding: str, suffix: str) -> None:
    path = saved(tmp_path / f"t{suffix}", "smiles,naïve\nCCO,Ä\n".encode(encoding))
    assert read(path)[0] == ("smiles", "naïve")
    assert read_cells(path) == [("CCO", "Ä")]


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        ("a;b\n1,5;2\n", ("a", "b")),
        ("a\tb\n1,5\t2\n", ("a", "b")),
        ('"a;b"\n1\n', ("a;b",)),
        ('"x,y";b\n1;2\n', ("x,y", "b")),
        (",b,\n1,2,3\n", ("column_1", "b", "column_3")),
        (" a , a\n1,2\n", ("a", "a")),
        ("smiles;logS (mol/L, 25 C)\nCCO;1,5\n", ("smiles", "logS (mol/L, 25 C)")),
        ("id|smiles|y\n1|CCO|2\n", ("id", "smiles", "y")),
        ("smiles|y,z\nCCO,1\n", ("smiles|y", "z")),
        ("a|b\n1\n", ("a|b",)),
        ('"the\nid","the\nsmiles",y\n1,C,2\n', ("the\nid", "the\nsmiles", "y")),
        ("SMILES\tlogS (mol/L, 25 C)\nCCO\t1\n", ("SMILES", "logS (mol/L, 25 C)")),
    ],
)
def test_headers_and_delimiters(tmp_path: Path, content: str, columns: tuple[str, ...]) -> None:
    assert read(saved(tmp_path / "t.csv", content))[0] == columns


@pytest.mark.parametrize("content", ["", "\n", "\nCCO,1\n", b"\xef\xbb\xbf"])
def test_a_table_without_a_header_is_refused(tmp_path: Path, content: str | bytes) -> None:
    path = saved(tmp_path / "t.csv", content)
    with refused(str(path), "has no header"):
        open_table(path)


@pytest.mark.parametrize("rest", ['"x,2\n3,4\n', '"x', '"x\n', '"x""\n'])
def test_a_quote_that_is_never_closed_is_refused(tmp_path: Path, rest: str) -> None:
    path = saved(tmp_path / "t.csv", f'a,b\n1,5" pipe\n2,{rest}')
    table = open_table(path)
    rows = iter(table)
    assert next(rows).cells == ("1", '5" pipe')
    with refused(str(path), "line 3", "never closed"):
        next(rows)
    table.close()


def test_a_quote_that_swallows_a_large_table_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "t.csv", 'a,b\n1,2\n3,"' + "CCO,1.0\n" * 1_300_000)
    with open_table(path) as table:
        rows = iter(table)
        assert next(rows).cells == ("1", "2")
        with refused(str(path), "line 3", "a quote is not closed"):
            next(rows)


@pytest.mark.parametrize("missing", [1, 8, 3_000, 60_000])
def test_a_gzipped_file_that_is_cut_off_gives_the_rows_before(tmp_path: Path, missing: int) -> None:
    content = "smiles,y\n" + "".join(f"{'C' * (n % 60)},{n * n}\n" for n in range(20_000))
    data = gzip.compress(content.encode())[:-missing]
    unpacked = zlib.decompressobj(wbits=31).decompress(data).decode()
    path = tmp_path / "t.csv.gz"
    path.write_bytes(data)
    rows: list[str] = []
    complete = unpacked.splitlines(keepends=True)[1:]
    if not unpacked.endswith("\n"):
        complete.pop()
    with open_table(path) as table, refused(str(path), f"not text after row {len(complete)} "):
        for row in table:
            rows.append(",".join(row.cells) + "\n")
    assert len(rows) > 100
    assert rows == complete


def test_damaged_gzip(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(b"smiles,b\n1,2\n" + b"3,4\n" * 3))
    data[-6] ^= 1
    path = tmp_path / "t.csv.gz"
    path.write_bytes(data)
    with open_table(path) as table, refused(str(path), "not text after row 4"):
        list(table)
    path.write_bytes(data[:5])
    with refused(str(path), "not text at its beginning"):
        open_table(path)


def test_the_share_that_has_been_read_grows(tmp_path: Path) -> None:
    path = saved(tmp_path / "t.csv", "smiles,name\n" + "CCO,ethanol\n" * 10_000)
    with open_table(path) as table:
        shares = [table.fraction() for row in table if row.number % 2_000 == 0]
    assert 0 < shares[0] < shares[-1] <= 1
    assert shares == sorted(shares)


def test_files_of_smiles(tmp_path: Path) -> None:
    content = "CCO\tethanol\nC  methane gas \n\n*C |$R1;$| methyl\nN |x\nCC\t|$A;$|\n\n\n"
    rows = read(saved(tmp_path / "t.smi", content))[1]
    assert [(row.number, row.line, row.cells) for row in rows] == [
        (1, 1, ("CCO", "ethanol")),
        (2, 2, ("C", "methane gas")),
        (3, 3, ("", "")),
        (4, 4, ("*C |$R1;$|", "methyl")),
        (5, 5, ("N", "|x")),
        (6, 6, ("CC |$A;$|", "")),
    ]


@pytest.mark.parametrize("header", ["SMILES\tname\n", "smiles\r\n", "Canonical_SMILES ID\n"])
@pytest.mark.parametrize("name", ["t.smi", "t.ism", "t.smi.gz"])
def test_the_header_of_a_file_of_smiles_is_no_row(tmp_path: Path, header: str, name: str) -> None:
    rows = read(saved(tmp_path / name, f"{header}CCO x\n"))[1]
    assert [(row.number, row.line, row.cells) for row in rows] == [(1, 2, ("CCO", "x"))]


def test_the_row_of_the_header_can_be_named(tmp_path: Path) -> None:
    path = saved(tmp_path / "t.csv", "Assay of May\n\nid,formula,y\na,CCO,1\n")
    columns, rows = read(path, layout=Layout(header_row=3))
    assert columns == ("id", "formula", "y")
    assert [(row.number, row.line, row.cells) for row in rows] == [(1, 4, ("a", "CCO", "1"))]
    for row in (2, 9):
        with refused("has no header"):
            open_table(path, layout=Layout(header_row=row))
    for name, layout in (("t.csv", Layout("A")), ("t.smi", Layout(header_row=2))):
        with refused("leave it out"):
            open_table(saved(tmp_path / name, "CCO x\n"), layout=layout)
