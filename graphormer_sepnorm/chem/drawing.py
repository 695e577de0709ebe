"""Pictures of molecules whose atoms are colored by numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rdkit import Chem
from rdkit.Chem.Draw import rdMolDraw2D

# Blue and orange are told apart with every kind of color blindness; both are light enough for
# black letters on them.
BELOW, ABOVE = (0.40, 0.66, 0.90), (1.00, 0.62, 0.26)
_CELL = (350, 220)  # the place for a colored molecule, in pixels
_RADIUS = 0.42  # of a colored atom; bonds are about 1.5 long


def full_color(contributions: Sequence[np.ndarray]) -> float:
    """Return the contribution, up or down, that gets the full color.

    One atom of twenty may be beyond it, or it would pale the rest.
    """
    sizes = np.abs(np.concatenate([np.zeros(1), *contributions]))
    return float(f"{np.quantile(sizes, 0.95):.1g}") or float(sizes.max()) or 1.0


def color_of(value: float, largest: float) -> tuple[float, float, float]:
    """Return the color of a contribution: white at 0, on a straight way to the full color."""
    share = min(abs(value) / largest, 1.0)
    red, green, blue = (1 - share * (1 - part) for part in (ABOVE if value > 0 else BELOW))
    return red, green, blue


def draw_contributions(molecule: Chem.Mol, contributions: np.ndarray, largest: float) -> str:
    """Draw a molecule with its atoms colored, as SVG; `largest` gets the full color."""
    canvas = rdMolDraw2D.MolDraw2DSVG(*_CELL)
    options = canvas.drawOptions()
    options.useBWAtomPalette()  # colors of elements would be taken for contributions
    options.padding = 0.06
    options.fixedBondLength = 26
    options.bondLineWidth = 1.6
    options.scaleBondWidth = False
    atoms = range(len(contributions))
    canvas.DrawMolecule(
        molecule,
        highlightAtoms=[*atoms],
        highlightBonds=[],
        highlightAtomColors={atom: color_of(contributions[atom], largest) for atom in atoms},
        highlightAtomRadii=dict.fromkeys(atoms, _RADIUS),
    )
    canvas.FinishDrawing()
    return canvas.GetDrawingText().partition("?>")[2].strip()
