"""The bonds of graphs, found among their pairs of atoms: those at distance 1."""

from __future__ import annotations

import numpy as np

from graphormer_sepnorm.graphs.store import GraphStore


def kinds_of_types(store: GraphStore, types: np.ndarray) -> np.ndarray:
    """Return for each of some pair types of a store its kind of bond, -1 where it is none."""
    kinds = np.full(len(types), -1, dtype=np.int64)
    bonds = np.flatnonzero(store.type_distance[types] == 1)
    # One shortest path of one hop: the only path entry of the type.
    kinds[bonds] = store.type_kind[store.type_start[types[bonds]]]
    return kinds


def find_bonds(
    pairs: np.ndarray, sizes: np.ndarray, kinds: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """List the directed bonds of several graphs.

    Args:
        pairs: Type of each ordered pair of atoms, row-major within a graph, graph after graph.
        sizes: Atoms of each graph.
        kinds: Kind of bond of each type, -1 where it is none.

    Returns:
        Of each bond, in the order of `pairs`: graph, the atoms from and to which it leads (numbers
        within the graph), kind.
    """
    place = np.flatnonzero((kinds >= 0)[pairs])
    ends = np.cumsum(sizes**2)
    graph = np.searchsorted(ends, place, side="right")
    source, target = np.divmod(place - (ends - sizes**2)[graph], sizes[graph])
    return graph, source, target, kinds[pairs[place]]
