"""Many molecules at once give the graphs that they give one by one."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from rdkit import Chem, rdBase

from graphormer_sepnorm.chem.features import get_featuriser
from graphormer_sepnorm.chem.packing import CodesByRecord
from graphormer_sepnorm.errors import DataError

# Ordinary ones between those whose atoms have to be asked about one by one, stereo centres, rings,
# no bonds at all, several pieces.
SMILES = [
    "CCO",
    "*C",
    "[CH3:7][OH:8]",
    "C[C@H](O)F",
    "C",
    "C1CC2CCC1CC2",
    "C" * 256,
    "F/C=C/F",
    "[Na+].[Cl-]",
    "N[C@@H](C)C(=O)O",
    "c1ccc2[nH]ccc2c1",
    "[1*]C",
    "OC[C@@H](O)[C@H](O)CO",
]


@pytest.mark.parametrize("name", ["molecule-1", "zinc-1"])
def test_graphs_are_those_of_single_molecules(name):
    featuriser = get_featuriser(name)
    with rdBase.BlockLogs():
        molecules = [Chem.MolFromSmiles(smiles) for smiles in SMILES]
        graphs, reasons = featuriser.featurise_many(molecules)
        single = [featuriser.featurise(Chem.MolFromSmiles(smiles)) for smiles in SMILES]
    assert reasons == [""] * len(SMILES)
    assert len(graphs) == len(SMILES)
    for number, expected in enumerate(single):
        made = graphs[number]
        assert np.array_equal(made.atom_codes, expected.atom_codes), SMILES[number]
        assert np.array_equal(made.edge_index, expected.edge_index), SMILES[number]
        assert np.array_equal(made.bond_codes, expected.bond_codes), SMILES[number]


def test_a_molecule_without_a_graph_is_left_out():
    featuriser = get_featuriser("zinc-1")
    # Aromatic by decree: it was not sanitised, and has no Kekulé form.
    bad = Chem.MolFromSmiles("c1cccc1", sanitize=False)
    bad.UpdatePropertyCache(strict=False)
    good = Chem.MolFromSmiles("CCO")
    with pytest.raises(DataError) as failure:
        featuriser.featurise(bad)
    graphs, reasons = featuriser.featurise_many([good, bad, good])
    assert reasons == ["", str(failure.value), ""]
    assert graphs.num_atoms.tolist() == [3, 3]
    assert featuriser.featurise_many([bad]) == (None, [str(failure.value)])
    assert featuriser.featurise_many([]) == (None, [])


def test_kinds_are_remembered_up_to_a_number(monkeypatch):
    asked = []

    def make(part: int) -> list[int]:
        asked.append(part)
        return [part, -part]

    monkeypatch.setattr(CodesByRecord, "_MOST_KINDS", 3)
    # In place of molecules, numbers to which the number of an atom is added.
    codes = CodesByRecord(operator.add, make, 2)
    assert codes([5, 0], [[b"a", b"b"], [b"a"]]).tolist() == [[5, -5], [6, -6], [5, -5]]
    assert codes([5, 0], [[b"b"], [b"c"]]).tolist() == [[6, -6], [0, 0]]
    assert asked == [5, 6, 0]
    # Now it is full and begins anew.
    assert codes([0], [[b"d", b"a"]]).tolist() == [[0, 0], [1, -1]]
    assert codes([0], [[]]).shape == (0, 2)
