"""What a graph may look like, and what is said about one that is not of that form."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from reference.molecules import graph
from torch_geometric.data import Data

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.graphs.packed_graphs import packed_blocks
from graphormer_sepnorm.graphs.store import GraphStore

GOOD = graph(3, [(0, 1), (1, 2)])


def changed(**attributes) -> Data:
    return GOOD.clone().update(attributes)


CONFLICT = graph(3, [(0, 1), (1, 2), (0, 1)], [1, 1, 2])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (changed(x=torch.zeros(3, 1)), r"x float32 \[3, 1\].*integers"),
        (changed(x=None), "of the type Data, has x object"),
        (changed(x=torch.zeros(3, 0).long()), r"x int64 \[3, 0\]"),
        (Data(x=torch.zeros(0, 1), edge_index=torch.zeros(2, 0)), r"x float32 \[0, 1\]"),
        (changed(edge_attr=torch.zeros(4, 1)), "edge_attr float32"),
        (changed(edge_attr=torch.tensor(3)), r"edge_attr int64 \[\]"),
        (changed(edge_attr=torch.zeros(3, 1).long()), r"edge_attr int64 \[3, 1\]"),
        (changed(edge_index=GOOD.edge_index.T), r"edge_index int64 \[4, 2\]"),
        (changed(edge_index=GOOD.edge_index + 0.2), "edge_index float32"),
        (Data(x=torch.zeros(3, 1).long(), y=torch.zeros(1)), "edge_index object"),
        (changed(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 3, 1]])), "0..2"),
        (changed(x=torch.zeros(3, 2).long()), "agree"),
        (changed(edge_attr=torch.zeros(4, 2).long()), "agree"),
        (changed(y=torch.zeros(2)), "agree"),
        (changed(edge_attr=None), "agree"),
        (CONFLICT, "two different bonds"),
        (changed(y=["a"]), "a label or weight that is no number"),
        (changed(weight=torch.zeros(2)), "a label or weight that is no number"),
    ],
)
def test_a_graph_of_another_form_is_a_data_error(data, message):
    with pytest.raises(DataError, match=message) as caught:
        GraphStore.from_graphs([GOOD, GOOD, data, GOOD], 5)
    assert "\n" not in str(caught.value)
    assert "graph 2" in str(caught.value)


def test_conflicting_bonds_in_a_later_block_name_the_graph_and_there_has_to_be_one(monkeypatch):
    monkeypatch.setattr("graphormer_sepnorm.graphs.packed_graphs._BLOCK_PAIRS", 1)
    with pytest.raises(DataError, match=r"^graph 2\b"):
        GraphStore.from_graphs([GOOD, GOOD, CONFLICT], 5)
    with pytest.raises(DataError, match="no graphs"):
        GraphStore.from_graphs([], 5)


def test_numpy_arrays_booleans_and_any_integer_type():
    one = {"x": np.array([True, False]), "edge_index": np.array([[0, 1], [1, 0]], np.int32)}
    one |= {"edge_attr": np.array([-3, -3], dtype=np.int16), "y": np.array([1.5])}
    other = {"x": np.array([2**40, -(2**40)]), "edge_index": np.array([[0, 1], [1, 0]])}
    other |= {"edge_attr": np.array([9, 9], dtype=np.uint8), "y": 1}
    graphs = [SimpleNamespace(**one), SimpleNamespace(**other)]
    store = GraphStore.from_graphs(graphs, 5)
    assert store.atom_codes_of([0, 1]).tolist() == [[1], [0], [2**40], [-(2**40)]]
    assert store.bond_codes_of([0, 1]).tolist() == [[-3], [9]]
    assert store.bond_codes_of([1]).tolist() == [[9]]
    assert store.targets.tolist() == [[1.5], [1.0]]
    assert store.targets.dtype == np.float32


def test_targets_may_be_missing_or_absent():
    labeled = [changed(y=torch.tensor([[1.0, float("nan")]])), changed(y=torch.tensor([0.0, 2.0]))]
    store = GraphStore.from_graphs(labeled, 5)
    assert store.targets.shape == (2, 2)
    assert np.isnan(store.targets[0, 1])
    assert GraphStore.from_graphs([changed(y=None)], 5).targets.shape == (1, 0)


def test_weights_are_kept_and_checked():
    store = GraphStore.from_graphs([changed(weight=2.5), changed(weight=torch.tensor([0.0]))], 5)
    np.testing.assert_array_equal(store.weights, np.float32([2.5, 0]), strict=True)
    assert GraphStore.from_graphs([changed()], 5).weights.tolist() == [1.0]
    for weight in (-1.0, float("nan"), float("inf"), 1e39):
        with pytest.raises(DataError, match="graph 1 has the weight"):
            GraphStore.from_graphs([changed(), changed(weight=weight)], 5)


@pytest.mark.parametrize("pairs", [1, 300_000], ids=["blocks of one", "one block"])
def test_graphs_without_bonds_have_as_many_features_of_bonds(pairs, monkeypatch):
    monkeypatch.setattr("graphormer_sepnorm.graphs.packed_graphs._BLOCK_PAIRS", pairs)
    bonded = changed(edge_attr=torch.tensor([[1, 5, 9]]).expand(4, 3))
    lonely = changed(edge_index=torch.zeros(2, 0).long(), edge_attr=torch.zeros(0, 3))
    graphs = [lonely, bonded, lonely]
    # Packed ones are passed on as they are.
    for given in (graphs, [*packed_blocks(graphs[:1]), *graphs[1:]]):
        store = GraphStore.from_graphs(given, 5)
        assert [len(store.bond_codes_of([number])) for number in range(3)] == [0, 1, 0]
        assert store.bond_codes_of([1]).tolist() == [[1, 5, 9]]
    lonely.edge_attr = None
    with pytest.raises(DataError, match=r"^graph 1 has \(1, 0, 1\).*before it \(1, 3, 1\)"):
        GraphStore.from_graphs([bonded, lonely], 5)
