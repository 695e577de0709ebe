"""What may be said of an arm: the one rule that every sentence and table of a report goes by.

An arm *is better* or *is worse* than the baseline if Holm's p is below 0.05 and the interval over
the seeds leaves out 0. If only the interval does, which few seeds cannot change, the difference is
*not significant*; all else is *not resolved*.
"""

from __future__ import annotations

import itertools
from typing import Any, Literal

from graphormer_sepnorm.compare.report.data import Results, arm_of
from graphormer_sepnorm.compare.statistics import holm, smallest_sign_flip_p

SIGNIFICANT = 0.05

Verdict = Literal["better", "worse", "not significant", "not resolved"]


def verdict(results: Results, comparison: dict[str, Any]) -> Verdict:
    """Return what may be said of a comparison of ``results["comparisons"]``."""
    test, p = comparison["test"], comparison["holm_p"]
    if not test["resolved"]:
        return "not resolved"
    if p is None or p >= SIGNIFICANT:
        return "not significant"
    return "better" if (test["mean"] < 0) == (results["better"] == "lower") else "worse"


def rule(comparisons: int) -> str:
    """The rule in words, for a report on so many comparisons."""
    p = f"Holm's p over the {comparisons} comparisons" if comparisons > 1 else "p"
    level = f"{SIGNIFICANT:g}"
    return (
        f"An arm is called better or worse if {p} is below {level} and the t interval over the "
        f"seeds leaves out 0; not significant if only the interval does; else not resolved."
    )


def agreeing_seeds(results: Results, comparison: dict[str, Any]) -> int:
    """In how many seeds the difference has the sign of the mean difference."""
    before, after = (
        {run["seed"]: run["test"] for run in arm_of(results, comparison[side])["runs"]}
        for side in ("baseline", "arm")
    )
    lower = comparison["test"]["mean"] < 0
    return sum(
        (after[seed] < before[seed]) if lower else (after[seed] > before[seed])
        for seed in comparison["seeds"]
    )


def seeds_needed(comparisons: int) -> int:
    """The fewest seeds with which so many comparisons can have a Holm's p below 0.05."""
    return next(
        seeds
        for seeds in itertools.count(1)
        if holm([smallest_sign_flip_p(seeds)] * comparisons).max() < SIGNIFICANT
    )
