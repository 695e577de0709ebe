"""What may be said of an arm: the one rule that every sentence and table of a report goes by.

An arm *is better* or *is worse* than the baseline if Holm's p is below 0.05 and the interval over
the seeds leaves out 0. If only the interval does, which few seeds cannot change, the difference is
*not significant*; all else is *not resolved*.
"""

from __future__ import annotations

import itertools
from typing import Literal

from graphormer_sepnorm.compare.arm_comparisons import ArmComparison
from graphormer_sepnorm.compare.results_file import Results
from graphormer_sepnorm.compare.statistics import holm, smallest_sign_flip_p

SIGNIFICANT = 0.05

Verdict = Literal["better", "worse", "not significant", "not resolved"]


def verdict(results: Results, comparison: ArmComparison) -> Verdict:
    """Return what may be said of one of the comparisons that could be made."""
    test = comparison.test
    if test is None or not test.resolved:
        return "not resolved"
    if not comparison.holm_p < SIGNIFICANT:
        return "not significant"
    return "better" if (test.mean < 0) == (results.better == "lower") else "worse"


def rule(comparisons: int) -> str:
    """The rule in words, for a report on so many comparisons."""
    p = f"Holm's p over the {comparisons} comparisons" if comparisons > 1 else "p"
    return (
        f"An arm is called better or worse if {p} is below {SIGNIFICANT:g} and the t interval over "
        "the seeds leaves out 0; not significant if only the interval does; else not resolved."
    )


def seeds_needed(comparisons: int) -> int:
    """The fewest seeds with which so many comparisons can have a Holm's p below 0.05."""
    return next(
        seeds
        for seeds in itertools.count(1)
        if holm([smallest_sign_flip_p(seeds)] * comparisons).max() < SIGNIFICANT
    )
