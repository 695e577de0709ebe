"""Formats of tables, by the names of files."""

from __future__ import annotations

from pathlib import Path

from graphormer_sepnorm.errors import DataError, did_you_mean

FORMATS = ("csv", "tsv", "smi", "sdf", "parquet")
_SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".smi": "smi",
    ".smiles": "smi",
    ".ism": "smi",
    ".txt": "smi",
    ".sdf": "sdf",
    ".sd": "sdf",
    ".parquet": "parquet",
    ".pq": "parquet",
}


def require_format(format: str) -> None:
    """Refuse what is not one of `FORMATS`.

    Raises:
        DataError: It is none of them.
    """
    if format not in FORMATS:
        raise DataError(
            f"unknown format {format!r}{did_you_mean(format, FORMATS)}: there are "
            f"{', '.join(FORMATS)}"
        )


def format_of(path: str | Path) -> str:
    """Return the format that the name of a file says.

    Raises:
        DataError: It says none.
    """
    path = Path(path)
    suffixes = [suffix.lower() for suffix in path.suffixes]
    gzipped = suffixes[-1:] == [".gz"]
    if gzipped:
        suffixes.pop()
    format = _SUFFIXES.get(suffixes[-1]) if suffixes else None
    if format is None or (gzipped and format == "parquet"):
        raise DataError(
            f"{path}: what format is this? Names end in {', '.join(_SUFFIXES)}, all but Parquet "
            "also with .gz after it; save a spreadsheet as CSV"
        )
    return format
