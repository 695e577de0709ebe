"""Pictures of molecules."""

from __future__ import annotations

from collections.abc import Sequence

from rdkit import Chem
from rdkit.Chem.Draw import rdMolDraw2D

from graphormer_sepnorm.chem.molecules import parse_smiles

_NOT_DRAWN = "not readable"


def molecules_png(
    smiles: Sequence[str],
    legends: Sequence[str],
    *,
    columns: int = 4,
    cell: tuple[int, int] = (236, 180),
) -> bytes:
    """Draw molecules in rows, each over its legend.

    Args:
        smiles: The molecules. In the place of one that cannot be read stands a note.
        legends: Their legends, as many, of one line or several.
        columns: Molecules in a row.
        cell: Width and height of the place for one molecule, in pixels.

    Returns:
        A PNG file.
    """
    molecules = [parse_smiles(text).molecule or unreadable() for text in smiles]
    width, height = cell
    columns = min(columns, len(molecules))
    rows = -(-len(molecules) // columns)
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


def unreadable() -> Chem.Mol:
    """Return one atom that is drawn as a note: a molecule without atoms would lose its legend."""
    note = Chem.MolFromSmiles("*")
    note.GetAtomWithIdx(0).SetProp("_displayLabel", _NOT_DRAWN)
    return note
