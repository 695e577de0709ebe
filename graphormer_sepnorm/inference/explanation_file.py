"""Explanations in a file: numbers for machines, pictures, or a page with both.

The page and the numbers are written as molecules come, so a table of any length needs little
memory; a picture holds a few dozen molecules.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol, cast

from graphormer_sepnorm.chem.contribution_drawing import Format, draw_contributions
from graphormer_sepnorm.chem.fragments import fragment_smiles
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import is_full, replacing
from graphormer_sepnorm.formatting import listed
from graphormer_sepnorm.inference.explanation import Explainer, Explanation
from graphormer_sepnorm.inference.explanation_page import Page, caption, contribution_scale
from graphormer_sepnorm.inference.stream import kind_of
from graphormer_sepnorm.inference.table_job import Outcome, TableJob, check_places
from graphormer_sepnorm.inference.table_molecules import (
    Unread,
    chunks,
    find_molecules,
    read_chunk,
    smiles_of,
)
from graphormer_sepnorm.inference.workers import map_in_order, number_of_jobs
from graphormer_sepnorm.process import trim_now_and_then
from graphormer_sepnorm.tables.columns import find_column
from graphormer_sepnorm.tables.opening import open_table
from graphormer_sepnorm.tables.progress import TableProgress

MOST_DRAWN = 60  # molecules in a picture
# Rows that a process explains at a time: some seconds of work.
CHUNK_ROWS = 64


class _Output(Protocol):
    """Takes explanations, in the order of the rows."""

    def add(self, explanations: Sequence[Explanation]) -> None:
        """Take some more."""
        ...

    def finish(self) -> None:
        """Complete the file."""
        ...


def explain_smiles(
    explainer: Explainer, smiles: Sequence[str], job: TableJob, model: str, outcome: Outcome
) -> None:
    """Explain the predictions for some molecules; see `explain_table`."""
    if explainer.columns:
        raise DataError(
            f"the model reads {listed(explainer.columns)} beside the molecule: explain a table "
            "with such columns (-i FILE)"
        )
    explained = explainer.explain(smiles, job.batch_size, job.max_atoms)
    _write(explainer, [explained.molecules], job, model, outcome)


def _write(
    explainer: Explainer,
    chunks: Iterable[Sequence[Explanation]],
    job: TableJob,
    model: str,
    outcome: Outcome,
) -> None:
    """Write explanations; the file has its name when it is complete."""
    path = Path(job.destination)
    if path.is_dir():
        raise DataError(f"{path} is a directory: name a file")
    largest_rest = 0.0
    try:
        with _output(explainer, path, model, str(job.output_format)) as output:
            for explanations in chunks:
                output.add(explanations)
                for one in explanations:
                    outcome.rows += 1
                    outcome.warnings += bool(one.warning)
                    if one.error:
                        outcome.errors[kind_of(one.error)] += 1
                    elif not math.isnan(one.rest):
                        largest_rest = max(largest_rest, abs(one.rest))
            output.finish()
    except OSError as error:
        advice = "make room" if is_full(error) else "choose another place"
        raise DataError(
            f"{path} cannot be written ({error.strerror or error}): {advice}"
        ) from error
    if explainer.coverage:
        outcome.notes.append(explainer.coverage)
    if explainer.method == "integrated_gradients":
        outcome.notes.append(
            f"baseline and contributions miss what the network says by {largest_rest:.2g}"
            f"{f' {explainer.unit}' if explainer.unit else ''} at most"
        )


def explain_table(explainer: Explainer, job: TableJob, model: str, outcome: Outcome) -> None:
    """Explain the predictions for all molecules of a table.

    Args:
        explainer: The model, the target and the method.
        job: What is to be done.
        model: What the model is called.
        outcome: Filled in while the job runs.

    Raises:
        DataError: The table cannot be read, or the output cannot be written or would overwrite
            something.
    """
    check_places(job)
    with open_table(job.source, job.input_format) as reader:
        smiles = find_molecules(reader, job.smiles_column)
        names = explainer.columns
        extra = [find_column(reader.columns, name, reader.name) for name in names]
        explain = partial(_explain_chunk, explainer, job, smiles is None)
        jobs = number_of_jobs(job.jobs, explainer.device)
        work = map_in_order(explain, chunks(iter(reader), smiles, CHUNK_ROWS, extra), jobs)
        progress = TableProgress(reader, job.verb, job.quiet)

        def shown() -> Iterator[list[Explanation]]:
            for _, explanations in work:
                yield explanations
                progress.show(outcome.rows)

        try:
            _write(explainer, shown(), job, model, outcome)
        finally:
            work.close()
            progress.finish()


def _explain_chunk(
    explainer: Explainer, job: TableJob, in_record: bool, texts: list[Unread]
) -> list[Explanation]:
    """Explain the molecules of some rows; runs in any process."""
    molecules, columns = read_chunk(texts, in_record, explainer.columns)
    smiles = smiles_of(texts, molecules, in_record)
    explanations = explainer.explain_molecules(
        molecules, smiles, job.batch_size, job.max_atoms, columns
    )
    trim_now_and_then()
    return explanations


@contextmanager
def _output(explainer: Explainer, path: Path, model: str, format: str) -> Iterator[_Output]:
    """Open what takes the explanations; it has its name when all went well."""
    with replacing(path) as unfinished:
        if format in ("svg", "png"):
            yield _Picture(explainer, unfinished, cast(Format, format))
            return
        with unfinished.open("w", encoding="utf-8") as file:
            yield (Page if format == "html" else _Numbers)(explainer, model, file)


class _Picture:
    """Draws all molecules in one picture, at the end."""

    def __init__(self, explainer: Explainer, path: Path, format: Format) -> None:
        self._explainer = explainer
        self._path = path
        self._format: Format = format
        self._explanations: list[Explanation] = []

    def add(self, explanations: Sequence[Explanation]) -> None:
        self._explanations += explanations
        if len(self._explanations) > MOST_DRAWN:
            raise DataError(
                f"a picture holds at most {MOST_DRAWN} molecules: write a page (-o FILE.html), or "
                "numbers (-o FILE.json)"
            )

    def finish(self) -> None:
        given = self._explanations
        if not given:
            raise DataError("there is no molecule to draw")
        scale = contribution_scale(self._explainer, given)
        picture = draw_contributions(
            [one.molecule for one in given],
            [one.contributions for one in given],
            scale,
            self._format,
            captions=[caption(self._explainer, one, scale) for one in given],
        )
        self._path.write_bytes(picture)


class _Numbers:
    """Writes explanations as JSON, as they come: a line for each molecule."""

    def __init__(self, explainer: Explainer, model: str, file: IO[str]) -> None:
        self._file = file
        self._first = True
        head = {
            "model": model,
            "target": explainer.target,
            "unit": explainer.unit,
            "method": explainer.method,
            "coverage": explainer.coverage,
        }
        file.write(json.dumps(head, indent=1)[:-2] + ',\n "molecules": [')

    def add(self, explanations: Sequence[Explanation]) -> None:
        for one in explanations:
            self._file.write(("" if self._first else ",") + f"\n{json.dumps(_plain(one))}")
            self._first = False

    def finish(self) -> None:
        self._file.write("\n]}\n")


def _plain(one: Explanation) -> dict[str, Any]:
    """Return an explanation as JSON has it; null where there is no number."""
    return {
        "smiles": one.smiles,
        "prediction": _rounded(one.prediction),
        "value": _rounded(one.value),
        "baseline": _rounded(one.baseline),
        "rest": _rounded(one.rest),
        "contributions": [_rounded(value) for value in one.contributions],
        "fragments": [
            {
                "atoms": list(atoms),
                "smiles": fragment_smiles(one.molecule, atoms),
                "contribution": _rounded(value),
            }
            for atoms, value in zip(one.fragments, one.of_fragments, strict=True)
        ],
        "warning": one.warning,
        "error": one.error,
    }


def _rounded(value: float) -> float | None:
    """Six digits: more than the arithmetic of the network is good for."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
