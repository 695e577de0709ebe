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

It is computed in C or, where that could not be compiled, in numpy, with the same result.
"""

from __future__ import annotations

import math

import numpy as np

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.graphs.packed_graphs import PackedGraphs
from graphormer_sepnorm.graphs.structure_block import BlockStructure, ConflictingBonds
from graphormer_sepnorm.graphs.structure_in_c import TypesInC
from graphormer_sepnorm.graphs.structure_in_numpy import TypesInNumpy
from graphormer_sepnorm.kernels import library

_LARGEST_LOOKUP = 1 << 16


class PairTypes:
    """Numbers the distinct (distance, bonds along the path, ring) and the distinct kinds of bond.

    Types are numbered as they occur, graph after graph, in the order of the pairs; kinds in the
    order of the bonds. So no number depends on how the graphs are divided into blocks.

    Args:
        max_path_length: D, the hops of a path that count; later ones are left out, as in the
            reference implementation.
    """

    def __init__(self, max_path_length: int) -> None:
        self.kinds: dict[tuple[int, ...], int] = {}
        self._bond_features = 0
        in_c = library.library()
        self._types = (
            TypesInNumpy(max_path_length) if in_c is None else TypesInC(in_c, max_path_length)
        )

    def __len__(self) -> int:
        return len(self._types)

    def block_structure(self, graphs: PackedGraphs, position: int) -> BlockStructure:
        """Compute degrees, pair types and ring sizes of several graphs at once.

        Bonds of an atom to itself do not count. The same directed bond given twice counts once.

        Args:
            graphs: The block.
            position: Number of the first graph in its data set, for messages.

        Raises:
            DataError: If one pair of atoms has two different bonds.
        """
        kind = self._kind_numbers(graphs.bond_codes)
        try:
            return self._types.block_structure(graphs, kind, len(self.kinds))
        except ConflictingBonds as conflict:
            first_atom = np.concatenate([[0], np.cumsum(graphs.num_atoms)])
            graph = int(np.searchsorted(first_atom, conflict.atom, side="right")) - 1
            raise DataError(
                f"graph {position + graph}: atom {conflict.atom - first_atom[graph]} has two "
                "different bonds to the same atom; merge them into one (for example with "
                "torch_geometric's coalesce)"
            ) from None

    def _kind_numbers(self, bond_codes: np.ndarray) -> np.ndarray:
        """Number the rows of ``bond_codes [E, K]``; equal rows get equal numbers, ``[E]``."""
        self._bond_features = bond_codes.shape[1]
        distinct, inverse = _distinct_rows(bond_codes)
        numbers = [self.kinds.setdefault(tuple(row), len(self.kinds)) for row in distinct.tolist()]
        return np.asarray(numbers, dtype=np.int64)[inverse]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the table as flat arrays.

        ``type_distance`` int32 ``[types]`` (-1: unreachable); ``type_ring`` int32 ``[types]``,
        atoms of the smallest ring that both lie in (0: none); the path of type t are the entries
        ``type_start[t]:type_start[t + 1]`` of ``type_hop``, ``type_kind`` and ``type_share`` (in
        units of 1 / `SHARE_UNIT`), ordered by hop and kind; ``bond_kinds`` int64 ``[kinds, K]``.
        """
        kinds = np.asarray(list(self.kinds), dtype=np.int64)
        kinds = kinds.reshape(len(self.kinds), self._bond_features)
        return {**self._types.arrays(), "bond_kinds": kinds}


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
