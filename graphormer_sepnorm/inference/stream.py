"""Predicting for a whole table: as many rows out as in, in the same order, in little memory.

Output goes to ``NAME.partial`` and has its own name when it is complete. Beside it,
``NAME.progress.json`` says how many rows are safely in it and what they were made from; by that an
interrupted job is continued, on a CPU to the identical file.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.formatting import listed
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
from graphormer_sepnorm.tables.columns import find_column, free_name
from graphormer_sepnorm.tables.formats import format_to_write
from graphormer_sepnorm.tables.reader import Row, TableReader
from graphormer_sepnorm.tables.writer import create_table


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


class Predicted(NamedTuple):
    """What is added to a row: the SMILES of a record, if asked for, and what was predicted."""

    smiles: tuple[str, ...]
    numbers: list[float]
    texts: tuple[str, ...]
    remarks: tuple[str, str]


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
            rows = itertools.islice(rows, outcome.rows, None)  # an earlier run predicted these
            with computed(
                reader,
                columns.molecules,
                partial(predict_chunk, predictor, columns, job),
                CHUNK_ROWS,
                predictor.device,
                job,
                outcome,
                rows,
                total,
            ) as work:
                for chunk, predicted in work:
                    writer.write(
                        (
                            (*row.cells, *one.smiles, *one.numbers, *one.texts, *one.remarks)
                            for row, one in zip(chunk, predicted, strict=True)
                        ),
                        [row.record for row in chunk],
                    )
                    if outcome.evaluation is not None:
                        _evaluate(outcome.evaluation, columns, chunk, predicted)
                    outcome.count(*zip(*(one.remarks for one in predicted), strict=True))
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


def predict_chunk(
    predictor: Predictor | Embedder, columns: Columns, job: TableJob, molecules: Molecules
) -> list[Predicted]:
    """Return what is added to each row of a chunk; runs in any process."""
    arguments: tuple[Any, ...] = molecules.parsed, job.batch_size, job.max_atoms
    if columns.molecules.names:
        arguments = *arguments, molecules.beside
    predictions = predictor.predict_molecules(*arguments)
    numbers = predictions.numbers
    smiles = molecules.smiles if columns.with_smiles else ()
    return [
        Predicted(
            tuple(smiles[number : number + 1]),
            [rounded(value) for value in numbers[number]],
            predictions.texts[number] if predictions.texts else (),
            (predictions.warnings[number], predictions.errors[number]),
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


def _evaluate(
    evaluation: Evaluation, columns: Columns, rows: Sequence[Row], predicted: Sequence[Predicted]
) -> None:
    """Compare what was predicted for some rows with their labels."""
    pairs = [*zip(evaluation.targets, columns.labels, strict=True)]
    for row, one in zip(rows, predicted, strict=True):
        for target, position in pairs:
            evaluation.add(target, row.cells[position], one.numbers[columns.values[target]])
        if columns.similarity is not None:
            evaluation.known += one.numbers[columns.similarity] == 1


def _targets_of(columns: Sequence[str], targets: Sequence[str]) -> Sequence[int]:
    """Return which target each column of labels is of.

    Columns that are called like targets are theirs, in whatever order they are named; others stand
    for all targets, in their order.

    Raises:
        DataError: There are fewer or more of them, or one is called like a target elsewhere.
    """
    # As columns are found: A is a, unless there are both.
    alike = str.lower if len({name.lower() for name in targets}) == len(targets) else str
    numbers = {alike(name): number for number, name in enumerate(targets)}
    found = {numbers[alike(name)] for name in columns if alike(name) in numbers}
    if len(found) == len(columns):
        return [numbers[alike(name)] for name in columns]
    in_order = [numbers.get(alike(name), place) for place, name in enumerate(columns)]
    if in_order == [*range(len(targets))]:
        return in_order
    raise DataError(
        f"--evaluate names {len(columns)} columns ({', '.join(columns)}), the model has "
        f"{len(targets)} targets ({', '.join(targets)}): name one column for each, in this order, "
        "or some that are called like targets, each with an --evaluate of its own"
    )


def find_columns(
    reader: TableReader, predictor: Predictor | Embedder, job: TableJob, outcome: Outcome
) -> Columns:
    """Find the columns that are read and name those that are added."""
    names: tuple[str, ...] = ()
    if isinstance(predictor, Predictor):
        _ = predictor.reader.featuriser  # or it takes no molecules
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
        of_targets: Sequence[int] = range(len(task.targets))
        if not task.one_of:
            of_targets = _targets_of(job.evaluate, task.targets)
        outcome.evaluation = Evaluation(task, of_targets)
    labels = tuple(find_column(reader.columns, name, reader.name) for name in job.evaluate)
    if predictor.task.one_of:
        labels *= len(predictor.task.targets)
    to_sdf = (job.output_format or format_to_write(job.destination)) == "sdf"
    with_smiles = molecules.smiles is None and not to_sdf
    given, first = predictor.columns, int(with_smiles)
    added: list[str] = []
    for name in (*["smiles"][:first], *given, *predictor.text_columns, "warning", "error"):
        free = free_name(name, [*reader.columns, *added])
        if free != name:
            outcome.notes.append(f"the table has a column {name!r}: ours is called {free!r}")
        added.append(free)
    numbers = tuple(added[first : first + len(given)])
    targets = [f"pred_{target}" for target in predictor.task.targets]
    values = tuple(given.index(name) for name in targets if name in given)
    similarity = given.index("similarity") if "similarity" in given else None
    return Columns(molecules, labels, tuple(added), with_smiles, numbers, values, similarity)
