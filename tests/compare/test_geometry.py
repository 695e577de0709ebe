"""The geometry of clouds against closed forms and loops, and that of a model at every layer."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.models import ARMS, small_model, stored
from reference.molecules import TIE_FREE, TIED, molecule
from scipy.special import i0

from graphormer_sepnorm.compare.geometry import (
    OUTPUT,
    PROBE_PENALTIES,
    LayerEmbeddings,
    ModelEmbeddings,
    collect_embeddings,
    cosine_to,
    effective_rank,
    geometry_per_layer,
    linear_probe,
    singular_values,
    uniformity,
    uniformity_floor,
)
from graphormer_sepnorm.graphs.batch import Collator
from graphormer_sepnorm.model.graphormer import Graphormer

EXACT = 1e-12
few = settings(deadline=None, max_examples=25)


def cloud(n: int, width: int, seed: int = 0) -> np.ndarray:
    """Directions of a standard normal are even over the sphere."""
    return np.random.default_rng(seed).standard_normal((n, width))


def rotation(width: int, seed: int = 0) -> np.ndarray:
    return np.linalg.qr(cloud(width, width, seed + 1000))[0]


def literal_uniformity(rows: np.ndarray) -> float:
    """Eq. 4 as it is printed."""
    total, count = 0.0, len(rows)
    for m in range(count):
        for n in range(m):
            difference = rows[n] / np.linalg.norm(rows[n]) - rows[m] / np.linalg.norm(rows[m])
            total += math.exp(-2 * np.linalg.norm(difference) ** 2)
    return math.log(2 / (count * (count - 1)) * total)


# Uniformity


@few
@given(n=st.integers(2, 14), width=st.integers(1, 6), seed=st.integers(0, 99))
def test_uniformity_as_printed(n, width, seed):
    rows = cloud(n, width, seed)
    assert uniformity(rows) == pytest.approx(literal_uniformity(rows), rel=1e-11, abs=1e-12)


@few
@given(seed=st.integers(0, 99), n=st.integers(2, 30), power=st.integers(-300, 300))
def test_uniformity_knows_neither_rotation_scale_nor_order(seed, n, power):
    rows = cloud(n, 4, seed)
    truth = uniformity(rows)
    rng = np.random.default_rng(seed)
    for other in (
        rows @ rotation(4, seed),
        rows * 10.0**power,
        rows * rng.uniform(0.1, 10, (n, 1)),
        rng.permutation(rows),
        -rows,
    ):
        assert uniformity(other) == pytest.approx(truth, rel=1e-11, abs=1e-12)


@pytest.mark.parametrize(
    ("width", "truth"),
    [
        (1, math.log((1 + math.exp(-8)) / 2)),  # the two ends of a line
        (2, math.log(i0(4)) - 4),  # a circle
        (3, math.log(math.sinh(4) / 4) - 4),  # Archimedes: u is even between -1 and 1
    ],
)
def test_floor_in_closed_form(width, truth):
    assert uniformity_floor(width) == pytest.approx(truth, rel=EXACT)


@pytest.mark.parametrize("wrong", [0, math.nan, math.inf])
def test_without_directions_or_pairs_there_is_no_uniformity(wrong):
    rows = cloud(5, 3)
    assert math.isnan(uniformity(rows[:1]))
    assert not len(cosine_to(np.full((5, 3), wrong), rows, np.arange(5)))
    rows[3] = wrong
    assert math.isnan(uniformity(rows))
    assert not len(cosine_to(cloud(5, 3), rows, np.arange(5)))


# Spectrum


def of_spectrum(values: list[float], n: int, width: int) -> np.ndarray:
    """A cloud with these singular values."""
    left, right = rotation(n)[:, : len(values)], rotation(width, 1)[:, : len(values)]
    return (left * values) @ right.T


@pytest.mark.parametrize(("n", "width"), [(9, 4), (4, 9), (6, 6)])
def test_known_singular_values(n, width):
    """Of a cloud that is known, with its mirror image, which takes the mean away."""
    rows = of_spectrum([5.0, 2.0, 0.25], n, width) / math.sqrt(2)
    values = singular_values(np.concatenate([rows, -rows]) + 100)
    assert values == pytest.approx([5, 2, 0.25] + [0] * (min(2 * n, width) - 3), rel=1e-8)


@pytest.mark.parametrize("offset", [0.1, 1e6])
def test_collapsed_cloud_has_one_direction_and_no_spectrum(offset):
    """Only rounding errors remain after centering."""
    cloud = np.full((1000, 8), offset)
    assert uniformity(cloud) == pytest.approx(0, abs=1e-14)
    assert uniformity(cloud * np.geomspace(1e-3, 1e3, 1000)[:, None]) <= 0
    values = singular_values(cloud)
    assert (values == 0).all()
    assert effective_rank(values) == 0
    # Shares 3/4 and 1/4.
    assert effective_rank(np.array([3.0, 1.0])) == pytest.approx(4 / 3**0.75, rel=EXACT)


# Cosines


def test_cosine_by_loop():
    rng = np.random.default_rng(0)
    token, atoms = cloud(7, 5), cloud(2500, 5, 1)
    graph = rng.choice([0, 1, 2, 4, 6], 2500)  # in any order, and not of every graph
    values = cosine_to(token, atoms, graph)
    for g in range(7):
        cosines = [
            float(token[g] @ atom / np.linalg.norm(token[g]) / np.linalg.norm(atom))
            for atom, of in zip(atoms, graph, strict=True)
            if of == g
        ]
        if cosines:
            assert values[g] == pytest.approx(np.mean(cosines), rel=1e-10)
        else:
            assert math.isnan(values[g])


# Probes


def test_probe_by_leaving_each_row_out():
    """The penalty that a loop over rows prefers, and R^2 from its definition."""
    rng = np.random.default_rng(3)
    x, other = cloud(24, 6) * 4 + 1, cloud(15, 6, 1) * 4 + 1
    weights = rng.standard_normal(6)
    y, other_y = (part @ weights + rng.normal(0, 9, len(part)) for part in (x, other))
    mean, deviation = x.mean(0), x.std(0)

    def predict(rows, labels, new, penalty):
        center = rows.mean(0)
        gram = (rows - center).T @ (rows - center) + penalty * np.eye(6)
        slope = np.linalg.solve(gram, (rows - center).T @ (labels - labels.mean()))
        return labels.mean() + (new - center) @ slope

    standard, new = (x - mean) / deviation, (other - mean) / deviation
    errors = [
        sum(
            (predict(np.delete(standard, i, 0), np.delete(y, i), standard[i], penalty) - y[i]) ** 2
            for i in range(24)
        )
        for penalty in PROBE_PENALTIES
    ]
    best = int(np.argmin(errors))
    assert 0 < best < len(PROBE_PENALTIES) - 1
    residuals = other_y - predict(standard, y, new, PROBE_PENALTIES[best])
    truth = 1 - (residuals**2).sum() / ((other_y - other_y.mean()) ** 2).sum()
    assert linear_probe(x, y, other, other_y) == pytest.approx(truth, rel=1e-8)


def test_probe_misses_a_length_that_was_normalized_away():
    """The reading of SepNorm that the probes are made for: a size kept in the length of [CLS]."""
    rng = np.random.default_rng(0)
    size = rng.integers(5, 40, 900)
    x = size[:, None] * (np.ones(8) + 0.1 * rng.standard_normal((900, 8)))
    normalized = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)
    assert linear_probe(x[:600], size[:600], x[600:], size[600:]) > 0.95
    assert linear_probe(normalized[:600], size[:600], normalized[600:], size[600:]) < 0.05
    # Nothing is read from noise, not even with as many channels as rows: the penalty is chosen.
    y = rng.standard_normal(600)
    for width in (10, 300):
        x = cloud(600, width, 10)
        assert -0.1 < linear_probe(x[:300], y[:300], x[300:], y[300:]) < 0.05


def test_what_has_a_probe():
    x, y = cloud(40, 3), np.arange(40.0)
    x[:, 1] = 4
    assert math.isfinite(linear_probe(x[:20], y[:20], x[20:], y[20:]))
    assert linear_probe(x[:20], np.ones(20), x[20:], y[20:]) < 0
    assert math.isnan(linear_probe(x[:20], y[:20], x[20:], np.ones(20)))
    assert math.isnan(linear_probe(x[:1], y[:1], x, y))
    assert math.isnan(linear_probe(x, y, x[:1], y[:1]))
    assert math.isnan(linear_probe(np.where(x > 0, math.inf, x), y, cloud(40, 3, 1), y))


# Models

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


@pytest.mark.parametrize(
    ("norm", "position"), [*((norm, "pre") for norm in ARMS), ("bn+ln", "post")]
)
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


@pytest.mark.parametrize(
    ("norm", "max_atoms", "dtype"),
    [("bn+ln", 10_000, "float32"), ("shared-ln", 20, "float64")],
)
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
    arm = small_model(molecules[1], norm="shared-ln")  # is compared on the same atoms
    again = collected(arm, molecules, batch_size=3, max_atoms=15)
    other = collected(model, molecules, batch_size=3, max_atoms=15, seed=1)
    for place, (whole, some) in enumerate(zip(full.layers, part.layers, strict=True)):
        assert len(some.atoms) == 15
        assert np.array_equal(whole.graph_token, some.graph_token)
        assert rows_of(part, place) <= rows_of(full, place)
        for rows in (some.graph_token, some.atoms):
            assert rows.base is None  # a view would keep all rows of a batch in memory
    assert np.array_equal(part.graph_of_atom, again.graph_of_atom)
    assert not np.array_equal(part.layers[0].atoms, other.layers[0].atoms)


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


def test_each_layer_has_its_own_measures(embeddings):
    values = np.array([*range(len(SMILES) - 1), np.nan])
    tested = np.arange(len(SMILES)) % 3 == 0
    found = geometry_per_layer(embeddings, {"number": values}, tested)
    assert [one.layer for one in found] == [layer.name for layer in embeddings.layers]
    for place, one in zip(embeddings.layers, found, strict=True):
        rows = place.graph_token[tested]
        assert one.embeddings == len(rows)
        assert one.uniformity == uniformity(rows)
        assert one.uniformity_floor == uniformity_floor(rows.shape[1])
        centered = rows.astype(np.float64) - rows.mean(axis=0, dtype=np.float64)
        spectrum = np.linalg.svd(centered, compute_uv=False)
        assert one.effective_rank == pytest.approx(effective_rank(spectrum))
        cosines = cosine_to(place.graph_token, place.atoms, embeddings.graph_of_atom)
        assert one.cosine_to_atoms == pytest.approx(cosines[tested].mean())
        # The molecule whose value is not known takes part in neither half.
        known = ~np.isnan(values)
        halves = known & ~tested, known & tested
        parts = [part for half in halves for part in (place.graph_token[half], values[half])]
        assert one.probes["number"] == linear_probe(*parts)


@pytest.mark.parametrize(
    ("cloud", "rank"),
    [(np.zeros((5, 4)), 0), (np.ones((5, 4)), 0), (np.array([[1.0, 0], [np.inf, 1]]), np.nan)],
)
def test_clouds_without_spread_are_measured_as_far_as_they_can_be(cloud, rank):
    layers = (LayerEmbeddings(OUTPUT, cloud, cloud),)
    of_itself, all_of_them = np.arange(len(cloud)), np.ones(len(cloud), dtype=bool)
    embeddings = ModelEmbeddings(layers, of_itself, np.ones(len(cloud)))
    (found,) = geometry_per_layer(embeddings, {}, all_of_them)
    assert found.effective_rank == pytest.approx(rank, nan_ok=True)
    collapsed = cloud.all() and np.isfinite(cloud).all()
    assert found.uniformity == pytest.approx(0) if collapsed else math.isnan(found.uniformity)
