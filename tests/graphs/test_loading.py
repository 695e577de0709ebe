"""Which graphs form which batch, and what the loaders make of them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from reference.molecules import graph

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.graphs.batch import Collator, GraphBatch
from graphormer_sepnorm.graphs.loading import EpochBatches, bounded, in_order, make_loader
from graphormer_sepnorm.graphs.store import GraphStore


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
    batches = EpochBatches(range(40), 7, 1)
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


@pytest.mark.parametrize(("n", "batch_size"), [(1, 8), (0, 8), (5, 1), (5, 0)])
def test_batches_of_one_graph_are_refused(n, batch_size):
    with pytest.raises(DataError, match="at least 2"):
        EpochBatches(range(n), batch_size, 0)


def tensors(part) -> list[torch.Tensor]:
    result = []
    for value in vars(part).values():
        if isinstance(value, torch.Tensor):
            result.append(value)
        elif isinstance(value, tuple):
            result.extend(itertools.chain(*map(tensors, value)))
    return result


def assert_same_batches(one, other) -> None:
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        for left, right in zip(tensors(a), tensors(b), strict=True):
            assert left.dtype == right.dtype
            assert torch.equal(left, right)


@pytest.mark.parametrize("batch_size", [1, 2, 4, 9, 50])
def test_evaluation_covers_each_graph_once_in_order(stored, batch_size):
    store, vocabulary = stored
    indices = [8, 0, 3, 2, 5]
    loader = make_loader(store, vocabulary, in_order(store, indices, batch_size))
    batches = list(loader)
    assert len(loader) == len(batches) == -(-5 // batch_size)
    assert torch.cat([batch.graph_ids for batch in batches]).tolist() == indices
    assert torch.cat([batch.targets for batch in batches])[:, 0].tolist() == indices
    assert_same_batches(batches, list(loader))


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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on a single core
def test_worker_processes_give_the_same_batches(stored):
    store, vocabulary = stored
    batches = EpochBatches(range(9), 2, seed=3)
    alone = make_loader(store, vocabulary, batches, attention_blocks=2)
    shared = make_loader(store, vocabulary, batches, attention_blocks=2, num_workers=2)
    for epoch in (0, 1):
        for loader in (alone, shared):
            loader.batch_sampler.set_epoch(epoch)
        assert_same_batches(list(alone), list(shared))


def test_what_a_batch_holds(stored):
    """Shapes, types and values as documented, field by field."""
    store, vocabulary = stored
    ids = [2, 1, 4]
    batch = Collator(store, vocabulary)(ids)
    assert isinstance(batch, GraphBatch)
    assert batch.num_graphs == 3
    assert batch.graph_of_atom.tolist() == [0] * 6 + [1] + [2] * 2
    assert batch.real_atoms is None
    assert batch.atom_rows.shape == (9, 2)
    assert torch.equal(
        batch.atom_rows, torch.from_numpy(vocabulary.atoms.rows(store.atom_codes_of(ids)))
    )
    assert batch.in_degree.tolist() == batch.out_degree.tolist() == [2] * 6 + [0] * 3
    assert batch.targets.tolist() == [[2.0], [1.0], [4.0]]
    assert batch.targets.dtype == batch.type_path.dtype == torch.float32
    assert batch.weights.tolist() == [1.0, 1.0, 1.0]
    assert batch.extra.shape == (3, 0)
    assert batch.bounds.shape == (3, 0)
    fractional = (batch.targets, batch.weights, batch.extra, batch.bounds, batch.type_path)
    whole = [t for t in tensors(batch) if not any(t is other for other in fractional)]
    assert {tensor.dtype for tensor in whole} == {torch.int64}
    # Types: the same atom, unreachable, and the ones of benzene (1, 2 and 3 hops).
    assert sorted(set(batch.type_distance.tolist())) == [-1, 0, 1, 2, 3]
    # Of each hop of a path up to its end, the shares add up to one; none beyond it.
    per_hop = batch.type_path.sum(2)
    for distance, shares in zip(batch.type_distance.tolist(), per_hop, strict=True):
        assert shares.tolist() == pytest.approx(
            [1.0] * max(distance, 0) + [0.0] * (5 - max(distance, 0))
        )


def test_a_store_of_other_features_is_refused(stored):
    with pytest.raises(DataError, match=r"1 feature columns.*trained on 2"):
        Collator(GraphStore.from_graphs([graph(2, [(0, 1)])], 5), stored[1])
