"""zinc-1 against the graphs that ZINC stores, which another RDKit made."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from rdkit import Chem
from reference.molecules import spellings

from graphormer_sepnorm.chem.features import get_featurizer
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.graphs.packed_graphs import MolecularGraph

ZINC_1 = get_featurizer("zinc-1")
# Positions in the data set's list, from the data set's description and not from the code.
TYPES = {"C": 0, "O": 1, "N": 2, "F": 3, "C H1": 4, "S": 5, "O -": 7, "N H1 +": 8, "N +": 12}


def graph(smiles: str) -> MolecularGraph:
    molecule = Chem.MolFromSmiles(smiles)
    before = contents(molecule)
    made = ZINC_1.featurize(molecule)
    labels = ZINC_1.atom_labels(molecule)
    assert [ZINC_1.atom_tables[0].code(name) for name in labels] == made.atom_codes[:, 0].tolist()
    assert contents(molecule) == before
    return made


def contents(molecule: Chem.Mol) -> tuple[object, ...]:
    """What a featurizer has to leave alone: structure, numbering, stereo labels."""
    labels = [atom.HasProp("_CIPCode") for atom in molecule.GetAtoms()]
    return Chem.MolToCXSmiles(molecule), molecule.ToBinary(), labels


def drugs() -> list[str]:
    lines = (Path(__file__).parents[2] / "data" / "drugs.smi").read_text().splitlines()
    return [line.split("\t")[0] for line in lines if not line.startswith("#")]


def fingerprint(made: MolecularGraph) -> str:
    """A canonical name of a graph with colored atoms and bonds, by RDKit's canonical SMILES."""
    bonds = {1: Chem.BondType.SINGLE, 2: Chem.BondType.DOUBLE, 3: Chem.BondType.TRIPLE}
    molecule = Chem.RWMol()
    for code in made.atom_codes[:, 0].tolist():
        atom = Chem.Atom(0)
        atom.SetIsotope(code + 1)
        atom.SetNoImplicit(True)
        molecule.AddAtom(atom)
    for (begin, end), code in zip(made.edge_index.T.tolist(), made.bond_codes[:, 0], strict=True):
        if begin < end:
            molecule.AddBond(begin, end, bonds[int(code)])
    return Chem.MolToSmiles(molecule.GetMol())


@pytest.mark.parametrize(
    ("smiles", "types"),
    [
        ("CCO", {"C": 2, "O": 1}),
        ("C[C@H](O)F", {"C": 1, "C H1": 1, "O": 1, "F": 1}),
        ("CC(O)F", {"C": 2, "O": 1, "F": 1}),
        ("C[NH+](C)C", {"C": 3, "N H1 +": 1}),
        ("CC(=O)[O-]", {"C": 2, "O": 1, "O -": 1}),
        ("C[N+](=O)[O-]", {"C": 1, "N +": 1, "O": 1, "O -": 1}),
        ("c1cc[nH]c1", {"C": 4, "N": 1}),
    ],
)
def test_atom_types_are_those_of_the_data_set(smiles, types):
    expected = Counter({TYPES[name]: count for name, count in types.items()})
    assert Counter(graph(smiles).atom_codes[:, 0].tolist()) == expected


def test_bonds_are_kekulised_and_stand_in_both_directions():
    benzene = graph("c1ccccc1")
    assert Counter(benzene.bond_codes[:, 0].tolist()) == {1: 6, 2: 6}
    assert graph("C#N").bond_codes.tolist() == [[3], [3]]
    ends = [tuple(pair) for pair in benzene.edge_index.T.tolist()]
    assert ends[1::2] == [(end, begin) for begin, end in ends[::2]]


def test_what_the_data_set_does_not_have_is_other():
    made = graph("C[Si](C)C")
    assert sorted(made.atom_codes[:, 0].tolist()) == [0, 0, 0, 28]
    assert sorted(ZINC_1.atom_labels(Chem.MolFromSmiles("C[Si](C)C"))) == ["C", "C", "C", "Si"]
    assert 4 in graph("[NH3]->[Cu]").bond_codes


def test_spellings_of_one_molecule_give_one_graph():
    tautomers = ("CC1=CC2=C(C=C1)NC(=O)N2C", "c1ccc2c(c1)[nH]c1ccccc12", "O=c1[nH]cnc2ccsc12")
    for smiles in (*tautomers, *drugs()[:30]):
        assert len({fingerprint(graph(text)) for text in spellings(smiles, 8)}) == 1, smiles


def stored_graph(smiles: str) -> MolecularGraph:
    """The stored graph, which the data write as a SMILES with all bonds explicit."""
    parameters = Chem.SmilesParserParams()
    parameters.sanitize = False
    parameters.removeHs = False
    molecule = Chem.MolFromSmiles(smiles, parameters)
    names = list(ZINC_1.atom_tables[0].values)
    codes = []
    for atom in molecule.GetAtoms():
        hydrogens, charge = atom.GetNumExplicitHs(), atom.GetFormalCharge()
        name = atom.GetSymbol() + (f" H{hydrogens}" if hydrogens else "")
        codes.append(names.index(name + (" +" if charge > 0 else " -" if charge < 0 else "")))
    ends, bonds = [], []
    for bond in molecule.GetBonds():
        begin, end = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        ends += [(begin, end), (end, begin)]
        bonds += [[int(bond.GetBondTypeAsDouble())]] * 2
    return MolecularGraph(
        np.array(codes).reshape(-1, 1), np.array(ends).reshape(-1, 2).T, np.array(bonds)
    )


def test_the_stored_graphs_of_the_data_set(zinc, data_source):
    """All atoms, and the whole graph of the share that was measured (99.6 %)."""
    index = (data_source / "zinc" / "test.index").read_text().split(",")
    equal = 0
    for row in (zinc[int(number)] for number in index[::4]):
        made, stored = graph(row["smiles"]), stored_graph(row["graph"])
        codes, known = made.atom_codes[:, 0].tolist(), stored.atom_codes[:, 0].tolist()
        assert sorted(codes) == sorted(known), row["smiles"]
        equal += fingerprint(made) == fingerprint(stored)
    assert equal > 246


def test_stored_graphs_are_the_molecules_of_the_data_set(zinc):
    """Without their stereochemistry, which the graphs do not hold."""
    for row in zinc[::25]:
        molecule = Chem.MolFromSmiles(row["smiles"])
        Chem.RemoveStereochemistry(molecule)
        found = ZINC_1.smiles_of(stored_graph(row["graph"]))
        assert Chem.CanonSmiles(found) == Chem.CanonSmiles(Chem.MolToSmiles(molecule))


@pytest.mark.parametrize(
    "smiles", ["CC(=O)[O-]", "C[NH+]1CCCC1", "c1cc[nH]c1", "O=C1NC=CC1=S", "I"]
)
def test_a_graph_has_the_smiles_it_was_made_of(smiles):
    assert ZINC_1.smiles_of(graph(smiles)) == Chem.CanonSmiles(smiles)


def test_a_graph_that_is_no_molecule_has_no_smiles():
    nonsense = graph("CC(C)(C)C")
    nonsense.bond_codes[:] = 3  # a carbon with four triple bonds
    assert ZINC_1.smiles_of(nonsense) == ""
    nonsense.atom_codes[:] = 99
    assert ZINC_1.smiles_of(nonsense) == ""


def test_a_molecule_that_cannot_be_read_again_is_refused():
    molecule = Chem.MolFromSmiles("CC(C)(C)(C)C", sanitize=False)
    with pytest.raises(DataError, match="cannot be read again") as caught:
        ZINC_1.featurize(molecule)
    assert "\n" not in str(caught.value)
