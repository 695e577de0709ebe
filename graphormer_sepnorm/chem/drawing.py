"""Pictures of molecules, plain ones and those whose atoms are coloured by numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rdkit import Chem
from rdkit.Chem.Draw import rdMolDraw2D

from graphormer_sepnorm.chem.molecules import parse_smiles

# Of pictures of many molecules: molecules in a row, and the place for one, in pixels.
_PLAIN_COLUMNS, _PLAIN_CELL = 4, (236, 180)

Colour = tuple[float, float, float]

# Blue and orange are told apart with every kind of colour blindness; both are light enough for
# black letters on them.
BELOW, ABOVE = (0.40, 0.66, 0.90), (1.00, 0.62, 0.26)
_CELL = (350, 220)  # the place for a coloured molecule, in pixels
_RADIUS = 0.42  # of a coloured atom; bonds are about 1.5 long


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


def full_colour(contributions: Sequence[np.ndarray]) -> float:
    """Return the contribution, up or down, that gets the full colour.

    One atom of twenty may be beyond it, or it would pale the rest.
    """
    sizes = np.abs(np.concatenate([np.zeros(1), *contributions]))
    return float(f"{np.quantile(sizes, 0.95):.1g}") or float(sizes.max()) or 1.0


def colour_of(value: float, largest: float) -> Colour:
    """Return the colour of a contribution: white at 0, on a straight way to the full colour."""
    share = min(abs(value) / largest, 1.0)
    red, green, blue = (1 - share * (1 - part) for part in (ABOVE if value > 0 else BELOW))
    return red, green, blue


def draw_contributions(molecule: Chem.Mol, contributions: np.ndarray, largest: float) -> str:
    """Draw a molecule with its atoms coloured, as SVG; `largest` gets the full colour."""
    canvas = rdMolDraw2D.MolDraw2DSVG(*_CELL)
    options = canvas.drawOptions()
    options.useBWAtomPalette()  # colours of elements would be taken for contributions
    options.padding = 0.06
    options.fixedBondLength = 26
    options.bondLineWidth = 1.6
    options.scaleBondWidth = False
    atoms = range(len(contributions))
    canvas.DrawMolecule(
        molecule,
        highlightAtoms=[*atoms],
        highlightBonds=[],
        highlightAtomColors={atom: colour_of(contributions[atom], largest) for atom in atoms},
        highlightAtomRadii=dict.fromkeys(atoms, _RADIUS),
    )
    canvas.FinishDrawing()
    return canvas.GetDrawingText().partition("?>")[2].strip()
