"""Calibrated probabilities and sets of classes, against literal computations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, softmax
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
    """What a model says whose log-odds are `factor` times too large, and labels; 20 % class 1."""
    random = np.random.default_rng(seed)
    odds = random.standard_normal(count) * 1.5 - 1.8
    labels = (random.random(count) < 1 / (1 + np.exp(-odds))).astype(float)
    return 1 / (1 + np.exp(-(factor * odds + shift))), labels


def fitted(count: int, factor: float = 1.0, shift: float = 0.0) -> Calibration:
    probabilities, labels = made(count, factor, shift)
    return Calibration.fit(probabilities, labels, np.arange(count) % 5)


def of_three_classes(count: int, factor: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """What a model says whose log-odds are `factor` times too large, and classes as 0 and 1."""
    random = np.random.default_rng(seed)
    odds = random.standard_normal((count, 3)) * 1.5
    true = softmax(odds, axis=1)
    labels = [random.multinomial(1, row) for row in true]
    return softmax(factor * odds, axis=1), np.array(labels, float)


def test_several_classes_have_one_temperature() -> None:
    said, labels = of_three_classes(900, factor=3.0)
    labels[7] = said[8] = np.nan
    found = temperature_of(said, labels, np.arange(900) % 5)
    assert found == pytest.approx(3, rel=0.15)
    new, labels = of_three_classes(20_000, factor=3.0, seed=1)
    mapped = tempered(new, found)
    np.testing.assert_allclose(mapped.sum(axis=1), 1)
    assert (mapped.argmax(axis=1) == new.argmax(axis=1)).all()
    powers = np.maximum(new, 1e-12) ** (1 / found)
    np.testing.assert_allclose(mapped, powers / powers.sum(axis=1, keepdims=True))
    losses = [log_loss(labels.argmax(axis=1), one) for one in (mapped, new)]
    assert losses[0] < 0.9 * losses[1]
    assert np.isnan(tempered(np.full((1, 3), np.nan), found)).all()


def test_classes_that_were_always_right_are_not_certain() -> None:
    labels = np.eye(3)[np.arange(60) % 3]
    said = 0.7 * labels + 0.1
    found = temperature_of(said, labels, np.arange(60) % 5)
    # As if 62 of 63 of a class had been right.
    np.testing.assert_allclose(tempered(said, found).max(axis=1), 61 / 63, rtol=1e-4)


@pytest.mark.parametrize(("count", "factor"), [(900, 1.0), (200, 1.3), (30, 3.0)])
def test_a_model_that_is_right_or_hardly_known_keeps_its_probabilities(
    count: int, factor: float
) -> None:
    said, labels = of_three_classes(count, factor)
    assert temperature_of(said, labels, np.arange(count) % 5) == 1
    assert temperature_of(said, labels, np.zeros(count)) == 1


def test_a_model_that_is_too_sure_is_corrected_and_keeps_its_order() -> None:
    calibration = fitted(900, factor=3.0)
    assert calibration.map.name == "temperature"
    assert calibration.map.a == pytest.approx(1 / 3, rel=0.2)
    new, labels = made(20_000, factor=3.0, seed=1)
    mapped = calibration.map.of(new)
    assert expected_error(mapped, labels) < 0.25 * expected_error(new, labels)
    assert (np.diff(mapped[np.argsort(new)]) >= 0).all()


def test_one_that_is_wrong_on_average_needs_more_than_a_temperature() -> None:
    calibration = fitted(900, factor=1.0, shift=2.0)
    assert calibration.map.name == "beta"
    new, labels = made(20_000, shift=2.0, seed=1)
    assert calibration.map.of(new).mean() == pytest.approx(labels.mean(), abs=0.03)


@pytest.mark.parametrize("class_1_first", [True, False])
def test_the_part_of_a_map_that_would_turn_the_order_round_is_left_out(class_1_first) -> None:
    """Of low probabilities the lowest are too low: a fit of both parts has a negative one."""

    def turned(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        random = np.random.default_rng(seed)
        said = random.uniform(0.02, 0.98, count)
        odds = -0.6 * np.log(said) - 2.5 * np.log(1 - said) - 2
        labels = (random.random(count) < 1 / (1 + np.exp(-odds))).astype(float)
        return (said, labels) if class_1_first else (1 - said, 1 - labels)

    said, labels = turned(400, seed=0)
    found = Calibration.fit(said, labels, np.arange(400) % 5).map
    assert found.name == "beta"
    assert (found.a if class_1_first else found.b) == 0
    new, labels = turned(20_000, seed=1)
    mapped = found.of(new)
    assert expected_error(mapped, labels) < 0.5 * expected_error(new, labels)
    assert (np.diff(mapped[np.argsort(new)]) >= 0).all()


def test_a_model_that_was_always_right_is_not_certain() -> None:
    labels = np.arange(60) % 2.0
    calibration = Calibration.fit(0.3 + 0.4 * labels, labels, np.arange(60) // 2 % 5)
    assert calibration.map.name == "temperature"
    # As if 31 of 32 of a class had been right.
    np.testing.assert_allclose(calibration.map.of(np.array([0.3, 0.7])), [1 / 32, 31 / 32], 0.01)


def test_one_that_is_right_is_left_alone() -> None:
    calibration = fitted(900)
    assert calibration.map.name == "none"
    values = np.array([0.0, 0.3, np.nan, 1.0])
    np.testing.assert_array_equal(calibration.map.of(values), values)


def test_any_form_is_found_with_a_thousand_labels_and_keeps_the_order() -> None:
    random = np.random.default_rng(0)
    probabilities = random.random(6000)
    labels = (random.random(6000) < np.where(probabilities > 0.5, 0.8, 0.1)).astype(float)
    calibration = Calibration.fit(probabilities, labels, np.arange(6000) % 5)
    assert calibration.map.name == "isotonic"
    mapped = calibration.map.of(np.array([0.2, 0.4, 0.6, 0.8, np.nan]))
    np.testing.assert_allclose(mapped, [0.1, 0.1, 0.8, 0.8, np.nan], atol=0.06)
    grid = calibration.map.of(np.linspace(0, 1, 999))
    assert (np.diff(grid) >= 0).all()
    assert 0 < grid.min() < grid.max() < 1
    # Where no two may become one, as by a benchmark's own evaluator, there is another way.
    ranked = Calibration.fit(probabilities, labels, np.arange(6000) % 5, ranked=True)
    assert ranked.map.name == "beta"
    assert (np.diff(ranked.map.of(np.linspace(0, 1, 999))) > 0).all()


def test_a_small_first_step_does_not_lift_the_others() -> None:
    """The second lowest molecule is of class 1, and of those above one in twenty is."""
    probabilities = np.linspace(0.001, 0.999, 1002)
    labels = np.zeros(1002)
    labels[1] = 1
    labels[2:] = np.repeat([0.05, 0.6], 500) > np.arange(1000) * 0.618 % 1
    found = Calibration.fit(probabilities, labels, np.arange(1002) % 5).map
    assert found.name == "isotonic"
    assert (np.diff(found.knots, axis=0) >= 0).all()
    mapped = found.of(probabilities)
    assert mapped[:400].mean() == pytest.approx(0.05, abs=0.01)
    assert mapped.mean() == pytest.approx(labels.mean(), abs=0.01)


@pytest.mark.parametrize("positives", [0, 3, 200])
def test_with_one_class_or_few_of_it_nothing_is_changed(positives: int) -> None:
    labels = np.zeros(200)
    labels[:positives] = 1
    probabilities = np.random.default_rng(0).random(200) ** 4
    calibration = Calibration.fit(probabilities, labels, np.arange(200) % 5)
    assert calibration.map.name == "none"
    assert calibration.counts == (200 - positives, positives)


def test_a_class_that_is_all_in_one_fold_cannot_be_tried_on_it() -> None:
    labels = np.repeat([1.0, 0.0], [30, 170])
    probabilities = np.random.default_rng(0).random(200) ** 4
    calibration = Calibration.fit(probabilities, labels, np.arange(200) // 40)
    assert calibration.map.name == "none"


@pytest.mark.parametrize("level", [0.8, 0.9])
def test_sets_hold_the_class_as_often_as_the_level_says_also_the_rare_one(level: float) -> None:
    calibration = fitted(3000)
    new, labels = made(20_000, seed=1)
    sets = calibration.sets(calibration.map.of(new), level)
    for label in (0, 1):
        of_class = labels == label
        assert sets[of_class, label].mean() == pytest.approx(level, abs=0.03)
        # Less than that of the other class: the sets say something.
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


def test_sets_by_hand() -> None:
    zeros, ones = np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.35, 0.9])
    calibration = Calibration(Map(), zeros, ones, (4, 2))
    # 0.3: of class 0 two are as large or larger: (2 + 1) / 5. Of class 1 none is as small: 1 / 3.
    np.testing.assert_array_equal(calibration.sets(np.array([0.3]), 0.5), [[True, False]])
    np.testing.assert_array_equal(calibration.sets(np.array([0.3]), 0.7), [[True, True]])
    np.testing.assert_array_equal(calibration.sets(np.array([0.95]), 0.5), [[False, True]])
    np.testing.assert_array_equal(calibration.sets(np.array([0.5]), 0.3), [[False, False]])
    # 0.35 and 0.4 are as one of class 1 and one of class 0 themselves: (1 + 1) / 3, (1 + 1) / 5.
    np.testing.assert_array_equal(calibration.sets(np.array([0.35]), 0.5), [[False, True]])
    np.testing.assert_array_equal(calibration.sets(np.array([0.4]), 0.7), [[True, True]])


def test_the_expected_error_is_that_of_bins_with_as_many_molecules() -> None:
    probabilities = np.repeat([0.1, 0.2, 0.4, 0.9], 5)
    labels = np.tile([0, 0, 0, 1, 1], 4)
    by_hand = sum(
        abs(probabilities[i : i + 2].mean() - labels[i : i + 2].mean()) for i in range(0, 20, 2)
    )
    # What twos of exactly these probabilities show on average, as normal numbers: taken off.
    by_chance = math.sqrt(2 / math.pi) * np.mean(np.sqrt(probabilities * (1 - probabilities) / 2))
    assert error_by_chance(probabilities) == pytest.approx(by_chance, rel=0.02)
    without = math.sqrt((by_hand / 10) ** 2 - error_by_chance(probabilities) ** 2)
    assert expected_error(probabilities, labels) == pytest.approx(without)


@pytest.mark.parametrize(("count", "raw"), [(50, 0.147), (100, 0.104), (2000, 0.023)])
@pytest.mark.parametrize(("factor", "error"), [(1.0, 0.0), (3.0, 0.151)])
def test_chance_is_no_calibration_error(
    count: int, raw: float, factor: float, error: float
) -> None:
    """Exactly right probabilities show one of `raw`; those that are too sure are still found."""
    found, by_chance = [], []
    for seed in range(40):
        random = np.random.default_rng(seed)
        odds = 1.5 * random.standard_normal(count)
        labels = (random.random(count) < expit(odds)).astype(float)
        found.append(expected_error(expit(factor * odds), labels))
        by_chance.append(error_by_chance(expit(odds)))
    assert np.mean(by_chance) == pytest.approx(raw, rel=0.05)
    assert np.mean(found) == pytest.approx(error, abs=0.35 * raw)


def test_of_many_probabilities_quantiles_are_kept() -> None:
    calibration = fitted(3000, factor=3.0)
    assert len(calibration.zeros) == 1000
    assert sum(calibration.counts) == 3000
