"""Salts, charges and tautomers standardized, in the same way for training and prediction.

By RDKit's MolStandardize (after MolVS). Stereochemistry stays as it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

from rdkit import Chem, rdBase

from graphormer_sepnorm.chem.molecules import ParsedMolecule, canonical_smiles, parse_smiles
from graphormer_sepnorm.formatting import shortened

Step = Callable[[Chem.Mol], Chem.Mol | None]
UNSETTLED = (
    "RDKit did not come to the end of its tautomers: it stays in the one that is written, and "
    "another one of it counts as another molecule"
)


@cache
def _steps() -> dict[str, Step]:
    """Each is made once: the tables of the tautomers are read from text."""
    from rdkit.Chem.MolStandardize import rdMolStandardize

    tautomers = rdMolStandardize.TautomerEnumerator()
    tautomers.SetRemoveSp3Stereo(False)
    tautomers.SetRemoveBondStereo(False)

    fragments = rdMolStandardize.LargestFragmentChooser()

    def largest_fragment(molecule: Chem.Mol) -> Chem.Mol:
        several = len(Chem.GetMolFrags(molecule)) > 1
        return fragments.choose(molecule) if several else molecule

    def canonical_tautomer(molecule: Chem.Mol) -> Chem.Mol | None:
        """Return None where RDKit stops before it has all of them."""
        found = tautomers.Enumerate(molecule)
        settled = found.status == rdMolStandardize.TautomerEnumeratorStatus.Completed
        return tautomers.PickCanonical(found) if settled else None

    return {
        "fragment": largest_fragment,
        "neutralize": rdMolStandardize.Uncharger().uncharge,
        "tautomer": canonical_tautomer,
    }


# In the order in which they are taken: the largest fragment without its salts and solvents, charges
# that protons can remove, RDKit's canonical tautomer.
STEPS = ("fragment", "neutralize", "tautomer")


def standardized(parsed: ParsedMolecule, steps: Sequence[str]) -> ParsedMolecule:
    """Return a molecule in one form by some of `STEPS`, or the reason why that cannot be made.

    One that is in its form already stays.
    """
    molecule = parsed.molecule
    if molecule is None or not steps or parsed.standard:
        return parsed
    remark = ""
    try:
        with rdBase.BlockLogs():
            for name in STEPS:
                made = _steps()[name](molecule) if name in steps else molecule
                if made is None:
                    remark = UNSETTLED
                # Without its charge some ion is no molecule, as hexafluorophosphate: it stays.
                elif made is not molecule and not Chem.SanitizeMol(made, catchErrors=True):
                    molecule = made
            text = canonical_smiles(molecule)
    except (RuntimeError, ValueError) as error:
        said = " ".join(str(error).split()) or type(error).__name__
        return ParsedMolecule(None, f"it cannot be standardized: {shortened(said, 100)}")
    # Read again, so that it is what the same SMILES in a table would be.
    found = parse_smiles(text)
    if not found.readable:
        return ParsedMolecule(None, f"it cannot be standardized: {found.reason}")
    remarks = filter(None, (parsed.remark, remark))
    return replace(found, standard=text, remark="; ".join(remarks))
