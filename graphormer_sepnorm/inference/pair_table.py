"""The matched pairs of a table: what exchanging a part does to a prediction, and to labels."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import spearmanr

from graphormer_sepnorm.chem.matched_pairs import MatchedPair, matched_pairs
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.inference.batching import CHUNK_ROWS
from graphormer_sepnorm.inference.evaluation import label_of
from graphormer_sepnorm.inference.predictor import Predictor
from graphormer_sepnorm.inference.stream import rounded
from graphormer_sepnorm.inference.table_job import Outcome, TableJob, check_places, forget_progress
from graphormer_sepnorm.inference.table_molecules import MoleculeColumns
from graphormer_sepnorm.tables.columns import find_column
from graphormer_sepnorm.tables.progress import TableProgress
from graphormer_sepnorm.tables.reader import TableReader
from graphormer_sepnorm.tables.writer import TableWriter, create_table

_TEXTS = ("smiles_1", "smiles_2", "core", "part_1", "part_2")
_FEWEST = 3  # pairs of an exchange that is spoken of
_NOTHING_CHANGES = 1e-12


@dataclass(frozen=True, eq=False)
class PairTable:
    """The pairs of a table; P pairs, m molecules.

    Attributes:
        pairs: Their molecules are numbered from 0.
        predictions: float64 ``[m]``: real units, or probabilities.
        labels: float64 ``[m]``, nan = missing; None: they were not asked for.
    """

    pairs: list[MatchedPair]
    predictions: np.ndarray
    labels: np.ndarray | None

    def changes(self, values: np.ndarray, pairs: Sequence[MatchedPair] | None = None) -> np.ndarray:
        """Return what values ``[m]`` change by from the first to the second molecule, ``[P]``."""
        of = self.pairs if pairs is None else pairs
        ends = np.array([(pair.first, pair.second) for pair in of], int).reshape(-1, 2)
        return values[ends[:, 1]] - values[ends[:, 0]]

    def summary(self, most: int = 10) -> list[str]:
        """Return the most frequent exchanges, and how well labels change as predicted, in lines."""
        lines = []
        by_exchange = defaultdict(list)
        for pair in self.pairs:
            by_exchange[pair.part_first, pair.part_second].append(pair)
        frequent = sorted(by_exchange.items(), key=lambda one: -len(one[1]))
        shown = [one for one in frequent if len(one[1]) >= _FEWEST][:most]
        width = max((len(f"{first} to {second}") for (first, second), _ in shown), default=0)
        for (first, second), pairs in shown:
            text = f"{f'{first} to {second}':<{width}}  {len(pairs):>5,} pairs  "
            text += _mean(self.changes(self.predictions, pairs))
            if self.labels is not None:
                known = self.changes(self.labels, pairs)
                known = known[~np.isnan(known)]
                text += f"  labels {_mean(known)}" if len(known) else ""
            lines.append(text)
        if self.labels is not None:
            lines.append(self._agreement(self.labels))
        return lines

    def _agreement(self, labels: np.ndarray) -> str:
        said, measured = self.changes(self.predictions), self.changes(labels)
        known = ~np.isnan(measured)
        said, measured = said[known], measured[known]
        moves = np.abs(measured) > _NOTHING_CHANGES
        if moves.sum() < _FEWEST:
            return f"labels of both molecules differ in {moves.sum():,} pairs: too few to judge by"
        right = np.mean(np.sign(said[moves]) == np.sign(measured[moves]))
        error, size = (np.abs(of).mean() for of in (said - measured, measured))
        ranked = min(np.ptp(said), np.ptp(measured)) > _NOTHING_CHANGES
        rank = f"rank correlation {spearmanr(said, measured)[0]:.2f}; " if ranked else ""
        return (
            f"labels change in the direction that is predicted in {right:.0%} of {moves.sum():,} "
            f"pairs; {rank}the change is wrong by {error:.3g} on average, where labels change by "
            f"{size:.3g}"
        )


def pair_table(
    predictor: Predictor, target: int, job: TableJob, label: str | None, outcome: Outcome
) -> PairTable:
    """Find the matched pairs of a table and write what is predicted for them, a row for each.

    Of a model that reads columns beside the molecule they have the same values in both rows. A
    molecule that stands there several times is represented by its first row, with a label if one
    has a label, in the column `label` of measured values.

    Raises:
        DataError: The table cannot be read or the output not written; there are too many pairs.
    """
    check_places(job)
    with job.opened() as reader:
        names = predictor.extra_inputs.columns
        columns = MoleculeColumns.find(reader, job.smiles_column, names)
        outcome.notes += columns.notes
        measured = None if label is None else find_column(reader.columns, label, reader.name)
        reader.require_values(() if measured is None else [measured])
        with _writing(job, ("pred",) if label is None else ("pred", "label")) as writer:
            rows = _read(predictor, target, job, reader, columns, measured, outcome)
            labels = np.array([row.label for row in rows])
            if label and len(labels) and np.isnan(labels).all():
                raise DataError(f"{job.source}: no row has a label in column {label!r}")
            # Those with a label first, otherwise in the order of the table.
            order = sorted(range(len(rows)), key=lambda place: bool(np.isnan(labels[place])))
            found = matched_pairs(
                [rows[place].molecule for place in order], [rows[place].beside for place in order]
            )
            pairs = [
                one._replace(first=order[one.first], second=order[one.second]) for one in found
            ]
            predictions = np.array([row.prediction for row in rows])
            table = PairTable(pairs, predictions, labels if label else None)
            _write(table, rows, writer)
    return table


class _Row(NamedTuple):
    """A row with a prediction.

    Attributes:
        number: In the table.
        smiles: As given.
        molecule: RDKit's, in the form that the model was trained on.
        prediction: Of the target.
        label: nan = missing.
        beside: What the model reads beside the molecule, inf = missing: nan would not equal nan.
    """

    number: int
    smiles: str
    molecule: Any
    prediction: float
    label: float
    beside: tuple[float, ...]


def _read(
    predictor: Predictor,
    target: int,
    job: TableJob,
    reader: TableReader,
    columns: MoleculeColumns,
    measured: int | None,
    outcome: Outcome,
) -> list[_Row]:
    """Read and predict a table, with labels from the column `measured`; see `pair_table`."""
    rows, unusable = [], []
    progress, left = TableProgress(reader, "predicted", job.quiet), iter(reader)
    while some := list(itertools.islice(left, CHUNK_ROWS)):
        molecules = columns.read([columns.unread(row) for row in some])
        given, ready = molecules.smiles, predictor.prepared(molecules.parsed)
        beside = molecules.beside if columns.names else None
        found = predictor.predict_molecules(ready, job.batch_size, job.max_atoms, beside)
        outcome.count(found.warnings, found.errors)
        for place, row in enumerate(some):
            if found.errors[place]:
                continue
            cell = None if measured is None else row.cells[measured]
            try:
                value = label_of(predictor.task, target, cell)
            except ValueError:
                value = math.nan
                unusable.append(cell)
            rows.append(
                _Row(
                    row.number,
                    given[place],
                    ready[place].molecule,
                    found.values[place, target],
                    value,
                    tuple(np.nan_to_num(molecules.beside[place], nan=np.inf)),
                )
            )
        progress.show(outcome.rows)
    progress.finish()
    if unusable:
        example = " ".join(str(unusable[0]).split())[:40]
        outcome.notes.append(f"{len(unusable):,} labels cannot be used, such as {example!r}")
    return rows


@contextmanager
def _writing(job: TableJob, values: Sequence[str]) -> Iterator[TableWriter]:
    """Begin the table of pairs, with these `values` of each molecule; it stays if all goes well."""
    types: dict[str, str] = dict.fromkeys(("row_1", "row_2"), "int64")
    types |= dict.fromkeys(_TEXTS, "string")
    for name in values:
        types |= {f"{name}_{which}": "float64" for which in ("1", "2", "change")}
    writer = create_table(job.destination, tuple(types), format=job.output_format, types=types)
    try:
        forget_progress(job)
        yield writer
        writer.commit()
    except BaseException:
        writer.discard()
        raise


def _write(table: PairTable, rows: Sequence[_Row], writer: TableWriter) -> None:
    values = [table.predictions] + ([] if table.labels is None else [table.labels])
    changes = [table.changes(of) for of in values]
    for start in range(0, len(table.pairs), CHUNK_ROWS):
        some = enumerate(table.pairs[start : start + CHUNK_ROWS], start)
        writer.write(
            [
                rows[pair.first].number,
                rows[pair.second].number,
                rows[pair.first].smiles,
                rows[pair.second].smiles,
                *pair[2:],
                *(
                    rounded(value)
                    for of, change in zip(values, changes, strict=True)
                    for value in (of[pair.first], of[pair.second], change[number])
                ),
            ]
            for number, pair in some
        )


def _mean(changes: np.ndarray) -> str:
    """Mean and standard deviation."""
    text = f"{changes.mean():+.3g}"
    return text if len(changes) < 2 else f"{text} ± {changes.std(ddof=1):.2g}"
