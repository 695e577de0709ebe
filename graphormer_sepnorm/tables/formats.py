"""Formats of tables, by the names of files."""

from __future__ import annotations

from pathlib import Path

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import is_stream

FORMATS = ("csv", "tsv", "smi", "sdf", "parquet", "xlsx")
# Neither gzipped nor standard output nor continued: they are packed, and written at their end.
WHOLE_FILES = {"parquet": "Parquet", "xlsx": "Excel"}
_SUFFIXES = {f".{format}": format for format in FORMATS} | {
    **{".tab": "tsv", ".sd": "sdf", ".pq": "parquet"},
    **dict.fromkeys((".smiles", ".ism", ".txt"), "smi"),
}


def format_of(path: str | Path) -> str:
    """Return the format that the name of a file says.

    Raises:
        DataError: It says none.
    """
    name = Path(path).name.lower()
    bare = name.removesuffix(".gz")
    format = _SUFFIXES.get(Path(bare).suffix)
    if format is None or (bare != name and format in WHOLE_FILES):
        raise DataError(
            f"{path}: what format is this? Names end in {', '.join(_SUFFIXES)}, all but Parquet "
            "and Excel also with .gz after it; save another spreadsheet as .xlsx or .csv"
        )
    return format


def format_to_write(path: str | Path) -> str:
    """Return the format of an output: CSV of standard output, devices and pipes of no name's.

    Raises:
        DataError: The name of a file says none.
    """
    return "csv" if is_stream(path) and not Path(path).suffix else format_of(path)
