"""Batches cut on the device are the collator's: the same predictions, gradients and statistics."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.models import VARIANTS, name_of, small_model, stored
from reference.molecules import TIED, directed_graph, molecule
from reference.passes import assert_same, run

from graphormer_sepnorm.graphs import resident
from graphormer_sepnorm.graphs.batch import FIRST_ATOM_PAIR, Collator, GraphBatch
from graphormer_sepnorm.graphs.resident import BatchShape, ResidentGraphs, plan_shape
from graphormer_sepnorm.model.encodings import PathEncoding

SMILES = ("CCO", "c1ccccc1C(=O)O", "N", TIED["caffeine"], TIED["adamantane"], "C.CC(C)Cl", "C1CC1N")
CHOSEN = [5, 0, 3, 6, 1]
ROOMY = BatchShape(60, ((5, 20),))
DIVIDED = BatchShape(50, ((3, 12), (2, 18)))


@pytest.fixture(scope="module")
def graphs():
    store, vocabulary = stored([molecule(smiles) for smiles in SMILES])
    store.targets = np.arange(2.0 * len(SMILES), dtype=np.float32).reshape(-1, 2)
    store.weights = np.linspace(0.5, 2, len(SMILES), dtype=np.float32)
    store.extra = np.arange(3.0 * len(SMILES), dtype=np.float32).reshape(-1, 3)
    store.bounds = np.arange(4.0 * len(SMILES), dtype=np.float32).reshape(-1, 4)
    return store, vocabulary, ResidentGraphs(store, vocabulary, "cpu", ring_pairs=True)


def types_of(batch: GraphBatch) -> torch.Tensor:
    """Distance and path of the type of every pair, in place of its number in the batch."""
    described = torch.cat([batch.type_distance[:, None].float(), batch.type_path.flatten(1)], 1)
    special = torch.full((FIRST_ATOM_PAIR, described.shape[1]), -7.0)
    special[1] = -8.0
    table = torch.cat([special, described])
    return torch.cat([table[block.pair_type].flatten(0, -2) for block in batch.blocks])


@pytest.mark.parametrize("blocks", [1, 2])
def test_exact_batch_is_the_collators(graphs, blocks):
    store, vocabulary, resident = graphs
    truth = Collator(store, vocabulary, blocks)(CHOSEN)
    shape = BatchShape(
        len(truth.atom_rows), tuple((len(b.rows), b.rows.shape[1]) for b in truth.blocks)
    )
    batch = resident.batch(torch.tensor(CHOSEN), shape)
    assert batch.real_atoms is not None
    assert batch.real_atoms.all()
    of_atoms = ("atom_rows", "in_degree", "out_degree", "ring_sizes", "graph_of_atom")
    of_graphs = ("targets", "weights", "extra", "bounds", "graph_ids")
    for name in (*of_atoms, "bond_rows", "unpad", *of_graphs):
        one, other = getattr(batch, name), getattr(truth, name)
        assert one.dtype == other.dtype, name
        assert torch.equal(one, other), name
    # In another order, and some more that lead nowhere.
    bonds, real = sorted(batch.bonds.T.tolist()), sorted(truth.bonds.T.tolist())
    assert bonds == [[0, len(batch.unpad), 0]] * (len(bonds) - len(real)) + real
    rings = truth.with_ring_pairs()
    ring_pairs = [pair for pair in batch.ring_pairs.T.tolist() if pair[1] < len(batch.unpad)]
    assert sorted(ring_pairs) == sorted(rings.ring_pairs.T.tolist())
    assert torch.equal(batch.ring_neighbors, rings.ring_neighbors)
    assert rings.ring_neighbors.max() > 6  # adamantane's, of which every atom is in two rings
    for one, other in zip(batch.blocks, truth.blocks, strict=True):
        assert torch.equal(one.rows, other.rows)
    assert torch.equal(types_of(batch), types_of(truth))


def test_bonds_that_lead_one_way_are_the_collators():
    """In-degrees are not out-degrees there, nor is the way from i to j the way back."""
    store, vocabulary = stored(
        [directed_graph(4, [(0, 1), (0, 2), (2, 3)], [0, 1, 1]), directed_graph(2, [(1, 0)], [1])]
    )
    truth = Collator(store, vocabulary)([1, 0])
    batch = ResidentGraphs(store, vocabulary, "cpu").batch(
        torch.tensor([1, 0]), BatchShape(6, ((2, 5),))
    )
    assert truth.in_degree.tolist() == [1, 0, 0, 1, 1, 1]
    assert truth.out_degree.tolist() == [0, 1, 2, 0, 1, 0]
    assert torch.equal(batch.in_degree, truth.in_degree)
    assert torch.equal(batch.out_degree, truth.out_degree)
    bonds = [bond for bond in batch.bonds.T.tolist() if bond[1] < len(batch.unpad)]
    assert sorted(bonds) == sorted(truth.bonds.T.tolist())
    assert torch.equal(types_of(batch), types_of(truth))


@pytest.mark.parametrize("position", ["pre", "post"])
@pytest.mark.parametrize("shape", [ROOMY, DIVIDED], ids=["padded", "two blocks"])
@pytest.mark.parametrize("options", VARIANTS, ids=name_of)
def test_model_gives_the_same(graphs, options, shape, position):
    store, vocabulary, resident = graphs
    model = small_model(vocabulary, norm_position=position, **options).train()
    truth = run(model, Collator(store, vocabulary)(CHOSEN))
    assert_same(run(model, resident.batch(torch.tensor(CHOSEN), shape)), truth)


@pytest.mark.parametrize("shape", [ROOMY, DIVIDED], ids=["padded", "two blocks"])
def test_paths_found_beforehand_are_those_of_the_batch(graphs, shape, monkeypatch):
    store, vocabulary, without = graphs
    monkeypatch.setattr(resident, "_PAIRS_AT_A_TIME", 200)  # two or three graphs
    encoding = PathEncoding(steps=11, width=4, heads=2)
    batch = ResidentGraphs(store, vocabulary, "cpu", encoding.ways).batch(
        torch.tensor(CHOSEN), shape
    )
    distance = torch.cat([torch.zeros(FIRST_ATOM_PAIR, dtype=torch.int64), batch.type_distance])
    plain = without.batch(torch.tensor(CHOSEN), shape)
    for block, other in zip(batch.blocks, plain.blocks, strict=True):
        assert other.ways is None
        truth = encoding.ways((distance[other.pair_type] == 1).float(), other)
        assert torch.equal(encoding.ways(torch.empty(0), block), truth)
    assert truth[6:].any()  # rings of six atoms, and longer paths


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.integers(1, 30), min_size=4, max_size=60),
    st.integers(2, 4),
    st.randoms(use_true_random=False),
)
def test_shape_holds_says_whether_each_graph_has_its_place(sizes, graphs, random):
    sizes = np.array(sizes)
    shape = plan_shape(sizes, graphs)
    assert shape.graphs == graphs
    assert (shape.graphs + shape.atoms) % 8 == 0
    chosen = np.array(random.sample(sizes.tolist(), graphs))
    ordered, places = sorted(chosen.tolist()), []
    for number, tokens in shape.blocks:
        places += [tokens - 1] * number
    fits = sum(ordered) <= shape.atoms and all(
        size <= place for size, place in zip(ordered, places, strict=True)
    )
    assert shape.holds(chosen) == fits
    assert BatchShape.of(chosen).holds(chosen)


def test_planned_shape_holds_nearly_all_random_batches():
    generator = np.random.default_rng(0)
    sizes = np.concatenate([generator.integers(10, 31, 5000), generator.integers(100, 201, 40)])
    shape = plan_shape(sizes, 64)
    assert len(shape.blocks) == 2  # few large graphs do not pad the others
    assert shape.pairs < 0.3 * 64 * 201**2
    drawn = [generator.choice(sizes, 64, replace=False) for _ in range(300)]
    assert sum(shape.holds(batch) for batch in drawn) > 290
    assert not shape.holds(np.sort(sizes)[-64:])
    assert len(plan_shape(generator.integers(10, 31, 5000), 64).blocks) == 1


@pytest.mark.parametrize("targets", [1, 300])
def test_needed_memory_is_what_the_tensors_take(targets) -> None:
    store, vocabulary = stored([molecule(smiles) for smiles in SMILES] * 20)
    store.targets = np.zeros((store.num_graphs, targets), np.float32)
    for ways in (None, PathEncoding(steps=4, width=4, heads=2).ways):
        more = ways is not None
        kept = vars(ResidentGraphs(store, vocabulary, "cpu", ways, ring_pairs=more))
        listed = [
            *vars(kept["_bonds"]).values(),
            *(vars(kept["_ring_pairs"]).values() if more else ()),
        ]
        several = *kept["_of_atoms"].values(), *kept["_of_graphs"].values(), *listed
        tensors = [one for one in (*kept.values(), *several) if isinstance(one, torch.Tensor)]
        taken = sum(one.nbytes for one in tensors)
        assert 0.7 * taken < ResidentGraphs.needed_bytes(store, more, more) < 1.4 * taken
