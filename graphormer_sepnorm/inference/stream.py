"""Predicting for a whole table: as many rows out as in, in the same order, in little memory.

Output goes to ``NAME.partial`` and has its own name when it is complete. Beside it,
``NAME.progress.json`` says how many rows are safely in it and what they were made from; by that an
interrupted job is continued, on a CPU to the identical file.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.formatting import in_a_line, listed
from graphormer_sepnorm.inference.batching import CHUNK_ROWS
from graphormer_sepnorm.inference.embeddings import Embedder
from graphormer_sepnorm.inference.evaluation import Evaluation
from graphormer_sepnorm.inference.predictor import Predictor
from graphormer_sepnorm.inference.table_job import (
    Outcome,
    TableJob,
    check_places,
    earlier_progress,
    forget_progress,
    identify,
    save_progress,
)
from graphormer_sepnorm.inference.table_molecules import MoleculeColumns, Molecules, computed
from graphormer_sepnorm.tables.columns import find_column, free_name, parse_number
from graphormer_sepnorm.tables.formats import format_of, format_to_write
from graphormer_sepnorm.tables.opening import open_table
from graphormer_sepnorm.tables.reader import Row, TableReader
from graphormer_sepnorm.tables.writer import TableWriter, create_table


@dataclass(frozen=True)
class Columns:
    """Columns of input and output.

    Attributes:
        molecules: Where the molecules stand, and what the model reads beside them.
        labels: Positions of the labels, one per target that is evaluated; empty without
            evaluation.
        added: Names of our columns: SMILES of records, if any, predictions, warning, error.
        with_smiles: Whether the SMILES of records are added.
        numbers: Names of what is predicted: values, and what comes with them.
        values: Which of these are values, one for each target; empty for an embedding.
        similarity: Which of these is the similarity to the most similar training molecule; None:
            the model does not know it.
    """

    molecules: MoleculeColumns
    labels: tuple[int, ...]
    added: tuple[str, ...]
    with_smiles: bool
    numbers: tuple[str, ...]
    values: tuple[int, ...]
    similarity: int | None

    @property
    def compared(self) -> tuple[int, ...]:
        """Which of these an evaluation looks at."""
        return self.values if self.similarity is None else (*self.values, self.similarity)


class _Predicted(NamedTuple):
    """What is added to a row: the SMILES of a record, if asked for, and what was predicted."""

    smiles: tuple[str, ...]
    numbers: list[float]
    texts: tuple[str, ...]
    warning: str
    error: str


def predict_table(
    predictor: Predictor | Embedder, job: TableJob, checkpoint: Path, outcome: Outcome
) -> None:
    """Predict for all rows of a table, or give their embeddings.

    The outcome is filled in meanwhile, so that it can be read after an interruption.

    Raises:
        DataError: The table cannot be read, the output cannot be written or would overwrite
            something, or an interrupted job is another one.
    """
    check_places(job)
    with job.opened() as reader:
        columns = find_columns(reader, predictor, job, outcome)
        if job.shard and job.shard.number > 1:  # the parts are put behind each other
            reader.announced = False
        identity = None
        if job.can_resume:
            identity = identify(job, checkpoint, CHUNK_ROWS, predictor.device)
        mark = earlier_progress(job, identity, outcome) if job.resume and identity else None
        writer = create_table(
            job.destination,
            (*reader.columns, *columns.added),
            format=job.output_format,
            like=reader,
            types=dict.fromkeys(
                columns.numbers, "float32" if job.verb == "embedded" else "float64"
            ),
            resume=mark,
        )
        try:
            if mark is None:
                forget_progress(job)
            rows, total = iter(reader), None
            if job.shard:
                with job.opened() as counted:
                    part = job.shard.rows(counted.count(), CHUNK_ROWS)
                rows, total = itertools.islice(rows, part.start, part.stop), len(part)
            _skip(rows, columns, job, outcome)
            with computed(
                reader,
                columns.molecules,
                partial(predict_chunk, predictor, columns, job),
                CHUNK_ROWS,
                device=predictor.device,
                job=job,
                outcome=outcome,
                rows=rows,
                total=total,
            ) as work:
                for chunk, predicted in work:
                    _write(chunk, predicted, columns, writer, outcome)
                    if identity:
                        save_progress(job, writer.mark(), identity, outcome)
                        outcome.safe_rows = outcome.rows
            writer.commit()
        except BaseException:
            writer.close()
            if not outcome.safe_rows:  # there is nothing to continue
                writer.discard()
            raise
    if identity:
        job.progress_file.unlink(missing_ok=True)


def _write(
    chunk: list[Row],
    predicted: list[_Predicted],
    columns: Columns,
    writer: TableWriter,
    outcome: Outcome,
) -> None:
    for row, one in zip(chunk, predicted, strict=True):
        _evaluate(outcome, columns, row, one.numbers)
    writer.write(
        (
            (*row.cells, *one.smiles, *one.numbers, *one.texts, one.warning, one.error)
            for row, one in zip(chunk, predicted, strict=True)
        ),
        [row.record for row in chunk],
    )
    outcome.count([one.warning for one in predicted], [one.error for one in predicted])


def predict_chunk(
    predictor: Predictor | Embedder, columns: Columns, job: TableJob, molecules: Molecules
) -> list[_Predicted]:
    """Return what is added to each row of a chunk; runs in any process."""
    arguments: tuple[Any, ...] = molecules.parsed, job.batch_size, job.max_atoms
    if columns.molecules.names:
        arguments = *arguments, molecules.beside
    predictions = predictor.predict_molecules(*arguments)
    numbers = predictions.numbers
    smiles = molecules.smiles if columns.with_smiles else ()
    return [
        _Predicted(
            tuple(smiles[number : number + 1]),
            [rounded(value) for value in numbers[number]],
            predictions.texts[number] if predictions.texts else (),
            predictions.warnings[number],
            predictions.errors[number],
        )
        for number in range(len(predictions.errors))
    ]


def rounded(value: Any) -> float:
    """Return a number as it is written: with six digits, an embedding (float32) exactly.

    More than six are more than the arithmetic of the network is good for.
    """
    if value.dtype == np.float32:
        return float(str(value))  # the shortest text that is this number
    return float(f"{value:.6g}")


def _evaluate(outcome: Outcome, columns: Columns, row: Row, numbers: Sequence[float]) -> None:
    """Compare what was predicted, as `Columns.numbers`, with the labels of a row."""
    if outcome.evaluation is not None:
        pairs = zip(outcome.evaluation.targets, columns.labels, strict=True)
        for target, position in pairs:
            value = numbers[columns.values[target]]
            outcome.evaluation.add(target, row.cells[position], value)
        if columns.similarity is not None:
            outcome.evaluation.known += numbers[columns.similarity] == 1


def _targets_of(columns: Sequence[str], targets: Sequence[str]) -> Sequence[int]:
    """Return which target each column of labels is of.

    Columns that are called like targets are theirs, in whatever order they are named; others stand
    for all targets, in their order.

    Raises:
        DataError: There are fewer or more of them, or one is called like a target at another place.
    """
    # As columns are found: A is a, unless there are both.
    alike = str.lower if len({name.lower() for name in targets}) == len(targets) else str
    known = [alike(name) for name in targets]
    places = [known.index(alike(name)) if alike(name) in known else None for name in columns]
    if None not in places and len(set(places)) == len(places):
        return [place for place in places if place is not None]
    if len(columns) == len(targets):
        for column, place, target in zip(columns, places, targets, strict=True):
            if place is not None and targets[place] != target:
                raise DataError(
                    f"--evaluate {column}: it is called like one target and stands for another, "
                    f"{target}: name the columns in the order of the targets ({', '.join(targets)})"
                )
        return range(len(targets))
    raise DataError(
        f"--evaluate names {len(columns)} columns, the model has {len(targets)} "
        f"targets ({', '.join(targets)}): name one column for each, in this order, or some that "
        "are called like targets, each with an --evaluate of its own"
    )


def find_columns(
    reader: TableReader, predictor: Predictor | Embedder, job: TableJob, outcome: Outcome
) -> Columns:
    """Find the columns that are read and name those that are added."""
    names: tuple[str, ...] = ()
    if isinstance(predictor, Predictor):
        _ = predictor.featuriser  # or it takes no molecules
        names = predictor.extra_inputs.columns
    molecules = MoleculeColumns.find(reader, job.smiles_column, names)
    outcome.notes += molecules.notes
    if job.evaluate:
        task = predictor.task
        if task.one_of and len(job.evaluate) != 1:
            raise DataError(
                f"--evaluate names {len(job.evaluate)} columns: name the one that has the classes "
                f"of {task.one_of} ({listed(task.classes)})"
            )
        everything = range(len(task.targets))
        of_targets = everything if task.one_of else _targets_of(job.evaluate, task.targets)
        outcome.evaluation = Evaluation(task, of_targets, _kept(predictor))
    labels = tuple(find_column(reader.columns, name, reader.name) for name in job.evaluate)
    if predictor.task.one_of:
        labels *= len(predictor.task.targets)
    to_sdf = (job.output_format or format_to_write(job.destination)) == "sdf"
    with_smiles = molecules.smiles is None and not to_sdf
    wanted = (
        *(("smiles",) if with_smiles else ()),
        *predictor.columns,
        *predictor.text_columns,
        "warning",
        "error",
    )
    taken = list(reader.columns)
    added = []
    for name in wanted:
        free = free_name(name, taken)
        if free != name:
            outcome.notes.append(f"the table has a column {name!r}: ours is called {free!r}")
        taken.append(free)
        added.append(free)
    first = int(with_smiles)
    numbers = tuple(added[first : first + len(predictor.columns)])
    targets = [f"pred_{target}" for target in predictor.task.targets]
    given = predictor.columns
    values = tuple(given.index(name) for name in targets if name in given)
    similarity = given.index("similarity") if "similarity" in given else None
    return Columns(molecules, labels, tuple(added), with_smiles, numbers, values, similarity)


def _kept(predictor: Predictor | Embedder) -> str:
    """Say how many molecules of training a model knows, where these are not all."""
    if not isinstance(predictor, Predictor) or predictor.confidence is None:
        return ""
    kept, all_of_them = predictor.confidence.neighbours, predictor.facts.get("training_graphs", 0)
    if kept is None or len(kept) >= all_of_them:
        return ""
    return f" (it knows {len(kept):,} of these {all_of_them:,})"


def _skip(rows: Iterator[Row], columns: Columns, job: TableJob, outcome: Outcome) -> None:
    """Go past the rows that an earlier run predicted, and collect those for the evaluation."""
    if not outcome.rows:
        return
    skipped = itertools.islice(rows, outcome.rows)
    if outcome.evaluation is None:
        for _ in skipped:
            pass
        return
    format = job.output_format or format_of(job.destination)
    with open_table(job.partial, format) as done:
        for row, earlier in zip(skipped, done, strict=False):
            if format == "sdf":  # a field that no record has is no column
                cells = dict(zip(done.columns, earlier.cells, strict=True))
                ours = [cells.get(in_a_line(name)) for name in columns.numbers]  # as it is written
            else:  # by their places: a reader may strip names
                ours = [*earlier.cells[len(row.cells) + columns.with_smiles :]]
            numbers = [
                parse_number(cell) if place in columns.compared else math.nan
                for place, cell in enumerate(ours[: len(columns.numbers)])
            ]
            _evaluate(outcome, columns, row, numbers)
