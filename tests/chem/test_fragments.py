from __future__ import annotations

import pytest
from rdkit import Chem

from graphormer_sepnorm.chem.fragments import fragment_smiles, fragments_of


@pytest.mark.parametrize(
    ("smiles", "fragments"),
    [
        ("CC(=O)Oc1ccccc1C(=O)O", ["CC=O", "O", "c1ccccc1", "O=CO"]),
        ("Cc1ccccc1", ["C", "c1ccccc1"]),
        ("O=C1CCCCC1Cl", ["O=C1CCCCC1", "Cl"]),  # a double bond belongs to its ring
        ("c1ccc2ccccc2c1", ["c1ccc2ccccc2c1"]),
        ("c1ccccc1-c1ccccc1", ["c1ccccc1", "c1ccccc1"]),
        ("CCCCCCO", ["CCCCCCO"]),
        ("[Na+].CC(=O)[O-]", ["[Na+]", "CC(=O)[O-]"]),
        ("C", ["C"]),
    ],
)
def test_rings_and_what_is_between_them(smiles, fragments):
    molecule = Chem.MolFromSmiles(smiles)
    found = fragments_of(molecule)
    assert sorted(atom for atoms in found for atom in atoms) == list(range(molecule.GetNumAtoms()))
    assert [fragment_smiles(molecule, atoms) for atoms in found] == fragments
