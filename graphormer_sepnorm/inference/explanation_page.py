"""Explanations as a page of HTML that needs nothing but itself.

It is written as molecules come, so a table of any length needs little memory.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from string import Template
from typing import IO

import numpy as np

from graphormer_sepnorm.chem.drawing import ABOVE, BELOW, draw_contributions, full_color
from graphormer_sepnorm.chem.fragments import fragment_smiles
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import cannot_be_written, replacing
from graphormer_sepnorm.inference.batching import given_columns
from graphormer_sepnorm.inference.explain import Explainer, Explanation
from graphormer_sepnorm.inference.predict_table import MoleculeColumns, Molecules, computed
from graphormer_sepnorm.inference.table_job import Outcome, TableJob, check_places
from graphormer_sepnorm.tables.columns import find_id_column

# Rows that a process explains at a time: some seconds of work.
CHUNK_ROWS = 64
_STRONGEST = 5  # fragments and atoms of a molecule that the page names
_MINUS = "\N{MINUS SIGN}"
_TEMPLATE = Path(__file__).with_name("explanation.html")


def explain_smiles(
    explainer: Explainer, smiles: Sequence[str], job: TableJob, model: str, outcome: Outcome
) -> None:
    """Explain the predictions for some molecules; see `explain_table`."""
    given_columns(None, explainer.columns, len(smiles))
    explained = explainer.explain((*smiles,), job.batch_size, job.max_atoms)
    _write(explainer, [explained.molecules], job, model, outcome)


def explain_table(explainer: Explainer, job: TableJob, model: str, outcome: Outcome) -> None:
    """Explain the predictions for all molecules of a table; `model` is the name of the model.

    Raises:
        DataError: The table cannot be read, or the output cannot be written or would overwrite
            something.
    """
    check_places(job)

    def explain(molecules: Molecules) -> list[Explanation]:
        parsed, limits = molecules.in_order_of_smiles(), (job.batch_size, job.max_atoms)
        return explainer.explain_molecules(parsed, molecules.smiles, *limits, molecules.extra)

    with job.opened() as reader:
        columns = MoleculeColumns.find(reader, job, explainer.columns, outcome)
        used = (columns.smiles, *columns.extra)
        id_column = find_id_column(reader.columns, None, reader.name, used)
        work = computed(reader, columns, explain, CHUNK_ROWS, explainer.device, job, outcome)

        def named() -> Iterator[list[Explanation]]:
            for rows, explained in work:
                ids = [
                    None if id_column is None or row.problem else row.cells[id_column]
                    for row in rows
                ]
                yield [
                    one if cell is None else replace(one, id=str(cell))
                    for cell, one in zip(ids, explained, strict=True)
                ]

        with contextlib.closing(work):  # type: ignore[type-var]
            _write(explainer, named(), job, model, outcome)


def _write(
    explainer: Explainer,
    chunks: Iterable[Sequence[Explanation]],
    job: TableJob,
    model: str,
    outcome: Outcome,
) -> None:
    """Write explanations; the file has its name when it is complete."""
    path, rests = Path(job.destination), [0.0]
    if path.exists() and not path.is_file():  # a pipe, say: a page is not a stream
        raise DataError(f"{path} is {'a directory' if path.is_dir() else 'no file'}: name a file")
    try:
        with (
            replacing(path) as unfinished,
            unfinished.open("w", encoding="utf-8", errors="replace") as file,
        ):
            page = Page(explainer, model, file)
            for chunk in chunks:
                page.add(chunk)
                outcome.count([one.warning for one in chunk], [one.error for one in chunk])
                rests = [max(rests + [abs(one.rest) for one in chunk if not one.error])]
            page.finish()
    except OSError as error:
        raise DataError(cannot_be_written(path, error)) from error
    outcome.notes += filter(None, [explainer.coverage])
    if explainer.method == "integrated_gradients":
        outcome.notes.append(
            f"baseline and contributions miss what the network says by {rests[0]:.2g}"
            f" {explainer.unit}".rstrip()
            + " at most"
        )


class Page:
    """Writes explanations as rows of a table, as they come.

    Colors mean the same on all of the page: they are chosen by the first that are not all errors.
    """

    def __init__(self, explainer: Explainer, model: str, file: IO[str]) -> None:
        self._explainer = explainer
        self._model = model
        self._file = file
        self._largest = 0.0  # the contribution of the full color, when it is known
        self._waiting: list[Explanation] = []

    def add(self, explanations: Sequence[Explanation]) -> None:
        """Write some rows, or have them wait for the meaning of the colors."""
        self._waiting += explanations
        if not all(one.error for one in self._waiting):
            self._write()

    def finish(self) -> None:
        """Write what stands below the table."""
        self._write()
        self._file.write("</tbody>\n</table>\n</body>\n</html>\n")

    def _write(self) -> None:
        if not self._largest:
            self._largest = full_color([one.contributions for one in self._waiting])
            self._file.write(self._head())
        self._file.writelines(map(self._row, self._waiting))
        self._waiting = []

    def _head(self) -> str:
        explainer = self._explainer
        unit = f" [{explainer.unit}]" if explainer.unit else ""
        note = explainer.coverage
        below, above = (
            f"rgb({', '.join(f'{255 * part:.0f}' for part in color)})" for color in (BELOW, ABOVE)
        )
        return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
            title=escape(f"Why this {explainer.target}"),
            model=escape(self._model),
            method=escape(explainer.method),
            bar=escape(f"contribution to {explainer.target}{unit}"),
            below=below,
            above=above,
            largest=f"{self._largest:g}",
            notes=f'<p class="note">{escape(note)}</p>' if note else "",
        )

    def _row(self, one: Explanation) -> str:
        smiles = f"<b>{escape(one.id)}</b> " * bool(one.id) + f"<code>{escape(one.smiles)}</code>"
        if one.read_as != one.smiles:
            smiles += f" read as <code>{escape(one.read_as)}</code>"
        if one.error:
            return f'<tr><td>{smiles}</td><td colspan="3">{escape(one.error)}</td></tr>\n'
        picture = draw_contributions(one.molecule, one.contributions, self._largest)
        lines = [self._prediction(one)] + ([f"warning: {one.warning}"] if one.warning else [])
        prediction = "".join(f"<p>{escape(line)}</p>" for line in lines)
        atoms = float(one.contributions.sum())
        parts = self._list([one.baseline, atoms, one.rest], ["baseline", "atoms", "rest"])
        fragments = [fragment_smiles(one.molecule, atoms) for atoms in one.fragments]
        names = [f"{atom.GetSymbol()} {atom.GetIdx() + 1}" for atom in one.molecule.GetAtoms()]
        return (
            f"<tr><td>{picture}{smiles}</td><td>{prediction}{parts}</td>"
            f"<td>{self._strongest(one.of_fragments, fragments)}</td>"
            f"<td>{self._strongest(one.contributions, names)}</td></tr>\n"
        )

    def _prediction(self, one: Explanation) -> str:
        """Say what is predicted, and what of it is explained if that is something else."""
        if self._explainer.binary:
            return f"probability {one.prediction:.3g}, log-odds {self._number(one.value)}"
        text = f"predicted {self._number(one.prediction)}"
        if self._explainer.coverage and not math.isclose(one.prediction, one.value, rel_tol=1e-5):
            text += f", by the network {self._number(one.value)}"
        return f"{text} {self._explainer.unit}".strip()

    def _strongest(self, values: np.ndarray, names: Sequence[str]) -> str:
        """Return a list of what contributes most, up or down."""
        order: list[int] = np.argsort(-np.abs(values), kind="stable")[:_STRONGEST].tolist()
        return self._list(values[order].tolist(), [names[number] for number in order])

    def _list(self, values: Iterable[float], names: Iterable[str]) -> str:
        lines = (
            f"<li><b>{self._number(value, '+')}</b><code>{escape(name)}</code></li>"
            for value, name in zip(values, names, strict=True)
        )
        return f"<ul>{''.join(lines)}</ul>"

    def _number(self, value: float, sign: str = "") -> str:
        """Return a number with as many digits as contributions of this size need."""
        digits = min(max(0, 1 - math.floor(math.log10(self._largest))), 9)
        text = f"{value:{sign}.{digits}f}"
        return text.replace("-", _MINUS) if float(text) else text.lstrip("-+")
