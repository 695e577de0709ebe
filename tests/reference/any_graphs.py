"""Graphs that are hard for shortest paths: of any kind, drawn at random, and large ones."""

import networkx
import numpy as np
from hypothesis import strategies as st

from reference.molecules import directed_graph


@st.composite
def graphs_of_any_kind(draw):
    """Directed, with several fragments, ties, isolated atoms; self-loops and repeated bonds too."""
    n = draw(st.integers(1, 7))
    pairs = [(i, j) for i in range(n) for j in range(n)]
    bonds = draw(st.dictionaries(st.sampled_from(pairs), st.integers(0, 2), max_size=16))
    edges = list(bonds)
    if draw(st.booleans()) and edges:
        edges += draw(st.lists(st.sampled_from(edges), max_size=3))
    return directed_graph(n, edges, [bonds[edge] for edge in edges])


def random_codes(number: int) -> list[int]:
    return np.random.default_rng(0).integers(0, 3, number).tolist()


def large_systems(side: int = 20) -> dict[str, networkx.Graph]:
    return {
        "grid": networkx.grid_2d_graph(side, side),
        "graphene": networkx.hexagonal_lattice_graph(7, 8),
    }
