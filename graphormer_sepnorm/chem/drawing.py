"""Pictures of molecules; of those whose atoms are coloured by numbers, with what colours mean."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from rdkit import Chem
from rdkit.Chem.Draw import rdMolDraw2D
from rdkit.Geometry import Point2D

from graphormer_sepnorm.chem.molecules import parse_smiles

# Of pictures of many molecules: molecules in a row, and the place for one, in pixels.
_PLAIN_COLUMNS, _PLAIN_CELL = 4, (236, 180)

Colour = tuple[float, float, float]
Format = Literal["svg", "png"]

# Blue and orange are told apart with every kind of colour blindness; both are light enough for
# black letters on them.
BELOW, ABOVE = (0.40, 0.66, 0.90), (1.00, 0.62, 0.26)
CELL, _COLUMNS = (350, 220), 3  # the place for a coloured molecule, in pixels
_LINE, _FONT = 17, 12.5  # a line of text and its letters
_BAR, _BAR_HEIGHT = (260, 14), 66  # the bar, and the room for it
_SHADES = 60
_RADIUS = 0.42  # of a coloured atom; bonds are about 1.5 long
# A PNG has more pixels than it takes on a page: print and fine screens show them.
_ZOOM: dict[Format, int] = {"svg": 1, "png": 2}
# Bytes of a table that are no text, what XML forbids, and what would end a line.
_NO_TEXT = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")


def molecules_png(smiles: Sequence[str], legends: Sequence[str]) -> bytes:
    """Draw molecules in rows, each over its legend of one line or several, as PNG.

    In the place of one that cannot be read stands a note.
    """
    molecules = [parse_smiles(text).molecule or _unreadable() for text in smiles]
    columns = min(_PLAIN_COLUMNS, len(molecules))
    rows = -(-len(molecules) // columns)
    width, height = _PLAIN_CELL
    canvas = rdMolDraw2D.MolDraw2DCairo(columns * width, rows * height, width, height)
    options = canvas.drawOptions()
    options.legendFontSize = 13
    options.legendFraction = 0.24
    options.padding = 0.03
    # A molecule of five atoms would else be drawn with bonds as long as words.
    options.fixedBondLength = 20
    canvas.DrawMolecules(molecules, legends=list(legends))
    canvas.FinishDrawing()
    return canvas.GetDrawingText()


def _unreadable() -> Chem.Mol:
    """Return one atom that is drawn as a note: a molecule without atoms would lose its legend."""
    note = Chem.MolFromSmiles("*")
    note.GetAtomWithIdx(0).SetProp("_displayLabel", "not readable")
    return note


@dataclass(frozen=True)
class Scale:
    """What the colours mean.

    Attributes:
        largest: Contribution, up or down, of the full colour.
        title: What is contributed to, and in which unit.
        beyond: Whether there are larger ones, which have the full colour too.
        signed: Whether there are contributions below 0.
    """

    largest: float
    title: str
    beyond: bool = False
    signed: bool = True

    @classmethod
    def of(cls, contributions: Sequence[np.ndarray], title: str, signed: bool = True) -> Scale:
        """Return a scale for these: one atom of twenty may be beyond, or it would pale the rest."""
        sizes = np.abs(np.concatenate([np.zeros(1), *contributions]))
        largest = float(f"{np.quantile(sizes, 0.95):.1g}")
        largest = largest or float(sizes.max()) or 1.0
        return cls(largest, title, bool(sizes.max() > largest), signed)

    def colour(self, value: float) -> Colour:
        """Return the colour of a contribution: white at 0, on a straight way to the full colour."""
        share = min(abs(value) / self.largest, 1.0)
        full = ABOVE if value > 0 else BELOW
        red, green, blue = (1 - share * (1 - part) for part in full)
        return red, green, blue

    @property
    def ends(self) -> tuple[str, str, str]:
        """What stands at the left end of the bar, in its middle, and at its right end."""
        end = f"{self.largest:g}"
        less, more = ("≤ ", "≥ ") if self.beyond else ("", "")
        return (
            (f"{less}\N{MINUS SIGN}{end}", "0", f"{more}+{end}")
            if self.signed
            else ("0", "", f"{more}{end}")
        )


@dataclass(frozen=True)
class _Text:
    """A line of text: where its middle is, in pixels from the upper left corner."""

    text: str
    x: float
    y: float


def draw_contributions(
    molecules: Sequence[Chem.Mol | None],
    contributions: Sequence[np.ndarray],
    scale: Scale,
    format: Format = "svg",
    *,
    captions: Sequence[Sequence[str]] = (),
    bar: bool = True,
) -> bytes:
    """Draw molecules in rows, each over its caption, and the bar of the colours below them.

    Args:
        molecules: At least one. In the place of None stands a note.
        contributions: Of the atoms of each; none: they are not coloured.
        scale: What the colours mean.
        format: svg or png.
        captions: The lines below each, as many for all; empty: none.
        bar: Whether there is one.

    Returns:
        The file.
    """
    columns = min(_COLUMNS, len(molecules))
    rows = -(-len(molecules) // columns)
    lines = max(map(len, captions), default=0)
    height = CELL[1] + lines * _LINE + (10 if lines else 0)
    size = columns * CELL[0], rows * height + (_BAR_HEIGHT if bar else 0)
    zoom = _ZOOM[format]
    kind = rdMolDraw2D.MolDraw2DSVG if format == "svg" else rdMolDraw2D.MolDraw2DCairo
    canvas: Any = kind(zoom * size[0], zoom * size[1], zoom * CELL[0], zoom * height)
    options = canvas.drawOptions()
    options.useBWAtomPalette()  # colours of elements would be taken for contributions
    options.legendFraction = 1 - CELL[1] / height
    options.padding = 0.06
    options.fixedBondLength = 26 * zoom
    options.bondLineWidth = 1.6 * zoom
    options.scaleBondWidth = False
    options.drawMolsSameScale = False
    shown = [molecule or _unreadable() for molecule in molecules]
    colours = [
        {atom: scale.colour(value) for atom, value in enumerate(values)} for values in contributions
    ]
    canvas.DrawMolecules(
        shown,
        highlightAtoms=[[*own] for own in colours],
        highlightAtomColors=colours,
        highlightAtomRadii=[dict.fromkeys(own, _RADIUS) for own in colours],
        highlightBonds=[[] for _ in shown],
        legends=[" " if lines else ""] * len(shown),  # room; RDKit draws plain letters only
    )
    texts = [
        _Text(
            _as_text(text),
            (place % columns + 0.5) * CELL[0],
            place // columns * height + CELL[1] + below,
        )
        for place, caption in enumerate(captions)
        for text, below in zip(caption, range(_LINE // 2, height, _LINE), strict=False)
    ]
    if bar:
        texts += _draw_bar(canvas, scale, size[0], rows * height, zoom)
    canvas.FinishDrawing()
    drawn = canvas.GetDrawingText()
    return _svg(drawn, texts) if format == "svg" else _png(drawn, texts, size)


def _as_text(given: str) -> str:
    """Return a text with a mark for each character that a line of a picture cannot hold."""
    return _NO_TEXT.sub("?", given)


def _draw_bar(canvas: Any, scale: Scale, width: int, top: int, zoom: int) -> list[_Text]:
    """Draw the bar of the colours below the molecules; return what is written beside it."""
    left, upper = (width - _BAR[0]) / 2, top + 26
    canvas.SetOffset(0, 0)
    canvas.SetFillPolys(True)
    for shade in range(_SHADES):
        share = (shade + 0.5) / _SHADES
        canvas.SetColour(scale.colour(scale.largest * (2 * share - 1 if scale.signed else share)))
        corners = (
            Point2D(zoom * (left + _BAR[0] * place / _SHADES), zoom * (upper + below))
            for place, below in ((shade, 0), (shade + 1, _BAR[1]))
        )
        canvas.DrawRect(*corners, True)
    below = upper + _BAR[1] + 12
    places = left, width / 2, left + _BAR[0]
    ends = [_Text(text, x, below) for text, x in zip(scale.ends, places, strict=True)]
    return [_Text(_as_text(scale.title), width / 2, top + 12), *ends]


def _svg(drawn: str, texts: Sequence[_Text]) -> bytes:
    """Write texts into an SVG, for the fonts of whoever shows it."""
    style = f"font-family='sans-serif' font-size='{_FONT}' text-anchor='middle'"
    lines = [
        f"<text x='{one.x:.1f}' y='{one.y:.1f}' dy='0.35em'>{html.escape(one.text)}</text>"
        for one in texts
    ]
    body = drawn.partition("?>")[2].strip().removesuffix("</svg>")
    return "\n".join([body, f"<g {style}>", *lines, "</g>", "</svg>", ""]).encode()


def _png(drawn: bytes, texts: Sequence[_Text], size: tuple[int, int]) -> bytes:
    """Write texts into a PNG."""
    from matplotlib.figure import Figure
    from matplotlib.image import imread

    width, height = size
    figure = Figure((width / 100, height / 100), dpi=100 * _ZOOM["png"])
    figure.figimage(imread(io.BytesIO(drawn)))
    for one in texts:
        figure.text(
            one.x / width,
            1 - one.y / height,
            one.text.replace("$", r"\$"),
            fontsize=0.72 * _FONT,  # points of 1/72 inch
            ha="center",
            va="center",
        )
    file = io.BytesIO()
    figure.savefig(file)
    return file.getvalue()
