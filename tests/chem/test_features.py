"""The codes of molecule-1 equal those of ogb 1.3.6, computed with ogb's own tables."""

from __future__ import annotations

import numpy as np
import pytest
from rdkit import Chem, rdBase
from reference.molecules import spellings

from graphormer_sepnorm.chem.features import get_featuriser
from graphormer_sepnorm.chem.molecule_features import ATOM_TABLES, BOND_TABLES
from graphormer_sepnorm.chem.molecules import parse_smiles
from graphormer_sepnorm.errors import ConfigError

ODD = [
    "C",
    "[H][H]",
    "[Na+].[Cl-]",
    "*C",
    "[U]",
    "[CH3]",
    "[O]",
    "O=[N]",
    "[C-]#[O+]",
    "[Fe+6]",
    "C[C@H](O)F",
    "C[C@@H](O)F",
    "F/C=C/F",
    "F/C=C\\F",
    "FC=CF",
    "C1=CC=CC=C1",
    "[C-4]",
    "FS(F)(F)(F)(F)F",
    "FP(F)(F)(F)F",
    "[NH3]->[Pt](Cl)(Cl)<-[NH3]",
    "C[Pt@SP1](F)(Cl)Br",
    "C[C@H]1CC[C@@H](C)CC1",
    "CC(C)=[N+]=[N-]",
    "c1ccc2[nH]ccc2c1",
    "C#CC#N",
]


def test_codes_equal_ogb(sample):
    from ogb.utils.features import atom_to_feature_vector, bond_to_feature_vector

    featurise = get_featuriser("molecule-1").featurise
    for text in ODD + sample[::20]:
        molecule = parse_smiles(text).molecule
        graph = featurise(molecule)
        atoms = [atom_to_feature_vector(atom) for atom in molecule.GetAtoms()]
        ends, bonds = [], []
        for bond in molecule.GetBonds():
            pair = (bond.GetBeginAtomIdx(), bond.GetEndAtomIdx())
            ends += [pair, pair[::-1]]
            bonds += [bond_to_feature_vector(bond)] * 2
        assert graph.atom_codes.tolist() == atoms, text
        assert graph.edge_index.T.tolist() == [list(pair) for pair in ends], text
        assert graph.bond_codes.tolist() == bonds, text


def test_tables_are_as_large_as_ogbs():
    from ogb.utils.features import get_atom_feature_dims, get_bond_feature_dims

    assert [len(table) for table in ATOM_TABLES] == get_atom_feature_dims()
    assert [len(table) for table in BOND_TABLES] == get_bond_feature_dims()
    assert len(ATOM_TABLES[1]) == 5


def test_no_bonds_keeps_the_shapes():
    graph = get_featuriser("molecule-1").featurise(parse_smiles("[Na+].[Cl-]").molecule)
    assert graph.edge_index.shape == (2, 0)
    assert graph.bond_codes.shape == (0, 3)
    assert {array.dtype for array in (graph.edge_index, graph.bond_codes)} == {np.dtype("int64")}


def test_stereo_that_ogb_does_not_know():
    molecule = Chem.MolFromSmiles("Cc1cccc(I)c1-c1c(C)cccc1Br")
    with rdBase.BlockLogs():
        bond = next(bond for bond in molecule.GetBonds() if not bond.IsInRing() and _joins(bond))
    bond.SetStereo(Chem.BondStereo.STEREOATROPCW)
    graph = get_featuriser("molecule-1").featurise(molecule)
    assert graph.bond_codes[2 * bond.GetIdx(), 1] == 5


def _joins(bond: Chem.Bond) -> bool:
    return bond.GetBeginAtom().IsInRing() and bond.GetEndAtom().IsInRing()


def test_unknown_featuriser():
    with pytest.raises(ConfigError, match=r"did you mean 'molecule-1'\?"):
        get_featuriser("molecule1")


@pytest.mark.parametrize(
    "smiles",
    [
        "CC[C@H](C)O",
        "C[C@H]1CC[C@@H](C)CC1",
        "OC[C@H]1O[C@@H](O)[C@H](O)[C@@H](O)[C@@H]1O",
        "C[C@]12CC[C@H]3[C@@H](CCc4cc(O)ccc34)[C@@H]1CC[C@@H]2O",
        "C[S@](=O)c1ccccc1",
        r"F/C=C/[C@H](O)/C=C\F",
    ],
)
def test_stereo_centres_do_not_depend_on_the_spelling(smiles: str) -> None:
    featurise = get_featuriser("molecule-1").featurise
    graphs = [featurise(Chem.MolFromSmiles(text)) for text in spellings(smiles, 20)]
    assert len({tuple(sorted(map(tuple, one.atom_codes.tolist()))) for one in graphs}) == 1


def test_mirror_images_are_told_apart() -> None:
    featurise = get_featuriser("molecule-1").featurise
    left, right = (
        featurise(Chem.MolFromSmiles(text)).atom_codes.tolist()
        for text in ("C[C@H](N)C(=O)O", "C[C@@H](N)C(=O)O")
    )
    assert left != right
