"""Structure in C: calls the functions of ``kernels/structure.c``."""

from __future__ import annotations

import ctypes
import weakref

import numpy as np

from graphormer_sepnorm.graphs import structure_block
from graphormer_sepnorm.graphs.packed_graphs import PackedGraphs
from graphormer_sepnorm.graphs.structure_block import BlockStructure, ConflictingBonds
from graphormer_sepnorm.kernels.library import integers, pointers

_DONE, _NO_MEMORY = -1, -2


class _Block(ctypes.Structure):
    """`Block` of ``structure.c``."""

    _fields_ = (
        *integers("num_graphs", "num_kinds"),
        *pointers("num_atoms", "num_bonds", "source", "target", "kind"),
        ("largest_count", ctypes.c_double),
        *pointers("in_degree", "out_degree", "pair_type", "ring_sizes"),
    )


class TypesInC:
    """A growing table of pair types; see `graphormer_sepnorm.graphs.structure.PairTypes`.

    Args:
        library: The compiled functions.
        max_path_length: D, the hops of a path that count.
    """

    def __init__(self, library: ctypes.CDLL, max_path_length: int) -> None:
        self._library = library
        new = library.pair_types_new
        new.argtypes, new.restype = (ctypes.c_int64, ctypes.c_double), ctypes.c_void_p
        for name in ("structure_of_block", "pair_types_count", "pair_types_entries"):
            getattr(library, name).restype = ctypes.c_int64
        table = new(max_path_length, structure_block.SHARE_UNIT)
        if table is None:
            raise MemoryError
        self._table = ctypes.c_void_p(table)
        weakref.finalize(self, library.pair_types_free, self._table)

    def __len__(self) -> int:
        return self._library.pair_types_count(self._table)

    def block_structure(
        self, graphs: PackedGraphs, kind: np.ndarray, num_kinds: int
    ) -> BlockStructure:
        """Compute degrees, pair types and ring sizes.

        Args:
            graphs: The block.
            kind: int64 ``[E]``, number of the kind of each directed bond.
            num_kinds: Kinds of bond known so far.

        Raises:
            ConflictingBonds: If one pair of atoms has two different bonds.
        """
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
                    num_kinds,
                    num_atoms.ctypes.data,
                    num_bonds.ctypes.data,
                    edges[0].ctypes.data,
                    edges[1].ctypes.data,
                    kind.ctypes.data,
                    structure_block.LARGEST_COUNT,
                    in_degree.ctypes.data,
                    out_degree.ctypes.data,
                    pair_type.ctypes.data,
                    ring_sizes.ctypes.data,
                )
            ),
        )
        if result == _NO_MEMORY:
            raise MemoryError
        if result != _DONE:
            raise ConflictingBonds(result)
        return BlockStructure(in_degree, out_degree, pair_type, ring_sizes)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the types as flat arrays; see `PairTypes.arrays`."""
        distance, ring = np.empty(len(self), np.int32), np.empty(len(self), np.int32)
        start = np.empty(len(self) + 1, np.int64)
        self._library.pair_types_distances(self._table, *_pointers(distance, ring, start))
        hop, kind, share = (np.empty(start[-1], np.int32) for _ in range(3))
        if self._library.pair_types_entries(self._table, *_pointers(hop, kind, share)) != _DONE:
            raise MemoryError
        return {
            "type_distance": distance,
            "type_ring": ring,
            "type_start": start,
            "type_hop": hop,
            "type_kind": kind,
            "type_share": share,
        }


def _pointers(*arrays: np.ndarray) -> list[ctypes.c_void_p]:
    return [ctypes.c_void_p(array.ctypes.data) for array in arrays]
