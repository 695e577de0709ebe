"""Salts and charges standardized, in the same way for training and prediction.

By RDKit's MolStandardize (after MolVS). Stereochemistry stays as it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

from rdkit import Chem, rdBase

from graphormer_sepnorm.chem.molecules import ParsedMolecule, canonical_smiles, parse_smiles
from graphormer_sepnorm.data_config import STANDARDIZE as STEPS
from graphormer_sepnorm.formatting import shortened


@cache
def _steps() -> dict[str, Callable[[Chem.Mol], Chem.Mol]]:
    """Each is made once: their tables are read from text."""
    from rdkit.Chem.MolStandardize import rdMolStandardize

    choose = rdMolStandardize.LargestFragmentChooser().choose
    return {
        "fragment": lambda mol: choose(mol) if len(Chem.GetMolFrags(mol)) > 1 else mol,
        "neutralize": rdMolStandardize.Uncharger().uncharge,
    }


def standardized(parsed: ParsedMolecule, steps: Sequence[str]) -> ParsedMolecule:
    """Return a molecule in one form by some of `STEPS`, or the reason why that cannot be made.

    One that is in its form already stays.
    """
    molecule = parsed.molecule
    if molecule is None or not steps or parsed.standard:
        return parsed
    try:
        with rdBase.BlockLogs():
            for name in STEPS:
                made = _steps()[name](molecule) if name in steps else molecule
                # Without its charge some ion is no molecule, as hexafluorophosphate: it stays.
                if made is not molecule and not Chem.SanitizeMol(made, catchErrors=True):
                    molecule = made
            text = canonical_smiles(molecule)
    except (RuntimeError, ValueError) as error:
        said = " ".join(str(error).split()) or type(error).__name__
        return ParsedMolecule(None, f"it cannot be standardized: {shortened(said, 100)}")
    # Read again, so that it is what the same SMILES in a table would be.
    found = parse_smiles(text)
    if found.molecule is None:
        return ParsedMolecule(None, f"it cannot be standardized: {found.reason}")
    return replace(found, standard=text, remark=parsed.remark)
