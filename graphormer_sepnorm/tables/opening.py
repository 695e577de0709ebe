"""Which format a table has, and opening it as one stream of rows."""

from __future__ import annotations

from pathlib import Path

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import is_stream
from graphormer_sepnorm.formatting import listed
from graphormer_sepnorm.tables.columns import is_smiles_name
from graphormer_sepnorm.tables.reader import STANDARD_INPUT, Layout, TableReader, closed_on_error
from graphormer_sepnorm.tables.text import DelimitedReader, SmilesReader, TextSource, split_line

FORMATS = ("csv", "tsv", "smi", "sdf", "parquet", "xlsx")
# Neither gzipped nor standard output nor continued: they are packed, and written at their end.
WHOLE_FILES = {"parquet": "Parquet", "xlsx": "Excel"}
_NOT_AT_ONCE = WHOLE_FILES | {"sdf": "SDF"}  # nor read from a pipe: an SD file is read twice
_SUFFIXES = {f".{format}": format for format in FORMATS} | {
    **{".tab": "tsv", ".sd": "sdf", ".pq": "parquet"},
    **dict.fromkeys((".smiles", ".ism", ".txt"), "smi"),
}
_OPTIONS_OF = {"sheet": ("xlsx",), "header_row": ("xlsx", "csv", "tsv")}
_ANYTHING = (".txt", ".txt.gz")  # such a file is what its first line says


def open_table(
    source: str | Path, format: str | None = None, layout: Layout | None = None
) -> TableReader:
    """Open a table.

    Args:
        source: A file, also gzipped (but Parquet and Excel); ``-`` is standard input, of text
            but SDF.
        format: One of `FORMATS`; None goes by the name, for standard input and .txt files
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
    for option, formats in _OPTIONS_OF.items() if layout.options == "--" else ():  # fit: of several
        if getattr(layout, option) is not None and (format or "csv") not in formats:
            raise DataError(f"{source}: --{option} is of {listed(formats)} files: leave it out")
    if format in _NOT_AT_ONCE and (standard or Path(source).is_fifo()):
        where = "standard input" if standard else f"the pipe {source}"
        raise DataError(f"{_NOT_AT_ONCE[format]} cannot be read from {where}: name the file")
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
    with closed_on_error(text.close):
        if not said:
            known = _recognized(text)
            if known == "sdf" or (known == "csv" and format == "smi"):
                how = "name the file" if standard else "say this format, or rename it"
                raise DataError(f"{text.name} looks like {known.upper()}: {how}")
            format = format or known or _guessed(text)
        if format == "smi" and layout.header_row is None:
            return SmilesReader(text)
        return DelimitedReader(text, "csv" if format == "smi" else str(format), layout)


def _recognized(text: TextSource) -> str:
    """Return the format that the first lines leave no doubt about; empty if there is none."""
    lines = text.peek(4)
    # The fourth line of a record of an SD file (CTfile formats, BIOVIA: the counts line).
    if lines[3:] and lines[3].rstrip().endswith(("V2000", "V3000")):
        return "sdf"
    for delimiter in "\t,;|":
        cells = split_line("".join(lines[:1]).strip(), delimiter)
        if len(cells) > 1 and any(map(is_smiles_name, cells)):
            return "tsv" if delimiter == "\t" else "csv"
    return ""


def _guessed(text: TextSource) -> str:
    """Return the format of text that is not recognized: one column or a file of SMILES."""
    line, below, *_ = (one.strip() for one in (*text.peek(2), "", ""))
    # "smiles zinc_id" may be one name or two: the line below it tells.
    if len(below.split()) > 1 and is_smiles_name(line.partition(" ")[0]):
        return "smi"
    return "csv" if is_smiles_name(line.strip('"')) else "smi"


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
