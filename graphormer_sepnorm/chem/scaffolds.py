"""Parts of molecules: scaffolds, by which they are split, and fragments."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from rdkit import Chem
from rdkit.Chem import BRICS
from rdkit.Chem.Scaffolds import MurckoScaffold


def murcko_scaffold(molecule: Chem.Mol) -> str:
    """Return the Bemis-Murcko scaffold (J. Med. Chem. 1996, 39, 2887) as a SMILES without stereo.

    A molecule without rings has the empty scaffold.
    """
    return MurckoScaffold.MurckoScaffoldSmiles(mol=molecule, includeChirality=False)


def split_by_scaffold(
    scaffolds: Sequence[str], fractions: tuple[float, float, float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Split molecules by their scaffolds.

    From the most frequent scaffold to the rarest, each goes to the training set if it still fits
    there, else to the validation set, else to the test set (the procedure of MoleculeNet, Wu et al.
    2018, arXiv 1703.00564). Scaffolds of equal frequency come in the order of a hash of their
    SMILES: rare ones are spread by chance and not by the alphabet. The order of the molecules does
    not matter.

    Args:
        scaffolds: One per molecule.
        fractions: Shares of training, validation and test set; they add up to one.

    Returns:
        Positions in `scaffolds`, three int64 arrays, each in ascending order.
    """
    members: dict[str, list[int]] = defaultdict(list)
    for position, scaffold in enumerate(scaffolds):
        members[scaffold].append(position)

    # Exact arithmetic: 0.7 + 0.1 as floating-point numbers times n falls short of an integer.
    train_share, validation_share, _ = (Fraction(share).limit_denominator() for share in fractions)
    train_room = int(train_share * len(scaffolds))
    validation_room = int((train_share + validation_share) * len(scaffolds)) - train_room
    train, validation, test = [], [], []
    for _, _, group in sorted(
        (-len(group), hashlib.sha256(scaffold.encode()).hexdigest(), group)
        for scaffold, group in members.items()
    ):
        if len(train) + len(group) <= train_room:
            train += group
        elif len(validation) + len(group) <= validation_room:
            validation += group
        else:
            test += group
    return _sorted(train), _sorted(validation), _sorted(test)


def _sorted(positions: list[int]) -> np.ndarray:
    return np.array(sorted(positions), dtype=np.int64)


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
