"""Structure of graphs: degrees, rings, shortest distances and what lies along the shortest paths.

Graphormer's attention bias of an ordered pair of atoms (i, j) depends only on their distance and,
hop by hop, on the bonds along the shortest path from i to j (Ying et al. 2021, Eq. 6 and 7). Few
different values occur: some hundreds to thousands in a whole data set. They are numbered here, the
*pair types*, together with the size of the smallest ring that both atoms lie in, so that a graph
needs one integer per pair and the model computes the bias once per type.

Where several paths are equally short, Graphormer follows one of them, chosen by the numbering of
the atoms. Here the bonds of each hop are averaged over all shortest paths, so the result does not
depend on the numbering; with a single path nothing changes. The share of shortest paths i -> j
whose last step comes from u is sigma(i, u) / sigma(i, j), with sigma the number of shortest paths
(as in Brandes 2001), hence

    path(i, j)[hop, kind] = sum over predecessors u of sigma(i, u) / sigma(i, j)
                            * (path(i, u)[hop, kind]  or, at the last hop, [bond(u, j) is `kind`])

The functions are in C, in ``kernels/structure.c``.
"""

from __future__ import annotations

import ctypes
import math
import weakref

import numpy as np

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.graphs.packed_graphs import PackedGraphs
from graphormer_sepnorm.kernels.library import integers, pointers, required_library

_LARGEST_LOOKUP = 1 << 16
_DONE, _NO_MEMORY = -1, -2

# Shares of paths are kept in fixed point. Sums of the same shares in another order differ in the
# last bits of a float64; rounded to this grid they are equal, and so are their types.
SHARE_UNIT = 1 << 30

UNREACHABLE_DISTANCE = -1

# Numbers of shortest paths are scaled before they overflow.
LARGEST_COUNT = 1e200


class _Block(ctypes.Structure):
    """`Block` of ``structure.c``."""

    _fields_ = (
        *integers("num_graphs", "num_kinds"),
        *pointers("num_atoms", "num_bonds", "source", "target", "kind"),
        ("largest_count", ctypes.c_double),
        *pointers("in_degree", "out_degree", "pair_type", "ring_sizes"),
    )


class PairTypes:
    """Numbers the distinct (distance, bonds along the path, ring) and the distinct kinds of bond.

    Types are numbered as they occur, graph after graph, in the order of the pairs; kinds in the
    order of the bonds. So no number depends on how the graphs are divided into blocks.

    Args:
        max_path_length: D, the hops of a path that count; later ones are left out, as in the
            reference implementation.

    Raises:
        ConfigError: The compiled functions are not there.
    """

    def __init__(self, max_path_length: int) -> None:
        self.kinds: dict[tuple[int, ...], int] = {}
        self._bond_features = 0
        self._library = library = required_library()
        new = library.pair_types_new
        new.argtypes, new.restype = (ctypes.c_int64, ctypes.c_double), ctypes.c_void_p
        for name in ("structure_of_block", "pair_types_count", "pair_types_entries"):
            getattr(library, name).restype = ctypes.c_int64
        table = new(max_path_length, SHARE_UNIT)
        if table is None:
            raise MemoryError
        self._table = ctypes.c_void_p(table)
        weakref.finalize(self, library.pair_types_free, self._table)

    def __len__(self) -> int:
        return self._library.pair_types_count(self._table)

    def block_structure(self, graphs: PackedGraphs, position: int) -> dict[str, np.ndarray]:
        """Compute degrees, pair types and ring sizes of a block, which begins at this graph.

        Bonds of an atom to itself do not count. The same directed bond given twice counts once.

        Returns:
            Arrays of a `GraphStore` by their names. Degrees count distinct neighbors. The type of a
            pair is 0 of an atom with itself, 1 of two that no path joins. One part of it is the
            size of the smallest ring, of those that are the ring of some bond, that both atoms lie
            in; 0 if there is none, and for an atom with itself. The ring of a bond i -> j is the
            shortest way back from j to i that does not take the bond itself, closed by it; its size
            is in atoms. Where several ways are equally short, each makes a ring.

        Raises:
            DataError: If one pair of atoms has two different bonds.
        """
        kind = self._kind_numbers(graphs.bond_codes)
        num_atoms, num_bonds, edges, kind = (
            np.ascontiguousarray(array, dtype=np.int64)
            for array in (graphs.num_atoms, graphs.num_bonds, graphs.edge_index, kind)
        )
        total = int(num_atoms.sum())
        in_degree, out_degree = np.empty(total, np.int64), np.empty(total, np.int64)
        pair_type = np.empty(int((num_atoms**2).sum()), np.int32)
        ring_sizes = np.empty((total, 2), np.int64)
        result = self._library.structure_of_block(
            self._table,
            ctypes.byref(
                _Block(
                    len(num_atoms),
                    len(self.kinds),
                    *_pointers(num_atoms, num_bonds, *edges, kind),
                    LARGEST_COUNT,
                    *_pointers(in_degree, out_degree, pair_type, ring_sizes),
                )
            ),
        )
        if result == _NO_MEMORY:
            raise MemoryError
        if result != _DONE:
            # The first atom of the block that has two bonds to one other.
            graph = int(np.searchsorted(np.cumsum(num_atoms), result, side="right"))
            atom = result - int(num_atoms[:graph].sum())
            raise DataError(
                f"graph {position + graph}: atom {atom} has two different bonds to the same atom; "
                "merge them into one (for example with torch_geometric's coalesce)"
            )
        names = "in_degree", "out_degree", "pair_type", "ring_sizes"
        return dict(zip(names, (in_degree, out_degree, pair_type, ring_sizes), strict=True))

    def _kind_numbers(self, bond_codes: np.ndarray) -> np.ndarray:
        """Number the rows of ``bond_codes [E, K]``; equal rows get equal numbers, ``[E]``."""
        if len(bond_codes):
            self._bond_features = bond_codes.shape[1]
        elif not self.kinds:
            self._bond_features = max(self._bond_features, bond_codes.shape[1])
        distinct, inverse = _distinct_rows(bond_codes)
        numbers = [self.kinds.setdefault(tuple(row), len(self.kinds)) for row in distinct.tolist()]
        return np.asarray(numbers, dtype=np.int64)[inverse]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the table as the arrays ``type_distance`` to ``bond_kinds`` of a `GraphStore`.

        The path of type t are the entries ``type_start[t]:type_start[t + 1]``, by hop and kind.
        """
        distance, ring = np.empty(len(self), np.int32), np.empty(len(self), np.int32)
        start = np.empty(len(self) + 1, np.int64)
        self._library.pair_types_distances(self._table, *_pointers(distance, ring, start))
        hop, kind, share = (np.empty(start[-1], np.int32) for _ in range(3))
        if self._library.pair_types_entries(self._table, *_pointers(hop, kind, share)) != _DONE:
            raise MemoryError
        kinds = np.asarray(list(self.kinds), dtype=np.int64)
        return {
            "type_distance": distance,
            "type_ring": ring,
            "type_start": start,
            "type_hop": hop,
            "type_kind": kind,
            "type_share": share,
            "bond_kinds": kinds.reshape(len(kinds), self._bond_features),
        }


def _pointers(*arrays: np.ndarray) -> list[ctypes.c_void_p]:
    return [ctypes.c_void_p(array.ctypes.data) for array in arrays]


def _distinct_rows(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct rows of ``codes [n, K]`` as they occur, and which of them each row is."""
    if not codes.size:
        return codes[:1], np.zeros(len(codes), np.int64)
    low, high = codes.min(axis=0).tolist(), codes.max(axis=0).tolist()
    widths = [top - bottom + 1 for bottom, top in zip(low, high, strict=True)]
    if math.prod(widths) <= _LARGEST_LOOKUP:
        # Few combinations are possible, as in nearly every data set: much quicker than sorting.
        number = np.ravel_multi_index(tuple((codes - low).T), widths)
    else:
        _, number = np.unique(codes, axis=0, return_inverse=True)
        number = number.reshape(-1)
    first = np.full(int(number.max()) + 1, len(codes))
    first[np.flip(number)] = np.flip(np.arange(len(codes)))
    order = np.argsort(first)[: np.count_nonzero(first < len(codes))]
    place = np.empty_like(first)
    place[order] = np.arange(len(order))
    return codes[first[order]], place[number]
