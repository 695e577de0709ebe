"""``molecule-1``: nine categories of an atom and three of a bond, those of OGB.

The categories are those of the Open Graph Benchmark (Hu et al. 2020, arXiv 2005.00687); the codes
equal those of ogb 1.3.6. One of them is taken from another place: RDKit's tag of a stereo centre
(clockwise or not) is relative to the order in which its neighbours happen to stand in the text, so
it is read from the canonical SMILES; two spellings of a molecule then have the same codes.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from rdkit import Chem, rdBase

from graphormer_sepnorm.chem.featuriser import OTHER, CodeTable, Featuriser
from graphormer_sepnorm.chem.molecules import parse_canonical, written
from graphormer_sepnorm.chem.packing import Packer
from graphormer_sepnorm.chem.records import Records
from graphormer_sepnorm.graphs.packed_graphs import MolecularGraph, PackedGraphs

ATOM_TABLES = (
    CodeTable("atomic number", (*range(1, 119), OTHER)),
    CodeTable(
        "chirality",
        (
            Chem.ChiralType.CHI_UNSPECIFIED,
            Chem.ChiralType.CHI_TETRAHEDRAL_CW,
            Chem.ChiralType.CHI_TETRAHEDRAL_CCW,
            Chem.ChiralType.CHI_OTHER,
            OTHER,
        ),
    ),
    CodeTable("degree, hydrogens counted", (*range(11), OTHER)),
    CodeTable("formal charge", (*range(-5, 6), OTHER)),
    CodeTable("hydrogens", (*range(9), OTHER)),
    CodeTable("radical electrons", (*range(5), OTHER)),
    CodeTable(
        "hybridisation",
        (
            Chem.HybridizationType.SP,
            Chem.HybridizationType.SP2,
            Chem.HybridizationType.SP3,
            Chem.HybridizationType.SP3D,
            Chem.HybridizationType.SP3D2,
            OTHER,
        ),
    ),
    CodeTable("aromatic", (False, True)),
    CodeTable("in a ring", (False, True)),
)

BOND_TABLES = (
    CodeTable(
        "bond type",
        (
            Chem.BondType.SINGLE,
            Chem.BondType.DOUBLE,
            Chem.BondType.TRIPLE,
            Chem.BondType.AROMATIC,
            OTHER,
        ),
    ),
    # ogb stops with an error at a stereo descriptor that is not listed (atropisomers, which RDKit
    # learnt later); here it has the last code, "some stereo, not said which".
    CodeTable(
        "bond stereo",
        (
            Chem.BondStereo.STEREONONE,
            Chem.BondStereo.STEREOZ,
            Chem.BondStereo.STEREOE,
            Chem.BondStereo.STEREOCIS,
            Chem.BondStereo.STEREOTRANS,
            Chem.BondStereo.STEREOANY,
        ),
    ),
    CodeTable("conjugated", (False, True)),
)


# Columns that are not an atom's own.
_CHIRALITY, _DEGREE, _IN_RING = 1, 2, 8


class _Packer(Packer):
    """Adds what an atom has of its bonds, and chirality as the canonical SMILES tells it."""

    def read(self, molecule: Chem.Mol) -> Records | None:
        records = super().read(molecule)
        return None if records is None or records.ring_atoms is None else records

    def by_records(self, molecules: list[Chem.Mol], records: list[Records]) -> PackedGraphs:
        graphs = super().by_records(molecules, records)
        atom_codes, first_atom = graphs.atom_codes, np.cumsum(graphs.num_atoms) - graphs.num_atoms
        sources = graphs.edge_index[0] + first_atom.repeat(graphs.num_bonds)
        degree = np.bincount(sources, minlength=len(atom_codes))
        other = len(ATOM_TABLES[_DEGREE]) - 1
        atom_codes[:, _DEGREE] = np.minimum(atom_codes[:, _DEGREE] + degree, other)
        of_rings = [one.ring_atoms or b"" for one in records]
        in_ring = np.frombuffer(b"".join(of_rings), dtype=np.uint8)
        atom_codes[in_ring + first_atom.repeat([*map(len, of_rings)]), _IN_RING] = 1
        centres = np.flatnonzero(atom_codes[:, _CHIRALITY])
        for number in map(int, np.unique(np.searchsorted(first_atom, centres, side="right") - 1)):
            first = first_atom[number]
            own = atom_codes[first : first + graphs.num_atoms[number]]
            _make_chirality_canonical(molecules[number], own)
        return graphs

    def by_objects(self, molecule: Chem.Mol) -> MolecularGraph:
        graph = super().by_objects(molecule)
        _make_chirality_canonical(molecule, graph.atom_codes)
        return graph


def _atom_row(atom: Chem.Atom) -> list[int]:
    values = (
        atom.GetAtomicNum(),
        atom.GetChiralTag(),
        atom.GetTotalDegree(),
        atom.GetFormalCharge(),
        atom.GetTotalNumHs(),
        atom.GetNumRadicalElectrons(),
        atom.GetHybridization(),
        atom.GetIsAromatic(),
        atom.IsInRing(),
    )
    return [table.code(value) for table, value in zip(ATOM_TABLES, values, strict=True)]


def _atom_row_without_bonds(atom: Chem.Atom) -> list[int]:
    """Return the codes as if the atom had no neighbours but its implicit hydrogens."""
    row = _atom_row(atom)
    row[_DEGREE], row[_IN_RING] = atom.GetTotalNumHs(), 0
    return row


def _bond_row(bond: Chem.Bond) -> list[int]:
    values = (bond.GetBondType(), bond.GetStereo(), bond.GetIsConjugated())
    return [table.code(value) for table, value in zip(BOND_TABLES, values, strict=True)]


def _make_chirality_canonical(molecule: Chem.Mol, atom_codes: np.ndarray) -> None:
    """Replace the tags of stereo centres by those that the canonical SMILES gives them."""
    centres = np.flatnonzero(atom_codes[:, _CHIRALITY]).tolist()
    if not centres:
        return
    text, order = written(molecule)
    with rdBase.BlockLogs():
        canonical = parse_canonical(text)
    if canonical is None or canonical.GetNumAtoms() != len(order):
        return
    for centre in centres:
        tag = canonical.GetAtomWithIdx(order.index(centre)).GetChiralTag()
        atom_codes[centre, _CHIRALITY] = ATOM_TABLES[_CHIRALITY].code(tag)


def _elements(molecule: Chem.Mol) -> list[str]:
    return [atom.GetSymbol() for atom in molecule.GetAtoms()]


def _element(number: Hashable) -> str:
    return Chem.GetPeriodicTable().GetElementSymbol(number) if isinstance(number, int) else OTHER


_PACKER = _Packer(
    _atom_row, _bond_row, (len(ATOM_TABLES), len(BOND_TABLES)), _atom_row_without_bonds
)
MOLECULE_1 = Featuriser(
    "molecule-1", ATOM_TABLES, BOND_TABLES, _PACKER, _elements, label_of=_element
)
