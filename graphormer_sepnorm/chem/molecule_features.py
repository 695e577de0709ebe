"""``molecule-1``: nine categories of an atom and three of a bond, those of OGB.

The categories are those of the Open Graph Benchmark (Hu et al. 2020, arXiv 2005.00687); the codes
equal those of ogb 1.3.6. One of them is taken from another place: RDKit's tag of a stereo centre
(clockwise or not) is relative to the order in which its neighbours happen to stand in the text, so
it is read from the canonical SMILES; two spellings of a molecule then have the same codes.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import Literal

import numpy as np
from rdkit import Chem, rdBase

from graphormer_sepnorm.chem.featuriser import OTHER, CodeTable, Featuriser
from graphormer_sepnorm.graphs.molecular_graph import MolecularGraph

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


def _featurise_molecule_1(molecule: Chem.Mol) -> MolecularGraph:
    chirality = _chirality(molecule)
    atom_rows = [
        (
            atom.GetAtomicNum(),
            chirality[atom.GetIdx()],
            atom.GetTotalDegree(),
            atom.GetFormalCharge(),
            atom.GetTotalNumHs(),
            atom.GetNumRadicalElectrons(),
            atom.GetHybridization(),
            atom.GetIsAromatic(),
            atom.IsInRing(),
        )
        # By number: the sequences that GetAtoms and GetBonds give are slow to walk in Python.
        for atom in map(molecule.GetAtomWithIdx, range(molecule.GetNumAtoms()))
    ]
    ends: list[tuple[int, int]] = []
    bond_rows = []
    for bond in map(molecule.GetBondWithIdx, range(molecule.GetNumBonds())):
        begin, end = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        ends += [(begin, end), (end, begin)]
        row = (bond.GetBondType(), bond.GetStereo(), bond.GetIsConjugated())
        bond_rows += [row, row]
    return MolecularGraph(
        atom_codes=_codes("atom", atom_rows),
        edge_index=np.array(ends, dtype=np.int64).reshape(-1, 2).T.copy(),
        bond_codes=_codes("bond", bond_rows),
    )


def _chirality(molecule: Chem.Mol) -> list[Chem.ChiralType]:
    """Return the tag of each atom as its canonical SMILES gives it, in the molecule's order."""
    atoms = map(molecule.GetAtomWithIdx, range(molecule.GetNumAtoms()))
    tags = [atom.GetChiralTag() for atom in atoms]
    if all(tag == Chem.ChiralType.CHI_UNSPECIFIED for tag in tags):
        return tags
    with rdBase.BlockLogs():
        canonical = Chem.MolFromSmiles(Chem.MolToSmiles(molecule))
    # Which atom of the molecule each atom of that text is.
    order = list(molecule.GetPropsAsDict(True, True)["_smilesAtomOutputOrder"])
    if canonical is None or canonical.GetNumAtoms() != len(order):
        return tags
    for number, atom in enumerate(order):
        tags[atom] = canonical.GetAtomWithIdx(number).GetChiralTag()
    return tags


def _elements(molecule: Chem.Mol) -> list[str]:
    return [atom.GetSymbol() for atom in molecule.GetAtoms()]


def _codes(kind: Literal["atom", "bond"], rows: list[tuple[Hashable, ...]]) -> np.ndarray:
    """Return the codes of `rows`, int64 ``[len(rows), number of tables]``."""
    codes = [_row_codes(kind, row) for row in rows]
    tables = ATOM_TABLES if kind == "atom" else BOND_TABLES
    return np.array(codes, dtype=np.int64).reshape(len(rows), len(tables))


@lru_cache(maxsize=4096)
def _row_codes(kind: Literal["atom", "bond"], row: tuple[Hashable, ...]) -> tuple[int, ...]:
    """Return the codes of one row. A data set has few different ones, hence the cache."""
    tables = ATOM_TABLES if kind == "atom" else BOND_TABLES
    return tuple(table.code(value) for table, value in zip(tables, row, strict=True))


MOLECULE_1 = Featuriser("molecule-1", ATOM_TABLES, BOND_TABLES, _featurise_molecule_1, _elements)
