"""What is collected from a model: its own rows, whatever the batches, and a fair sample."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from reference.models import ARMS, batch_of, small_model, stored
from reference.molecules import TIE_FREE, TIED, molecule

from graphormer_sepnorm.compare.embeddings import OUTPUT, LayerEmbeddings, collect_embeddings
from graphormer_sepnorm.compare.geometry import cosine_to, uniformity
from graphormer_sepnorm.graphs.batch import Collator, GraphBatch
from graphormer_sepnorm.graphs.loading import in_order, make_loader
from graphormer_sepnorm.model.graphormer import Graphormer

SMILES = ("CCO", "N", *TIED.values(), *TIE_FREE.values(), "C.CC(C)Cl", "C1CC1N")


@pytest.fixture(scope="module")
def molecules():
    """A store of molecules of 1 to 14 atoms, and its vocabulary."""
    return stored([molecule(smiles) for smiles in SMILES])


def batches_of(molecules, *numbers: list[int]) -> list[GraphBatch]:
    collate = Collator(*molecules)
    return [collate(part) for part in numbers]


def everything(molecules) -> list[GraphBatch]:
    return batches_of(molecules, list(range(len(SMILES))))


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """Equal but for the rounding of their type; these models' rows reach 10 and more."""
    tolerance = 1e-10 if one.dtype == np.float64 else 2e-6 * max(1, np.abs(other).max())
    return one.shape == other.shape and float(np.abs(one - other).max()) < tolerance


@pytest.mark.parametrize("position", ["pre", "post"])
@pytest.mark.parametrize("norm", ARMS)
def test_rows_are_those_of_the_model(molecules, norm, position):
    """The head gives the predictions from the output; every layer the next, by the model's code."""
    model = small_model(molecules[1], norm=norm, norm_position=position, layers=3)
    (batch,) = everything(molecules)
    found = collect_embeddings(model, [batch])
    places = found.layers
    assert [place.name for place in places] == ["layer 1", "layer 2", "layer 3", OUTPUT]
    atoms = len(batch.atom_rows)
    for place in places:
        assert place.graph_token.shape == (len(SMILES), 12)
        assert place.atoms.shape == (atoms, 12)
        assert np.array_equal(place.graph_of_atom, batch.graph_of_atom.numpy())
        assert np.isfinite(place.graph_token).all()
    assert found.graph_ids.tolist() == list(range(len(SMILES)))
    assert found.num_atoms.tolist() == [molecule(smiles).num_nodes for smiles in SMILES]
    with torch.no_grad():
        head = model.readout(torch.from_numpy(places[-1].graph_token))
        assert torch.equal(head, model(batch))
        biases = model.bias(batch)
        rows = [torch.from_numpy(np.concatenate([p.graph_token, p.atoms])) for p in places]
        for layer, before, after in zip(model.layers[1:], rows, rows[1:-1], strict=False):
            assert torch.allclose(layer(before, batch, biases), after, rtol=0, atol=1e-12)
        last = rows[-2]
        if model.output_norm is not None:
            last = model.output_norm(last, batch.num_graphs)
        assert torch.allclose(last, rows[-1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("norm", ["bn+ln", "shared-ln"])
@pytest.mark.parametrize("max_atoms", [10_000, 20, 3])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_company_changes_nothing(molecules, norm, max_atoms, dtype):
    """Other batches, other order, other loader."""
    model = small_model(molecules[1], norm=norm).to(getattr(torch, dtype))
    plain = collect_embeddings(model, everything(molecules), max_atoms=max_atoms)
    number = len(SMILES)
    order = np.random.default_rng(0).permutation(number).tolist()
    store, vocabulary = molecules
    loader = make_loader(store, vocabulary, in_order(store, range(number), 4), attention_blocks=2)
    alone = collect_embeddings(
        model, batches_of(molecules, *([i] for i in range(number))), max_atoms=max_atoms
    )
    mixed = collect_embeddings(
        model, batches_of(molecules, order[:5], order[5:]), max_atoms=max_atoms
    )
    loaded = collect_embeddings(model, loader, max_atoms=max_atoms)
    for one, place, other, third in zip(
        alone.layers, plain.layers, loaded.layers, mixed.layers, strict=True
    ):
        assert place.graph_token.dtype == place.atoms.dtype == dtype
        for again in (one, other):
            assert same(again.graph_token, place.graph_token)
            assert same(again.atoms, place.atoms)
            assert np.array_equal(again.graph_of_atom, place.graph_of_atom)
        # The mixed ones in the order of their batches, but the same atoms.
        assert same(third.graph_token, place.graph_token[order])
        back = np.concatenate([np.flatnonzero(place.graph_of_atom == graph) for graph in order])
        assert same(third.atoms, place.atoms[back])
        ids = mixed.graph_ids[third.graph_of_atom]
        assert np.array_equal(ids, place.graph_of_atom[back])
    assert mixed.graph_ids.tolist() == order
    assert np.array_equal(mixed.num_atoms, plain.num_atoms[order])


def rows_of(place: LayerEmbeddings) -> set[tuple[int, bytes]]:
    graphs = place.graph_of_atom.tolist()
    return {(graph, row.tobytes()) for graph, row in zip(graphs, place.atoms, strict=True)}


def test_sample_is_part_of_all_atoms_and_follows_its_seed(molecules):
    model = small_model(molecules[1])
    pieces = batches_of(molecules, *in_order(molecules[0], range(len(SMILES)), 3))
    full = collect_embeddings(model, pieces)
    part = collect_embeddings(model, pieces, max_atoms=15)
    again = collect_embeddings(model, pieces, max_atoms=15)
    other = collect_embeddings(model, pieces, max_atoms=15, seed=1)
    for whole, some in zip(full.layers, part.layers, strict=True):
        assert len(some.atoms) == 15
        assert np.array_equal(whole.graph_token, some.graph_token)
        assert rows_of(some) <= rows_of(whole)
    assert np.array_equal(part.layers[0].atoms, again.layers[0].atoms)
    assert not np.array_equal(part.layers[0].atoms, other.layers[0].atoms)


def test_arms_are_compared_on_the_same_atoms(molecules):
    graphs = [
        collect_embeddings(small_model(molecules[1], norm=norm), everything(molecules), max_atoms=9)
        .layers[-1]
        .graph_of_atom
        for norm in ("bn+ln", "shared-ln")
    ]
    assert np.array_equal(graphs[0], graphs[1])


def test_every_atom_is_as_likely_as_any_other(molecules):
    """10 atoms of the first 6 molecules, 100 times: the last graph is not preferred."""
    model = small_model(molecules[1], layers=1)
    pieces = batches_of(molecules, [0, 1], [2, 3], [4, 5])
    atoms = int(sum(len(piece.atom_rows) for piece in pieces))
    counts = np.zeros(6)
    for seed in range(100):
        found = collect_embeddings(model, pieces, max_atoms=10, seed=seed)
        counts += np.bincount(found.layers[0].graph_of_atom, minlength=6)
    share = found.num_atoms / atoms
    # Below a multinomial's standard deviation, for draws are without replacement; five of them.
    assert (np.abs(counts - 1000 * share) < 5 * np.sqrt(1000 * share * (1 - share))).all()


def test_filler_rows_are_no_atoms(molecules):
    model = small_model(molecules[1])
    (batch,) = everything(molecules)
    extra = torch.arange(7)
    filled = replace(
        batch,
        atom_rows=torch.cat([batch.atom_rows, batch.atom_rows[:7]]),
        in_degree=torch.cat([batch.in_degree, extra]),
        out_degree=torch.cat([batch.out_degree, extra]),
        ring_sizes=torch.cat([batch.ring_sizes, extra[:, None].expand(-1, 2)]),
        graph_of_atom=torch.cat([batch.graph_of_atom, torch.zeros_like(extra)]),
        real_atoms=torch.cat([torch.ones(len(batch.atom_rows)), torch.zeros(7)]).bool(),
        unpad=torch.cat([batch.unpad, torch.zeros_like(extra)]),
    )
    plain, other = (collect_embeddings(model, [given]) for given in (batch, filled))
    assert np.array_equal(plain.num_atoms, other.num_atoms)
    for one, place in zip(plain.layers, other.layers, strict=True):
        assert same(one.atoms, place.atoms)
        assert np.array_equal(one.graph_of_atom, place.graph_of_atom)


def test_filler_between_atoms(molecules):
    """In evaluation the mask is no matter to the model: only the rows that are kept change."""
    model = small_model(molecules[1])
    (batch,) = everything(molecules)
    real = torch.ones(len(batch.graph_of_atom), dtype=torch.bool)
    real[[0, 9, 30]] = False
    plain, other = (
        collect_embeddings(model, [given]) for given in (batch, replace(batch, real_atoms=real))
    )
    for one, place in zip(plain.layers, other.layers, strict=True):
        assert same(place.atoms, one.atoms[real.numpy()])
        assert np.array_equal(place.graph_of_atom, one.graph_of_atom[real.numpy()])


def state_of(model: Graphormer) -> tuple[list[bool], list[int], bool]:
    hooks = [len(module._forward_hooks) for module in model.modules()]
    return [module.training for module in model.modules()], hooks, torch.is_grad_enabled()


@pytest.mark.parametrize("training", [True, False])
def test_model_is_left_as_it_was(molecules, training):
    model = small_model(molecules[1], dropout=0.5, input_dropout=0.5, attention_dropout=0.5)
    evaluated = collect_embeddings(model, everything(molecules))
    model.train(training)
    model.layers[1].train(not training)
    before = state_of(model)
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    random = torch.get_rng_state()
    found = collect_embeddings(model, everything(molecules))
    assert state_of(model) == before
    assert torch.equal(random, torch.get_rng_state())
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, weights[name]), name
    assert all(parameter.requires_grad for parameter in model.parameters())
    for one, place in zip(found.layers, evaluated.layers, strict=True):
        assert np.array_equal(one.graph_token, place.graph_token)


def test_model_is_left_as_it_was_by_a_failure(molecules):
    model = small_model(molecules[1]).train()
    before = state_of(model)

    def broken():
        yield from everything(molecules)
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        collect_embeddings(model, broken())
    assert state_of(model) == before


def test_nothing_to_collect(molecules):
    model = small_model(molecules[1])
    with pytest.raises(ValueError, match="no graphs"):
        collect_embeddings(model, [])
    with pytest.raises(ValueError, match="max_atoms is 0"):
        collect_embeddings(model, everything(molecules), max_atoms=0)


@pytest.mark.parametrize("norm", ["bn+ln", "shared-ln"])
def test_geometry_of_what_is_collected(molecules, norm):
    found = collect_embeddings(small_model(molecules[1], norm=norm), everything(molecules))
    for place in found.layers:
        assert -8 <= uniformity(place.graph_token) <= 0
        cosines = cosine_to(place.graph_token, place.atoms, place.graph_of_atom)
        assert cosines.shape == (len(SMILES),)
        assert np.isfinite(cosines).all()


def test_rows_of_a_layer_do_not_hold_the_whole_batch(molecules):
    """A view of a batch's rows would keep all of them in memory."""
    found = collect_embeddings(small_model(molecules[1]), everything(molecules), max_atoms=2)
    for place in found.layers:
        for rows in (place.graph_token, place.atoms):
            assert rows.base is None


def test_one_graph(molecules):
    model = small_model(molecules[1])
    found = collect_embeddings(model, [batch_of([molecule("N")], molecules[1])])
    assert found.layers[0].atoms.shape == (1, 12)
    assert found.num_atoms.tolist() == [1]
