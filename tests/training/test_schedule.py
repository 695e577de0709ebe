"""The learning rate is a pure function of the step."""

from __future__ import annotations

import pytest

from graphormer_sepnorm.training.schedule import learning_rate_at, warmup_in_steps

V1 = {"total_steps": 400_000, "warmup_steps": 40_000, "peak": 2e-4, "final": 1e-9}


@pytest.mark.parametrize(
    ("step", "rate"),
    [
        (0, 2e-4 / 40_000),
        (19_999, 1e-4),
        (39_999, 2e-4),
        (40_000, 2e-4),
        (220_000, (2e-4 + 1e-9) / 2),
        (400_000, 1e-9),
        (500_000, 1e-9),
    ],
)
def test_linear_schedule_of_version_1(step: int, rate: float) -> None:
    assert learning_rate_at(step, schedule="linear", **V1) == pytest.approx(rate, rel=1e-9)


@pytest.mark.parametrize(("step", "rate"), [(10, 1.0), (35, 0.8535533906), (60, 0.5), (110, 0.0)])
def test_cosine_schedule(step: int, rate: float) -> None:
    value = learning_rate_at(
        step, total_steps=110, warmup_steps=10, peak=1.0, final=0.0, schedule="cosine"
    )
    assert value == pytest.approx(rate, abs=1e-9)


def test_no_warmup_starts_at_the_peak() -> None:
    value = learning_rate_at(
        0, total_steps=10, warmup_steps=0, peak=0.5, final=0.0, schedule="linear"
    )
    assert value == 0.5


@pytest.mark.parametrize(("warmup", "steps"), [(0, 0), (0.1, 25), (1, 1), (40, 40)])
def test_warmup_below_one_is_a_fraction(warmup: float, steps: int) -> None:
    assert warmup_in_steps(warmup, 250) == steps
