"""Structure in C and in numpy: the same stores, array by array."""

from __future__ import annotations

from pathlib import Path

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.any_graphs import graphs_of_any_kind, large_systems, random_codes
from reference.molecules import C60, TIE_FREE, TIED, directed_graph, graph, molecule
from reference.structure_in_numpy import in_numpy
from reference.structures import assert_same_stores
from torch_geometric.data import Data

from graphormer_sepnorm.datasets.catalog import load_dataset
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.graphs import structure
from graphormer_sepnorm.graphs.store import GraphStore


def assert_same_both_ways(graphs: list[Data], hops: int) -> GraphStore:
    in_c = GraphStore.from_graphs(graphs, hops)
    with in_numpy():
        assert_same_stores(in_c, GraphStore.from_graphs(graphs, hops))
    return in_c


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(graphs_of_any_kind(), min_size=1, max_size=4), st.sampled_from([1, 2, 5, 20]))
def test_any_graphs(graphs, hops):
    assert_same_both_ways(graphs, hops)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(2, 40), st.floats(0, 0.3), st.integers(0, 2**31), st.booleans())
def test_random_graphs(n, density, seed, directed):
    drawn = networkx.gnp_random_graph(n, density, seed=seed, directed=directed)
    codes = np.random.default_rng(seed).integers(0, 3, drawn.number_of_edges()).tolist()
    make = directed_graph if directed else graph
    assert_same_both_ways([make(n, list(drawn.edges), codes)], 20)


@pytest.mark.parametrize("hops", [1, 5, 20])
def test_named_molecules(hops):
    smiles = [*TIE_FREE.values(), *TIED.values(), C60, "C", "[Na+].[Cl-]", "C1CC1.CCO"]
    assert_same_both_ways([molecule(text) for text in smiles], hops)


@pytest.mark.parametrize("rescaled", [False, True])
@pytest.mark.parametrize("name", large_systems())
def test_large_systems(name, rescaled, monkeypatch):
    """Path counts are scaled at other times here and there, which must not show.

    numpy takes seconds for the size that C has in `test_structure`.
    """
    if rescaled:
        monkeypatch.setattr(structure, "LARGEST_COUNT", 50.0)
    drawn = networkx.convert_node_labels_to_integers(large_systems(side=12)[name])
    codes = random_codes(drawn.number_of_edges())
    assert_same_both_ways([graph(drawn.number_of_nodes(), list(drawn.edges), codes)], 6)


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


@pytest.mark.parametrize("name", ["zinc-subset", "ogbg-molhiv"])
def test_real_molecules(name, real_data_root: Path):
    split = load_dataset(name, real_data_root).test
    assert_same_both_ways([split[number] for number in range(0, len(split), 8)], 20)


def test_the_division_into_blocks_does_not_show(monkeypatch):
    graphs = [molecule(text) for text in ("C", *TIED.values(), *TIE_FREE.values(), "C#N")]
    together = assert_same_both_ways(graphs, 5)
    monkeypatch.setattr("graphormer_sepnorm.graphs.packed_graphs._BLOCK_PAIRS", 1)
    monkeypatch.setattr("reference.structure_in_numpy._BONDS", 3)
    apart = assert_same_both_ways(graphs, 5)
    assert_same_stores(apart, together)


def test_the_first_conflict_is_reported():
    twice = graph(4, [(0, 1), (2, 3), (2, 3), (1, 2), (1, 2)], [1, 1, 2, 1, 2])
    graphs = [graph(2, [(0, 1)]), twice, twice]
    message = r"^graph 1: atom 1 has two different bonds"
    with pytest.raises(DataError, match=message):
        GraphStore.from_graphs(graphs, 5)
    with in_numpy(), pytest.raises(DataError, match=message):
        GraphStore.from_graphs(graphs, 5)
