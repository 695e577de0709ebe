"""Structure of graphs: degrees, shortest-path distances and what lies along the shortest paths.

Graphormer's attention bias of an ordered pair of atoms (i, j) depends only on their distance and,
hop by hop, on the bonds along the shortest path from i to j (Ying et al. 2021, Eq. 6 and 7). Few
different values occur: some hundreds to thousands in a whole data set. They are numbered here, the
*pair types*, so that a graph needs one integer per pair and the model computes the bias once per
type.

Where several paths are equally short, Graphormer follows one of them, chosen by the numbering of
the atoms. Here the bonds of each hop are averaged over all shortest paths, so the result does not
depend on the numbering; with a single path nothing changes.

All graphs of a block are worked on together, level by level of a breadth-first search from every
atom at once. The share of shortest paths i -> j whose last step comes from u is
sigma(i, u) / sigma(i, j), with sigma the number of shortest paths (as in Brandes 2001), hence

    path(i, j)[hop, kind] = sum over predecessors u of sigma(i, u) / sigma(i, j)
                            * (path(i, u)[hop, kind]  or, at the last hop, [bond(u, j) is `kind`])
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.graphs.molecular_graph import MolecularGraph

# Shares of paths are kept in fixed point. Sums of the same shares in another order differ in the
# last bits of a float64; rounded to this grid they are equal, and so are their types.
SHARE_UNIT = 1 << 30

# The first two pair types of every table.
SAME_ATOM, UNREACHABLE = 0, 1
UNREACHABLE_DISTANCE = -1

_LARGEST_SIGMA = 1e200


@dataclass(frozen=True)
class BlockStructure:
    """Structure of a block of graphs, laid out one graph after the other.

    Attributes:
        in_degree: int64 ``[sum n]``, distinct neighbours with a bond to the atom.
        out_degree: int64 ``[sum n]``, distinct neighbours the atom has a bond to.
        pair_type: int64 ``[sum n^2]``, type of each ordered pair, row-major within a graph.
    """

    in_degree: np.ndarray
    out_degree: np.ndarray
    pair_type: np.ndarray


class PairTypes:
    """Numbers the distinct (distance, bonds along the path) and the distinct kinds of bond.

    Args:
        max_path_length: D, the hops of a path that count; later ones are left out, as in the
            reference implementation.
    """

    def __init__(self, max_path_length: int) -> None:
        self.max_path_length = max_path_length
        self.kinds: dict[tuple[int, ...], int] = {}
        self._bond_features = 0
        self._number_of: dict[int, int] = {}
        self._distance: list[int] = [0, UNREACHABLE_DISTANCE]
        self._columns: list[np.ndarray] = [np.empty(0, np.int32)] * 2
        self._shares: list[np.ndarray] = [np.empty(0, np.int32)] * 2

    def __len__(self) -> int:
        return len(self._distance)

    def kind_numbers(self, bond_codes: np.ndarray) -> np.ndarray:
        """Number the rows of ``bond_codes [E, K]``; equal rows get equal numbers, ``[E]``."""
        self._bond_features = bond_codes.shape[1]
        distinct, inverse = np.unique(bond_codes, axis=0, return_inverse=True)
        numbers = [self.kinds.setdefault(tuple(row), len(self.kinds)) for row in distinct.tolist()]
        return np.asarray(numbers, dtype=np.int64)[inverse.reshape(-1)]

    def numbers(self, distance: int, paths: sparse.csr_matrix) -> np.ndarray:
        """Number the rows of `paths`, pairs that are `distance` apart.

        Args:
            distance: At least 1, the same for all rows.
            paths: ``[pairs, D * kinds]`` shares of paths; column ``kind * D + hop``.

        Returns:
            int64 ``[pairs]``.
        """
        shares = np.rint(paths.data * SHARE_UNIT).astype(np.int64)
        # The key of a row is a sum of well mixed 64-bit words, so it does not depend on the order
        # of the entries; two different rows share a key with probability 2^-64.
        words = _mix(shares.view(np.uint64) ^ _mix(paths.indices.astype(np.uint64)))
        keys = np.add.reduceat(words, paths.indptr[:-1]) + _mix(
            np.array([distance + 2**32], dtype=np.uint64)
        )
        distinct, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        numbers = np.empty(len(distinct), dtype=np.int64)
        for place, (key, row) in enumerate(zip(distinct.tolist(), first.tolist(), strict=True)):
            number = self._number_of.get(key)
            if number is None:
                number = self._number_of[key] = len(self._distance)
                part = slice(paths.indptr[row], paths.indptr[row + 1])
                self._distance.append(distance)
                self._columns.append(paths.indices[part].astype(np.int32))
                self._shares.append(shares[part].astype(np.int32))
            numbers[place] = number
        return numbers[inverse.reshape(-1)]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the table as flat arrays.

        ``type_distance`` int32 ``[types]`` (-1: unreachable); the path of type t are the entries
        ``type_start[t]:type_start[t + 1]`` of ``type_hop``, ``type_kind`` and ``type_share`` (in
        units of 1 / `SHARE_UNIT`); ``bond_kinds`` int64 ``[kinds, K]``.
        """
        columns = np.concatenate(self._columns)
        lengths = np.asarray([len(part) for part in self._columns])
        kinds = np.asarray(list(self.kinds), dtype=np.int64).reshape(-1, self._bond_features)
        return {
            "type_distance": np.asarray(self._distance, dtype=np.int32),
            "type_start": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            "type_hop": (columns % self.max_path_length).astype(np.int32),
            "type_kind": (columns // self.max_path_length).astype(np.int32),
            "type_share": np.concatenate(self._shares),
            "bond_kinds": kinds,
        }


def block_structure(
    graphs: list[MolecularGraph], types: PairTypes, position: int = 0
) -> BlockStructure:
    """Compute degrees and pair types of several graphs at once.

    Bonds of an atom to itself do not count. The same directed bond given twice counts once.

    Args:
        graphs: The block.
        types: The table that the pair types are numbered in.
        position: Number of the first graph in its data set, for messages.

    Raises:
        DataError: If one pair of atoms has two different bonds.
    """
    num_atoms = np.asarray([len(graph.atom_codes) for graph in graphs])
    first_atom = np.concatenate([[0], np.cumsum(num_atoms)])
    source, target, kind = _distinct_bonds(graphs, first_atom, types, position)

    total = int(first_atom[-1])
    out_degree = np.bincount(source, minlength=total)
    in_degree = np.bincount(target, minlength=total)
    bond_start = np.concatenate([[0], np.cumsum(out_degree)])

    # pair(i, v) = base[i] + v: `base` holds where the graph's pairs begin, i's row, v's offset.
    first_pair = np.concatenate([[0], np.cumsum(num_atoms**2)])
    size = np.repeat(num_atoms, num_atoms)
    own_first_atom = np.repeat(first_atom[:-1], num_atoms)
    atoms = np.arange(total)
    base = np.repeat(first_pair[:-1], num_atoms) + (atoms - own_first_atom) * size - own_first_atom

    num_pairs = int(first_pair[-1])
    pair_type = np.full(num_pairs, UNREACHABLE, dtype=np.int64)
    pair_type[base + atoms] = SAME_ATOM
    reached = np.zeros(num_pairs, dtype=bool)
    reached[base + atoms] = True
    slot = np.empty(num_pairs, dtype=np.int64)

    hops, num_kinds = types.max_path_length, len(types.kinds)
    start, here, sigma = atoms, atoms, np.ones(total)
    paths = sparse.csr_matrix((total, hops * num_kinds))
    distance = 0
    while len(start):
        distance += 1
        # Step from every (start, here) along every bond of `here`.
        steps = out_degree[here]
        parent = np.repeat(np.arange(len(here)), steps)
        bond = np.arange(len(parent)) + np.repeat(
            bond_start[here] - np.cumsum(steps) + steps, steps
        )
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

        next_sigma = np.bincount(child, weights=sigma[parent], minlength=len(reached_pair))
        share = sigma[parent] / next_sigma[child]
        shape = (len(reached_pair), len(start))
        next_paths = sparse.csr_matrix((share, (child, parent)), shape=shape) @ paths
        if distance <= hops:
            column = kind[bond] * hops + (distance - 1)
            shape = (len(reached_pair), hops * num_kinds)
            next_paths = next_paths + sparse.csr_matrix((share, (child, column)), shape=shape)
        pair_type[reached_pair] = types.numbers(distance, next_paths)

        start = start[parent[one_of_each]]
        here = target[bond[one_of_each]]
        sigma, paths = _bounded(next_sigma, start, total), next_paths
    return BlockStructure(in_degree, out_degree, pair_type)


def _distinct_bonds(
    graphs: list[MolecularGraph], first_atom: np.ndarray, types: PairTypes, position: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return source, target and kind of all directed bonds, sorted by source."""
    edges = np.concatenate(
        [graph.edge_index + first for graph, first in zip(graphs, first_atom, strict=False)], axis=1
    )
    kind = types.kind_numbers(np.concatenate([graph.bond_codes for graph in graphs]))
    proper = edges[0] != edges[1]
    edges, kind = edges[:, proper], kind[proper]
    code = edges[0] * first_atom[-1] + edges[1]
    order = np.argsort(code, kind="stable")
    code, edges, kind = code[order], edges[:, order], kind[order]
    repeated = code[1:] == code[:-1]
    if (repeated & (kind[1:] != kind[:-1])).any():
        atom = edges[0, 1:][repeated & (kind[1:] != kind[:-1])][0]
        graph = int(np.searchsorted(first_atom, atom, side="right")) - 1
        raise DataError(
            f"graph {position + graph}: atom {atom - first_atom[graph]} has two different bonds "
            "to the same atom; merge them into one (for example with torch_geometric's coalesce)"
        )
    keep = np.concatenate([[True], ~repeated]) if len(code) else np.empty(0, bool)
    return edges[0, keep], edges[1, keep], kind[keep]


def _bounded(sigma: np.ndarray, start: np.ndarray, total: int) -> np.ndarray:
    """Scale path counts before they overflow; only ratios for one start atom are ever used."""
    if sigma.max() < _LARGEST_SIGMA:
        return sigma
    largest = np.zeros(total)
    np.maximum.at(largest, start, sigma)
    return sigma / largest[start]


def _mix(words: np.ndarray) -> np.ndarray:
    """Scramble 64-bit words (the finaliser of SplitMix64, Steele et al. 2014)."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
