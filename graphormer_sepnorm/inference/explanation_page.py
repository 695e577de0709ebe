"""Explanations as a page of HTML that needs nothing beside itself.

It is written as molecules come, so a table of any length needs little memory.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import IO

import numpy as np

from graphormer_sepnorm.chem.drawing import ABOVE, BELOW, draw_contributions, full_colour
from graphormer_sepnorm.chem.fragments import fragment_smiles
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import cannot_be_written, replacing
from graphormer_sepnorm.formatting import listed
from graphormer_sepnorm.inference.explanation import Explainer, Explanation
from graphormer_sepnorm.inference.table_job import Outcome, TableJob, check_places
from graphormer_sepnorm.inference.table_molecules import MoleculeColumns, Molecules, computed
from graphormer_sepnorm.tables.columns import find_id_column
from graphormer_sepnorm.tables.reader import Row

# Rows that a process explains at a time: some seconds of work.
CHUNK_ROWS = 64
_STRONGEST = 5  # fragments and atoms of a molecule that the page names

MISLEADING = (
    "A contribution says what this network did with this molecule; it is no cause. A network may "
    "be right for a wrong reason, and wrong with a convincing picture. Distrust a picture where "
    "the prediction itself is doubtful (see its warning), where the rest is large, and where "
    "atoms matter only together: neighbours share what belongs to one of them. Contributions are "
    "found by masking atoms, and no molecule with masked atoms was trained on."
)
_MEANING = (
    "The baseline is what the network says when all atoms are unknown, bonds and rings as they "
    "are; a contribution is what an atom adds to that; the rest is what the two lack of the value."
)
_MINUS = "\N{MINUS SIGN}"
_STYLE = """\
body { margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #1a1a1a; background: #fff;
  font: 15px/1.45 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.5rem; margin-bottom: 0.3rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: 0.6rem 0.8rem; }
thead th { border-bottom: 2px solid #333; }
tbody > tr > * { border-bottom: 1px solid #ccc; }
td svg { display: block; max-width: 100%; height: auto; }
code { overflow-wrap: anywhere; }
td p { margin: 0 0 0.5rem; }
ul { list-style: none; margin: 0 0 0.5rem; padding: 0; }
li { display: flex; gap: 0.7em; }
li b { flex: 0 0 4em; text-align: right; }
.note { border-left: 5px solid #d55e00; background: #fdf1e8; padding: 0.5rem 0.9rem; }
.bar { width: 20rem; margin: 1rem 0; }
.bar div { height: 1rem; }
.bar p { display: flex; justify-content: space-between; margin: 0; }
@media print { tr { break-inside: avoid; } }
"""


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
        parsed, limits = molecules.in_order_of_smiles(), (job.batch_size, job.max_atoms)
        return explainer.explain_molecules(parsed, molecules.smiles, *limits, molecules.beside)

    with job.opened() as reader:
        columns = MoleculeColumns.find(reader, job.smiles_column, explainer.columns)
        outcome.notes += columns.notes
        used = (columns.smiles, *columns.beside)
        id_column = find_id_column(reader.columns, None, reader.name, used)

        def with_ids(rows: Sequence[Row], explained: Sequence[Explanation]) -> list[Explanation]:
            if id_column is None:
                return [*explained]
            return [
                one if cell is None else replace(one, id=str(cell))
                for row, one in zip(rows, explained, strict=True)
                for cell in [None if row.problem else row.cells[id_column]]
            ]

        size, device = CHUNK_ROWS, explainer.device
        with computed(reader, columns, explain, size, device, job, outcome) as work:
            named = itertools.starmap(with_ids, work)
            _write(explainer, named, job, model, outcome)


def _write(
    explainer: Explainer,
    chunks: Iterable[Sequence[Explanation]],
    job: TableJob,
    model: str,
    outcome: Outcome,
) -> None:
    """Write explanations; the file has its name when it is complete."""
    path, rests = Path(job.destination), [0.0]
    if path.exists() and not path.is_file():  # a pipe, say: a page is no stream
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
    if explainer.coverage:
        outcome.notes.append(explainer.coverage)
    if explainer.method == "integrated_gradients":
        outcome.notes.append(
            f"baseline and contributions miss what the network says by {rests[0]:.2g}"
            f" {explainer.unit}".rstrip()
            + " at most"
        )


class Page:
    """Writes explanations as rows of a table, as they come.

    Colours mean the same on all of the page: they are chosen by the first that are not all errors.
    """

    def __init__(self, explainer: Explainer, model: str, file: IO[str]) -> None:
        self._explainer = explainer
        self._model = model
        self._file = file
        self._largest = 0.0  # the contribution of the full colour, when it is known
        self._waiting: list[Explanation] = []

    def add(self, explanations: Sequence[Explanation]) -> None:
        """Write some rows, or have them wait for the meaning of the colours."""
        self._waiting += explanations
        if not all(one.error for one in self._waiting):
            self._write()

    def finish(self) -> None:
        """Write what stands below the table."""
        self._write()
        self._file.write("</tbody>\n</table>\n</body>\n</html>\n")

    def _write(self) -> None:
        if not self._largest:
            self._largest = full_colour([one.contributions for one in self._waiting])
            self._file.write(self._head())
        self._file.writelines(map(self._row, self._waiting))
        self._waiting = []

    def _head(self) -> str:
        explainer = self._explainer
        title = f"Why this {explainer.target}"
        notes = "\n".join(
            f'<p class="note">{escape(note)}</p>'
            for note in (MISLEADING, explainer.coverage)
            if note
        )
        bar = f"contribution to {explainer.target}"
        bar += f" [{explainer.unit}]" if explainer.unit else ""
        below, above = (
            f"rgb({', '.join(f'{255 * part:.0f}' for part in colour)})" for colour in (BELOW, ABOVE)
        )
        ends = (f"≤ {_MINUS}{self._largest:g}", "0", f"≥ +{self._largest:g}")
        columns = ("molecule", "prediction", "fragments", "atoms, as the SMILES numbers them")
        return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>
{_STYLE}</style>
</head>
<body>
<h1>{escape(title)}</h1>
<p>{escape(f"Model {self._model}, by {explainer.method}. {_MEANING}")}</p>
<div class="bar">{escape(bar)}
<div style="background: linear-gradient(to right, {below}, #fff, {above})"></div>
<p>{"".join(f"<span>{end}</span>" for end in ends)}</p></div>
{notes}
<table>
<thead><tr>{"".join(f'<th scope="col">{name}</th>' for name in columns)}</tr></thead>
<tbody>
"""

    def _row(self, one: Explanation) -> str:
        smiles = f"<b>{escape(one.id)}</b> " * bool(one.id) + f"<code>{escape(one.smiles)}</code>"
        if one.read_as != one.smiles:
            smiles += f" read as <code>{escape(one.read_as)}</code>"
        if one.error:
            return f'<tr><td>{smiles}</td><td colspan="3">{escape(one.error)}</td></tr>\n'
        picture = draw_contributions(one.molecule, one.contributions, self._largest)
        said = [self._prediction(one)] + ([f"warning: {one.warning}"] if one.warning else [])
        prediction = "".join(f"<p>{escape(line)}</p>" for line in said)
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
        said = f"predicted {self._number(one.prediction)}"
        if self._explainer.coverage and not math.isclose(one.prediction, one.value, rel_tol=1e-5):
            said += f", by the network {self._number(one.value)}"
        return f"{said} {self._explainer.unit}".strip()

    def _strongest(self, values: np.ndarray, names: Sequence[str]) -> str:
        """Return a list of what contributes most, up or down."""
        order = np.argsort(-np.abs(values), kind="stable")[:_STRONGEST]
        return self._list(values[order].tolist(), [names[int(place)] for place in order])

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
