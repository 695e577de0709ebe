"""The embeddings of a model, whatever the batches, and what reports say of them at every layer."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from rdkit import Chem
from reference.models import ARMS, small_model, stored
from reference.molecules import TIE_FREE, TIED, molecule

from graphormer_sepnorm.compare import geometry
from graphormer_sepnorm.compare.model_geometry import (
    OUTPUT,
    ModelEmbeddings,
    cloud_geometry,
    collect_embeddings,
    geometry_per_layer,
    ring_counts,
)
from graphormer_sepnorm.graphs.batch import Collator
from graphormer_sepnorm.model.graphormer import Graphormer

SMILES = ("CCO", "N", *TIED.values(), *TIE_FREE.values(), "C.CC(C)Cl", "C1CC1.c1ccc2ccccc2c1", "F")


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
        assert np.isfinite(place.graph_token).all()
    assert np.array_equal(found.graph_of_atom, batch.graph_of_atom.numpy())
    assert found.num_atoms.tolist() == [molecule(smiles).num_nodes for smiles in SMILES]
    with torch.no_grad():
        head = model.readout(torch.from_numpy(places[-1].graph_token))
        assert torch.equal(head, model(batch))
        biases = model.bias(batch)
        rows = [torch.from_numpy(np.concatenate([p.graph_token, p.atoms])) for p in places]
        for layer, before, after in zip(model.layers[1:], rows, rows[1:-1], strict=False):
            again, _ = layer(before, batch, biases)
            assert torch.allclose(again, after, rtol=0, atol=1e-12)
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
    # The mixed ones in their order, but the same atoms.
    back = np.concatenate([np.flatnonzero(plain.graph_of_atom == graph) for graph in order])
    assert np.array_equal(alone.graph_of_atom, plain.graph_of_atom)
    assert np.array_equal(order[mixed.graph_of_atom], plain.graph_of_atom[back])
    assert np.array_equal(mixed.num_atoms, plain.num_atoms[order])
    for place, one, other in zip(plain.layers, alone.layers, mixed.layers, strict=True):
        assert place.graph_token.dtype == place.atoms.dtype == dtype
        assert same(one.graph_token, place.graph_token)
        assert same(one.atoms, place.atoms)
        assert same(other.graph_token, place.graph_token[order])
        assert same(other.atoms, place.atoms[back])


def rows_of(found: ModelEmbeddings, layer: int) -> set[tuple[int, bytes]]:
    rows = (row.tobytes() for row in found.layers[layer].atoms)
    return set(zip(found.graph_of_atom.tolist(), rows, strict=True))


def test_sample_is_part_of_all_atoms_and_follows_its_seed(molecules):
    model = small_model(molecules[1])
    full = collected(model, molecules, batch_size=3)
    part = collected(model, molecules, batch_size=3, max_atoms=15)
    again = collected(model, molecules, batch_size=3, max_atoms=15)
    other = collected(model, molecules, batch_size=3, max_atoms=15, seed=1)
    for place, (whole, some) in enumerate(zip(full.layers, part.layers, strict=True)):
        assert len(some.atoms) == 15
        assert np.array_equal(whole.graph_token, some.graph_token)
        assert rows_of(part, place) <= rows_of(full, place)
        for rows in (some.graph_token, some.atoms):
            assert rows.base is None  # a view would keep all rows of a batch in memory
    assert np.array_equal(part.layers[0].atoms, again.layers[0].atoms)
    assert not np.array_equal(part.layers[0].atoms, other.layers[0].atoms)


def test_arms_are_compared_on_the_same_atoms(molecules):
    models = (small_model(molecules[1], norm=norm) for norm in ("bn+ln", "shared-ln"))
    one, other = (collected(model, molecules, max_atoms=9).graph_of_atom for model in models)
    assert np.array_equal(one, other)


def test_every_atom_is_as_likely_as_any_other(molecules):
    """10 atoms of the first 6 molecules, 100 times: the last graph is not preferred."""
    model = small_model(molecules[1], layers=1)
    counts = np.zeros(6)
    for seed in range(100):
        found = collected(model, molecules, range(6), max_atoms=10, seed=seed)
        counts += np.bincount(found.graph_of_atom, minlength=6)
    share = found.num_atoms / found.num_atoms.sum()
    # Below a multinomial's standard deviation, for draws are without replacement; five of them.
    assert (np.abs(counts - 1000 * share) < 5 * np.sqrt(1000 * share * (1 - share))).all()
    ones = [SMILES.index("N"), SMILES.index("F")]  # of one atom each
    drawn = [collected(model, molecules, ones, max_atoms=1, seed=seed) for seed in range(20)]
    assert {int(found.graph_of_atom[0]) for found in drawn} == {0, 1}


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


@pytest.fixture(scope="module")
def embeddings(molecules):
    model = small_model(molecules[1], norm="bn+ln")
    return collected(model, molecules)


def test_rings_are_those_of_rdkit(molecules):
    numbers = np.arange(len(SMILES))
    expected = [Chem.GetSSSR(Chem.MolFromSmiles(smiles)) for smiles in SMILES]
    assert ring_counts(molecules[0], numbers).tolist() == [len(rings) for rings in expected]
    assert ring_counts(molecules[0], numbers[::-3]).tolist() == [
        len(rings) for rings in expected[::-3]
    ]


def test_each_place_has_its_own_measures(embeddings):
    values = np.array([*range(len(SMILES) - 1), np.nan])
    check = np.arange(len(SMILES)) % 3 == 0
    measured = np.arange(len(SMILES)) % 4 != 2
    clouds = geometry_per_layer(embeddings, {"number": values}, check=check, clouds=measured)
    names = [layer.name for layer in embeddings.layers]
    assert [(one.layer, one.what) for one in clouds] == [
        (name, what) for name in names for what in ("graph token", "atoms")
    ]
    for place, token, atoms in zip(embeddings.layers, clouds[::2], clouds[1::2], strict=True):
        of_atoms = place.atoms[measured[embeddings.graph_of_atom]]
        for one, rows in ((token, place.graph_token[measured]), (atoms, of_atoms)):
            assert one.embeddings == len(rows)
            assert one.uniformity == geometry.uniformity(rows)
            centred = rows.astype(np.float64) - rows.mean(axis=0, dtype=np.float64)
            spectrum = np.linalg.svd(centred, compute_uv=False)
            assert one.effective_rank_centred == pytest.approx(geometry.effective_rank(spectrum))
            first = np.log(np.linalg.norm(rows, 2))
            assert one.log_singular_values[0] == pytest.approx(first, rel=1e-5)
            assert one.histogram is None
        cosines = geometry.cosine_to(place.graph_token, place.atoms, embeddings.graph_of_atom)
        assert token.cosine_to_atoms == pytest.approx(cosines[measured].mean())
        # The molecule whose value is not known takes part in neither half.
        known = ~np.isnan(values)
        halves = known & ~check, known & check
        parts = [part for half in halves for part in (place.graph_token[half], values[half])]
        assert token.probes["number"] == geometry.linear_probe(*parts)


def test_histograms_at_the_output_and_all_molecules_by_default(embeddings):
    half = np.arange(len(SMILES)) % 2 == 0
    clouds = geometry_per_layer(embeddings, {}, check=~half, histograms=True)
    assert [one.histogram is not None for one in clouds] == [
        one.layer == "output" for one in clouds
    ]
    assert {one.embeddings for one in clouds[::2]} == {len(SMILES)}
    histogram, rows = clouds[-2].histogram, embeddings.layers[-1].graph_token
    assert len(histogram["edges"]) == 61
    assert [histogram["edges"][n] for n in (0, -1)] == pytest.approx([rows.min(), rows.max()])
    for counts, column in zip(histogram["counts"], rows.T, strict=True):
        assert np.array_equal(counts, np.histogram(column, histogram["edges"])[0])


def test_uniformity_of_many_is_that_of_a_fair_sample():
    random = np.random.default_rng(0)
    cloud = np.concatenate([random.normal(size=(1500, 8)), np.ones((1500, 8))])
    found = cloud_geometry("output", "atoms", cloud)
    assert found.embeddings == 3000
    assert found.uniformity == pytest.approx(geometry.uniformity(cloud), abs=0.05)
    ranks = found.effective_rank, found.effective_rank_centred  # of all of them
    spectra = (geometry.singular_values(cloud, centred=centred) for centred in (False, True))
    assert ranks == pytest.approx([geometry.effective_rank(one) for one in spectra])
    assert repr(found) == repr(cloud_geometry("output", "atoms", cloud))


@pytest.mark.parametrize(
    ("cloud", "rank"),
    [(np.zeros((5, 4)), 0), (np.ones((5, 4)), 1), (np.array([[1.0, 0], [np.inf, 1]]), np.nan)],
)
def test_clouds_without_spread_are_measured_as_far_as_they_can_be(cloud, rank):
    found = cloud_geometry("output", "atoms", cloud, histogram=True)
    assert found.effective_rank == pytest.approx(rank, nan_ok=True)
    assert found.effective_rank_centred == pytest.approx(rank * 0, nan_ok=True)
    collapsed = cloud.all() and np.isfinite(cloud).all()
    assert found.uniformity == pytest.approx(0) if collapsed else math.isnan(found.uniformity)


def test_one_molecule_has_no_pairs(molecules):
    model = small_model(molecules[1])
    alone = collected(model, molecules, [SMILES.index("N")])
    assert alone.layers[0].atoms.shape == (1, 12)
    assert alone.num_atoms.tolist() == [1]
    one = np.array([True])
    token = geometry_per_layer(alone, {"atoms": alone.num_atoms}, check=one)[0]
    assert math.isnan(token.uniformity)
    assert math.isnan(token.probes["atoms"])
    assert -1 <= token.cosine_to_atoms <= 1
