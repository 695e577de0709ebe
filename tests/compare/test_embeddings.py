"""What is collected from a model: its own rows, whatever the batches, and a fair sample."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from reference.models import ARMS, small_model, stored
from reference.molecules import TIE_FREE, TIED, molecule

from graphormer_sepnorm.compare.geometry import cosine_to, uniformity
from graphormer_sepnorm.compare.model_geometry import (
    OUTPUT,
    LayerEmbeddings,
    ModelEmbeddings,
    collect_embeddings,
)
from graphormer_sepnorm.graphs.batch import Collator
from graphormer_sepnorm.model.graphormer import Graphormer

SMILES = ("CCO", "N", *TIED.values(), *TIE_FREE.values(), "C.CC(C)Cl", "C1CC1N")


@pytest.fixture(scope="module")
def molecules():
    """A store of molecules of 1 to 14 atoms, and its vocabulary."""
    return stored([molecule(smiles) for smiles in SMILES])


def collected(model: Graphormer, molecules, numbers=None, **options) -> ModelEmbeddings:
    """The embeddings of some of the molecules, of all by default."""
    numbers = np.arange(len(SMILES)) if numbers is None else np.array(numbers)
    return collect_embeddings(model, *molecules, numbers, **options)


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """Equal but for the rounding of their type; these models' rows reach 10 and more."""
    tolerance = 1e-10 if one.dtype == np.float64 else 2e-6 * max(1, np.abs(other).max())
    return one.shape == other.shape and float(np.abs(one - other).max()) < tolerance


@pytest.mark.parametrize("position", ["pre", "post"])
@pytest.mark.parametrize("norm", ARMS)
def test_rows_are_those_of_the_model(molecules, norm, position):
    """The head gives the predictions from the output; every layer the next, by the model's code."""
    model = small_model(molecules[1], norm=norm, norm_position=position, layers=3)
    batch = Collator(*molecules)(list(range(len(SMILES))))
    found = collected(model, molecules)
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
    """Other batches, other order."""
    model = small_model(molecules[1], norm=norm).to(getattr(torch, dtype))
    order = np.random.default_rng(0).permutation(len(SMILES))
    plain = collected(model, molecules, max_atoms=max_atoms)
    alone = collected(model, molecules, max_atoms=max_atoms, batch_size=1)
    mixed = collected(model, molecules, order, max_atoms=max_atoms, batch_size=5)
    for place, one, other in zip(plain.layers, alone.layers, mixed.layers, strict=True):
        assert place.graph_token.dtype == place.atoms.dtype == dtype
        assert same(one.graph_token, place.graph_token)
        assert same(one.atoms, place.atoms)
        assert np.array_equal(one.graph_of_atom, place.graph_of_atom)
        # The mixed ones in their order, but the same atoms.
        assert same(other.graph_token, place.graph_token[order])
        back = np.concatenate([np.flatnonzero(place.graph_of_atom == graph) for graph in order])
        assert same(other.atoms, place.atoms[back])
        ids = mixed.graph_ids[other.graph_of_atom]
        assert np.array_equal(ids, place.graph_of_atom[back])
    assert np.array_equal(mixed.graph_ids, order)
    assert np.array_equal(mixed.num_atoms, plain.num_atoms[order])


def rows_of(place: LayerEmbeddings) -> set[tuple[int, bytes]]:
    graphs = place.graph_of_atom.tolist()
    return {(graph, row.tobytes()) for graph, row in zip(graphs, place.atoms, strict=True)}


def test_sample_is_part_of_all_atoms_and_follows_its_seed(molecules):
    model = small_model(molecules[1])
    full = collected(model, molecules, batch_size=3)
    part = collected(model, molecules, batch_size=3, max_atoms=15)
    again = collected(model, molecules, batch_size=3, max_atoms=15)
    other = collected(model, molecules, batch_size=3, max_atoms=15, seed=1)
    for whole, some in zip(full.layers, part.layers, strict=True):
        assert len(some.atoms) == 15
        assert np.array_equal(whole.graph_token, some.graph_token)
        assert rows_of(some) <= rows_of(whole)
    assert np.array_equal(part.layers[0].atoms, again.layers[0].atoms)
    assert not np.array_equal(part.layers[0].atoms, other.layers[0].atoms)


def test_arms_are_compared_on_the_same_atoms(molecules):
    graphs = [
        collected(small_model(molecules[1], norm=norm), molecules, max_atoms=9)
        .layers[-1]
        .graph_of_atom
        for norm in ("bn+ln", "shared-ln")
    ]
    assert np.array_equal(graphs[0], graphs[1])


def test_every_atom_is_as_likely_as_any_other(molecules):
    """10 atoms of the first 6 molecules, 100 times: the last graph is not preferred."""
    model = small_model(molecules[1], layers=1)
    counts = np.zeros(6)
    for seed in range(100):
        found = collected(model, molecules, range(6), max_atoms=10, seed=seed)
        counts += np.bincount(found.layers[0].graph_of_atom, minlength=6)
    share = found.num_atoms / found.num_atoms.sum()
    # Below a multinomial's standard deviation, for draws are without replacement; five of them.
    assert (np.abs(counts - 1000 * share) < 5 * np.sqrt(1000 * share * (1 - share))).all()


def test_model_is_evaluated_and_left_as_it_was(molecules, monkeypatch):
    model = small_model(molecules[1], dropout=0.5, input_dropout=0.5, attention_dropout=0.5)
    evaluated = collected(model.eval(), molecules)
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found = collected(model.train(), molecules)
    for one, place in zip(found.layers, evaluated.layers, strict=True):
        assert np.array_equal(one.graph_token, place.graph_token)
    monkeypatch.setattr(model, "encode", lambda batch: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        collected(model, molecules)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, weights[name]), name
    assert not any(module._forward_hooks for module in model.modules())
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("norm", ["bn+ln", "shared-ln"])
def test_geometry_of_what_is_collected(molecules, norm):
    found = collected(small_model(molecules[1], norm=norm), molecules)
    for place in found.layers:
        assert -8 <= uniformity(place.graph_token) <= 0
        cosines = cosine_to(place.graph_token, place.atoms, place.graph_of_atom)
        assert cosines.shape == (len(SMILES),)
        assert np.isfinite(cosines).all()


def test_rows_of_a_layer_do_not_hold_the_whole_batch(molecules):
    """A view of a batch's rows would keep all of them in memory."""
    found = collected(small_model(molecules[1]), molecules, max_atoms=2)
    for place in found.layers:
        for rows in (place.graph_token, place.atoms):
            assert rows.base is None


def test_one_graph(molecules):
    found = collected(small_model(molecules[1]), molecules, [SMILES.index("N")])
    assert found.layers[0].atoms.shape == (1, 12)
    assert found.num_atoms.tolist() == [1]
