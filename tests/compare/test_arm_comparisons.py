"""Arms against their baseline: which seeds count, what is averaged, where a difference points."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from graphormer_sepnorm.compare.arm_comparisons import compare_arms, paper_in_words
from graphormer_sepnorm.compare.results_file import ArmComparison, RunResult
from graphormer_sepnorm.config import FitConfig
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.runs.plan import Arm, Comparison

REGRESSION = Task("regression", ("y",), ("",), "mae")
BINARY = Task("binary", ("active",), ("",), "auroc")


def comparison(*norms: str) -> Comparison:
    """Arms of these norms, the first one the baseline, with seeds 0, 1 and 2."""
    arms = tuple(Arm(norm, {"model.norm": norm}) for norm in norms)
    return Comparison(FitConfig(), arms, (0, 1, 2), norms[0])


@dataclass(frozen=True)
class Run:
    """A finished one: its metrics, and what it predicts."""

    validation: float
    test: float
    predictions: tuple[float, ...]


def run(validation: float, test: float, *predictions: float) -> Run:
    return Run(validation, test, predictions)


def compare(
    arms: Comparison,
    runs: dict[tuple[str, int], Run],
    targets: np.ndarray,
    task: Task = REGRESSION,
    dataset: str = "mine",
) -> list[ArmComparison]:
    results = {
        (arm, seed): RunResult(seed, "finished", validation=one.validation, test=one.test)
        for (arm, seed), one in runs.items()
    }
    predictions = {place: np.array(one.predictions)[:, None] for place, one in runs.items()}
    return compare_arms(arms, results, predictions, targets, task, dataset)


def column(*labels: float) -> np.ndarray:
    return np.array(labels)[:, None]


def test_differences_are_treatment_minus_baseline_over_the_seeds_that_both_have() -> None:
    runs = {
        ("ln+ln", 0): run(0.6, 0.5, 0, 9, 3, 7),
        ("ln+ln", 1): run(0.8, 0.7, 2, 9, 3, 3),
        ("ln+ln", 2): run(9.0, 9.0, 9, 9, 9, 9),
        ("bn+ln", 0): run(0.7, 0.4, 1, 0, 4, 5),
        ("bn+ln", 1): run(1.1, 0.4, 1, 0, 2, 6),
    }
    targets = column(1, math.nan, 3, 5)
    arms = comparison("ln+ln", "bn+bn", "bn+ln")
    (found,) = compare(arms, runs, targets)
    assert (found.arm, found.baseline, found.seeds) == ("bn+ln", "ln+ln", (0, 1))
    assert found.validation.mean == pytest.approx(0.2)
    assert found.test.mean == pytest.approx(-0.2)
    assert found.test.baseline_mean == pytest.approx(0.6)
    # Errors are averaged over the seeds, not those of the average: 1, 0, 2 become 0, 1, 1/2.
    errors = found.per_molecule
    assert errors.molecules == 3
    assert errors.mean == pytest.approx((-1 + 1 - 1.5) / 3)
    assert (errors.improved, errors.worsened) == pytest.approx((2 / 3, 1 / 3))


def test_areas_are_those_of_the_scores_averaged_over_the_seeds() -> None:
    runs = {
        ("ln+ln", 0): run(0.5, 0.5, 0.1, 0.3, 0.9, 0.9),
        ("ln+ln", 1): run(0.5, 0.5, 0.1, 0.3, 0.1, 0.9),  # on average 0.1, 0.3, 0.5, 0.9
        ("bn+ln", 0): run(0.5, 0.5, 0.1, 0.6, 0.2, 0.7),
        ("bn+ln", 1): run(0.5, 0.5, 0.1, 0.6, 0.2, 0.7),
    }
    targets = column(0, 1, 0, 1)
    (found,) = compare(comparison("ln+ln", "bn+ln"), runs, targets, BINARY)
    areas = found.per_molecule.delong
    assert (areas.auc_a, areas.auc_b, areas.difference) == (0.75, 1.0, 0.25)
    assert found.per_molecule.positives == 2
    # Of the baseline's area: placements of 1, 2 and 2, 1 of two pairs each.
    assert found.per_molecule.standard_error == pytest.approx(math.sqrt(1 / 8))


@pytest.mark.parametrize(
    ("task", "targets", "prediction"),
    [
        (REGRESSION, (1, math.nan, math.nan), 2.0),  # of one molecule
        (REGRESSION, (1, 2, 3), math.nan),
        (BINARY, (1, 1, math.nan), 0.5),  # of one class
        (BINARY, (0, 1, 1), math.nan),
        (BINARY, (math.nan, math.nan, math.nan), 0.5),
    ],
)
def test_of_molecules_nothing_is_said_where_it_cannot_be_told(
    task: Task, targets: tuple[float, ...], prediction: float
) -> None:
    runs = {("ln+ln", 0): run(1, 1, 0.2, 0.3, 0.4), ("bn+ln", 0): run(1, 1, prediction, 0.5, 0.1)}
    (found,) = compare(comparison("ln+ln", "bn+ln"), runs, column(*targets), task)
    assert found.per_molecule is None
    assert found.test is not None


def test_a_metric_that_is_undefined_is_no_difference_and_no_test_to_adjust_for() -> None:
    rng = np.random.default_rng(0)
    runs = {
        (norm, seed): run(1.0, value, *rng.normal(size=3))
        for norm, values in {
            "ln+ln": (0.5, 0.6, 0.7),
            "bn+ln": (0.3, 0.5, 0.65),
            "bn+bn": (0.4, math.nan, 0.5),
            "ln+bn": (0.6, 0.5, 0.8),
        }.items()
        for seed, value in enumerate(values)
    }
    arms = comparison("ln+ln", "bn+ln", "bn+bn", "ln+bn")
    better, undefined, worse = compare(arms, runs, column(0, 1, 2))
    assert undefined.test is None
    assert math.isnan(undefined.holm_p)
    assert undefined.validation.mean == 0
    assert better.test.p_value == better.smallest_holm_p / 2 == 0.25
    assert better.holm_p == 0.5  # the smaller of two p-values, not of three
    assert worse.holm_p == max(0.5, worse.test.p_value)


@pytest.mark.parametrize(
    ("dataset", "percent", "words"),
    [
        ("zinc", -24.6, "MAE 0.069 to 0.052"),
        ("zinc-subset", -12.2, "MAE 0.164 to 0.144"),
        ("ogbg-molhiv", 3.1, "ROC-AUC 73.36 % to 75.64 %, +2.28 points"),
        ("esol", math.nan, None),
    ],
)
def test_numbers_of_the_paper_are_of_sepnorm_against_sharenorm(
    dataset: str, percent: float, words: str | None
) -> None:
    norms = ("sharenorm", "sepnorm", "bn+bn", "ln+ln")
    runs = {(norm, 0): run(0.5, 0.5, 0, 1, 2) for norm in norms}
    found = compare(comparison(*norms), runs, column(0, 1, 2), REGRESSION, dataset)
    quoted = [one.paper_relative_percent for one in found]
    assert quoted == pytest.approx([percent, percent, math.nan], nan_ok=True)
    assert words is None or paper_in_words(dataset) == words
    # Not of arms that differ in more.
    arms = comparison(*norms)
    narrow = Arm("sepnorm", {"model.norm": "sepnorm", "model.width": 40})
    others = replace(arms, arms=(arms.arms[0], narrow))
    (found,) = compare(others, runs, column(0, 1, 2), REGRESSION, dataset)
    assert math.isnan(found.paper_relative_percent)
