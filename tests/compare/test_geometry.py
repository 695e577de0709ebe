"""The geometry of clouds against closed forms, literal restatements and other libraries."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import hyp0f1, i0

from graphormer_sepnorm.compare.geometry import (
    PROBE_PENALTIES,
    cosine_to,
    effective_rank,
    linear_probe,
    singular_values,
    uniformity,
    uniformity_floor,
)

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


def test_collapsed_cloud_is_0():
    row = cloud(1, 7)
    assert uniformity(np.repeat(row, 5, 0)) == pytest.approx(0, abs=1e-14)
    # Lengths do not matter, only directions.
    assert uniformity(row * np.geomspace(1e-3, 1e3, 9)[:, None]) == pytest.approx(0, abs=1e-14)
    assert uniformity(row * np.ones((2000, 1))) <= 0


@pytest.mark.parametrize("width", [1, 2, 10, 700])
def test_axes_and_their_antipodes(width):
    """Of the d (2 d - 1) pairs d are antipodes, the others orthogonal."""
    axes = np.concatenate([np.eye(width), -np.eye(width)])
    truth = (math.exp(-8) + (2 * width - 2) * math.exp(-4)) / (2 * width - 1)
    assert uniformity(axes) == pytest.approx(math.log(truth), rel=EXACT)


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


@pytest.mark.parametrize("width", [8, 80])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_even_cloud_lies_at_the_floor(width, seed):
    """The standard error of a mean over pairs is exact here.

    On an even sphere the expected kernel at a fixed direction is the same for all of them, so
    pairs are uncorrelated and the variance of the mean is Var(k) / pairs, where
    E exp(a u) = 0F1(; d/2; a^2 / 4) gives E k^2 and (E k)^2. Five standard errors.
    """
    n = 2000
    relative = hyp0f1(width / 2, 16) / hyp0f1(width / 2, 4) ** 2 - 1
    tolerance = 5 * math.sqrt(relative * 2 / (n * (n - 1)))
    assert tolerance < 0.01
    difference = uniformity(cloud(n, width, seed)) - uniformity_floor(width)
    assert abs(difference) < tolerance
    # Enough to see a cloud that is off centre by a fifth of its spread.
    assert uniformity(cloud(n, width, seed) + 0.2) - uniformity_floor(width) > 2 * tolerance


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
    values = singular_values(of_spectrum([5.0, 2.0, 0.25], n, width))
    assert values == pytest.approx([5, 2, 0.25] + [0] * (min(n, width) - 3), rel=1e-10)


def test_centring_takes_the_mean_away():
    rows = cloud(300, 5) @ rotation(5)
    shifted = rows + 100
    assert singular_values(shifted, centred=True) == pytest.approx(
        singular_values(rows, centred=True), rel=1e-9
    )
    assert singular_values(shifted)[0] == pytest.approx(100 * math.sqrt(5 * 300), rel=0.01)
    # Divided by n their squares are the variances; their sum is the total.
    total = (singular_values(rows, centred=True) ** 2).sum() / 300
    assert total == pytest.approx(rows.var(0).sum())


@pytest.mark.parametrize("offset", [0.1, 1e6])
def test_collapsed_cloud_has_no_spectrum(offset):
    """Only rounding errors remain after centring."""
    values = singular_values(np.full((1000, 8), offset), centred=True)
    assert (values == 0).all()
    assert effective_rank(values) == 0
    assert effective_rank(singular_values(np.full((1000, 8), offset))) == pytest.approx(1)


def test_ranks_of_two_values():
    """Shares 3/4 and 1/4."""
    spectrum = np.array([3.0, 1.0])
    assert effective_rank(spectrum) == pytest.approx(4 / 3**0.75, rel=EXACT)


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


@pytest.mark.parametrize("seed", range(2))
def test_probe_reads_nothing_from_noise(seed):
    """Not even with as many channels as rows: the penalty is chosen large enough."""
    y = np.random.default_rng(seed).standard_normal(600)
    for width in (10, 300):
        x = cloud(600, width, seed + 10)
        assert -0.1 < linear_probe(x[:300], y[:300], x[300:], y[300:]) < 0.05


def test_probe_by_leaving_each_row_out():
    """The penalty that a loop over rows prefers, and R^2 from its definition."""
    rng = np.random.default_rng(3)
    x, other = cloud(24, 6) * 4 + 1, cloud(15, 6, 1) * 4 + 1
    weights = rng.standard_normal(6)
    y, other_y = (part @ weights + rng.normal(0, 9, len(part)) for part in (x, other))
    mean, deviation = x.mean(0), x.std(0)

    def predict(rows, labels, new, penalty):
        centre = rows.mean(0)
        gram = (rows - centre).T @ (rows - centre) + penalty * np.eye(6)
        slope = np.linalg.solve(gram, (rows - centre).T @ (labels - labels.mean()))
        return labels.mean() + (new - centre) @ slope

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


def test_probe_misses_a_length_that_was_normalised_away():
    """The reading of SepNorm that the probes are made for: a size kept in the length of [CLS]."""
    rng = np.random.default_rng(0)
    size = rng.integers(5, 40, 900)
    x = size[:, None] * (np.ones(8) + 0.1 * rng.standard_normal((900, 8)))
    normalised = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)
    assert linear_probe(x[:600], size[:600], x[600:], size[600:]) > 0.95
    assert linear_probe(normalised[:600], size[:600], normalised[600:], size[600:]) < 0.05


def test_what_has_a_probe():
    x, y = cloud(40, 3), np.arange(40.0)
    x[:, 1] = 4
    assert math.isfinite(linear_probe(x[:20], y[:20], x[20:], y[20:]))
    assert linear_probe(x[:20], np.ones(20), x[20:], y[20:]) < 0
    assert math.isnan(linear_probe(x[:20], y[:20], x[20:], np.ones(20)))
    assert math.isnan(linear_probe(x[:1], y[:1], x, y))
    assert math.isnan(linear_probe(x, y, x[:1], y[:1]))
    assert math.isnan(linear_probe(np.where(x > 0, math.inf, x), y, cloud(40, 3, 1), y))
