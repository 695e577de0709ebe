"""Every arm of a comparison against its baseline, over the seeds and over the test molecules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from graphormer_sepnorm.compare.comparison import Comparison
from graphormer_sepnorm.compare.paper import relative_percent
from graphormer_sepnorm.compare.roc_statistics import (
    auc_standard_error,
    delong,
    paired_bootstrap_auc,
)
from graphormer_sepnorm.compare.statistics import holm, paired_difference, paired_errors
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.model.norm_arms import norm_name


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


def compare_arms(
    comparison: Comparison,
    runs: Mapping[tuple[str, int], FinishedRun],
    targets: np.ndarray,
    task: Task,
    dataset: str,
) -> list[dict[str, Any]]:
    """Compare every arm with the baseline, over the seeds that both have finished.

    Args:
        comparison: Arms, seeds and baseline.
        runs: The finished ones, by arm and seed.
        targets: ``[G, T]`` of the test split, nan where a label is missing.
        task: What is predicted.
        dataset: Its name.

    Returns:
        One entry per arm that has a seed in common with the baseline, in the order of the arms.
        ``validation`` and ``test`` are None where a metric is undefined for some seed.
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
            {
                "arm": arm.name,
                "baseline": baseline,
                "seeds": seeds,
                "validation": _difference(
                    [run.validation for run in before], [run.validation for run in after]
                ),
                "test": _difference([run.test for run in before], [run.test for run in after]),
                "per_molecule": _per_molecule(
                    np.stack([run.predictions[:, 0] for run in before]),
                    np.stack([run.predictions[:, 0] for run in after]),
                    targets[:, 0],
                    task.kind == "binary",
                ),
                "paper_relative_percent": _paper(comparison, arm.name, dataset),
            }
        )
    for name, value in (("holm_p", "p_value"), ("smallest_holm_p", "smallest_p")):
        adjusted = holm([one["test"][value] if one["test"] else np.nan for one in found])
        for one, p in zip(found, adjusted.tolist(), strict=True):
            one[name] = p
    return found


def _difference(before: Sequence[float], after: Sequence[float]) -> dict[str, Any] | None:
    if not np.isfinite([*before, *after]).all():
        return None  # an AUROC that is undefined, or a run without validation
    difference = paired_difference(before, after)
    return asdict(difference) | {"resolved": difference.resolved}


def _per_molecule(
    before: np.ndarray, after: np.ndarray, target: np.ndarray, binary: bool
) -> dict[str, Any] | None:
    """The errors for the first target ``[seeds, G]``, or its areas under the ROC."""
    known = np.isfinite(target)
    before, after, truth = before[:, known], after[:, known], target[known]
    if not known.any() or not (np.isfinite(before).all() and np.isfinite(after).all()):
        return None
    if not binary:
        errors = (np.abs(side - truth).mean(axis=0) for side in (before, after))
        return asdict(paired_errors(*errors)) if known.sum() > 1 else None
    if len(np.unique(truth)) < 2:
        return None
    scores = before.mean(axis=0), after.mean(axis=0)
    return {
        "delong": asdict(delong(truth, *scores)),
        "bootstrap": asdict(paired_bootstrap_auc(truth, *scores)),
        "positives": int(truth.sum()),
        "standard_error": auc_standard_error(truth, scores[0]),
    }


def _paper(comparison: Comparison, name: str, dataset: str) -> float | None:
    """What the paper reports for such a comparison: SepNorm against ShareNorm, nothing else."""
    options = {arm.name: arm.options for arm in comparison.arms}
    before, after = options[comparison.baseline], options[name]
    if not (set(before) == set(after) == {"model.norm"}):
        return None
    norms = norm_name(before["model.norm"]), norm_name(after["model.norm"])
    if norms[0] != "shared-ln" or norms[1] not in ("bn+ln", "bn+bn"):
        return None
    return relative_percent(dataset)
