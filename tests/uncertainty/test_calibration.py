"""Calibrated probabilities and sets of classes, against literal computations."""

import math
from typing import Any

import numpy as np
import pytest
from reference.confidence import of_three_classes
from scipy.special import expit
from sklearn.metrics import log_loss

from graphormer_sepnorm.uncertainty.calibration import (
    Calibration,
    Map,
    error_by_chance,
    expected_error,
    temperature_of,
    tempered,
)


def made(count: int, factor: float = 1.0, shift: float = 0.0, seed: int = 0) -> tuple[Any, Any]:
    """Probabilities whose log-odds are `factor` times too large, and labels; 20 % class 1."""
    random = np.random.default_rng(seed)
    odds = random.standard_normal(count) * 1.5 - 1.8
    labels = (random.random(count) < expit(odds)).astype(float)
    return expit(factor * odds + shift), labels


def fitted(count: int, factor: float = 1.0, shift: float = 0.0) -> Calibration:
    probabilities, labels = made(count, factor, shift)
    return Calibration.fit(probabilities, labels, np.arange(count) % 5)


def test_several_classes_have_one_temperature() -> None:
    values, labels = of_three_classes(900, factor=3.0)
    labels[7] = values[8] = np.nan
    found = temperature_of(values, labels, np.arange(900) % 5)
    assert found == pytest.approx(3, rel=0.15)
    new, labels = of_three_classes(20_000, factor=3.0, seed=1)
    mapped = tempered(new, found)
    powers = np.maximum(new, 1e-12) ** (1 / found)
    np.testing.assert_allclose(mapped, powers / powers.sum(axis=1, keepdims=True))
    losses = [log_loss(labels.argmax(axis=1), one) for one in (mapped, new)]
    assert losses[0] < 0.9 * losses[1]
    assert np.isnan(tempered(np.full((1, 3), np.nan), found)).all()


@pytest.mark.parametrize(("count", "factor"), [(900, 1.0), (200, 1.3), (30, 3.0)])
def test_a_model_that_is_right_or_hardly_known_keeps_its_probabilities(count, factor):
    values, labels = of_three_classes(count, factor)
    assert temperature_of(values, labels, np.arange(count) % 5) == 1
    assert temperature_of(values, labels, np.zeros(count)) == 1


def test_a_model_that_was_always_right_is_not_certain() -> None:
    labels = np.arange(60) % 2.0
    calibration = Calibration.fit(0.3 + 0.4 * labels, labels, np.arange(60) // 2 % 5)
    assert calibration.map.name == "temperature"
    # As if 31 of 32 of a class had been right.
    np.testing.assert_allclose(calibration.map.of(np.array([0.3, 0.7])), [1 / 32, 31 / 32], 0.01)
    labels = np.eye(3)[np.arange(60) % 3]
    found = temperature_of(0.7 * labels + 0.1, labels, np.arange(60) % 5)
    # As if 62 of 63 of a class had been right.
    certain = tempered(0.7 * labels + 0.1, found).max(axis=1)
    np.testing.assert_allclose(certain, 61 / 63, rtol=1e-4)


def test_an_overconfident_model_is_corrected_and_keeps_its_order() -> None:
    calibration = fitted(900, factor=3.0)
    assert calibration.map.name == "temperature"
    assert calibration.map.a == pytest.approx(1 / 3, rel=0.2)
    new, labels = made(20_000, factor=3.0, seed=1)
    mapped = calibration.map.of(new)
    assert expected_error(mapped, labels) < 0.25 * expected_error(new, labels)
    assert (np.diff(mapped[np.argsort(new)]) >= 0).all()


def test_a_model_that_is_wrong_on_average_needs_more_than_a_temperature() -> None:
    calibration = fitted(900, factor=1.0, shift=2.0)
    assert calibration.map.name == "beta"
    new, labels = made(20_000, shift=2.0, seed=1)
    assert calibration.map.of(new).mean() == pytest.approx(labels.mean(), abs=0.03)


@pytest.mark.parametrize("class_1_first", [True, False])
def test_the_part_of_a_map_that_would_reverse_the_order_is_left_out(class_1_first) -> None:
    """Of low probabilities the lowest are too low: a fit of both parts has a negative one."""

    def turned(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        random = np.random.default_rng(seed)
        values = random.uniform(0.02, 0.98, count)
        odds = -0.6 * np.log(values) - 2.5 * np.log(1 - values) - 2
        labels = (random.random(count) < expit(odds)).astype(float)
        return (values, labels) if class_1_first else (1 - values, 1 - labels)

    values, labels = turned(400, seed=0)
    found = Calibration.fit(values, labels, np.arange(400) % 5).map
    assert found.name == "beta"
    assert (found.a if class_1_first else found.b) == 0
    new, labels = turned(20_000, seed=1)
    mapped = found.of(new)
    assert expected_error(mapped, labels) < 0.5 * expected_error(new, labels)
    assert (np.diff(mapped[np.argsort(new)]) >= 0).all()


def test_a_model_that_is_right_is_left_alone() -> None:
    calibration = fitted(900)
    assert calibration.map.name == "none"
    values = np.array([0.0, 0.3, np.nan, 1.0])
    np.testing.assert_array_equal(calibration.map.of(values), values)


@pytest.mark.parametrize("positives", [0, 3, 200])
def test_with_one_class_or_few_of_it_nothing_is_changed(positives: int) -> None:
    probabilities = np.random.default_rng(0).random(200) ** 4
    labels = (np.arange(200) < positives).astype(float)
    calibration = Calibration.fit(probabilities, labels, np.arange(200) % 5)
    assert calibration.map.name == "none"
    assert calibration.counts == (200 - positives, positives)
    # A class that is all in one fold cannot be tried on it.
    labels = np.repeat([1.0, 0.0], [30, 170])
    assert Calibration.fit(probabilities, labels, np.arange(200) // 40).map.name == "none"


@pytest.mark.parametrize("level", [0.8, 0.9])
def test_sets_hold_the_class_as_often_as_the_level_says_also_the_rare_one(level: float) -> None:
    calibration = fitted(3000)
    assert len(calibration.zeros) == 1000  # quantiles of more
    assert sum(calibration.counts) == 3000
    new, labels = made(20_000, seed=1)
    sets = calibration.sets(calibration.map.of(new), level)
    for label in (0, 1):
        of_class = labels == label
        assert sets[of_class, label].mean() == pytest.approx(level, abs=0.03)
        # Less than that of the other class: the sets tell something.
        assert sets[of_class, 1 - label].mean() < level - 0.1


@pytest.mark.parametrize("level", [0.7, 0.8, 0.9, 0.95])
@pytest.mark.parametrize("count", [9, 19, 99])
def test_sets_leave_out_the_rank_that_is_the_level(level: float, count: int) -> None:
    """Of count + 1 molecules of a class this share, and not one more, has it in its set."""
    there = np.linspace(0.3, 0.7, count)
    calibration = Calibration(Map(), there, there, (count, count))
    between = np.concatenate([[0.2], (there[1:] + there[:-1]) / 2, [0.8]])
    expected = math.ceil((count + 1) * level - 1e-9)
    np.testing.assert_array_equal(calibration.sets(between, level).sum(axis=0), [expected] * 2)


def test_a_molecule_as_typical_as_one_of_a_class_counts_as_one_more() -> None:
    calibration = Calibration(Map(), np.arange(1, 5) / 10, np.array([0.35, 0.9]), (4, 2))
    assert calibration.sets(np.array([0.35]), 0.5).tolist() == [[False, True]]  # (1 + 1) / 3
    assert calibration.sets(np.array([4 / 10]), 0.7).tolist() == [[True, True]]  # (1 + 1) / 5


def test_the_expected_error_is_that_of_bins_with_as_many_molecules() -> None:
    probabilities = np.repeat([0.1, 0.2, 0.4, 0.9], 5)
    labels = np.tile([0, 0, 0, 1, 1], 4)
    by_hand = sum(
        abs(probabilities[i : i + 2].mean() - labels[i : i + 2].mean()) for i in range(0, 20, 2)
    )
    # What twos of exactly these probabilities show on average, as normal numbers: subtracted.
    by_chance = math.sqrt(2 / math.pi) * np.mean(np.sqrt(probabilities * (1 - probabilities) / 2))
    assert error_by_chance(probabilities) == pytest.approx(by_chance, rel=0.02)
    without = math.sqrt((by_hand / 10) ** 2 - error_by_chance(probabilities) ** 2)
    assert expected_error(probabilities, labels) == pytest.approx(without)
