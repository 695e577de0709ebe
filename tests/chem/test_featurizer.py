"""Codes by records of RDKit's binary form equal those that its objects give one by one."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from rdkit import Chem, rdBase
from reference.molecules import TIE_FREE, TIED

from graphormer_sepnorm.chem import featurizer
from graphormer_sepnorm.chem.features import get_featurizer
from graphormer_sepnorm.chem.molecule_features import MOLECULE_1
from graphormer_sepnorm.chem.records import Records, read_records
from graphormer_sepnorm.chem.zinc_features import ZINC_1
from graphormer_sepnorm.errors import ConfigError, DataError
from graphormer_sepnorm.graphs.packed_graphs import MolecularGraph

# Whatever a record can have: charge, chirality, hybridization, hydrogens, valence, radicals,
# isotope; direction, stereo and unusual types of bonds; rings of all sizes, or none; no bonds.
ODD = [
    *("C", "[H][H]", "[Na+].[Cl-]", "[CH3]", "[CH2]C", "[13CH4]", "[2H]OC", "[C-]#[O+]"),
    *("[Fe+6]", "[U]", "O=[N]", "[NH3]->[Pt](Cl)(Cl)<-[NH3]", "C[Pt@SP1](F)(Cl)Br"),
    *("FS(F)(F)(F)(F)F", "C$C", "C[C@H](O)F", r"F/C=C/[C@H](C)/C=C\F", r"C/C=C/C=C\C", "CC=CC"),
    *("C[S@](=O)c1ccccc1", "c1ccc2[nH]ccc2c1", "C1CC2CCC1CC2", "C" * 254 + "O", "c1cc[te]c1"),
    *("C1" + "C" * 250 + "1", "Cc1cccc(I)c1-c1c(C)cccc1Br |wU:7.7|", "OC[C@@H](O)[C@H](O)CO"),
    *(*TIE_FREE.values(), *TIED.values()),
]
# What has to be asked about: dummy atoms, map numbers, more atoms than a byte can number.
NOT_READ = ["*C", "[1*]C", "[CH3:7][OH:8]", "C" * 256]


def read(smiles: str) -> Chem.Mol:
    with rdBase.BlockLogs():
        return Chem.MolFromSmiles(smiles)


def agree(made: MolecularGraph, expected: MolecularGraph) -> bool:
    pairs = zip(vars(made).values(), vars(expected).values(), strict=True)
    return all(np.array_equal(a, b) and a.dtype == b.dtype == np.int64 for a, b in pairs)


def nothing_read(molecules: list[Chem.Mol], rings: bool) -> Records:
    records = read_records(molecules, rings)
    for array in (records.atom_kind, records.bond_kind, records.ends):
        array[:] = 77
    records.in_ring[:] = True
    none = np.zeros(len(molecules), bool)
    return replace(records, records=[], first=records.first[:0], was_read=none)


@pytest.mark.parametrize("name", ["molecule-1", "zinc-1"])
def test_codes_of_many_molecules_are_those_of_single_atoms(name, sample, monkeypatch):
    smiles = [*ODD[:20], *NOT_READ, *ODD[20:], *sample[::30]]
    graphs, reasons = get_featurizer(name).featurize_many([*map(read, smiles)])
    assert reasons == [""] * len(smiles)
    assert len(graphs) == len(smiles)
    monkeypatch.setattr(featurizer, "read_records", nothing_read)
    for index, text in enumerate(smiles):
        assert agree(graphs[index], get_featurizer(name).featurize(read(text))), text


def test_ordinary_molecules_have_records():
    """Or the test above would compare the slow way with itself."""
    molecules = [*map(read, ODD)]
    records = read_records(molecules)
    assert records.was_read.all()
    bonds = [(b.GetBeginAtomIdx(), b.GetEndAtomIdx()) for m in molecules for b in m.GetBonds()]
    assert records.ends.tolist() == [*map(list, bonds)]
    in_rings = [atom.IsInRing() for molecule in molecules for atom in molecule.GetAtoms()]
    assert records.in_ring.tolist() == in_rings
    prepared = [*map(ZINC_1.prepare, molecules)]
    assert read_records(prepared, ZINC_1.needs_rings).was_read.all()


class Changed:
    """A molecule whose binary form has another byte somewhere, or ends early."""

    def __init__(self, place: int | None = None, value: int = 0, end: int | None = None) -> None:
        self.molecule = read("C1CC1O")
        self.data = bytearray(self.molecule.ToBinary(0))
        if place is not None:
            self.data[place] = value
        self.data = self.data[:end]

    def ToBinary(self, properties: int) -> bytes:
        return bytes(self.data)

    def GetNumAtoms(self) -> int:
        return self.molecule.GetNumAtoms()

    def GetNumBonds(self) -> int:
        return self.molecule.GetNumBonds()


def test_what_is_not_read():
    query, residues = Chem.MolFromSmarts("[#6]C"), Chem.MolFromSequence("AG")
    newer = Changed(12, 99)  # another version of the format
    molecules = [*map(read, NOT_READ), query, residues, newer]
    assert not read_records(molecules).was_read.any()
    assert read_records([read("CO"), *molecules, read("CCO")]).was_read.sum() == 2


def test_what_is_damaged_is_read_no_further_than_it_goes():
    whole = len(Changed().data)
    assert read_records([Changed()]).was_read.all()
    assert not read_records([Changed(end=end) for end in range(whole // 2)]).was_read.any()
    for place in range(30, whole):
        read_records([Changed(place, 255), Changed(place, 255, place + 1)])


def test_threads_share_a_featurizer(monkeypatch):
    monkeypatch.setattr(featurizer, "_MOST_RECORDS", 20)
    molecules = [*map(read, ODD)]
    expected = MOLECULE_1.featurize_many(molecules)[0].atom_codes
    with ThreadPoolExecutor(4) as pool:
        for graphs, _ in pool.map(MOLECULE_1.featurize_many, [molecules] * 60):
            assert np.array_equal(graphs.atom_codes, expected)


def test_a_molecule_without_a_graph_is_left_out():
    # Aromatic by decree: it was not sanitized, and has no Kekulé form.
    bad, good = Chem.MolFromSmiles("c1cccc1", sanitize=False), read("CCO")
    bad.UpdatePropertyCache(strict=False)
    with pytest.raises(DataError) as failure:
        ZINC_1.featurize(bad)
    graphs, reasons = ZINC_1.featurize_many([good, bad, good])
    assert reasons == ["", str(failure.value), ""]
    assert graphs.num_atoms.tolist() == [3, 3]
    for molecules, reasons in (([bad], [str(failure.value)]), ([], [])):
        graphs, found = ZINC_1.featurize_many(molecules)
        assert (len(graphs), found) == (0, reasons)


def test_unknown_featurizer():
    with pytest.raises(ConfigError, match="there are molecule-1, zinc-1"):
        get_featurizer("molecule1")
