"""Molecules that differ in one part, against pairs that a chemist names."""

from __future__ import annotations

import pytest
from rdkit import Chem

from graphormer_sepnorm.chem import matched_pairs as module
from graphormer_sepnorm.chem.matched_pairs import MatchedPair, matched_pairs
from graphormer_sepnorm.errors import DataError


def pairs_of(*smiles: str) -> list[MatchedPair]:
    return matched_pairs([Chem.MolFromSmiles(text) for text in smiles])


def test_an_exchange_goes_from_the_smaller_part_to_the_larger_one() -> None:
    found = pairs_of("COc1ccccc1", "Clc1ccccc1", "c1ccccc1")
    ring = "c1ccc([*:1])cc1"
    assert found == [
        MatchedPair(2, 0, ring, "[H][*:1]", "CO[*:1]"),
        MatchedPair(2, 1, ring, "[H][*:1]", "Cl[*:1]"),
        MatchedPair(1, 0, ring, "Cl[*:1]", "CO[*:1]"),
    ]


def test_of_several_ways_the_smallest_parts_are_taken() -> None:
    (only,) = pairs_of("CCCCCCF", "CCCCCCCl")
    assert only == MatchedPair(1, 0, "CCCCCC[*:1]", "Cl[*:1]", "F[*:1]")


@pytest.mark.parametrize(
    "smiles",
    [
        ("CCO", "c1ccncc1"),  # nothing in common
        ("c1ccccc1F", "c1ccncc1F"),  # the ring itself differs
        ("CC", "CO"),  # a core that is no larger than its part
        ("Fc1cc(F)cc(C(C)=O)c1", "Clc1cc(Cl)cc(C(C)=O)c1"),  # at two places
        ("[Na+].[O-]C(=O)CCCCC", "[Na+].[O-]C(=O)CCCCCl"),  # salts
        ("OCCc1ccccc1", "c1ccccc1CCO"),  # the same
        ("C" * 29, "C" * 15),  # a part of fourteen atoms
    ],
)
def test_no_pair(smiles: tuple[str, ...]) -> None:
    assert pairs_of(*smiles) == []


def test_a_molecule_that_occurs_twice_is_one() -> None:
    assert [pair[:2] for pair in pairs_of("Fc1ccccc1", "c1ccccc1F", "c1ccccc1")] == [(2, 0)]


def test_stereo_centres_tell_cores_apart() -> None:
    assert pairs_of("C[C@H](N)c1ccccc1Cl", "C[C@@H](N)c1ccccc1F") == []
    assert len(pairs_of("C[C@H](N)c1ccccc1Cl", "C[C@H](N)c1ccccc1F")) == 1


@pytest.mark.parametrize(
    "smiles",
    [
        ("C" * 27, "C" * 14),  # thirteen atoms from an end, the most that a part may have
        # Both methyl groups of a meso compound: without either it is another enantiomer.
        ("C[C@H]1CC[C@@H](C)C1", "C[C@H]1CC[C@@H](F)C1"),
        ("C[C@H]1CC[C@@H](C)C1", "C[C@@H]1CC[C@H](F)C1"),
        ("CCC" + "C(=O)NCCC" * 30, "CCN" + "C(=O)NCCC" * 30),  # 150 bonds that can be cut
    ],
)
def test_every_bond_is_cut(smiles: tuple[str, ...]) -> None:
    assert len(pairs_of(*smiles)) == 1


def test_each_pair_can_be_put_together_again() -> None:
    """The core with one part, or the other, is one molecule, or the other."""
    smiles = [f"{part}c1ccc({other})nc1" for part in ("F", "CC", "NC(=O)") for other in "CNO"]
    molecules = [Chem.MolFromSmiles(text) for text in smiles]
    found = matched_pairs(molecules)
    # Three series of three in each direction.
    assert len(found) == 18
    for pair in found:
        for number, part in ((pair.first, pair.part_first), (pair.second, pair.part_second)):
            both = Chem.MolFromSmiles(f"{pair.core}.{part}")
            joined = Chem.molzip(both)
            assert Chem.MolToSmiles(joined) == Chem.MolToSmiles(molecules[number])


def test_pairs_are_those_of_a_group() -> None:
    smiles = ["CCCCCCN", "CCCCCCO", "CCCCCC", "CCCCCCN", "CCCCCC"]
    molecules = list(map(Chem.MolFromSmiles, smiles))
    found = module.matched_pairs(molecules, "aabbb")
    # A hydrogen is the smallest part; in b the first hexane stands for both.
    assert [(pair.first, pair.second) for pair in found] == [(2, 3), (0, 1)]
    assert len(module.matched_pairs(molecules)) == 3


def test_a_pair_that_matches_in_several_ways_is_counted_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_PAIRS", 1)
    assert len(pairs_of("CCCCCCF", "CCCCCCCl")) == 1


def test_too_many_pairs_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_PAIRS", 2)
    with pytest.raises(DataError, match="more than 2 matched pairs among 3 molecules: give one"):
        pairs_of("COc1ccccc1", "Clc1ccccc1", "c1ccccc1")
