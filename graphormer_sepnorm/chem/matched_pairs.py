"""Matched molecular pairs: molecules that differ in one part, at one place."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

from rdkit import Chem
from rdkit.Chem import rdMMPA

from graphormer_sepnorm.chem.molecules import canonical_smiles
from graphormer_sepnorm.errors import DataError

# A larger part is another molecule rather than a change (Hussain and Rea 2010 take 10).
MOST_ATOMS = 13
MOST_PAIRS = 1_000_000
# RDKit's own for bonds that are cut. A bond at a time: of all at once it drops those that its hash
# takes for one, as the two sides of a meso compound and places inside a long chain.
_CUT = Chem.MolFromSmarts("[#6+0;!$(*=,#[!#6])]!@!=!#[*]")
_PLACE = "[*:1]"
_HYDROGEN = f"[H]{_PLACE}"


class MatchedPair(NamedTuple):
    """Two molecules and what is exchanged, from the smaller part to the larger one.

    Attributes:
        first: Number of the molecule with `part_first`.
        second: Number of the one with `part_second`.
        core: SMILES of what both have; ``[*:1]`` is where the parts are.
        part_first: SMILES; ``[H][*:1]`` is a hydrogen.
        part_second: SMILES.
    """

    first: int
    second: int
    core: str
    part_first: str
    part_second: str


def matched_pairs(
    molecules: Sequence[Any], groups: Sequence[Hashable] | None = None
) -> list[MatchedPair]:
    """Find the pairs among molecules (Hussain and Rea 2010, J. Chem. Inf. Model. 50, 339).

    One acyclic single bond at a carbon is cut, by RDKit; the core has more heavy atoms than each of
    the parts, which have 13 at most. Of the ways that two molecules match in, the one with the
    smallest parts is taken. Where a molecule occurs twice, the first one stands for it. Cores
    of several fragments, such as salts, are left out.

    Args:
        molecules: RDKit's.
        groups: To which each belongs; only those of one group are paired. None: all are of one.

    Returns:
        In the order of their parts, those of an exchange together.

    Raises:
        DataError: There are more than a million.
    """
    if groups is None:
        groups = [None] * len(molecules)
    numbers: dict[tuple[Hashable, str], int] = {}
    for number, (group, molecule) in enumerate(zip(groups, molecules, strict=True)):
        numbers.setdefault((group, canonical_smiles(molecule)), number)
    parts: dict[tuple[Hashable, str], dict[str, int]] = defaultdict(dict)
    sizes: dict[str, int] = {_HYDROGEN: 0}
    for (group, _), number in numbers.items():
        for core, part in _cuts(molecules[number], sizes):
            parts[group, core].setdefault(part, number)
    for (group, core), of_core in parts.items():
        whole = Chem.MolFromSmiles(core.replace(_PLACE, "[H]"))
        found = None if whole is None else numbers.get((group, canonical_smiles(whole)))
        if found is not None:
            of_core.setdefault(_HYDROGEN, found)
    best: dict[tuple[int, int], tuple[int, MatchedPair]] = {}
    for (_, core), of_core in parts.items():
        ordered = sorted(of_core.items(), key=lambda one: (sizes[one[0]], one[0]))
        for (part, number), (other, second) in itertools.combinations(ordered, 2):
            pair = MatchedPair(number, second, core, part, other)
            size = sizes[part] + sizes[other]
            key = min(number, second), max(number, second)
            if number != second and (key not in best or size < best[key][0]):
                best[key] = size, pair
            if len(best) > MOST_PAIRS:  # some match in several ways
                raise DataError(
                    f"there are more than {MOST_PAIRS:,} matched pairs among {len(numbers):,} "
                    "molecules: give one series at a time"
                )
    return sorted(
        (pair for _, pair in best.values()),
        key=lambda pair: (sizes[pair.part_first], pair.part_first, pair.part_second, pair),
    )


def _cuts(molecule: Any, sizes: dict[str, int]) -> Iterator[tuple[str, str]]:
    """Yield core and part for each bond that is cut, and keep the parts' heavy atoms."""
    atoms = molecule.GetNumHeavyAtoms()
    ends = molecule.GetSubstructMatches(_CUT, maxMatches=1 + 2 * molecule.GetNumBonds())
    bonds = {molecule.GetBondBetweenAtoms(*pair).GetIdx() for pair in ends}
    cuts = (rdMMPA.FragmentMol(molecule, [bond], 1, 1, False) for bond in sorted(bonds))
    for _, both in itertools.chain.from_iterable(cuts):
        two = both.split(".")
        if len(two) != 2:
            continue
        for part, core in (two, two[::-1]):
            if part not in sizes:
                sizes[part] = Chem.MolFromSmiles(part, sanitize=False).GetNumHeavyAtoms()
            if sizes[part] <= MOST_ATOMS and sizes[part] < atoms - sizes[part]:
                yield core, part
