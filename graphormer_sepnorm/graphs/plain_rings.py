"""Rings in numpy: for places without the compiled functions, and to test these against.

E directed bonds · G graphs · n atoms of a graph
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from graphormer_sepnorm.graphs.packed_graphs import ranges

# Bonds that are searched from at once: of a dense graph each reaches many atoms over many bonds.
_BONDS = 1 << 14


def find_rings(
    source: np.ndarray,
    target: np.ndarray,
    bond_start: np.ndarray,
    first_atom: np.ndarray,
    base: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return `BlockStructure.ring_sizes`, and for each pair the ring that is a part of its type.

    Args:
        source: Of each bond ``[E]``, sorted; atoms are numbered over all graphs.
        target: Of each bond ``[E]``.
        bond_start: Where the bonds out of each atom begin ``[sum n + 1]``.
        first_atom: Of each graph ``[G + 1]``.
        base: Of each atom i ``[sum n]``; the pair (i, j) stands at ``base[i] + j``.

    Returns:
        int64 ``[sum n, 2]`` and ``[sum n^2]``.
    """
    none = np.iinfo(np.int64).max
    rings = np.zeros(len(source), dtype=np.int64)
    pair_ring = np.full(int((np.diff(first_atom) ** 2).sum()), none)
    # The same bonds by the atom that they lead to, to be followed backwards.
    order = np.argsort(target, kind="stable")
    there = target, bond_start
    numbers = np.bincount(target, minlength=len(bond_start) - 1)
    back = source[order], np.concatenate([[0], np.cumsum(numbers)])
    for start in range(0, len(source), _BONDS):
        bonds = slice(start, start + _BONDS)
        sources, targets = source[bonds], target[bonds]
        graph = np.searchsorted(first_atom, sources, side="right") - 1
        room = np.diff(first_atom)[graph]
        # Place of (bond, atom v) among all such states: first[bond] + v.
        first = np.cumsum(room) - room - first_atom[graph]
        forth = _levels(targets, sources, first, int(room.sum()), *there)
        size = forth[first + sources]
        rings[bonds] = size
        back_again = _levels(sources, targets, first, len(forth), *back)
        _share(forth, back_again, size, first, room, there, base, pair_ring)
    sizes = np.zeros((len(bond_start) - 1, 2), dtype=np.int64)
    closed = rings > 0
    smallest = np.full(len(sizes), none)
    np.minimum.at(smallest, source[closed], rings[closed])
    np.maximum.at(sizes[:, 1], source[closed], rings[closed])
    in_ring = sizes[:, 1] > 0
    sizes[in_ring, 0] = smallest[in_ring]
    return sizes, np.where(pair_ring == none, 0, pair_ring)


def _levels(
    starts: np.ndarray,
    ends: np.ndarray,
    first: np.ndarray,
    states: int,
    neighbour: np.ndarray,
    neighbour_start: np.ndarray,
) -> np.ndarray:
    """Search breadth-first from `starts`, never straight from there to `ends`, until these.

    Returns:
        Level of each (search, atom), 1 at the start, 0 where it was not reached, ``[states]``.
    """
    levels = np.zeros(states, dtype=np.int64)
    levels[first + starts] = 1
    search, here = np.arange(len(starts)), starts
    level = 1
    while len(search):
        level += 1
        steps = np.diff(neighbour_start)[here]
        parent = np.repeat(np.arange(len(here)), steps)
        begun, after = search[parent], neighbour[ranges(neighbour_start[here], steps)]
        straight = (here[parent] == starts[begun]) & (after == ends[begun])
        new = ~straight & (levels[first[begun] + after] == 0)
        begun, after = begun[new], after[new]
        places, one_of_each = np.unique(first[begun] + after, return_index=True)
        levels[places] = level
        search, here = begun[one_of_each], after[one_of_each]
        open_ = levels[(first + ends)[search]] == 0
        search, here = search[open_], here[open_]
    return levels


def _share(
    forth: np.ndarray,
    back: np.ndarray,
    size: np.ndarray,
    first: np.ndarray,
    room: np.ndarray,
    bonds: tuple[np.ndarray, np.ndarray],
    base: np.ndarray,
    pair_ring: np.ndarray,
) -> None:
    """Let pairs of atoms on one of the smallest rings of a bond know its size.

    An atom lies on one if its levels from both ends of the bond add up; two atoms lie on the same
    one if one is reached from the other along such atoms, level by level.
    """
    target, bond_start = bonds
    search = np.repeat(np.arange(len(size)), room)
    on_ring = (forth > 0) & (back > 0) & (forth + back == size[search] + 1)
    state = np.flatnonzero(on_ring)
    number = np.cumsum(on_ring) - 1  # among the states on a ring
    search = search[state]
    atom = state - first[search]
    steps = np.diff(bond_start)[atom]
    parent = np.repeat(np.arange(len(atom)), steps)
    after = first[search[parent]] + target[ranges(bond_start[atom], steps)]
    along = on_ring[after] & (forth[after] == forth[state[parent]] + 1)
    ends = parent[along], number[after[along]]
    step: Any = sparse.csr_matrix((np.ones(len(ends[0])), ends), shape=(len(state),) * 2)
    reached: Any = step
    while reached.nnz:
        begin, end = reached.nonzero()
        np.minimum.at(pair_ring, base[atom[begin]] + atom[end], size[search[begin]])
        np.minimum.at(pair_ring, base[atom[end]] + atom[begin], size[search[begin]])
        reached = (reached @ step).sign()
