"""The molecules of a table that is read: from a column of SMILES, or from SDF records."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from graphormer_sepnorm.chem.molecules import (
    ParsedMolecule,
    canonical_smiles,
    is_smiles,
    parse_molblock,
    parse_smiles,
)
from graphormer_sepnorm.tables.columns import (
    find_smiles_column,
    parse_or_missing,
)
from graphormer_sepnorm.tables.reader import Row, TableReader

# Of a row: what is wrong with it, what its molecule is read from, cells beside that.
Unread = tuple[str, Any, list[Any]]


def find_molecules(reader: TableReader, smiles_column: str | None) -> int | None:
    """Return the position of the SMILES; None: the molecules are in the SDF records.

    Raises:
        DataError: There is no such column, or the table is a list of SMILES without a header.
    """
    if reader.format == "sdf" and smiles_column is None:
        return None
    return find_smiles_column(
        reader.columns, smiles_column, reader.name, "--smiles_column", is_smiles
    )


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


def chunks(
    rows: Iterator[Row], smiles: int | None, size: int, extra: Sequence[int] = ()
) -> Iterator[tuple[list[Row], list[Unread]]]:
    """Yield so many rows at a time, and the part of them that is read in any process.

    Args:
        rows: Of the table.
        smiles: As from `find_molecules`.
        size: How many at a time.
        extra: Positions of the columns that the model reads beside the molecules.
    """
    while chunk := list(itertools.islice(rows, size)):
        yield (
            chunk,
            [
                (*molecule_text(row, smiles), [] if row.problem else [row.cells[n] for n in extra])
                for row in chunk
            ],
        )


def read_chunk(
    texts: Sequence[Unread], in_record: bool, names: Sequence[str] = ()
) -> tuple[list[ParsedMolecule], np.ndarray]:
    """Return the molecules of a chunk, or why they have none, and the numbers beside them.

    Args:
        texts: What `chunks` gives.
        in_record: Whether the molecules are in SDF records.
        names: Of the columns beside them.

    Returns:
        Of each row its molecule, and float64 ``[rows, len(names)]``, nan = missing.
    """
    molecules = [parse_text(problem, text, in_record) for problem, text, _ in texts]
    numbers = np.full((len(texts), len(names)), np.nan)
    for place, (_, _, cells) in enumerate(texts):
        if molecules[place].molecule is None:
            continue  # the row has its reason
        try:
            numbers[place] = parse_or_missing(cells, names)
        except ValueError as error:
            molecules[place] = ParsedMolecule(None, str(error))
    return molecules, numbers


def smiles_of(
    texts: Sequence[Unread], molecules: Sequence[ParsedMolecule], in_record: bool
) -> list[str]:
    """Return the SMILES of the rows of a chunk as given, of records the canonical ones."""
    if in_record:
        return [canonical_of(molecule) for molecule in molecules]
    return ["" if text is None else str(text) for _, text, _ in texts]


def canonical_of(parsed: ParsedMolecule) -> str:
    """Return the SMILES of a record; empty where it has no molecule."""
    return "" if parsed.molecule is None else canonical_smiles(parsed.molecule)
