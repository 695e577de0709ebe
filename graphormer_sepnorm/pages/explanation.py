"""Explanations as a page of HTML that needs no other file.

It is written as molecules come, so a table of any length needs little memory.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from graphormer_sepnorm.chem.drawing import ABOVE, BELOW, draw_contributions, full_color
from graphormer_sepnorm.chem.scaffolds import fragment_smiles
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import cannot_be_written, replacing
from graphormer_sepnorm.formatting import MINUS
from graphormer_sepnorm.inference.batching import given_columns
from graphormer_sepnorm.inference.explain import Explainer, Explanation
from graphormer_sepnorm.inference.predict_table import MoleculeColumns, Molecules, computed
from graphormer_sepnorm.inference.table_job import Outcome, TableJob, check_places
from graphormer_sepnorm.tables.columns import names_rows

# Rows that a process explains at a time: some seconds of work.
CHUNK_ROWS = 64
_STRONGEST = 5  # fragments and atoms of a molecule that the page names


def explain_smiles(
    explainer: Explainer, smiles: Sequence[str], job: TableJob, model: str, outcome: Outcome
) -> None:
    """Explain the predictions for some molecules; see `explain_table`."""
    extra = given_columns(None, explainer.predictor.extra_inputs, len(smiles))
    explained = explainer.explain((*smiles,), job.batch_size, job.max_atoms, extra)
    _write(explainer, [explained.molecules], job, model, outcome)


def explain_table(explainer: Explainer, job: TableJob, model: str, outcome: Outcome) -> None:
    """Explain the predictions for all molecules of a table; `model` is the name of the model.

    Raises:
        DataError: The table cannot be read, or the output cannot be written or would overwrite
            something.
    """
    check_places(job)

    def explain(molecules: Molecules) -> list[Explanation]:
        options = job.batch_size, job.max_atoms, molecules.extra
        return explainer.explain_molecules(molecules.parsed, molecules.smiles, *options)

    with job.opened() as reader:
        columns = MoleculeColumns.find(reader, job, explainer.predictor.extra_inputs)
        used = (columns.smiles, *columns.extra)
        names = enumerate(reader.columns)
        id_column = next((at for at, name in names if at not in used and names_rows(name)), None)
        work = computed(
            reader, columns, explain, CHUNK_ROWS, explainer.predictor.device, job, outcome
        )

        def named() -> Iterator[list[Explanation]]:
            for rows, explained in work:
                ids = [None if id_column is None or r.problem else r.cells[id_column] for r in rows]
                yield [
                    one if cell is None else replace(one, id=str(cell))
                    for cell, one in zip(ids, explained, strict=True)
                ]

        with contextlib.closing(work):
            _write(explainer, named(), job, model, outcome)


def _write(
    explainer: Explainer,
    chunks: Iterable[Sequence[Explanation]],
    job: TableJob,
    model: str,
    outcome: Outcome,
) -> None:
    """Write explanations; the file has its name when it is complete."""
    path, rest = Path(job.destination), 0.0
    if path.exists() and not path.is_file():  # a pipe, say: a page is not a stream
        raise DataError(f"{path} is {'a directory' if path.is_dir() else 'no file'}: name a file")

    def counted() -> Iterator[Sequence[Explanation]]:
        nonlocal rest
        for chunk in chunks:
            yield chunk
            outcome.count([one.warning for one in chunk], [one.error for one in chunk])
            rest = max([rest, *(abs(one.rest) for one in chunk if not one.error)])

    try:
        with (
            replacing(path) as unfinished,
            unfinished.open("w", encoding="utf-8", errors="replace") as file,
        ):
            file.writelines(page_of(explainer, model, counted()))
    except OSError as error:
        raise DataError(cannot_be_written(path, error)) from error
    outcome.notes += filter(None, [explainer.coverage])
    if explainer.method == "integrated_gradients":
        missed = f"{rest:.2g} {explainer.unit}".rstrip()
        outcome.notes.append(f"baseline and contributions differ from the value by up to {missed}")


def page_of(
    explainer: Explainer, model: str, chunks: Iterable[Sequence[Explanation]]
) -> Iterator[str]:
    """Yield a page piece by piece; its colors are chosen by the first chunks with a molecule."""
    first, chunks = [], iter(chunks)
    for chunk in chunks:
        first += chunk
        if not all(one.error for one in first):
            break
    largest = full_color([one.contributions for one in first])
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    return environment.get_template("explanation.html").generate(
        explainer=explainer,
        model=model,
        largest=f"{largest:g}",
        colors=[[round(255 * part) for part in color] for color in (BELOW, ABOVE)],
        rows=(_row(one, explainer, largest) for one in chain(first, chain.from_iterable(chunks))),
    )


def _row(one: Explanation, explainer: Explainer, largest: float) -> dict[str, Any]:
    """Return what the page shows of a molecule."""
    # As many digits as contributions of this size need.
    digits = min(max(0, 1 - math.floor(math.log10(largest))), 9)

    def number(value: float, sign: str = "") -> str:
        text = f"{value:{sign}.{digits}f}"
        return text.replace("-", MINUS) if float(text) else text.lstrip("-+")

    def strongest(values: np.ndarray, names: Sequence[str]) -> list[tuple[str, str]]:
        order: list[int] = np.argsort(-np.abs(values), kind="stable")[:_STRONGEST].tolist()
        return [(number(values[index], "+"), names[index]) for index in order]

    if one.error:
        return {"one": one}
    same = explainer.unit == explainer.target_unit  # else log-odds, or a logarithm, are explained
    shown = number(one.prediction) if same else f"{one.prediction:.3g}"
    predicted = f"predicted {shown} {explainer.target_unit}".rstrip()
    if not same or (
        explainer.coverage and not math.isclose(one.prediction, one.value, rel_tol=1e-5)
    ):
        predicted += f", by the network {number(one.value)} {explainer.unit}".rstrip()
    parts = {"baseline": one.baseline, "atoms": one.contributions.sum(), "rest": one.rest}
    fragments = [fragment_smiles(one.molecule, atoms) for atoms in one.fragments]
    atoms = [f"{atom.GetSymbol()} {atom.GetIdx() + 1}" for atom in one.molecule.GetAtoms()]
    return {
        "one": one,
        "picture": draw_contributions(one.molecule, one.contributions, largest),
        "predicted": predicted,
        "parts": [(number(value, "+"), name) for name, value in parts.items()],
        "fragments": strongest(one.of_fragments, fragments),
        "atoms": strongest(one.contributions, atoms),
    }
