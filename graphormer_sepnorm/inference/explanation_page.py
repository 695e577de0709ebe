"""Explanations for people: the lines below a picture, a page that needs nothing beside itself."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape
from typing import IO

import numpy as np

from graphormer_sepnorm.chem.drawing import ABOVE, BELOW, Scale, draw_contributions
from graphormer_sepnorm.chem.fragments import fragment_smiles
from graphormer_sepnorm.formatting import shortened
from graphormer_sepnorm.inference.explanation import Explainer, Explanation

_LINE = 46  # letters of a caption
_STRONGEST = 5  # fragments and atoms of a molecule that the page names

MISLEADING = (
    "A contribution says what this network did with this molecule; it is no cause. A network may "
    "be right for a wrong reason, and wrong with a convincing picture. Distrust a picture where "
    "the prediction itself is doubtful (see its warning), where the rest is large, and where "
    "atoms matter only together: neighbours share what belongs to one of them. Contributions are "
    "found by masking atoms, and no molecule with masked atoms was trained on."
)
ATTENTION = (
    "Attention says where the network looks, not whether an atom raises or lowers the value; where "
    "the contributions are known it ranks atoms worse than every other method (docs/explaining.md)."
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


def contribution_scale(explainer: Explainer, explanations: Sequence[Explanation]) -> Scale:
    """Return what colours mean that are drawn for these explanations."""
    if explainer.signed:
        title = f"contribution to {explainer.target}"
        title += f" [{explainer.unit}]" if explainer.unit else ""
    else:
        title = explainer.unit
    return Scale.of([one.contributions for one in explanations], title, explainer.signed)


def caption(explainer: Explainer, one: Explanation, scale: Scale) -> list[str]:
    """Return the lines below the picture of a molecule."""
    smiles = shortened(one.smiles, _LINE)
    if one.read_as != one.smiles:
        smiles = f"{shortened(one.smiles, 20)}, as {shortened(one.read_as, 20)}"
    if one.error:
        return [smiles, *textwrap.wrap(one.error, _LINE, max_lines=2, placeholder=" ...")]
    return [smiles, prediction_line(explainer, one, scale), decomposition(one, scale)]


def prediction_line(explainer: Explainer, one: Explanation, scale: Scale) -> str:
    """Say what is predicted, and what of it is explained if that is something else."""
    if explainer.binary:
        said = f"probability {one.prediction:.3g}"
        return f"{said}, log-odds {_number(one.value, scale)}" if explainer.signed else said
    if not explainer.signed:  # whose scale is that of shares
        said = f"{one.prediction:.4g}".replace("-", _MINUS)
        return f"predicted {said} {explainer.task_unit}".strip()
    said = f"predicted {_number(one.prediction, scale)}"
    if explainer.coverage and not math.isclose(one.prediction, one.value, rel_tol=1e-5):
        said += f", by the network {_number(one.value, scale)}"
    return f"{said} {explainer.task_unit}".strip()


def decomposition(one: Explanation, scale: Scale) -> str:
    """Say what the value is the sum of; empty for attention, which shares out nothing."""
    if not (parts := _parts(one)):
        return ""
    terms = [
        f"{'+' if value >= 0 else _MINUS} {_number(abs(value), scale)} {name}"
        for value, name in parts[1:]
    ]
    value, baseline = (_number(number, scale) for number in (one.value, one.baseline))
    return " ".join([value, "=", baseline, "baseline", *terms])


def _parts(one: Explanation) -> list[tuple[float, str]]:
    """Return what adds up to the value; nothing for attention."""
    if math.isnan(one.baseline):
        return []
    atoms = float(one.contributions.sum())
    return [(one.baseline, "baseline"), (atoms, "atoms"), (one.rest, "rest")]


def _number(value: float, scale: Scale, sign: str = "") -> str:
    """Return a number with as many digits as contributions of this scale need."""
    digits = min(max(0, 1 - math.floor(math.log10(scale.largest))), 9)
    text = f"{value:{sign}.{digits}f}"
    return text.replace("-", _MINUS) if float(text) else text.lstrip("-+")


class Page:
    """Writes explanations as rows of a table in a page of HTML, as they come.

    Colours mean the same on all of the page: they are chosen by the first that are not all errors.
    """

    def __init__(self, explainer: Explainer, model: str, file: IO[str]) -> None:
        self._explainer = explainer
        self._model = model
        self._file = file
        self._scale: Scale | None = None
        self._waiting: list[Explanation] = []

    def add(self, explanations: Sequence[Explanation]) -> None:
        """Write some rows, or have them wait for the scale of the colours."""
        self._waiting += explanations
        if not all(one.error for one in self._waiting):
            self._write()

    def finish(self) -> None:
        """Write what stands below the table."""
        self._write()
        self._file.write("</tbody>\n</table>\n</body>\n</html>\n")

    def _write(self) -> None:
        if self._scale is None:
            scale = contribution_scale(self._explainer, self._waiting)
            self._scale = replace(scale, beyond=True)  # as those that come later may be
            self._file.write(self._head(self._scale))
        self._file.writelines(self._row(one, self._scale) for one in self._waiting)
        self._waiting = []

    def _head(self, scale: Scale) -> str:
        explainer = self._explainer
        title = f"Why this {explainer.target}"
        notes = [MISLEADING if explainer.signed else ATTENTION, explainer.coverage]
        shown = "\n".join(f'<p class="note">{escape(note)}</p>' for note in notes if note)
        meaning = (
            "The baseline is what the network says when all atoms are unknown, bonds and rings as "
            "they are; a contribution is what an atom adds to that; the rest is what the two lack "
            "of the value."
            if explainer.signed
            else "The shares of the atoms of a molecule add up to 1."
        )
        below = _css(BELOW) if scale.signed else "#fff"
        colours = f"{below}, #fff, {_css(ABOVE)}" if scale.signed else f"#fff, {_css(ABOVE)}"
        ends = "".join(f"<span>{escape(end)}</span>" for end in scale.ends)
        columns = ("molecule", "prediction", "fragments", "atoms, as the SMILES numbers them")
        header = "".join(f'<th scope="col">{name}</th>' for name in columns)
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
<p>{escape(f"Model {self._model}, by {explainer.method}. {meaning}")}</p>
<div class="bar">{escape(scale.title)}<div style="background: linear-gradient(to right, {colours})">
</div><p>{ends}</p></div>
{shown}
<table>
<thead><tr>{header}</tr></thead>
<tbody>
"""

    def _row(self, one: Explanation, scale: Scale) -> str:
        smiles = f"<code>{escape(one.smiles)}</code>"
        if one.read_as != one.smiles:
            smiles += f" read as <code>{escape(one.read_as)}</code>"
        if one.error:
            return f'<tr><td>{smiles}</td><td colspan="3">{escape(one.error)}</td></tr>\n'
        picture = draw_contributions([one.molecule], [one.contributions], scale, bar=False).decode()
        said = [prediction_line(self._explainer, one, scale)]
        said += [f"warning: {one.warning}"] if one.warning else []
        prediction = "".join(f"<p>{escape(line)}</p>" for line in said)
        fragments = [fragment_smiles(one.molecule, atoms) for atoms in one.fragments]
        atoms = [f"{atom.GetSymbol()} {atom.GetIdx() + 1}" for atom in one.molecule.GetAtoms()]
        return (
            f"<tr><td>{picture}{smiles}</td><td>{prediction}{_list(_parts(one), scale)}</td>"
            f"<td>{_strongest(fragments, one.of_fragments, scale)}</td>"
            f"<td>{_strongest(atoms, one.contributions, scale)}</td></tr>\n"
        )


def _strongest(names: Sequence[str], values: np.ndarray, scale: Scale) -> str:
    """Return a list of what contributes most, up or down."""
    order = np.argsort(-np.abs(values), kind="stable")[:_STRONGEST]
    return _list(((float(values[place]), str(names[place])) for place in order), scale)


def _list(numbers: Iterable[tuple[float, str]], scale: Scale) -> str:
    sign = "+" if scale.signed else ""
    lines = (
        f"<li><b>{_number(value, scale, sign)}</b><code>{escape(name)}</code></li>"
        for value, name in numbers
    )
    return f"<ul>{''.join(lines)}</ul>"


def _css(colour: tuple[float, float, float]) -> str:
    return f"rgb({', '.join(f'{255 * part:.0f}' for part in colour)})"
