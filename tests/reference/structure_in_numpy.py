"""Structure in numpy, to test the compiled C against.

All graphs of a block are worked on together, level by level of a breadth-first search from every
atom at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
from scipy import sparse

from graphormer_sepnorm.graphs import store, structure
from graphormer_sepnorm.graphs.packed_graphs import PackedGraphs, ranges
from graphormer_sepnorm.graphs.structure import (
    SHARE_UNIT,
    UNREACHABLE_DISTANCE,
    BlockStructure,
    PairTypes,
    conflict,
)

# The first two pair types of every table.
SAME_ATOM, UNREACHABLE = 0, 1

# Bonds whose rings are searched for at once: of a dense graph each reaches many atoms.
_BONDS = 1 << 14


class TypesInNumpy(PairTypes):
    """What `PairTypes` is, without its compiled functions."""

    def __init__(self, max_path_length: int) -> None:
        self.kinds: dict[tuple[int, ...], int] = {}
        self._bond_features = 0
        self.max_path_length = max_path_length
        self._number_of: dict[int, int] = {}
        self._keys: list[int] = [0, 0]
        self._distance: list[int] = [0, UNREACHABLE_DISTANCE]
        self._ring: list[int] = [0, 0]
        # Entries of a type: their places ``kind * D + hop`` and shares.
        self._columns: list[np.ndarray] = [np.empty(0, np.int64)] * 2
        self._shares: list[np.ndarray] = [np.empty(0, np.int32)] * 2

    def __len__(self) -> int:
        return len(self._distance)

    def block_structure(self, graphs: PackedGraphs, position: int) -> BlockStructure:
        """Compute degrees, pair types and ring sizes."""
        kind = self._kind_numbers(graphs.bond_codes)
        num_atoms, num_kinds = graphs.num_atoms, len(self.kinds)
        first_atom = np.concatenate([[0], np.cumsum(num_atoms)])
        source, target, kind = _distinct_bonds(graphs, position, kind, first_atom)

        total = int(first_atom[-1])
        out_degree = np.bincount(source, minlength=total)
        in_degree = np.bincount(target, minlength=total)
        bond_start = np.concatenate([[0], np.cumsum(out_degree)])

        # pair(i, v) = base[i] + v: `base` holds where the graph's pairs begin, i's row, v's offset.
        first_pair = np.concatenate([[0], np.cumsum(num_atoms**2)])
        size = np.repeat(num_atoms, num_atoms)
        own_first_atom = np.repeat(first_atom[:-1], num_atoms)
        atoms = np.arange(total)
        row = (atoms - own_first_atom) * size
        base = np.repeat(first_pair[:-1], num_atoms) + row - own_first_atom

        num_pairs = int(first_pair[-1])
        pair_type = np.full(num_pairs, UNREACHABLE, dtype=np.int32)
        pair_type[base + atoms] = SAME_ATOM
        reached = np.zeros(num_pairs, dtype=bool)
        reached[base + atoms] = True
        slot = np.empty(num_pairs, dtype=np.int64)

        sizes, pair_ring = _find_rings(source, target, bond_start, first_atom, base)
        known = len(self)
        hops = self.max_path_length
        start, here, count = atoms, atoms, np.ones(total)
        paths = sparse.csr_matrix((total, hops * num_kinds))
        distance = 0
        while len(start):
            distance += 1
            # Step from every (start, here) along every bond of `here`.
            steps = out_degree[here]
            parent = np.repeat(np.arange(len(here)), steps)
            bond = ranges(bond_start[here], steps)
            pair = base[start[parent]] + target[bond]
            new = ~reached[pair]
            parent, bond, pair = parent[new], bond[new], pair[new]
            if not len(pair):
                break
            # Number the pairs reached, whatever number of predecessors each has.
            slot[pair] = np.arange(len(pair))
            one_of_each = slot[pair] == np.arange(len(pair))
            reached_pair = pair[one_of_each]
            slot[reached_pair] = np.arange(len(reached_pair))
            child = slot[pair]
            reached[reached_pair] = True

            next_count = np.bincount(child, weights=count[parent], minlength=len(reached_pair))
            share = count[parent] / next_count[child]
            shape = (len(reached_pair), len(start))
            next_paths: Any = sparse.csr_matrix((share, (child, parent)), shape=shape) @ paths
            if distance <= hops:
                column = kind[bond] * hops + (distance - 1)
                shape = (len(reached_pair), hops * num_kinds)
                next_paths = next_paths + sparse.csr_matrix((share, (child, column)), shape=shape)
            next_paths.eliminate_zeros()  # a product of tiny shares may be none
            pair_type[reached_pair] = self._numbers(distance, next_paths, pair_ring[reached_pair])

            start = start[parent[one_of_each]]
            here = target[bond[one_of_each]]
            count, paths = _bounded(next_count, start, total), next_paths
        return BlockStructure(in_degree, out_degree, self._in_order(pair_type, known), sizes)

    def _numbers(self, distance: int, paths: sparse.csr_matrix, ring: np.ndarray) -> np.ndarray:
        """Number pairs that are all `distance` apart, by the shares of their paths and their ring.

        ``paths [pairs, D * kinds]`` has column ``kind * D + hop``.
        """
        shares = np.rint(paths.data * SHARE_UNIT).astype(np.int64)
        # The key of a row is a sum of well mixed 64-bit words, so it does not depend on the order
        # of the entries; two different rows share a key with probability 2^-64.
        words = _mix(shares.view(np.uint64) ^ _mix(paths.indices.astype(np.uint64)))
        keys = np.add.reduceat(words, paths.indptr[:-1]) + _mix(
            (distance + (ring << 32)).astype(np.uint64)
        )
        distinct, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        numbers = np.empty(len(distinct), dtype=np.int64)
        for place, (key, row) in enumerate(zip(distinct.tolist(), first.tolist(), strict=True)):
            number = self._number_of.get(key)
            if number is None:
                number = self._number_of[key] = len(self._distance)
                part = slice(paths.indptr[row], paths.indptr[row + 1])
                columns = paths.indices[part].astype(np.int64)
                hop, kind = columns % self.max_path_length, columns // self.max_path_length
                order = np.lexsort([kind, hop])
                self._keys.append(key)
                self._distance.append(distance)
                self._ring.append(int(ring[row]))
                self._columns.append(columns[order])
                self._shares.append(shares[part][order].astype(np.int32))
            numbers[place] = number
        return numbers[inverse.reshape(-1)]

    def _in_order(self, pair_type: np.ndarray, known: int) -> np.ndarray:
        """Number the types from `known` on, those new in a block, in the order of its pairs."""
        distinct, first = np.unique(pair_type, return_index=True)
        is_new = distinct >= known
        order = distinct[is_new][np.argsort(first[is_new])]
        place = np.arange(len(self), dtype=np.int32)
        place[order] = np.arange(known, len(self))
        for values in (self._keys, self._distance, self._ring, self._columns, self._shares):
            values[known:] = [values[number] for number in order]
        self._number_of.update(zip(self._keys[known:], range(known, len(self)), strict=True))
        return place[pair_type]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the types and kinds as flat arrays."""
        kinds = np.asarray(list(self.kinds), dtype=np.int64)
        columns = np.concatenate(self._columns)
        lengths = np.asarray([len(part) for part in self._columns])
        return {
            "type_distance": np.asarray(self._distance, dtype=np.int32),
            "type_ring": np.asarray(self._ring, dtype=np.int32),
            "type_start": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            "type_hop": (columns % self.max_path_length).astype(np.int32),
            "type_kind": (columns // self.max_path_length).astype(np.int32),
            "type_share": np.concatenate(self._shares),
            "bond_kinds": kinds.reshape(len(kinds), self._bond_features),
        }


def _distinct_bonds(
    graphs: PackedGraphs, position: int, kind: np.ndarray, first_atom: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return source, target and kind of all directed bonds, sorted by source and target."""
    edges = graphs.edge_index + np.repeat(first_atom[:-1], graphs.num_bonds)
    proper = edges[0] != edges[1]
    edges, kind = edges[:, proper], kind[proper]
    code = edges[0] * first_atom[-1] + edges[1]
    order = np.argsort(code, kind="stable")
    code, edges, kind = code[order], edges[:, order], kind[order]
    repeated = code[1:] == code[:-1]
    conflicting = repeated & (kind[1:] != kind[:-1])
    if conflicting.any():
        raise conflict(graphs, position, int(edges[0, 1:][conflicting][0]))
    keep = np.concatenate([[True], ~repeated]) if len(code) else np.empty(0, bool)
    return edges[0, keep], edges[1, keep], kind[keep]


def _bounded(count: np.ndarray, start: np.ndarray, total: int) -> np.ndarray:
    """Scale path counts before they overflow; only ratios for one start atom are ever used."""
    if count.max() < structure.LARGEST_COUNT:
        return count
    largest = np.zeros(total)
    np.maximum.at(largest, start, count)
    return np.maximum(count / largest[start], np.finfo(np.float64).tiny)  # 0 has no ratio


def _mix(words: np.ndarray) -> np.ndarray:
    """Scramble 64-bit words (the finaliser of SplitMix64, Steele et al. 2014)."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _find_rings(
    source: np.ndarray,
    target: np.ndarray,
    bond_start: np.ndarray,
    first_atom: np.ndarray,
    base: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return `BlockStructure.ring_sizes`, and for each pair the ring that is a part of its type.

    Args:
        source: Of each directed bond ``[E]``, sorted; atoms are numbered over all graphs.
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
    neighbor: np.ndarray,
    neighbor_start: np.ndarray,
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
        steps = np.diff(neighbor_start)[here]
        parent = np.repeat(np.arange(len(here)), steps)
        begun, after = search[parent], neighbor[ranges(neighbor_start[here], steps)]
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


@contextlib.contextmanager
def in_numpy() -> Iterator[None]:
    """Build stores by `TypesInNumpy` meanwhile."""
    with mock.patch.object(store, "PairTypes", TypesInNumpy):
        yield
