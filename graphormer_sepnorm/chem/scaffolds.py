"""Parts of molecules: scaffolds, by which they are split, and fragments."""

from __future__ import annotations

from rdkit import Chem
from rdkit.Chem import BRICS
from rdkit.Chem.Scaffolds import MurckoScaffold


def murcko_scaffold(molecule: Chem.Mol) -> str:
    """Return the Bemis-Murcko scaffold (J. Med. Chem. 1996, 39, 2887) as a SMILES without stereo.

    A molecule without rings has the empty scaffold.
    """
    return MurckoScaffold.MurckoScaffoldSmiles(mol=molecule, includeChirality=False)


def fragments_of(molecule: Chem.Mol) -> list[tuple[int, ...]]:
    """Divide the atoms of a molecule into fragments.

    Cut are the bonds that BRICS cuts (Degen et al. 2008, ChemMedChem 3, 1503) and the single bonds
    between a ring and what does not belong to it. So a ring system is one fragment, with atoms that
    a double bond joins to it, and its substituents are fragments of their own. Each atom is in
    exactly one; they are in the order of their first atoms.
    """
    cut = {
        molecule.GetBondBetweenAtoms(*ends).GetIdx() for ends, _ in BRICS.FindBRICSBonds(molecule)
    }
    for bond in molecule.GetBonds():
        at_ring = bond.GetBeginAtom().IsInRing() or bond.GetEndAtom().IsInRing()
        if at_ring and not bond.IsInRing() and bond.GetBondType() == Chem.BondType.SINGLE:
            cut.add(bond.GetIdx())
    if cut:
        molecule = Chem.FragmentOnBonds(molecule, sorted(cut), addDummies=False)
    return [tuple(sorted(atoms)) for atoms in Chem.GetMolFrags(molecule)]


def fragment_smiles(molecule: Chem.Mol, atoms: tuple[int, ...]) -> str:
    """Return how a fragment is written, to read; bonds that were cut are not shown."""
    return Chem.MolFragmentToSmiles(molecule, atoms)
