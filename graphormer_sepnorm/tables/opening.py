"""Opening a table of any format as one stream of rows."""

from __future__ import annotations

from pathlib import Path

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.tables.formats import WHOLE_FILES, format_of
from graphormer_sepnorm.tables.reader import STANDARD_INPUT, Layout, TableReader
from graphormer_sepnorm.tables.text import DelimitedReader, SmilesReader, TextSource

_ANYTHING = (".txt", ".txt.gz")  # such a file is what its first line says


def open_table(
    source: str | Path, format: str | None = None, layout: Layout | None = None
) -> TableReader:
    """Open a table.

    Args:
        source: A file, also gzipped (but Parquet and Excel); ``-`` is standard input.
        format: One of `formats.FORMATS`; None goes by the name, for standard input and .txt files
            by the first line.
        layout: Which part of the file it is.

    Raises:
        DataError: The file is not there, is not of this format, or has no header.
    """
    layout = layout or Layout()
    said = format is not None
    standard = str(source) == STANDARD_INPUT
    if not said and not standard and not str(source).lower().endswith(_ANYTHING):
        format = format_of(source)
    if format in WHOLE_FILES and (standard or Path(source).is_fifo()):
        where = "standard input" if standard else f"the pipe {source}"
        raise DataError(f"{WHOLE_FILES[format]} cannot be read from {where}: name the file")
    if format == "parquet":
        from graphormer_sepnorm.tables.parquet import ParquetReader

        return ParquetReader(source)
    if format == "xlsx":
        from graphormer_sepnorm.tables.excel import ExcelReader

        return ExcelReader(source, layout)
    if format == "sdf":
        from graphormer_sepnorm.tables.sdf import SDFReader

        return SDFReader(source)
    text = TextSource(source)
    try:
        announced = "" if said else text.announced_format()
        if announced == "sdf" or (announced == "csv" and format == "smi"):
            raise DataError(
                f"{text.name} looks like {announced.upper()}: say this format, or rename it"
            )
        format = format or announced or text.guessed_format()
        if format == "smi" and layout.header_row is None:
            return SmilesReader(text)
        return DelimitedReader(text, "csv" if format == "smi" else format, layout)
    except BaseException:
        text.close()
        raise
