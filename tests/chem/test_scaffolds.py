import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rdkit import Chem

from graphormer_sepnorm.chem.molecules import parse_smiles
from graphormer_sepnorm.chem.scaffolds import fragment_smiles, fragments_of, murcko_scaffold
from graphormer_sepnorm.datasets.splitting import scaffold_split

EIGHTY = (0.8, 0.1, 0.1)


@pytest.mark.parametrize(
    ("smiles", "scaffold"),
    [
        ("Cc1ccccc1CCO", "c1ccccc1"),
        ("O=C(Nc1ccccc1)c1ccncc1", "O=C(Nc1ccccc1)c1ccncc1"),
        ("CC(=O)[C@H]1CCCN1C", "C1CCNC1"),
        ("CCCC", ""),
        # Stereo inside the scaffold: cis and trans decalin are one, and so are E and Z stilbene.
        ("C1CCC[C@@H]2CCCC[C@H]12", "C1CCC2CCCCC2C1"),
        ("C1CCC[C@@H]2CCCC[C@@H]12", "C1CCC2CCCCC2C1"),
        ("c1ccccc1/C=C/c1ccccc1", "C(=Cc1ccccc1)c1ccccc1"),
        ("c1ccccc1/C=C\\c1ccccc1", "C(=Cc1ccccc1)c1ccccc1"),
    ],
)
def test_murcko_scaffold(smiles, scaffold):
    assert murcko_scaffold(parse_smiles(smiles).molecule) == scaffold


@settings(deadline=None)  # a busy machine is no failure
@given(
    st.lists(st.sampled_from("abcdefghijklmnop"), max_size=60),
    st.sampled_from([EIGHTY, (0.7, 0.1, 0.2), (0.5, 0.5, 0.0), (1.0, 0.0, 0.0)]),
    st.randoms(),
)
def test_partition_by_scaffold(scaffolds, fractions, shuffler: random.Random):
    splits = scaffold_split(scaffolds, fractions)
    assert sorted(np.concatenate(splits).tolist()) == list(range(len(scaffolds)))
    kinds = [{scaffolds[position] for position in split} for split in splits]
    assert sum(len(kind) for kind in kinds) == len(set(scaffolds))
    assert len(splits[0]) <= round(fractions[0] * len(scaffolds), 6)
    # The order of the molecules does not matter.
    shuffled = list(scaffolds)
    shuffler.shuffle(shuffled)
    for one, other in zip(splits, scaffold_split(shuffled, fractions), strict=True):
        assert sorted(scaffolds[i] for i in one) == sorted(shuffled[i] for i in other)


def test_equally_frequent_scaffolds_keep_their_places():
    """Another order of ties would be another split of everybody's table, under the same name."""
    single = ["c1ccccc1", "C1CCCCC1", "c1ccncc1", "C1CCNC1", "c1ccoc1"]
    single += ["c1ccsc1", "C1CC1", "C1COCCN1", "c1c[nH]cn1", "c1ccc2ccccc2c1"]
    splits = scaffold_split(single, (0.6, 0.2, 0.2))
    assert [split.tolist() for split in splits] == [[0, 3, 4, 5, 6, 8], [1, 2], [7, 9]]


def test_shares_are_exact():
    # 0.7 * 10 + 0.1 * 10 in floating point is 7.999...
    splits = scaffold_split([str(number) for number in range(10)], (0.7, 0.1, 0.2))
    assert [len(split) for split in splits] == [7, 1, 2]
    # Of seven the first two sets have six: 6.3, rounded down once.
    splits = scaffold_split([str(number) for number in range(7)], EIGHTY)
    assert [len(split) for split in splits] == [5, 1, 1]


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
