"""What the labels of somebody else's graphs are known by, of whatever kind the data set is."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, InMemoryDataset

from graphormer_sepnorm.chem.features import OF_SMILES, get_featuriser
from graphormer_sepnorm.datasets.lazy_graphs import LazyGraphs
from graphormer_sepnorm.datasets.splits import DatasetSplits, Graphs
from graphormer_sepnorm.datasets.training_graphs import labels_digest
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.graphs.task import Task

LABELS = [[1.0, 2.0], [3.0, float("nan")], [5.0, 6.0]]


def graphs(labels: list[list[float]] = LABELS, weights: list[float] | None = None) -> list[Data]:
    found = []
    for number, y in enumerate(labels):
        graph = Data(
            x=torch.zeros(2, 1, dtype=torch.long),
            edge_index=torch.tensor([[0, 1], [1, 0]]),
            edge_attr=torch.ones(2, dtype=torch.long),
            y=torch.tensor([y]),
        )
        if weights is not None:
            graph.weight = weights[number]
        found.append(graph)
    return found


class InMemory(InMemoryDataset):
    """PyG's own kind of data set."""

    def __init__(self, of: list[Data], transform: Callable | None = None) -> None:
        super().__init__(None, transform)
        self.data, self.slices = self.collate(of)


class Streamed:
    """A data set that makes its graphs when they are asked for."""

    def __len__(self) -> int:
        return len(LABELS)

    def __getitem__(self, index: int, /) -> Data:
        return graphs()[index]

    def __iter__(self) -> Iterator[Data]:
        return iter(graphs())


def digest(train: Graphs, rest: Graphs = ()) -> str:  # type: ignore[assignment]
    task = Task("regression", ("a", "b"), ("", ""), "mae")
    return labels_digest(DatasetSplits("own", train, rest, [], task, "one", "one"))


def lazy(labels: list[list[float]] = LABELS, weights: np.ndarray | None = None) -> LazyGraphs:
    return LazyGraphs(["C"] * 3, np.array(labels), get_featuriser(OF_SMILES), weights)


@pytest.mark.parametrize(
    "same",
    [
        InMemory(graphs()),
        Streamed(),
        lazy(),
        InMemory(graphs([[y - 1 for y in row] for row in LABELS]), lambda g: _moved(g, 1)),
        graphs(weights=[1.0, 1.0, 1.0]),
    ],
)
def test_labels_are_known_by_their_values_alone(same: Graphs) -> None:
    assert digest(same) == digest(graphs())


def _moved(graph: Data, by: float) -> Data:
    graph.y = graph.y + by
    return graph


def test_other_labels_weights_and_orders_are_told_apart() -> None:
    found = [
        digest(graphs()),
        digest([graphs()[0], graphs()[2], graphs()[1]]),
        digest(graphs([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])),
        digest(graphs(weights=[1.0, 2.0, 1.0])),
        digest(lazy(weights=np.array([1.0, 3.0, 1.0]))),
        digest(InMemory(graphs(), lambda graph: _moved(graph, 7))),
        digest(InMemory(graphs())[:2]),
    ]
    assert len({*found}) == len(found)


def test_it_does_not_matter_where_a_split_ends() -> None:
    assert digest(graphs()[:1], graphs()[1:]) == digest(graphs()[:2], graphs()[2:])


def test_weight_that_cannot_be_names_the_graph() -> None:
    with pytest.raises(DataError, match=r"^own, train: graph 1 has the weight -1\.0"):
        digest(graphs(weights=[1.0, -1.0, 1.0]))
