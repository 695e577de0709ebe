"""Graphs given many at once: the same store as one by one, and the same messages."""

import pytest
from reference.molecules import TIED, molecule
from reference.structures import assert_same_stores

from graphormer_sepnorm.datasets import lazy_graphs
from graphormer_sepnorm.datasets.lazy_graphs import RawGraphs
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.graphs.packed_graphs import PackedGraphs, packed_blocks
from graphormer_sepnorm.graphs.store import GraphStore


def raw(graphs) -> RawGraphs:
    """A data set as ZINC and molhiv are, of two parts."""
    parts = *packed_blocks(graphs[:2]), *packed_blocks(graphs[2:])
    packed = PackedGraphs.concatenate(parts)
    return RawGraphs(lambda: packed, range(len(packed)))


def some_graphs():
    smiles = ["CCO", "N", TIED["caffeine"], "C.C", "CC#N", TIED["cubane"]]
    return [molecule(text, y) for y, text in enumerate(smiles)]


@pytest.mark.parametrize("at_once", [1, 2, 4, 100])
def test_the_same_store(at_once, monkeypatch):
    monkeypatch.setattr(lazy_graphs, "AT_ONCE", at_once)
    given = raw(some_graphs())
    assert_same_stores(GraphStore.from_graphs(given.packed(), 5), GraphStore.from_graphs(given, 5))


def test_packed_and_single_graphs_mixed():
    graphs = some_graphs()
    mixed = [graphs[0], *raw(graphs[1:4]).packed(), *graphs[4:]]
    assert_same_stores(GraphStore.from_graphs(mixed, 5), GraphStore.from_graphs(graphs, 5))
    with pytest.raises(DataError, match=r"^graph 4, of the type str"):
        GraphStore.from_graphs([*mixed[:-2], "CCO"], 5)


@pytest.mark.parametrize("atom", [-1, 2])
def test_a_bond_of_no_atom_names_the_graph(atom):
    graphs = some_graphs()
    packed = PackedGraphs.concatenate([*packed_blocks(graphs[1:])])
    start = packed.num_bonds[:3].sum()  # of CC#N, which has 3 atoms
    packed.edge_index[1, start] = atom if atom < 0 else 3
    with pytest.raises(DataError, match=r"^graph 4: edge_index names atoms outside 0\.\.2$"):
        list(packed_blocks([graphs[0], packed]))
