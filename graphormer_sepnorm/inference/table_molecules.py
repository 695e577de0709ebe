"""The molecules of a table that is read: from a column of SMILES, or from SDF records."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from graphormer_sepnorm.chem.molecules import (
    ParsedMolecule,
    canonical_smiles,
    in_written_order,
    is_inchi,
    is_smiles,
    parse_molblock,
    parse_smiles,
)
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.formatting import listed
from graphormer_sepnorm.inference.table_job import Outcome, TableJob
from graphormer_sepnorm.inference.workers import map_in_order, number_of_jobs
from graphormer_sepnorm.process import trim_now_and_then
from graphormer_sepnorm.tables.columns import (
    find_column,
    find_smiles_column,
    is_empty,
    parse_or_missing,
)
from graphormer_sepnorm.tables.progress import TableProgress
from graphormer_sepnorm.tables.reader import Row, TableReader

# Of a row: what is wrong with it, what its molecule is read from, cells beside that.
Unread = tuple[str, Any, list[Any]]
Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class Molecules:
    """The molecules of some rows.

    Attributes:
        parsed: Each, or why a row has none.
        beside: float64 ``[rows, names]``, the numbers beside them; nan = missing.
        texts: The SMILES that they were read from; of SDF records and InChI None.
    """

    parsed: list[ParsedMolecule]
    beside: np.ndarray
    texts: list[Any]

    @property
    def smiles(self) -> list[str]:
        """As given; of records and InChI canonical, and empty where there is no molecule."""
        return [
            str(text)
            if text is not None
            else ("" if one.molecule is None else canonical_smiles(one.molecule))
            for one, text in zip(self.parsed, self.texts, strict=True)
        ]

    def in_order_of_smiles(self) -> list[ParsedMolecule]:
        """Return them with the atoms of each in the order of `smiles`."""
        return [
            one
            if text is not None or one.molecule is None
            else replace(one, molecule=in_written_order(one.molecule))
            for one, text in zip(self.parsed, self.texts, strict=True)
        ]


@dataclass(frozen=True)
class MoleculeColumns:
    """Where the molecules of a table stand, and what a model reads beside them.

    Attributes:
        smiles: Position of the SMILES; None: the molecules are in the SDF records.
        beside: Positions of the columns that are read beside them.
        names: Their names.
        notes: How the file is read, where that was not the only way, one line each.
    """

    smiles: int | None
    beside: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def find(
        cls, reader: TableReader, smiles_column: str | None, names: Sequence[str] = ()
    ) -> MoleculeColumns:
        """Find them in a table.

        Raises:
            DataError: There is no such column, or the table is a list of SMILES without a header.
        """
        smiles = None
        if reader.format != "sdf" or smiles_column is not None:
            names_of = reader.columns, smiles_column, reader.name
            smiles = find_smiles_column(*names_of, "--smiles_column", is_smiles)
        try:
            beside = tuple(find_column(reader.columns, name, reader.name) for name in names)
        except DataError as error:
            raise DataError(f"{error} (the model reads {listed(names)})") from error
        return cls(smiles, beside, tuple(names))

    def unread(self, row: Row) -> Unread:
        """Return the part of a row that is read in any process."""
        if row.problem:
            return row.problem, None, []
        text = row.record if self.smiles is None else row.cells[self.smiles]
        return "", text, [row.cells[place] for place in self.beside]

    def read(self, rows: Sequence[Unread]) -> Molecules:
        """Return the molecules of some rows."""
        in_records = self.smiles is None
        parse = parse_molblock if in_records else parse_smiles
        molecules, numbers = [], np.full((len(rows), len(self.names)), np.nan)
        for place, (problem, text, cells) in enumerate(rows):
            given: Any = text if in_records or not is_empty(text) else None
            parsed = ParsedMolecule(None, problem) if problem else parse(given)
            if parsed.readable:
                try:
                    numbers[place] = parse_or_missing(cells, self.names)
                except ValueError as error:
                    parsed = ParsedMolecule(None, str(error))
            molecules.append(parsed)
        texts = [None if in_records or is_inchi(text) else text for _, text, _ in rows]
        return Molecules(molecules, numbers, texts)


@contextmanager
def computed(
    reader: TableReader,
    columns: MoleculeColumns,
    compute: Callable[[Molecules], Result],
    size: int,
    device: str,
    job: TableJob,
    outcome: Outcome,
    rows: Iterator[Row] | None = None,
    total: int | None = None,
) -> Iterator[Iterator[tuple[list[Row], Result]]]:
    """Give some rows of a table at a time, in order, and what is computed of their molecules.

    It says how far it is, by the outcome, which the caller keeps. No process is left at the end.

    Args:
        reader: The table.
        columns: Where its molecules stand.
        compute: Runs in any process.
        size: How many rows at a time.
        device: Where it is computed.
        job: Says in how many processes.
        outcome: Knows how many rows are done.
        rows: Those that are left to do; None: all.
        total: How many these are, if that is known.
    """

    def read_and_compute(unread: Sequence[Unread]) -> Result:
        result = compute(columns.read(unread))
        trim_now_and_then()
        return result

    left = iter(reader) if rows is None else rows
    chunks = iter(lambda: list(itertools.islice(left, size)), [])
    parts = ((chunk, [columns.unread(row) for row in chunk]) for chunk in chunks)
    work = map_in_order(read_and_compute, parts, number_of_jobs(job.jobs, device))
    progress = TableProgress(reader, job.verb, job.quiet, outcome.rows, total)

    def shown() -> Iterator[tuple[list[Row], Result]]:
        for done in work:
            yield done
            progress.show(outcome.rows)

    try:
        yield shown()
    finally:
        work.close()
        progress.finish()
