"""The distance of [CLS] from training molecules: against a literal one, molecule by molecule."""

import numpy as np
import pytest

from graphormer_sepnorm.uncertainty.domain import AXES, TokenDistance

K, C = 3, 24


@pytest.fixture
def tokens() -> tuple[np.ndarray, np.ndarray]:
    """Of 60 training molecules and 20 unseen ones, of unequal channels that are correlated."""
    random = np.random.default_rng(0)
    mixed = random.standard_normal((K, C, C)) * np.geomspace(1, 0.01, C)[:, None]
    made = random.standard_normal((K, 80, C)) @ mixed + 3
    return made[:, :60].astype(np.float32), made[:, 60:].astype(np.float32)


def literal(cloud: np.ndarray, token: np.ndarray) -> float:
    """The mean distance to the nearest five, in the plane of the first axes."""
    center = cloud.mean(axis=0)
    _, _, axes = np.linalg.svd(cloud - center)
    total = ((cloud - center) ** 2).sum() / (len(cloud) - 1)
    distances = [np.linalg.norm(axes[:AXES] @ (one - token)) / np.sqrt(total) for one in cloud]
    return float(np.mean(sorted(distances)[:5]))


def test_it_is_the_mean_distance_to_the_nearest_five(tokens) -> None:
    seen, unseen = tokens
    expected = [np.mean([literal(seen[k], unseen[k, n]) for k in range(K)]) for n in range(20)]
    made, found = TokenDistance.fit(seen, unseen)
    # Points are stored in half precision.
    np.testing.assert_allclose(found, expected / np.median(expected), rtol=2e-3)
    assert made.usual == pytest.approx(np.median(expected), rel=2e-3)
    np.testing.assert_array_equal(made.of(unseen), found)


def test_with_folds_each_is_measured_by_the_network_that_has_not_seen_it(tokens) -> None:
    seen, _ = tokens
    folds = np.arange(60) % K
    _, found = TokenDistance.fit(seen, seen, folds, folds)
    expected = [literal(seen[k][folds != k], seen[k, index]) for index, k in enumerate(folds)]
    np.testing.assert_allclose(found, expected / np.median(expected), rtol=2e-3)


def test_what_is_not_finite_spoils_no_other(tokens) -> None:
    seen, unseen = (one.copy() for one in tokens)
    made, found = TokenDistance.fit(seen, unseen)
    unseen[2, 4, 0] = np.nan
    again = made.of(unseen)
    assert np.isnan(again[4])
    np.testing.assert_allclose(np.delete(again, 4), np.delete(found, 4), rtol=1e-5)
    assert made.of(unseen[:, :0]).shape == (0,)
    seen[0, 7, 3] = np.nan
    made, again = TokenDistance.fit(seen, unseen)
    assert np.isfinite(made.usual)
    # One training molecule less, and another median.
    np.testing.assert_allclose(np.delete(again, 4), np.delete(found, 4), rtol=0.1)
    for some, others in (
        (seen, np.full_like(unseen, np.nan)),
        (seen[:, :1], unseen),
        (seen, unseen[:, :0]),
    ):
        assert TokenDistance.fit(some, others) == (None, None)


def test_fewer_molecules_than_neighbors_or_axes_will_do() -> None:
    random = np.random.default_rng(0)
    seen, unseen = random.standard_normal((2, 1, 3, 4)).astype(np.float32)
    made, found = TokenDistance.fit(seen, unseen)
    assert made.clouds[0].axes.shape == (4, 4)
    assert np.isfinite(found).all()
    assert np.isfinite(TokenDistance.fit(seen[:, :, :1], unseen[:, :, :1])[1]).all()
    same = np.ones((1, 5, 4), np.float32)
    _, nowhere = TokenDistance.fit(same, same)
    np.testing.assert_array_equal(nowhere, 0)
