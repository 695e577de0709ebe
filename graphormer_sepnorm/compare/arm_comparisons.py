"""Every arm of a comparison against its baseline, over the seeds and over the test molecules."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from graphormer_sepnorm.compare.comparison import Comparison
from graphormer_sepnorm.compare.results_file import ArmComparison
from graphormer_sepnorm.compare.roc_statistics import (
    AreaTests,
    auc_standard_error,
    delong,
)
from graphormer_sepnorm.compare.statistics import (
    PairedDifference,
    PairedErrors,
    holm,
    paired_difference,
    paired_errors,
)
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.model.norm_arms import norm_name

# Graphormer without and with SepNorm in the paper's table of graph tasks (Chen et al. 2023): test
# MAE, for ogbg-molhiv test ROC-AUC; single numbers, without seeds, of a variant that is not named.
_PAPER = {"zinc": (0.069, 0.052), "zinc-subset": (0.164, 0.144), "ogbg-molhiv": (0.7336, 0.7564)}


class FinishedRun(NamedTuple):
    """Its metrics, nan where undefined, and what it predicts ``[G, T]`` of the test split."""

    validation: float
    test: float
    predictions: np.ndarray


def compare_arms(
    comparison: Comparison,
    runs: Mapping[tuple[str, int], FinishedRun],
    targets: np.ndarray,
    task: Task,
    dataset: str,
) -> list[ArmComparison]:
    """Compare every arm with the baseline, over the seeds that both have finished.

    Args:
        comparison: Arms, seeds and baseline.
        runs: The finished ones, by arm and seed.
        targets: ``[G, T]`` of the test split, nan where a label is missing.
        task: What is predicted.
        dataset: Its name.

    Returns:
        One per arm that has a seed in common with the baseline, in the order of the arms.
    """
    baseline, found = comparison.baseline, []
    for arm in comparison.arms:
        seeds = [s for s in comparison.seeds if {(arm.name, s), (baseline, s)} <= runs.keys()]
        if arm.name == baseline or not seeds:
            continue
        before = [runs[baseline, seed] for seed in seeds]
        after = [runs[arm.name, seed] for seed in seeds]
        found.append(
            ArmComparison(
                arm=arm.name,
                baseline=baseline,
                seeds=tuple(seeds),
                validation=_difference(before, after, "validation"),
                test=_difference(before, after, "test"),
                per_molecule=_per_molecule(before, after, targets[:, 0], task.kind == "binary"),
                paper_relative_percent=_paper(comparison, arm.name, dataset),
            )
        )
    adjusted = holm([one.test.p_value if one.test else math.nan for one in found])
    smallest = holm([one.test.smallest_p if one.test else math.nan for one in found])
    return [
        replace(one, holm_p=p, smallest_holm_p=least)
        for one, p, least in zip(found, adjusted.tolist(), smallest.tolist(), strict=True)
    ]


def _difference(
    before: Sequence[FinishedRun], after: Sequence[FinishedRun], metric: str
) -> PairedDifference | None:
    """None where the metric is undefined for a seed, or there was no validation."""
    sides = [[getattr(run, metric) for run in side] for side in (before, after)]
    return paired_difference(*sides) if np.isfinite(sides).all() else None


def _per_molecule(
    before: Sequence[FinishedRun], after: Sequence[FinishedRun], target: np.ndarray, binary: bool
) -> PairedErrors | AreaTests | None:
    """The errors for the first target, or its areas under the ROC; None where it cannot be told."""
    known = np.isfinite(target)
    truth = target[known]
    sides = [np.stack([run.predictions[known, 0] for run in side]) for side in (before, after)]
    if not len(truth) or not np.isfinite(sides).all():
        return None
    if not binary:
        errors = (np.abs(side - truth).mean(axis=0) for side in sides)
        return paired_errors(*errors) if len(truth) > 1 else None
    if len(np.unique(truth)) < 2:
        return None
    scores = [side.mean(axis=0) for side in sides]
    error = auc_standard_error(truth, scores[0])
    return AreaTests(delong(truth, *scores), int(truth.sum()), error)


def _paper(comparison: Comparison, name: str, dataset: str) -> float:
    """The relative change in percent that the paper reports: SepNorm against ShareNorm only."""
    options = {arm.name: arm.options for arm in comparison.arms}
    before, after = options[comparison.baseline], options[name]
    if not (set(before) == set(after) == {"model.norm"}):
        return math.nan
    norms = norm_name(before["model.norm"]), norm_name(after["model.norm"])
    if dataset not in _PAPER or norms[0] != "shared-ln" or norms[1] not in ("bn+ln", "bn+bn"):
        return math.nan
    without, with_sepnorm = _PAPER[dataset]
    return round(100 * (with_sepnorm - without) / without, 1)


def paper_in_words(dataset: str) -> str:
    """What the paper reports for one of its data sets, as ``MAE 0.069 to 0.052``."""
    without, with_sepnorm = _PAPER[dataset]
    if dataset != "ogbg-molhiv":
        return f"MAE {without:.3f} to {with_sepnorm:.3f}"
    points = 100 * (with_sepnorm - without)
    return f"ROC-AUC {100 * without:.2f} % to {100 * with_sepnorm:.2f} %, {points:+.2f} points"
