"""Predicting for a whole table: as many rows out as in, in the same order, in little memory.

Output goes to ``NAME.partial`` and has its own name when it is complete. Next to it,
``NAME.progress.json`` says how many rows are safely in it and what they were made from; by that an
interrupted job is continued, on a CPU to the identical file.

The way of a row: read here (`Row`), parsed and predicted in any process (`MoleculeColumns.parse`,
`predict_chunk`), written here.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

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
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.inference.batching import CHUNK_ROWS
from graphormer_sepnorm.inference.evaluation import Evaluation
from graphormer_sepnorm.inference.predictor import Predictor
from graphormer_sepnorm.inference.table_job import (
    EVERY_TARGET,
    Outcome,
    TableJob,
    check_places,
    earlier_progress,
    forget_progress,
    identify,
    save_progress,
)
from graphormer_sepnorm.inference.workers import map_in_order, number_of_jobs
from graphormer_sepnorm.process import trim_now_and_then
from graphormer_sepnorm.tables.columns import (
    find_column,
    find_smiles_column,
    free_name,
    is_empty,
    parse_or_missing,
)
from graphormer_sepnorm.tables.opening import format_to_write
from graphormer_sepnorm.tables.progress import TableProgress
from graphormer_sepnorm.tables.reader import Row, TableReader
from graphormer_sepnorm.tables.writer import create_table

# Of a row: what is wrong with it, what its molecule is read from, the extra inputs.
Unparsed = tuple[str, Any, list[Any]]
Result = TypeVar("Result")


class Molecules(NamedTuple):
    """The molecules of some rows.

    Attributes:
        parsed: Each, or why a row has none.
        texts: The SMILES as given; None where there is none: of SDF records, InChI, empty cells.
        extra: float64 ``[rows, names]``, the columns that a model reads too; nan = missing.
    """

    parsed: list[ParsedMolecule]
    texts: list[Any]
    extra: np.ndarray

    @property
    def smiles(self) -> list[str]:
        """As given; else canonical, and empty where there is no molecule."""
        texts = []
        for one, text in zip(self.parsed, self.texts, strict=True):
            if text is None:
                text = "" if one.molecule is None else canonical_smiles(one.molecule)
            texts.append(str(text))
        return texts


@dataclass(frozen=True)
class MoleculeColumns:
    """The columns of a table that hold molecules, and what a model reads in addition to them."""

    smiles: int | None  # position; None: the molecules are in the SDF records
    extra: tuple[int, ...]  # positions of the columns that are read too
    names: tuple[str, ...]  # their names
    written_order: bool  # whether atoms of records and InChI get the order of their SMILES

    @classmethod
    def find(cls, reader: TableReader, job: TableJob, names: Sequence[str]) -> MoleculeColumns:
        """Find them in a table.

        Raises:
            DataError: There is no such column, or the table is a list of SMILES without a header.
        """
        smiles = None
        if reader.format != "sdf" or job.smiles_column is not None:
            names_of = reader.columns, job.smiles_column, reader.name
            smiles = find_smiles_column(*names_of, "--smiles_column", is_smiles)
        try:
            extra = tuple(find_column(reader.columns, name, reader.name) for name in names)
        except DataError as error:
            raise DataError(f"{error} (the model reads {listed(names)})") from error
        return cls(smiles, extra, tuple(names), job.verb == "explained")

    def cells(self, row: Row) -> Unparsed:
        """Return the part of a row that is parsed in any process."""
        if row.problem:
            return row.problem, None, []
        text = row.record if self.smiles is None else row.cells[self.smiles]
        return "", text, [row.cells[position] for position in self.extra]

    def parse(self, rows: Sequence[Unparsed]) -> Molecules:
        """Return the molecules of some rows."""
        parsed, texts, extra = [], [], np.full((len(rows), len(self.names)), np.nan)
        for number, (problem, text, cells) in enumerate(rows):
            if problem:
                one = ParsedMolecule(None, problem)
            elif self.smiles is None:
                one = parse_molblock(text)
            else:
                one = parse_smiles(None if is_empty(text) else text)
            if one.molecule is not None:
                try:
                    extra[number] = parse_or_missing(cells, self.names)
                except ValueError as error:
                    one = ParsedMolecule(None, str(error))
            if self.smiles is None or is_inchi(text):
                text = None
                if self.written_order and one.molecule is not None:
                    one = replace(one, molecule=in_written_order(one.molecule))
            parsed.append(one)
            texts.append(text)
        return Molecules(parsed, texts, extra)


def computed(
    reader: TableReader,
    columns: MoleculeColumns,
    compute: Callable[[Molecules], Result],
    size: int,
    device: str,
    job: TableJob,
    outcome: Outcome,
) -> Generator[tuple[list[Row], Result], None, None]:
    """Yield some rows of a table at a time, in order, and what is computed of their molecules.

    These are the rows of the job's shard, without those that the outcome knows of an earlier run.
    Progress is shown by the outcome, which the caller keeps up to date. Closing the generator
    leaves no process; `compute` runs in any process, for `size` rows at a time.
    """

    def parse_and_compute(cells: Sequence[Unparsed]) -> Result:
        result = compute(columns.parse(cells))
        trim_now_and_then()
        return result

    rows, total = iter(reader), None
    if job.shard:
        with job.opened() as counted:
            part = job.shard.rows(counted.count(), size)
        rows, total = itertools.islice(rows, part.start, part.stop), len(part)
    rows = itertools.islice(rows, outcome.rows, None)
    chunks = iter(lambda: list(itertools.islice(rows, size)), [])
    parts = ((chunk, [columns.cells(row) for row in chunk]) for chunk in chunks)
    work = map_in_order(parse_and_compute, parts, number_of_jobs(job.jobs, device))
    progress = TableProgress(reader, job.verb, job.quiet, outcome.rows, total)
    try:
        for done in work:
            yield done
            progress.show(outcome.rows)
    finally:
        work.close()
        progress.finish()


def find_columns(
    reader: TableReader, predictor: Predictor, job: TableJob, outcome: Outcome
) -> tuple[MoleculeColumns, dict[str, str], tuple[str, ...]]:
    """Find the columns that are read and name those that are added; prepare the evaluation.

    Returns:
        Those that are read; of each that is added our name and that in the output, where ours may
        be taken; names in the output of those that hold numbers.

    Raises:
        DataError: A column is missing, or labels do not fit the targets.
        CheckpointError: The model does not take SMILES.
    """
    embeds = job.verb == "embedded"
    found = (predictor.embed_molecules if embeds else predictor.predict_molecules)([])
    names = () if embeds else predictor.extra_inputs
    molecules = MoleculeColumns.find(reader, job, names)
    ours = [*found.table, "warning", "error"]
    format = job.output_format or format_to_write(job.destination)
    if molecules.smiles is None and format != "sdf":
        ours.insert(0, "smiles")
    added: dict[str, str] = {}
    for name in ours:
        added[name] = free_name(name, [*reader.columns, *added.values()])
        if added[name] != name:
            outcome.notes.append(f"the table has a column {name!r}: ours is called {added[name]!r}")
    if job.evaluate:
        outcome.evaluation = _evaluation(reader, predictor.task, job.evaluate)
    return molecules, added, tuple(added[name] for name in found.columns)


def _evaluation(reader: TableReader, task: Task, names: Sequence[str]) -> Evaluation:
    """Return what compares columns of labels with the targets.

    Columns that are called like targets are theirs, in whatever order they are named; others stand
    for all targets, in their order. Classes of which a molecule is of one have one column.
    """
    own = "all" in reader.columns and (task.one_of or len(task.targets) == 1)
    if names == EVERY_TARGET and not own:
        names = (task.one_of,) if task.one_of else task.targets
    positions = [find_column(reader.columns, name, reader.name) for name in names]
    if task.one_of and len(names) == 1:
        return Evaluation(task, dict.fromkeys(range(len(task.targets)), positions[0]))
    numbers = {name.lower(): number for number, name in enumerate(task.targets)}
    numbers |= {name: number for number, name in enumerate(task.targets)}
    found = [numbers.get(name, numbers.get(name.lower(), -1)) for name in names]
    if len(found) == len(task.targets) and all(at in (-1, n) for n, at in enumerate(found)):
        found = [*range(len(found))]
    if task.one_of or -1 in found or len({*found}) < len(found):
        raise DataError(
            f"--evaluate names {len(names)} columns, {listed(names)} for "
            f"{task.one_of or listed(task.targets)}: name one for each target, in this order, or "
            "some that are called like targets, each with an --evaluate of its own; or all"
        )
    return Evaluation(task, dict(zip(found, positions, strict=True)))


def predict_table(predictor: Predictor, job: TableJob, checkpoint: Path, outcome: Outcome) -> None:
    """Predict for all rows of a table, or give their embeddings.

    The outcome is filled in meanwhile, so that it can be read after an interruption.

    Raises:
        DataError: The table cannot be read, the output cannot be written or would overwrite
            something, or an interrupted job is another one.
    """
    check_places(job)
    embeds = job.verb == "embedded"
    if embeds:
        outcome.notes += filter(None, [predictor.embedding_note])
    with job.opened() as reader:
        columns, added, numbers = find_columns(reader, predictor, job, outcome)
        identity = mark = None
        if job.can_resume:
            identity = identify(job, checkpoint, CHUNK_ROWS, predictor.device)
            mark = earlier_progress(job, identity, outcome) if job.resume else None
        writer = create_table(
            job.destination,
            (*reader.columns, *added.values()),
            format=job.output_format,
            like=reader,
            types=dict.fromkeys(numbers, "float32" if embeds else "float64"),
            resume=mark,
        )
        try:
            if mark is None:
                forget_progress(job)
            compute = partial(predict_chunk, predictor, "smiles" in added, job)
            options = CHUNK_ROWS, predictor.device, job, outcome
            work = computed(reader, columns, compute, *options)
            with contextlib.closing(work):
                for chunk, found in work:
                    rows = zip(chunk, *found.values(), strict=True)
                    cells = ((*row.cells, *ours) for row, *ours in rows)
                    writer.write(cells, [row.record for row in chunk])
                    if outcome.evaluation is not None:
                        outcome.evaluation.add_rows([row.cells for row in chunk], found)
                    outcome.count(found["warning"], found["error"])
                    if identity:
                        save_progress(job, writer.mark(), identity, outcome)
            writer.commit()
        except BaseException:
            writer.close()
            if not outcome.safe_rows:  # there is nothing to continue
                writer.discard()
            raise
    if identity:
        job.progress_file.unlink(missing_ok=True)


def predict_chunk(
    predictor: Predictor, with_smiles: bool, job: TableJob, molecules: Molecules
) -> dict[str, Sequence[Any]]:
    """Return the columns that are added to a chunk, by our names; runs in any process."""
    options = job.batch_size, job.max_atoms
    found: Any
    if job.verb == "embedded":
        found = predictor.embed_molecules(molecules.parsed, *options)
    else:
        found = predictor.predict_molecules(molecules.parsed, *options, molecules.extra)
    cells = {
        name: [*map(rounded, column)] if isinstance(column, np.ndarray) else column
        for name, column in found.table.items()
    }
    smiles = {"smiles": molecules.smiles} if with_smiles else {}
    return smiles | cells | {"warning": found.warnings, "error": found.errors}


def rounded(value: Any) -> float:
    """Return a number as it is written: with six digits, an embedding (float32) exactly.

    More than six are more than the arithmetic of the network is good for.
    """
    if value.dtype == np.float32:
        return float(str(value))  # the shortest text that is this number
    return float(f"{value:.6g}")
