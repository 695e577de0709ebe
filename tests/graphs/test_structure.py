"""Distances, shortest paths and pair types in C against enumeration of all paths and networkx."""

import networkx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.extensions import ring_of_bond, shared_rings
from reference.literal import PlainGraph, counted_path_shares, distances, path_shares
from reference.molecules import C60, TIE_FREE, TIED, directed_graph, graph, molecule, renumbered
from reference.structures import (
    assert_same_stores,
    assert_shares,
    pair_types,
    type_distance,
    type_shares,
)
from torch_geometric.data import Data

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.graphs import structure
from graphormer_sepnorm.graphs.store import GraphStore

# The first two pair types of every table.
SAME_ATOM, UNREACHABLE = 0, 1


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


def assert_as_enumerated(graphs: list[Data], hops: int) -> None:
    """Every ordered pair: distance, shares, ring; one type for each that occur together."""
    store = GraphStore.from_graphs(graphs, hops)
    key_of_type: dict[int, tuple] = {}
    first_atom = 0
    for index, data in enumerate(graphs):
        plain = PlainGraph.of(data)
        distance, ring = distances(plain), shared_rings(plain)
        types = pair_types(store, index)
        n = len(plain.atoms)
        for i in range(n):
            rings = [ring_of_bond(plain, bond) or 0 for bond in plain.bonds if bond[0] == i]
            sizes = [ring for ring in rings if ring] or [0]
            assert store.ring_sizes[first_atom + i].tolist() == [min(sizes), max(sizes)]
            degrees = store.out_degree[first_atom + i], store.in_degree[first_atom + i]
            assert degrees == tuple(
                sum(1 for bond in plain.bonds if bond[end] == i) for end in (0, 1)
            )
            for j in range(n):
                number = types[i, j]
                assert type_distance(store, number) == distance[i][j]
                truth = path_shares(plain, distance, i, j, hops)
                assert store.type_ring[number] == ring.get((i, j), 0)
                key = (distance[i][j], ring.get((i, j), 0), frozenset(truth.items()))
                if number not in key_of_type:
                    assert_shares(type_shares(store, number), truth)
                assert key_of_type.setdefault(number, key) == key
        first_atom += n
    assert len(set(key_of_type.values())) == len(key_of_type), "two types for the same values"
    known = set(key_of_type) | {SAME_ATOM, UNREACHABLE}
    assert known == set(range(len(store.type_distance))), "a type that does not occur"


@pytest.mark.parametrize("hops", [1, 2, 5, 20])
def test_named_molecules(hops):
    smiles = [*TIE_FREE.values(), *TIED.values(), "C", "[Na+].[Cl-]", "C1CC1.CCO"]
    assert_as_enumerated([molecule(text) for text in smiles], hops)


def test_real_molecules(zinc_graphs):
    assert_as_enumerated(zinc_graphs, 20)
    assert_as_enumerated([molecule(C60)], 20)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(graphs_of_any_kind(), min_size=1, max_size=3), st.integers(1, 7))
def test_any_graphs(graphs, hops):
    assert_as_enumerated(graphs, hops)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(2, 20), st.floats(0, 0.3), st.integers(0, 2**31), st.booleans())
def test_random_graphs(n, density, seed, directed):
    drawn = networkx.gnp_random_graph(n, density, seed=seed, directed=directed)
    codes = np.random.default_rng(seed).integers(0, 3, drawn.number_of_edges()).tolist()
    make = directed_graph if directed else graph
    assert_as_enumerated([make(n, list(drawn.edges), codes)], 20)


@pytest.mark.parametrize("rescaled", [False, True])
@pytest.mark.parametrize("name", large_systems())
def test_large_fused_systems(name, rescaled, monkeypatch):
    """Up to 3.5e10 shortest paths between two corners; exact integers are the truth."""
    if rescaled:
        monkeypatch.setattr(structure, "LARGEST_COUNT", 50.0)
    drawn = networkx.convert_node_labels_to_integers(large_systems()[name])
    n = drawn.number_of_nodes()
    data = graph(n, list(drawn.edges), random_codes(drawn.number_of_edges()))
    store = GraphStore.from_graphs([data], 6)
    types = pair_types(store, 0)
    plain = PlainGraph.of(data)
    reach = dict(networkx.all_pairs_shortest_path_length(drawn))
    distance = [[reach[i][j] for j in range(n)] for i in range(n)]
    assert np.array_equal(store.type_distance[types], distance)
    for start in (0, n // 2):
        shares = counted_path_shares(plain, distance, start, 6)
        for end in range(n):
            stored = type_shares(store, types[start, end])
            assert stored.keys() == shares[end].keys()
            for key, share in stored.items():
                assert abs(float(share - shares[end][key])) < 2e-9


def test_sums_that_differ_in_the_last_bits_make_no_new_types():
    """With equal bonds everywhere all shares are 1, though six float64 sixths make less."""
    assert 1 / 6 + 1 / 6 + 1 / 6 + 1 / 6 + 1 / 6 + 1 / 6 < 1
    graphs = [
        graph(n + 2, [(end, 2 + middle) for end in (0, 1) for middle in range(n)])
        for n in range(2, 30)
    ]
    store = GraphStore.from_graphs(graphs, 5)
    assert sorted(store.type_distance) == [-1, 0, 1, 2]
    assert (store.type_share == structure.SHARE_UNIT).all()


def test_path_counts_beyond_float64():
    """A row of fused rings with 2^1040 shortest paths from end to end."""
    rings = 1040
    bonds = []
    for ring in range(rings):
        left, up, down, right = 3 * ring, 3 * ring + 1, 3 * ring + 2, 3 * ring + 3
        bonds += [(left, up), (left, down), (up, right), (down, right)]
    # Only the paths from one end are of interest: directed, so that few pairs are reached late.
    data = directed_graph(3 * rings + 1, bonds, [0, 1, 0, 1] * rings)
    block = GraphStore.from_graphs([data], 2)
    far = pair_types(block, 0)[0, 3 * rings]
    assert type_distance(block, far) == 2 * rings
    shares = type_shares(block, far)
    assert {key: float(share) for key, share in shares.items()} == {
        (hop, (code,)): 0.5 for hop in (0, 1) for code in (0, 1)
    }


def test_counts_that_vanish_beside_others(monkeypatch):
    """Beside 4^560 paths to other atoms two are as good as none; each is still half of the two."""
    monkeypatch.setattr(structure, "LARGEST_COUNT", 50.0)
    layers, wide = 560, 4
    bonds, before, last = [], [0], 0
    for first in range(1, layers * wide, wide):
        layer = range(first, first + wide)
        bonds += [(one, other) for one in before for other in layer]
        before = list(layer)
    for atom in range(before[-1] + 1, before[-1] + layers):
        bonds.append((last, atom))
        last = atom
    fork = [(last, last + 1), (last, last + 2), (last + 1, last + 3), (last + 2, last + 3)]
    far = directed_graph(last + 4, bonds + fork, [1] * (len(bonds) + 4))
    store = GraphStore.from_graphs([far], 3)
    pair_type = store.pair_type[last + 3]
    assert store.type_distance[pair_type] == layers + 1
    path = slice(store.type_start[pair_type], store.type_start[pair_type + 1])
    assert store.type_share[path].tolist() == [structure.SHARE_UNIT] * 3


def test_kinds_that_appear_only_in_a_later_block(monkeypatch):
    """Graphs are worked on block by block, and the numbers of types and kinds are shared."""
    graphs = [
        graph(3, []),
        graph(3, [(0, 1), (1, 2)], [0, 0]),
        graph(3, [(0, 1), (1, 2)], [7, 0]),
        graph(3, [(0, 1), (1, 2)], [0, 7]),
        graph(2, [(0, 1)], [3]),
    ]
    molecules = [molecule(text) for text in ("C", *TIED.values(), *TIE_FREE.values(), "C#N")]
    together = [GraphStore.from_graphs(several, 5) for several in (graphs, molecules)]
    monkeypatch.setattr("graphormer_sepnorm.graphs.packed_graphs._BLOCK_PAIRS", 1)
    for several, whole in zip((graphs, molecules), together, strict=True):
        assert_same_stores(GraphStore.from_graphs(several, 5), whole)


def test_the_first_conflict_is_reported():
    twice = graph(4, [(0, 1), (2, 3), (2, 3), (1, 2), (1, 2)], [1, 1, 2, 1, 2])
    with pytest.raises(DataError, match=r"^graph 1: atom 1 has two different bonds"):
        GraphStore.from_graphs([graph(2, [(0, 1)]), twice, twice], 5)


@pytest.mark.parametrize("equal_bonds", [False, True])
@pytest.mark.parametrize("name", ["C60", "adamantane", "caffeine", *large_systems(), "ZINC"])
def test_the_numbering_of_the_atoms_makes_no_types(name, equal_bonds, request):
    """Sums of the same shares in another order must not make new types."""
    if name == "ZINC":
        graphs = request.getfixturevalue("zinc_graphs")[:20]
    elif name in large_systems():
        drawn = networkx.convert_node_labels_to_integers(large_systems()[name])
        codes = random_codes(drawn.number_of_edges())
        graphs = [graph(drawn.number_of_nodes(), list(drawn.edges), codes)]
    else:
        graphs = [molecule({"C60": C60, **TIED}[name])]
    for data in graphs:
        if equal_bonds:
            data = data.clone()
            data.edge_attr = torch.zeros_like(data.edge_attr)
        for _ in range(1 if name == "ZINC" else 3):
            order = torch.randperm(len(data.x))
            store = GraphStore.from_graphs([data, renumbered(data, order)], 20)
            assert np.array_equal(pair_types(store, 0)[np.ix_(order, order)], pair_types(store, 1))


def test_codes_of_bonds_that_lie_far_apart():
    data = molecule("C=CC1CC=C1C#N")
    data.edge_attr = data.edge_attr * 10**6
    assert_as_enumerated([data, molecule("CC")], 5)
