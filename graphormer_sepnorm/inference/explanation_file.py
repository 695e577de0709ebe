"""Explanations in a file: numbers for machines, pictures, or a page with both.

The page and the numbers are written as molecules come, so a table of any length needs little
memory; a picture holds a few dozen molecules.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from graphormer_sepnorm.chem.drawing import Format, draw_contributions
from graphormer_sepnorm.chem.fragments import fragment_smiles
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import replacing
from graphormer_sepnorm.formatting import listed
from graphormer_sepnorm.inference.explanation import Explainer, Explanation
from graphormer_sepnorm.inference.explanation_page import Page, caption, contribution_scale
from graphormer_sepnorm.inference.table_job import Outcome, TableJob, check_places, writing_to
from graphormer_sepnorm.inference.table_molecules import MoleculeColumns, Molecules, computed

MOST_DRAWN = 60  # molecules in a picture
# Rows that a process explains at a time: some seconds of work.
CHUNK_ROWS = 64


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


def explain_table(explainer: Explainer, job: TableJob, model: str, outcome: Outcome) -> None:
    """Explain the predictions for all molecules of a table; `model` is the name of the model.

    Raises:
        DataError: The table cannot be read, or the output cannot be written or would overwrite
            something.
    """
    check_places(job)

    def explain(molecules: Molecules) -> list[Explanation]:
        return explainer.explain_molecules(
            molecules.in_order_of_smiles(),
            molecules.smiles,
            job.batch_size,
            job.max_atoms,
            molecules.beside,
        )

    with job.opened() as reader:
        columns = MoleculeColumns.find(reader, job.smiles_column, explainer.columns)
        outcome.notes += columns.notes
        with computed(
            reader,
            columns,
            explain,
            CHUNK_ROWS,
            device=explainer.device,
            job=job,
            outcome=outcome,
        ) as work:
            _write(explainer, (explained for _, explained in work), job, model, outcome)


def _write(
    explainer: Explainer,
    chunks: Iterable[Sequence[Explanation]],
    job: TableJob,
    model: str,
    outcome: Outcome,
) -> None:
    """Write explanations; the file has its name when it is complete."""
    path, largest_rest = Path(job.destination), 0.0
    with writing_to(path), _output(explainer, path, model, str(job.output_format)) as output:
        for explanations in chunks:
            output.add(explanations)
            outcome.count(
                [one.warning for one in explanations], [one.error for one in explanations]
            )
            rests = (abs(one.rest) for one in explanations if not math.isnan(one.rest))
            largest_rest = max([largest_rest, *rests])
        output.finish()
    if explainer.coverage:
        outcome.notes.append(explainer.coverage)
    if explainer.method == "integrated_gradients":
        outcome.notes.append(
            f"baseline and contributions miss what the network says by {largest_rest:.2g}"
            f"{f' {explainer.unit}' if explainer.unit else ''} at most"
        )


@contextmanager
def _output(
    explainer: Explainer, path: Path, model: str, format: str
) -> Iterator[Page | _Numbers | _Picture]:
    """Open what takes the explanations; it has its name when all went well."""
    with replacing(path) as unfinished:
        if format in ("svg", "png"):
            yield _Picture(explainer, unfinished, cast(Format, format))
            return
        with unfinished.open("w", encoding="utf-8", errors="replace") as file:
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
        "read_as": one.read_as,
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
