"""Ring sizes in numpy: for places without the compiled functions, and to test these against.

E directed bonds · G graphs · n atoms of a graph
"""

from __future__ import annotations

import numpy as np

from graphormer_sepnorm.graphs.packed_graphs import ranges

# Bonds that are searched from at once: of a dense graph each reaches many atoms over many bonds.
_BONDS = 1 << 14


def ring_sizes(
    source: np.ndarray, target: np.ndarray, bond_start: np.ndarray, first_atom: np.ndarray
) -> np.ndarray:
    """Return `BlockStructure.ring_sizes`, int64 ``[sum n, 2]``.

    Args:
        source: Of each bond ``[E]``, sorted; atoms are numbered over all graphs.
        target: Of each bond ``[E]``.
        bond_start: Where the bonds out of each atom begin ``[sum n + 1]``.
        first_atom: Of each graph ``[G + 1]``.
    """
    rings = np.zeros(len(source), dtype=np.int64)
    for start in range(0, len(source), _BONDS):
        searched = np.arange(start, min(start + _BONDS, len(source)))
        rings[searched] = _rings_of(searched, source, target, bond_start, first_atom)
    sizes = np.zeros((len(bond_start) - 1, 2), dtype=np.int64)
    closed = rings > 0
    smallest = np.full(len(sizes), np.iinfo(np.int64).max)
    np.minimum.at(smallest, source[closed], rings[closed])
    np.maximum.at(sizes[:, 1], source[closed], rings[closed])
    in_ring = sizes[:, 1] > 0
    sizes[in_ring, 0] = smallest[in_ring]
    return sizes


def _rings_of(
    bonds: np.ndarray,
    source: np.ndarray,
    target: np.ndarray,
    bond_start: np.ndarray,
    first_atom: np.ndarray,
) -> np.ndarray:
    """Atoms of the ring of each of `bonds`, by breadth-first searches from all of their targets."""
    sources, targets = source[bonds], target[bonds]
    graph = np.searchsorted(first_atom, sources, side="right") - 1
    room = np.diff(first_atom)[graph]
    # Place of (bond, atom v) among all such pairs: base[bond] + v.
    base = np.cumsum(room) - room - first_atom[graph]
    reached = np.zeros(int(room.sum()), dtype=bool)
    reached[base + targets] = True
    out_degree = np.diff(bond_start)
    rings = np.zeros(len(bonds), dtype=np.int64)
    start, here = np.arange(len(bonds)), targets
    size = 1  # atoms of the ways so far
    while len(start):
        size += 1
        steps = out_degree[here]
        parent = np.repeat(np.arange(len(here)), steps)
        begun, after = start[parent], target[ranges(bond_start[here], steps)]
        itself = (here[parent] == targets[begun]) & (after == sources[begun])
        new = ~itself & ~reached[base[begun] + after]
        begun, after = begun[new], after[new]
        rings[begun[after == sources[begun]]] = size
        pairs, first = np.unique(base[begun] + after, return_index=True)
        reached[pairs] = True
        open_ = first[rings[begun[first]] == 0]
        start, here = begun[open_], after[open_]
    return rings
