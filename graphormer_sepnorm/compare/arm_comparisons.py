"""Every arm of a comparison against its baseline, over the seeds and over the test molecules."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from graphormer_sepnorm.compare.comparison import Comparison
from graphormer_sepnorm.compare.roc_statistics import (
    AreaTests,
    auc_standard_error,
    delong,
    paired_bootstrap_auc,
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


@dataclass(frozen=True)
class FinishedRun:
    """What a finished run came to.

    Attributes:
        validation: Best validation metric; nan if there is none.
        test: Test metric of that checkpoint; nan if it is undefined.
        predictions: ``[G, T]`` of the test split, real units or probabilities.
    """

    validation: float
    test: float
    predictions: np.ndarray


@dataclass(frozen=True)
class ArmComparison:
    """An arm against the baseline, over the seeds that both have finished.

    Attributes:
        arm: Its name.
        baseline: The baseline's.
        seeds: Which they are.
        validation: Difference of the metric; None where it is undefined for some seed.
        test: The same on the test split.
        per_molecule: Of the first target; None where it cannot be told.
        paper_relative_percent: What the paper reports for such a comparison; nan if nothing.
        holm_p: The p-value of `test`, adjusted for all arms; nan without it.
        smallest_holm_p: The smallest that so many seeds and arms allow.
    """

    arm: str
    baseline: str
    seeds: tuple[int, ...]
    validation: PairedDifference | None
    test: PairedDifference | None
    per_molecule: PairedErrors | AreaTests | None
    paper_relative_percent: float = math.nan
    holm_p: float = math.nan
    smallest_holm_p: float = math.nan


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
    baseline = comparison.baseline
    found = []
    for arm in comparison.arms:
        seeds = [s for s in comparison.seeds if {(arm.name, s), (baseline, s)} <= runs.keys()]
        if arm.name == baseline or not seeds:
            continue
        before = [runs[baseline, seed] for seed in seeds]
        after = [runs[arm.name, seed] for seed in seeds]
        found.append(
            ArmComparison(
                arm.name,
                baseline,
                tuple(seeds),
                _difference([run.validation for run in before], [run.validation for run in after]),
                _difference([run.test for run in before], [run.test for run in after]),
                _per_molecule(
                    np.stack([run.predictions[:, 0] for run in before]),
                    np.stack([run.predictions[:, 0] for run in after]),
                    targets[:, 0],
                    task.kind == "binary",
                ),
                _paper(comparison, arm.name, dataset),
            )
        )
    adjusted = holm([one.test.p_value if one.test else math.nan for one in found])
    smallest = holm([one.test.smallest_p if one.test else math.nan for one in found])
    return [
        replace(one, holm_p=p, smallest_holm_p=least)
        for one, p, least in zip(found, adjusted.tolist(), smallest.tolist(), strict=True)
    ]


def _difference(before: Sequence[float], after: Sequence[float]) -> PairedDifference | None:
    if not np.isfinite([*before, *after]).all():
        return None  # an AUROC that is undefined, or a run without validation
    return paired_difference(before, after)


def _per_molecule(
    before: np.ndarray, after: np.ndarray, target: np.ndarray, binary: bool
) -> PairedErrors | AreaTests | None:
    """The errors for the first target ``[seeds, G]``, or its areas under the ROC."""
    known = np.isfinite(target)
    before, after, truth = before[:, known], after[:, known], target[known]
    if not known.any() or not (np.isfinite(before).all() and np.isfinite(after).all()):
        return None
    if not binary:
        errors = (np.abs(side - truth).mean(axis=0) for side in (before, after))
        return paired_errors(*errors) if known.sum() > 1 else None
    if len(np.unique(truth)) < 2:
        return None
    scores = before.mean(axis=0), after.mean(axis=0)
    return AreaTests(
        delong(truth, *scores),
        paired_bootstrap_auc(truth, *scores),
        int(truth.sum()),
        auc_standard_error(truth, scores[0]),
    )


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
