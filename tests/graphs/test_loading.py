"""Which graphs form which batch, and what the loaders make of them."""

import itertools

import numpy as np
import pytest
import torch
from reference import models
from reference.molecules import TIED, graph, molecule

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.graphs.batch import Collator
from graphormer_sepnorm.graphs.loading import EpochBatches, bounded, in_order, make_loader
from graphormer_sepnorm.graphs.store import GraphStore

SMILES = ["CCO", "N", TIED["benzene"], "CC(C)Cl", "C.C", "CC#N", TIED["caffeine"], "O", "C=C"]


@pytest.fixture(scope="module")
def stored():
    """Graphs whose target is their number."""
    return models.stored([molecule(smiles, y) for y, smiles in enumerate(SMILES)])


@pytest.mark.parametrize("batch_size", range(2, 21))
def test_every_graph_once_in_batches_of_nearly_equal_size(batch_size):
    for n in range(2, 71):
        indices = np.arange(100, 100 + n)
        batches = EpochBatches(indices, batch_size, seed=n)
        drawn = list(batches)
        sizes = [len(batch) for batch in drawn]
        assert len(batches) == len(drawn)
        assert sorted(itertools.chain(*drawn)) == indices.tolist()
        assert max(sizes) - min(sizes) <= 1
        assert min(sizes) >= 2
        # One more than asked for only where a batch of one graph would be left otherwise.
        assert max(sizes) <= batch_size + (batch_size == 2 and n % 2)


def test_the_order_is_a_pure_function_of_seed_and_epoch():
    orders = {}
    for seed, epoch in itertools.product((0, 1), (0, 1, 2)):
        for _ in range(2):
            batches = EpochBatches(range(40), 7, seed)
            batches.set_epoch(epoch)
            assert orders.setdefault((seed, epoch), list(batches)) == list(batches)
    assert all(one != other for one, other in itertools.combinations(orders.values(), 2))
    # Going back gives the old order again.
    batches.set_epoch(0)
    assert list(batches) == orders[1, 0]
    batches = EpochBatches(range(40), 7, 1)  # of which nobody chooses the epoch
    assert [list(batches) for _ in range(3)] == [orders[1, epoch] for epoch in range(3)]


@pytest.mark.parametrize(("n", "batch_size"), [(1, 8), (0, 8), (5, 1), (5, 0)])
def test_batches_of_one_graph_are_refused(n, batch_size):
    with pytest.raises(DataError, match="at least 2"):
        EpochBatches(range(n), batch_size, 0)


@pytest.mark.parametrize("batch_size", [1, 2, 4, 9, 50])
def test_evaluation_covers_each_graph_once_in_order(stored, batch_size):
    store, vocabulary = stored
    indices = [8, 0, 3, 2, 5]
    loader = make_loader(store, vocabulary, in_order(store, indices, batch_size))
    batches = list(loader)
    assert len(loader) == len(batches) == -(-5 // batch_size)
    assert torch.cat([batch.graph_ids for batch in batches]).tolist() == indices
    assert torch.cat([batch.targets for batch in batches])[:, 0].tolist() == indices


@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("batch_size", [1, 2, 6])
def test_processes_share_the_graphs_of_an_evaluation(stored, batch_size, processes):
    store, _ = stored
    indices = [8, 0, 3, 2, 5]
    shares = [in_order(store, indices, batch_size, rank, processes) for rank in range(processes)]
    for rank, batches in enumerate(shares):
        assert list(itertools.chain(*batches)) == indices[rank::processes]
        assert max(map(len, batches)) <= max(1, batch_size // processes)
    assert in_order(store, indices[:processes], 2, processes - 1, processes)
    with pytest.raises(DataError, match=r"^2 graphs cannot be shared by 3 .*: use fewer devices"):
        in_order(store, [0, 1], batch_size, 0, 3)


@pytest.mark.parametrize("max_pairs", [1, 60, 61, 10**6])
@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_large_graphs_come_in_smaller_batches(batch_size, max_pairs):
    atoms = np.random.default_rng(0).integers(1, 12, 50)
    order = np.random.default_rng(1).permutation(50).tolist()
    batches = list(bounded(order, atoms, batch_size, max_pairs))
    assert list(itertools.chain(*batches)) == order

    def pairs(batch: list[int]) -> int:
        return len(batch) * (int(atoms[batch].max()) + 1) ** 2

    for batch, following in itertools.pairwise([*batches, []]):
        assert len(batch) <= batch_size
        assert len(batch) == 1 or pairs(batch) <= max_pairs
        # None is smaller than it has to be.
        more = [*batch, *following[:1]]
        assert not following or len(more) > batch_size or pairs(more) > max_pairs


def test_a_store_of_other_features_is_refused(stored):
    with pytest.raises(DataError, match=r"1 feature columns.*trained on 2"):
        Collator(GraphStore.from_graphs([graph(2, [(0, 1)])], 5), stored[1])
