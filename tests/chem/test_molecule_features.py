"""The codes of molecule-1 equal those of ogb 1.3.6, computed with ogb's own tables."""

import pytest
from rdkit import Chem
from reference.molecules import spellings

from graphormer_sepnorm.chem.molecule_features import MOLECULE_1
from graphormer_sepnorm.chem.molecules import parse_smiles

ODD = [
    *("C", "[H][H]", "[Na+].[Cl-]", "*C", "[U]", "[CH3]", "[O]", "O=[N]", "[C-]#[O+]", "[Fe+6]"),
    *("C[C@H](O)F", "C[C@@H](O)F", "F/C=C/F", "F/C=C\\F", "FC=CF", "C1=CC=CC=C1", "[C-4]"),
    *("FS(F)(F)(F)(F)F", "FP(F)(F)(F)F", "[NH3]->[Pt](Cl)(Cl)<-[NH3]", "C[Pt@SP1](F)(Cl)Br"),
    *("C[C@H]1CC[C@@H](C)CC1", "CC(C)=[N+]=[N-]", "c1ccc2[nH]ccc2c1", "C#CC#N"),
]


def test_codes_equal_ogb(sample):
    from ogb.utils.features import atom_to_feature_vector, bond_to_feature_vector

    for text in ODD + sample[::20]:
        molecule = parse_smiles(text).molecule
        graph = MOLECULE_1.featurize(molecule)
        atoms = [atom_to_feature_vector(atom) for atom in molecule.GetAtoms()]
        ends, bonds = [], []
        for bond in molecule.GetBonds():
            pair = [bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()]
            ends += [pair, pair[::-1]]
            bonds += [bond_to_feature_vector(bond)] * 2
        assert graph.atom_codes.tolist() == atoms, text
        assert graph.edge_index.T.tolist() == ends, text
        assert graph.bond_codes.tolist() == bonds, text
        # Also of a molecule without bonds.
        assert (graph.edge_index.shape, graph.bond_codes.shape) == ((2, len(ends)), (len(ends), 3))


def test_tables_are_as_large_as_ogbs():
    from ogb.utils.features import get_atom_feature_dims, get_bond_feature_dims

    assert [len(table) for table in MOLECULE_1.atom_tables] == get_atom_feature_dims()
    assert [len(table) for table in MOLECULE_1.bond_tables] == get_bond_feature_dims()


def test_stereo_that_ogb_does_not_know():
    molecule = Chem.MolFromSmiles("Cc1cccc(I)c1-c1c(C)cccc1Br")
    [ends] = molecule.GetSubstructMatches(Chem.MolFromSmarts("c!@c"))
    bond = molecule.GetBondBetweenAtoms(*ends)
    bond.SetStereo(Chem.BondStereo.STEREOATROPCW)
    assert MOLECULE_1.featurize(molecule).bond_codes[2 * bond.GetIdx(), 1] == 5


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
def test_stereo_centers_do_not_depend_on_the_spelling(smiles: str) -> None:
    graphs = [MOLECULE_1.featurize(Chem.MolFromSmiles(text)) for text in spellings(smiles, 20)]
    assert len({tuple(sorted(map(tuple, one.atom_codes.tolist()))) for one in graphs}) == 1
