"""What of the folds of several arms is compared with what."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from graphormer_sepnorm.compare.arms import Arm
from graphormer_sepnorm.compare.fold_results import (
    _columns,
    _differences,
    _simple,
    _trained_and_tested,
)

BLENDS = {"sharenorm": 0.52, "sepnorm": 0.72}
ALONE = {"sharenorm": 0.62, "sepnorm": 0.80}
NOISE = np.array([0.0, 0.01, -0.01])


def folds(arm: str) -> Any:
    return [
        SimpleNamespace(
            network=arm,
            test={"mae": BLENDS[arm] + noise},
            simple={"network alone": {"mae": ALONE[arm] + noise}, "forest": {"mae": 0.7 + noise}},
        )
        for noise in NOISE.tolist()
    ]


@pytest.mark.parametrize("arms", [["sharenorm"], ["sharenorm", "sepnorm"]])
def test_a_blend_stands_beside_the_network_that_is_in_it(arms: list[str]) -> None:
    of_arms = [folds(arm) for arm in arms]
    networks = {
        arm: _columns([one.test for one in own]) for arm, own in zip(arms, of_arms, strict=True)
    }
    found = {
        (one.model, one.baseline): one.metrics["mae"].mean
        for one in _differences(networks, _simple(of_arms), dict.fromkeys(arms, (90.0, 10.0)))
    }
    alone = {arm: f"network alone, {arm}" if len(arms) > 1 else "network alone" for arm in arms}
    expected = {(arm, alone[arm]): BLENDS[arm] - ALONE[arm] for arm in arms}
    expected |= {(arm, "forest"): BLENDS[arm] - 0.7 for arm in arms}
    if len(arms) > 1:
        expected["sepnorm", "sharenorm"] = 0.2
    assert found == pytest.approx(expected)


def test_trees_that_had_other_molecules_stand_beside_their_own_network() -> None:
    """Members with folds, and their trees, are trained on the validation split, too."""
    of_arms = [folds("sharenorm"), folds("sepnorm")]
    for one in of_arms[1]:
        one.simple["forest"]["mae"] -= 0.1
    networks = {own[0].network: _columns([one.test for one in own]) for own in of_arms}
    molecules = {"sharenorm": (70.0, 20.0), "sepnorm": (80.0, 20.0)}
    found = _differences(networks, _simple(of_arms), molecules)
    assert {(one.model, one.baseline) for one in found if "forest" in one.baseline} == {
        ("sharenorm", "forest, sharenorm"),
        ("sepnorm", "forest, sepnorm"),
    }
    # An arm without trees is held against those of the other one, which it would have had.
    for one in of_arms[0]:
        del one.simple["forest"]
    found = _differences(networks, _simple(of_arms), molecules)
    against = {one.model: one.metrics["mae"].mean for one in found if one.baseline == "forest"}
    assert against == pytest.approx({"sharenorm": 0.52 - 0.6, "sepnorm": 0.72 - 0.6})


@pytest.mark.parametrize(
    ("options", "own", "trained"),
    [
        ({"ensemble": 5, "ensemble_by": "folds"}, {}, 85),
        ({"ensemble": 5, "ensemble_by": "folds"}, {"ensemble": "1"}, 75),
        ({"ensemble": 5, "ensemble_by": "seeds"}, {}, 75),
        ({"ensemble": 1, "ensemble_by": "folds"}, {}, 75),
        ({}, {}, 75),
    ],
)
def test_where_members_have_folds_the_validation_split_is_trained_on(
    options: dict[str, Any], own: dict[str, str], trained: float
) -> None:
    sizes = [
        {"train": 70, "validation": 10, "test": 20},
        {"train": 80, "validation": 10, "test": 10},
    ]
    found = _trained_and_tested(
        SimpleNamespace(configuration=options),
        Arm("arm", own),
        [SimpleNamespace(molecules=one) for one in sizes],
    )
    assert found == (trained, 15)
