"""What an actor of Ray does: a table of some rows in, the same with predictions out."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from graphormer_sepnorm.inference.batching import CHUNK_ROWS
from graphormer_sepnorm.inference.beside import Asked
from graphormer_sepnorm.inference.predictor import Predictor
from graphormer_sepnorm.inference.stream import Columns, predict_chunk
from graphormer_sepnorm.inference.table_job import TableJob, kind_of
from graphormer_sepnorm.process import trim_now_and_then

# So often rows are tried whose actor dies of them, of too little memory say. Ray itself tries for
# ever, or with a limit leaves dead actors in the pool, and no end if all are.
_TRIES = 3


@dataclass(frozen=True)
class Best:
    """The rows that are kept of many.

    Attributes:
        count: How many.
        by: The column whose values decide.
        lowest: Whether the lowest are kept.
        tie: The column that decides between equal values, so that chance does not.
        errors: The column of reasons why there is no prediction, and that of warnings.
        counts: Name of the column in which is told what the rows were that are not kept.
    """

    count: int
    by: str
    lowest: bool
    tie: str
    errors: tuple[str, str]
    counts: str

    def of(self, table: Any) -> Any:
        """Return the best rows, the first one first."""
        table = table.filter(table[self.by].is_valid())
        order = [(self.by, "ascending" if self.lowest else "descending"), (self.tie, "ascending")]
        return table.sort_by(order).slice(0, self.count)

    def counted(self, table: Any) -> Any:
        """Return the best rows, below a row that tells what all of them were."""
        import pyarrow

        error, warning = (table[name].to_pylist() for name in self.errors)
        counts = {
            "rows": table.num_rows,
            "warnings": sum(map(bool, warning)),
            "errors": Counter(kind_of(text) for text in error if text),
        }
        told = table.slice(0, 1).set_column(
            table.column_names.index(self.by), self.by, pyarrow.nulls(1, pyarrow.float64())
        )
        tables = [told, self.of(table)]
        notes = [json.dumps(counts), *[None] * tables[1].num_rows]
        return pyarrow.concat_tables(tables).append_column(
            self.counts, pyarrow.array(notes, pyarrow.string())
        )


@dataclass(frozen=True)
class Task:
    """What an actor has to know."""

    columns: Columns
    job: TableJob
    model: Path
    asked: Asked
    device: str
    best: Best | None
    tries: Path


class Predict:
    """The function that is mapped: a table of some rows in, the same with predictions out."""

    def __init__(self, task: Task) -> None:
        import torch

        torch.set_num_threads(1)
        self._task = task
        self._predictor = Predictor.load(task.model, task.device)
        self._predictor.ask(*astuple(task.asked))

    def __call__(self, table: Any) -> Any:
        """Predict a table of pyarrow; return it, or the best of it.

        Raises:
            RuntimeError: Its rows have ended their actor each time.
        """
        import pyarrow

        starts = range(0, table.num_rows, CHUNK_ROWS)
        with self._try(table):
            predicted = pyarrow.concat_tables(
                [self._predicted(table.slice(start, CHUNK_ROWS)) for start in starts]
            )
        return self._task.best.counted(predicted) if self._task.best else predicted

    @contextlib.contextmanager
    def _try(self, table: Any) -> Iterator[None]:
        """Note in a file that these rows are tried, until they are done.

        Raises:
            RuntimeError: They have ended their actor each time.
        """
        key = hashlib.sha256(repr(table.to_pydict()).encode()).hexdigest()
        note = self._task.tries / key
        times = note.stat().st_size if note.exists() else 0
        if times >= _TRIES:
            raise RuntimeError(f"{times} actors died of the same rows")
        with note.open("ab") as file:
            file.write(b".")
        yield
        note.unlink(missing_ok=True)

    def _predicted(self, table: Any) -> Any:
        import pyarrow

        columns = self._task.columns
        source = columns.molecules
        cells = (table.column(place).to_pylist() for place in (source.smiles, *source.beside))
        texts = [("", smiles, beside) for smiles, *beside in zip(*cells, strict=True)]
        rows = predict_chunk(self._predictor, columns, self._task.job, source.read(texts))
        trim_now_and_then()
        numbers, others = columns.numbers, columns.added[len(columns.numbers) :]
        for place, name in enumerate(numbers):
            values = [row.numbers[place] for row in rows]
            values = [None if math.isnan(value) else value for value in values]
            table = table.append_column(name, pyarrow.array(values, pyarrow.float64()))
        for place, name in enumerate(others):
            values = [(*row.texts, row.warning, row.error)[place] for row in rows]
            table = table.append_column(name, pyarrow.array(values, pyarrow.string()))
        return table
