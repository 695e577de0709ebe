"""The geometry of clouds against closed forms and loops, and that of a model at every layer."""

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
    collect_embeddings,
    cosine_to,
    effective_rank,
    linear_probe,
    measured,
    uniformity,
    uniformity_floor,
)
from graphormer_sepnorm.graphs.batch import Collator
from graphormer_sepnorm.model.graphormer import Graphormer

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


@few
@given(n=st.integers(2, 14), width=st.integers(1, 6), seed=st.integers(0, 99))
def test_uniformity_as_printed(n, width, seed):
    rows = cloud(n, width, seed)
    assert uniformity(rows) == pytest.approx(literal_uniformity(rows), rel=1e-11, abs=1e-12)


@few
@given(seed=st.integers(0, 99), n=st.integers(2, 30), power=st.integers(-300, 300))
def test_uniformity_does_not_know_the_scale(seed, n, power):
    rows = cloud(n, 4, seed)
    for scale in (10.0**power, np.random.default_rng(seed).uniform(0.1, 10, (n, 1))):
        assert uniformity(rows * scale) == pytest.approx(uniformity(rows), rel=1e-11, abs=1e-12)


@pytest.mark.parametrize(
    ("width", "truth"),
    [
        (1, math.log((1 + math.exp(-8)) / 2)),  # the two ends of a line
        (2, math.log(i0(4)) - 4),  # a circle
        (3, math.log(math.sinh(4) / 4) - 4),  # Archimedes: u is even between -1 and 1
    ],
)
def test_floor_in_closed_form(width, truth):
    assert uniformity_floor(width) == pytest.approx(truth, rel=1e-12)


@pytest.mark.parametrize("wrong", [0, math.nan, math.inf])
def test_without_directions_or_pairs_there_is_no_uniformity(wrong):
    rows = cloud(5, 3)
    assert math.isnan(uniformity(rows[:1]))
    other = rows.copy()
    other[3] = wrong
    assert math.isnan(uniformity(other))
    for token, atoms in ((other, rows), (rows, other)):
        found = cosine_to(token, atoms, np.arange(5))
        assert np.isnan(found).tolist() == [False, False, False, True, False]


@pytest.mark.parametrize(("n", "width"), [(9, 4), (4, 9), (6, 6)])
def test_effective_rank_of_known_singular_values(n, width):
    """Of a cloud that is known, with its mirror image, which takes the mean away."""
    left, right = rotation(n)[:, :2], rotation(width, 1)[:, :2]
    rows = (left * [3.0, 1.0]) @ right.T
    # Shares 3/4 and 1/4.
    found = effective_rank(np.concatenate([rows, -rows]) + 100)
    assert found == pytest.approx(4 / 3**0.75, rel=1e-8)


@pytest.mark.parametrize("offset", [0.1, 1e6])
def test_collapsed_cloud_has_one_direction_and_no_spectrum(offset):
    """Only rounding errors remain after centering."""
    cloud = np.full((1000, 8), offset)
    assert uniformity(cloud) == pytest.approx(0, abs=1e-14)
    assert uniformity(cloud * np.geomspace(1e-3, 1e3, 1000)[:, None]) <= 0
    assert effective_rank(cloud) == 0


def test_cosine_by_loop():
    token, atoms = cloud(7, 5), cloud(2500, 5, 1)
    graph = np.random.default_rng(0).permutation(np.arange(2500) % 7)
    values = cosine_to(token, atoms, graph)
    for g in range(7):
        cosines = [
            float(token[g] @ atom / np.linalg.norm(token[g]) / np.linalg.norm(atom))
            for atom in atoms[graph == g]
        ]
        assert values[g] == pytest.approx(np.mean(cosines), rel=1e-10)


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


SMILES = ("CCO", "N", *TIED.values(), *TIE_FREE.values(), "C.CC(C)Cl", "C1CC1.c1ccc2ccccc2c1", "F")


@pytest.fixture(scope="module")
def molecules():
    """A store of molecules of 1 to 14 atoms, and its vocabulary."""
    return stored([molecule(smiles) for smiles in SMILES])


def collected(model: Graphormer, molecules, numbers=None, **options):
    """The embeddings of some of the molecules, of all by default."""
    numbers = np.arange(len(SMILES)) if numbers is None else np.array(numbers)
    return collect_embeddings(model, *molecules, numbers, **options)


@pytest.mark.parametrize(
    ("norm", "position"), [*((norm, "pre") for norm in ARMS), ("bn+ln", "post")]
)
def test_rows_are_those_of_the_model(molecules, norm, position):
    """By the model's own code, layer by layer."""
    model = small_model(molecules[1], norm=norm, norm_position=position, layers=3)
    batch = Collator(*molecules)(list(range(len(SMILES))))
    found = collected(model, molecules)
    assert [*found] == ["layer 1", "layer 2", "layer 3", OUTPUT]
    expected = []
    with torch.no_grad():
        rows, biases = model.embedding(batch), model.bias(batch)
        if model.input_norm is not None:
            rows = model.input_norm(rows, batch.num_graphs)
        for layer in model.layers:
            rows, _ = layer(rows, batch, biases)
            expected.append(rows)
        expected.append(torch.cat(model.encode(batch)))
        assert torch.equal(model.readout(torch.from_numpy(found[OUTPUT][0])), model(batch))
    graph_of_atom = batch.graph_of_atom.numpy()
    for (token, cosines), rows in zip(found.values(), expected, strict=True):
        own, atoms = np.split(rows.numpy(), [len(SMILES)])
        np.testing.assert_allclose(token, own, rtol=0, atol=1e-12)
        np.testing.assert_allclose(cosines, cosine_to(own, atoms, graph_of_atom), atol=1e-12)


@pytest.mark.parametrize(("norm", "dtype"), [("bn+ln", "float32"), ("shared-ln", "float64")])
def test_company_changes_nothing(molecules, norm, dtype):
    """Other batches, other order."""
    model = small_model(molecules[1], norm=norm).to(getattr(torch, dtype))
    order = np.random.default_rng(0).permutation(len(SMILES))
    plain = collected(model, molecules)
    alone = collected(model, molecules, batch_size=1)
    mixed = collected(model, molecules, order, batch_size=5)
    tolerance = 1e-10 if dtype == "float64" else 1e-4
    for name, parts in plain.items():
        assert parts[0].dtype == dtype
        assert alone[name][0].base is None  # a view would keep all rows of a batch in memory
        for part, one, other in zip(parts, alone[name], mixed[name], strict=True):
            np.testing.assert_allclose(one, part, atol=tolerance)
            np.testing.assert_allclose(other, part[order], atol=tolerance)


def test_model_is_evaluated_and_left_as_it_was(molecules, monkeypatch):
    model = small_model(molecules[1], dropout=0.5, input_dropout=0.5, attention_dropout=0.5)
    evaluated = collected(model.eval(), molecules)
    found = collected(model.train(), molecules)
    for name, (token, _) in found.items():
        assert np.array_equal(token, evaluated[name][0])
    monkeypatch.setattr(model, "encode", lambda batch: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        collected(model, molecules)
    assert not any(module._forward_hooks for module in model.modules())


def test_a_layer_is_measured_on_the_tested_molecules(molecules):
    token, cosines = collected(small_model(molecules[1]), molecules)[OUTPUT]
    values = np.array([*range(len(SMILES) - 1), np.nan])
    tested = np.arange(len(SMILES)) % 3 == 0
    one, rows = measured(OUTPUT, token, cosines, {"number": values}, tested), token[tested]
    assert one.layer == OUTPUT
    assert one.uniformity == uniformity(rows)
    assert one.uniformity_floor == uniformity_floor(rows.shape[1])
    assert one.effective_rank == effective_rank(rows)
    assert one.cosine_to_atoms == pytest.approx(cosines[tested].mean())
    # The molecule whose value is not known takes part in neither half.
    known = ~np.isnan(values)
    halves = known & ~tested, known & tested
    parts = [part for half in halves for part in (token[half], values[half])]
    assert one.probes == {"number": linear_probe(*parts)}
