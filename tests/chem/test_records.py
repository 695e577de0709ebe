"""Codes by records of RDKit's binary form equal those that its objects tell one by one."""

from __future__ import annotations

import numpy as np
import pytest
from rdkit import Chem, rdBase
from rdkit.Chem.EnumerateStereoisomers import (
    EnumerateStereoisomers,
    StereoEnumerationOptions,
)
from reference.molecules import TIE_FREE, TIED

from graphormer_sepnorm.chem import molecule_features, packing, zinc_features
from graphormer_sepnorm.chem.molecules import parse_smiles
from graphormer_sepnorm.chem.records import read_records
from graphormer_sepnorm.graphs.packed_graphs import MolecularGraph

FEATURISERS = {
    "molecule-1": molecule_features.MOLECULE_1.featurise,
    "zinc-1": zinc_features.ZINC_1.featurise,
}
# Whatever a record can hold: charge, chirality, hybridisation, hydrogens, valence, radicals,
# isotope; direction, stereo and unusual types of bonds; rings of all sizes, or none; no bonds.
ODD = [
    "C",
    "[H][H]",
    "[Na+].[Cl-]",
    "[CH3]",
    "[CH2]C",
    "[13CH4]",
    "[2H]OC",
    "[C-]#[O+]",
    "[Fe+6]",
    "[U]",
    "O=[N]",
    "[NH3]->[Pt](Cl)(Cl)<-[NH3]",
    "C[Pt@SP1](F)(Cl)Br",
    "FS(F)(F)(F)(F)F",
    "C$C",
    "C[C@H](O)F",
    r"F/C=C/[C@H](C)/C=C\F",
    r"C/C=C/C=C\C",
    "CC=CC",
    "C[S@](=O)c1ccccc1",
    "c1ccc2[nH]ccc2c1",
    "C1CC2CCC1CC2",
    "C" * 254 + "O",
    "C1" + "C" * 250 + "1",
    "c1cc[te]c1",
    "Cc1cccc(I)c1-c1c(C)cccc1Br |wU:7.7|",
]
# What is left to be asked about: dummy atoms, map numbers, more atoms than a byte can number.
NOT_READ = ["*C", "[1*]C", "[CH3:7][OH:8]", "C" * 256]


def agree(made: MolecularGraph, expected: MolecularGraph) -> bool:
    pairs = (
        (made.atom_codes, expected.atom_codes),
        (made.edge_index, expected.edge_index),
        (made.bond_codes, expected.bond_codes),
    )
    return all(np.array_equal(a, b) and a.dtype == b.dtype == np.int64 for a, b in pairs)


@pytest.mark.parametrize("name", FEATURISERS)
def test_codes_are_those_of_the_single_atoms(name, sample, monkeypatch):
    featurise = FEATURISERS[name]
    for smiles in (*ODD, *NOT_READ, *TIE_FREE.values(), *TIED.values(), *sample[::15]):
        made = featurise(Chem.MolFromSmiles(smiles))
        with monkeypatch.context() as patch:
            patch.setattr(packing, "read_records", lambda molecule: None)
            assert agree(made, featurise(Chem.MolFromSmiles(smiles))), smiles


def test_ordinary_molecules_have_records():
    """Or the test above would compare the slow way with itself."""
    for smiles in (*ODD, *TIE_FREE.values(), *TIED.values()):
        molecule = Chem.MolFromSmiles(smiles)
        records = read_records(molecule)
        assert records is not None, smiles
        assert len(records.atoms) == molecule.GetNumAtoms()
        assert len(records.bonds) == len(records.ends) / 2 == molecule.GetNumBonds()
        in_rings = {atom.GetIdx() for atom in molecule.GetAtoms() if atom.IsInRing()}
        assert set(records.ring_atoms or b"") == in_rings


def test_what_is_not_read():
    for smiles in NOT_READ:
        assert read_records(Chem.MolFromSmiles(smiles)) is None, smiles
    assert read_records(Chem.MolFromSmarts("[#6]C")) is None
    assert read_records(Chem.MolFromSequence("AG")) is None
    unsanitised = read_records(Chem.MolFromSmiles("C1CC1", sanitize=False))
    assert unsanitised.ring_atoms is None


def test_another_version_of_the_format_is_not_read():
    class Newer:
        def ToBinary(self, properties: int) -> bytes:
            data = bytearray(Chem.MolFromSmiles("CO").ToBinary(properties))
            data[12] = 99
            return bytes(data)

        def GetNumAtoms(self) -> int:
            return 2

        GetNumBonds = GetNumAtoms

    assert read_records(Newer()) is None


def test_stereo_centres_are_those_of_the_molecule_read_again(sample):
    options = StereoEnumerationOptions(maxIsomers=4, rand=0)
    isomers = [
        Chem.MolToRandomSmilesVect(isomer, 1, randomSeed=1)[0]
        for smiles in sample[::60]
        for isomer in EnumerateStereoisomers(Chem.MolFromSmiles(smiles), options)
    ]
    centres = 0
    for smiles in (*ODD, *isomers):
        molecule = Chem.MolFromSmiles(smiles)
        codes = FEATURISERS["molecule-1"](molecule).atom_codes[:, 1]
        again = Chem.MolFromSmiles(Chem.MolToSmiles(molecule))
        order = list(molecule.GetPropsAsDict(True, True)["_smilesAtomOutputOrder"])
        table = molecule_features.ATOM_TABLES[1]
        expected = [table.code(atom.GetChiralTag()) for atom in again.GetAtoms()]
        assert codes[order].tolist() == expected, smiles
        centres += np.count_nonzero(codes)
    assert centres > 100


def test_kekule_forms_are_those_of_the_molecule_read_again(sample, monkeypatch):
    featurise = FEATURISERS["zinc-1"]
    for smiles in (*ODD, *NOT_READ, *sample[::15]):
        made = featurise(Chem.MolFromSmiles(smiles))
        with monkeypatch.context() as patch, rdBase.BlockLogs():
            patch.setattr(zinc_features, "parse_canonical", Chem.MolFromSmiles)
            assert agree(made, featurise(Chem.MolFromSmiles(smiles))), smiles


def test_codes_can_be_changed_without_harm():
    molecule = parse_smiles("CCO").molecule
    first = FEATURISERS["molecule-1"](molecule)
    before = first.atom_codes.copy()
    first.atom_codes[:] = 0
    assert np.array_equal(FEATURISERS["molecule-1"](molecule).atom_codes, before)
