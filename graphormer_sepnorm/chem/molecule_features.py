"""``molecule-1``: nine categories of an atom and three of a bond, those of OGB.

The categories are those of the Open Graph Benchmark (Hu et al. 2020, arXiv 2005.00687); the codes
equal those of ogb 1.3.6. One of them is taken from another place: RDKit's tag of a stereo center
(clockwise or not) is relative to the order in which its neighbors happen to stand in the text, so
it is read from the canonical SMILES; two spellings of a molecule then have the same codes.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from rdkit import Chem, rdBase

from graphormer_sepnorm.chem.featurizer import OTHER, CodeTable, Featurizer
from graphormer_sepnorm.chem.molecules import parse_canonical, written
from graphormer_sepnorm.graphs.packed_graphs import PackedGraphs


def _listed(kind: Any, names: str) -> list[Any]:
    """Return values of one of RDKit's enumerations."""
    return [kind.names[name] for name in names.split()]


# ogb stops with an error at a stereo descriptor that is not listed (atropisomers, which RDKit
# learned later); here it has the last code, "some stereo, not told which".
_STEREO = "STEREONONE STEREOZ STEREOE STEREOCIS STEREOTRANS STEREOANY"
_CHIRAL = "CHI_UNSPECIFIED CHI_TETRAHEDRAL_CW CHI_TETRAHEDRAL_CCW CHI_OTHER"
# Columns that depend on the bonds of an atom.
_CHIRALITY, _DEGREE, _IN_RING = 1, 2, 8


class _Molecule1(Featurizer):
    name = "molecule-1"
    atom_tables = (
        CodeTable("atomic number", (*range(1, 119), OTHER)),
        CodeTable("chirality", (*_listed(Chem.ChiralType, _CHIRAL), OTHER)),
        CodeTable("degree, hydrogens counted", (*range(11), OTHER)),
        CodeTable("formal charge", (*range(-5, 6), OTHER)),
        CodeTable("hydrogens", (*range(9), OTHER)),
        CodeTable("radical electrons", (*range(5), OTHER)),
        CodeTable(
            "hybridisation", (*_listed(Chem.HybridizationType, "SP SP2 SP3 SP3D SP3D2"), OTHER)
        ),
        CodeTable("aromatic", (False, True)),
        CodeTable("in a ring", (False, True)),
    )
    bond_tables = (
        CodeTable("bond type", (*_listed(Chem.BondType, "SINGLE DOUBLE TRIPLE AROMATIC"), OTHER)),
        CodeTable("bond stereo", _listed(Chem.BondStereo, _STEREO)),
        CodeTable("conjugated", (False, True)),
    )

    def atom_values(self, atom: Chem.Atom) -> Sequence[Hashable]:
        return (
            atom.GetAtomicNum(),
            atom.GetChiralTag(),
            atom.GetTotalNumHs(),
            atom.GetFormalCharge(),
            atom.GetTotalNumHs(),
            atom.GetNumRadicalElectrons(),
            atom.GetHybridization(),
            atom.GetIsAromatic(),
            False,
        )

    def bond_values(self, bond: Chem.Bond) -> Sequence[Hashable]:
        return bond.GetBondType(), bond.GetStereo(), bond.GetIsConjugated()

    def add_surroundings(
        self, molecules: Sequence[Chem.Mol], graphs: PackedGraphs, in_ring: np.ndarray
    ) -> None:
        atom_codes, first_atom = graphs.atom_codes, np.cumsum(graphs.num_atoms) - graphs.num_atoms
        sources = graphs.edge_index[0] + first_atom.repeat(graphs.num_bonds)
        degree = np.bincount(sources, minlength=len(atom_codes))
        other = len(self.atom_tables[_DEGREE]) - 1
        atom_codes[:, _DEGREE] = np.minimum(atom_codes[:, _DEGREE] + degree, other)
        atom_codes[:, _IN_RING] = in_ring
        centers = np.flatnonzero(atom_codes[:, _CHIRALITY])
        for index in map(int, np.unique(np.searchsorted(first_atom, centers, side="right") - 1)):
            own = slice(first_atom[index], first_atom[index] + graphs.num_atoms[index])
            self._make_chirality_canonical(molecules[index], atom_codes[own])

    def _make_chirality_canonical(self, molecule: Chem.Mol, atom_codes: np.ndarray) -> None:
        """Replace the tags of stereo centers by those that the canonical SMILES gives them."""
        text, order = written(molecule)
        with rdBase.BlockLogs():
            canonical = parse_canonical(text)
        if canonical is None or canonical.GetNumAtoms() != len(order):
            return
        for center in np.flatnonzero(atom_codes[:, _CHIRALITY]).tolist():
            tag = canonical.GetAtomWithIdx(order.index(center)).GetChiralTag()
            atom_codes[center, _CHIRALITY] = self.atom_tables[_CHIRALITY].code(tag)

    def atom_labels(self, molecule: Chem.Mol) -> list[str]:
        return [atom.GetSymbol() for atom in molecule.GetAtoms()]


MOLECULE_1 = _Molecule1()
