"""Parquet tables, read and written."""

import datetime
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from tables_io import refused, write

from graphormer_sepnorm.tables.opening import open_table
from graphormer_sepnorm.tables.writer import create_table


def _typed_table() -> pa.Table:
    time = datetime.datetime(2026, 1, 2, 3, 4, 5, 678)
    return pa.table(
        {
            "smiles": pa.array(["C", None, "N"]),
            "count": pa.array([1, 2, None], pa.int16()),
            "double": pa.array([0.1, None, -2.0]),
            "flag": pa.array([True, False, None]),
            "when": pa.array([time, None, time], pa.timestamp("us")),
            "zone": pa.array([time, None, time], pa.timestamp("ns", tz="UTC")),
            "kind": pa.array(["a", "b", None]).dictionary_encode(),
            "list": pa.array([[1, 2], [], None]),
            "bytes": pa.array([b"\xff", b"", None]),
        }
    )


def test_types_are_kept_and_predictions_are_numbers(tmp_path: Path) -> None:
    table = _typed_table()
    pq.write_table(table, tmp_path / "t.parquet")
    with open_table(tmp_path / "t.parquet") as source:
        assert source.fraction() == 0
        columns = (*source.columns, "gap", "error")
        rows = list(source)
        assert source.fraction() == 1
        writer = create_table(
            tmp_path / "u.parquet", columns, like=source, types={"gap": "float64"}
        )
        added = [(0.1, None), (math.nan, "a \udcff b"), (None, "")]
        writer.write([(*row.cells, *new) for row, new in zip(rows, added, strict=True)])
        writer.write([])
        writer.commit()
    assert rows[0].cells[:5] == ("C", 1, 0.1, True, table["when"][0].as_py())
    assert rows[1].cells[0] is None
    assert [row.cells[-1] for row in rows] == [b"\xff", b"", None]
    again = pq.read_table(tmp_path / "u.parquet")
    kept = again.select(table.column_names)
    assert kept.schema.equals(table.schema)
    assert kept.to_pylist() == table.to_pylist()
    assert again.schema.field("gap").type == pa.float64()
    assert again["gap"].to_pylist() == [0.1, None, None]
    assert again["error"].to_pylist() == [None, "a ? b", ""]


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", ["a"], [(f"cell {n}",) for n in range(9_000)])
    data = path.read_bytes()
    for damaged in (b"", data[:100], data[:-1], b"a,b\n1,2\n3,4\n"):
        path.write_bytes(damaged)
        with refused(str(path), "cut off, damaged or not Parquet at its beginning"):
            open_table(path)
    path.write_bytes(data[:4] + b"\xff" * 2_000 + data[2_004:])
    with open_table(path) as source, refused(str(path), "damaged"):
        list(source)
