"""The molecules of a table that is read: from a column of SMILES, or from SDF records."""

from __future__ import annotations

from typing import Any

from graphormer_sepnorm.chem.molecules import ParsedMolecule, parse_molblock, parse_smiles
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.tables.columns import find_smiles_column, is_smiles_name
from graphormer_sepnorm.tables.reader import Row, TableReader


def find_molecules(reader: TableReader, smiles_column: str | None) -> int | None:
    """Return the position of the SMILES; None: the molecules are in the SDF records.

    Raises:
        DataError: There is no such column, or the table is a list of SMILES without a header.
    """
    if reader.format == "sdf" and smiles_column is None:
        return None
    _refuse_headless(reader, smiles_column)
    return find_smiles_column(reader.columns, smiles_column, reader.name, "--smiles_column")


def parse_row(row: Row, smiles: int | None) -> ParsedMolecule:
    """Return the molecule of a row, or why it has none; `smiles` as from `find_molecules`."""
    return parse_text(*molecule_text(row, smiles), in_record=smiles is None)


def molecule_text(row: Row, smiles: int | None) -> tuple[str, Any]:
    """Return what is wrong with a row, if anything, and what its molecule is read from."""
    if row.problem:
        return row.problem, None
    return "", row.record if smiles is None else row.cells[smiles]


def parse_text(problem: str, text: Any, in_record: bool) -> ParsedMolecule:
    """Return the molecule of a row by its `molecule_text`, or why it has none."""
    if problem:
        return ParsedMolecule(None, problem)
    return parse_molblock(text) if in_record else parse_smiles(text)


def _refuse_headless(reader: TableReader, smiles_column: str | None) -> None:
    """Notice a list of SMILES whose first molecule would be lost as the name of its column.

    Raises:
        DataError: The only column is called by a SMILES, and the user did not name it.
    """
    if len(reader.columns) != 1 or smiles_column or reader.format in ("smi", "sdf"):
        return
    name = reader.columns[0]
    if not is_smiles_name(name) and parse_smiles(name).readable:
        raise DataError(
            f"{reader.name}: the first line is {name!r}, which is a molecule and not the name of a "
            f"column: put a line 'smiles' above it, or if it is the name, --smiles_column {name!r}"
        )
