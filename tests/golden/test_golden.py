"""What the code computes stays what it was; python -m tests.golden.facts says how it is made."""

import json
from typing import Any

import pytest

from graphormer_sepnorm.cli.known_warnings import silence_known_noise
from graphormer_sepnorm.kernels.library import switched_off

from .facts import FACTS, GOLDEN

# A blend's networks are trained in float32.
TOLERANCES = {"predictions": 1e-4, "torture": 1e-4, "blend": 1e-3}


def assert_same(found: Any, golden: Any, tolerance: float, where: str) -> None:
    if isinstance(golden, dict):
        assert found.keys() == golden.keys(), where
        for name, value in golden.items():
            assert_same(found[name], value, tolerance, f"{where} {name}")
    elif isinstance(golden, list):
        assert len(found) == len(golden), where
        for index, (mine, value) in enumerate(zip(found, golden, strict=True)):
            assert_same(mine, value, tolerance, f"{where} {index}")
    elif isinstance(golden, float):
        assert found == pytest.approx(golden, rel=tolerance, abs=tolerance * 0.1), where
    else:
        assert found == golden, where


@pytest.mark.parametrize("name", FACTS)
def test_facts_stay(name: str) -> None:
    silence_known_noise()
    tolerance = TOLERANCES.get(name.split()[0], 1e-6)
    assert_same(FACTS[name](), json.loads(GOLDEN.read_text())[name], tolerance, name)


def test_predictions_stay_on_the_plain_path() -> None:
    """The golden ones were made by the kernels, if this is another path."""
    golden = json.loads(GOLDEN.read_text())["predictions of esol"]
    with switched_off():
        assert_same(FACTS["predictions of esol"](), golden, 1e-4, "esol")
