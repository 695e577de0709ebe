"""Structure in numpy: for places without the compiled functions, and to test these against.

All graphs of a block are worked on together, level by level of a breadth-first search from every
atom at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from graphormer_sepnorm.graphs import structure_block
from graphormer_sepnorm.graphs.packed_graphs import ranges
from graphormer_sepnorm.graphs.plain_rings import find_rings
from graphormer_sepnorm.graphs.structure_block import (
    SAME_ATOM,
    SHARE_UNIT,
    UNREACHABLE,
    UNREACHABLE_DISTANCE,
    Block,
    BlockStructure,
    ConflictingBonds,
)


class PlainTypes:
    """A growing table of pair types; see `graphormer_sepnorm.graphs.structure.PairTypes`.

    Args:
        max_path_length: D, the hops of a path that count.
    """

    def __init__(self, max_path_length: int) -> None:
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

    def block_structure(self, block: Block) -> BlockStructure:
        """Compute degrees, pair types and ring sizes.

        Raises:
            ConflictingBonds: If one pair of atoms has two different bonds.
        """
        num_atoms = block.num_atoms
        first_atom = np.concatenate([[0], np.cumsum(num_atoms)])
        source, target, kind = _distinct_bonds(block, first_atom)

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

        sizes, pair_ring = find_rings(source, target, bond_start, first_atom, base)
        known = len(self)
        hops = self.max_path_length
        start, here, count = atoms, atoms, np.ones(total)
        paths = sparse.csr_matrix((total, hops * block.num_kinds))
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
                shape = (len(reached_pair), hops * block.num_kinds)
                next_paths = next_paths + sparse.csr_matrix((share, (child, column)), shape=shape)
            next_paths.eliminate_zeros()  # a product of tiny shares may be none
            pair_type[reached_pair] = self._numbers(distance, next_paths, pair_ring[reached_pair])

            start = start[parent[one_of_each]]
            here = target[bond[one_of_each]]
            count, paths = _bounded(next_count, start, total), next_paths
        return BlockStructure(in_degree, out_degree, self._in_order(pair_type, known), sizes)

    def _numbers(self, distance: int, paths: sparse.csr_matrix, ring: np.ndarray) -> np.ndarray:
        """Number the rows of `paths`, pairs that are `distance` apart.

        Args:
            distance: At least 1, the same for all rows.
            paths: ``[pairs, D * kinds]`` shares of paths; column ``kind * D + hop``.
            ring: ``[pairs]``, atoms of their ring.

        Returns:
            int64 ``[pairs]``.
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
        """Return the types as flat arrays; see `PairTypes.arrays`."""
        columns = np.concatenate(self._columns)
        lengths = np.asarray([len(part) for part in self._columns])
        return {
            "type_distance": np.asarray(self._distance, dtype=np.int32),
            "type_ring": np.asarray(self._ring, dtype=np.int32),
            "type_start": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            "type_hop": (columns % self.max_path_length).astype(np.int32),
            "type_kind": (columns // self.max_path_length).astype(np.int32),
            "type_share": np.concatenate(self._shares),
        }


def _distinct_bonds(
    block: Block, first_atom: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return source, target and kind of all directed bonds, sorted by source and target."""
    edges = block.edges + np.repeat(first_atom[:-1], block.num_bonds)
    proper = edges[0] != edges[1]
    edges, kind = edges[:, proper], block.kind[proper]
    code = edges[0] * first_atom[-1] + edges[1]
    order = np.argsort(code, kind="stable")
    code, edges, kind = code[order], edges[:, order], kind[order]
    repeated = code[1:] == code[:-1]
    conflict = repeated & (kind[1:] != kind[:-1])
    if conflict.any():
        raise ConflictingBonds(int(edges[0, 1:][conflict][0]))
    keep = np.concatenate([[True], ~repeated]) if len(code) else np.empty(0, bool)
    return edges[0, keep], edges[1, keep], kind[keep]


def _bounded(count: np.ndarray, start: np.ndarray, total: int) -> np.ndarray:
    """Scale path counts before they overflow; only ratios for one start atom are ever used."""
    if count.max() < structure_block.LARGEST_COUNT:
        return count
    largest = np.zeros(total)
    np.maximum.at(largest, start, count)
    return count / largest[start]


def _mix(words: np.ndarray) -> np.ndarray:
    """Scramble 64-bit words (the finaliser of SplitMix64, Steele et al. 2014)."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
