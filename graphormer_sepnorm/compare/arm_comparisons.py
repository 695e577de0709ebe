"""What differs between arms: each against the baseline, and factors where they form a factorial.

Arms are cells of a factorial if they are {LayerNorm, BatchNorm} for [CLS] x the same for the atoms,
each of its own, or {one norm shared by both, separate ones} x {LayerNorm, BatchNorm}. An effect is
the mean of the cells that have something less the mean of those that have not, for each seed that
all of them have finished; over the seeds it is treated as the difference of two arms is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from graphormer_sepnorm.compare.arms import NORM
from graphormer_sepnorm.compare.results_file import ArmComparison, ArmResult, Results, RunResult
from graphormer_sepnorm.compare.roc_statistics import AreaTests, auc_standard_error, delong
from graphormer_sepnorm.compare.statistics import (
    PairedDifference,
    PairedErrors,
    holm,
    paired_difference,
    paired_errors,
)
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.model.config import NORM_ALIASES, norm_name
from graphormer_sepnorm.runs.plan import Comparison

# Graphormer without and with SepNorm in the paper's table of graph tasks (Chen et al. 2023): test
# MAE, for ogbg-molhiv test ROC-AUC; single numbers, without seeds, of a variant that is not named.
_PAPER = {"zinc": (0.069, 0.052), "zinc-subset": (0.164, 0.144), "ogbg-molhiv": (0.7336, 0.7564)}

_FACTORIALS = ({"ln+ln", "ln+bn", "bn+ln", "bn+bn"}, {"shared-ln", "shared-bn", "ln+ln", "bn+bn"})
_SHARED, _SEPARATE = ("shared-ln", "shared-bn"), ("ln+ln", "ln+bn", "bn+ln", "bn+bn")
# Norms ([CLS] + atoms) without and with it, and what the difference of their means is multiplied
# by: an interaction is a difference of effects, twice that of means. Of all six arms half of [CLS]
# and half of the atoms have BatchNorm on both sides, so that separation is what differs.
_EFFECTS = {
    "BatchNorm on the atoms": (("ln+ln", "bn+ln"), ("ln+bn", "bn+bn"), 1),
    "BatchNorm on [CLS]": (("ln+ln", "ln+bn"), ("bn+ln", "bn+bn"), 1),
    "interaction of the two": (("ln+bn", "bn+ln"), ("ln+ln", "bn+bn"), 2),
    "separation of LayerNorm": (("shared-ln",), ("ln+ln",), 1),
    "separation of BatchNorm": (("shared-bn",), ("bn+bn",), 1),
    "separation, the same kind on both": (_SHARED, ("ln+ln", "bn+bn"), 1),
    "separation, all six arms": (_SHARED, _SEPARATE, 1),
}


def compare_arms(
    comparison: Comparison,
    runs: Mapping[tuple[str, int], RunResult],
    predictions: Mapping[tuple[str, int], np.ndarray],
    targets: np.ndarray,
    task: Task,
    dataset: str,
) -> tuple[ArmComparison, ...]:
    """Compare every arm with the baseline, over the seeds that both have finished.

    Args:
        comparison: Arms, seeds and baseline.
        runs: By arm and seed.
        predictions: ``[G, T]`` of the test split, real units or probabilities, of each run that is
            finished.
        targets: ``[G, T]`` of the test split, nan where a label is missing.
        task: What is predicted.
        dataset: Its name.

    Returns:
        One per arm that has a seed in common with the baseline.
    """
    baseline, found = comparison.baseline, []
    for arm in comparison.arms:
        known = predictions.keys()
        seeds = [s for s in comparison.seeds if {(arm.name, s), (baseline, s)} <= known]
        if arm.name == baseline or not seeds:
            continue
        sides = [[(name, seed) for seed in seeds] for name in (baseline, arm.name)]
        found.append(
            ArmComparison(
                arm=arm.name,
                baseline=baseline,
                seeds=tuple(seeds),
                validation=_difference([[runs[one].validation for one in side] for side in sides]),
                test=_difference([[runs[one].test for one in side] for side in sides]),
                per_molecule=_per_molecule(
                    [np.stack([predictions[one][:, 0] for one in side]) for side in sides],
                    targets[:, 0],
                    task.kind == "binary",
                ),
                paper_relative_percent=_paper(comparison, arm.name, dataset),
            )
        )
    adjusted = holm([one.test.p_value if one.test else math.nan for one in found])
    smallest = holm([one.test.smallest_p if one.test else math.nan for one in found])
    return tuple(
        replace(one, holm_p=p, smallest_holm_p=least)
        for one, p, least in zip(found, adjusted.tolist(), smallest.tolist(), strict=True)
    )


def _difference(sides: Sequence[Sequence[float]]) -> PairedDifference | None:
    """None where the metric is undefined for a seed, or there was no validation."""
    return paired_difference(*sides) if np.isfinite(sides).all() else None


def _per_molecule(
    sides: Sequence[np.ndarray], target: np.ndarray, binary: bool
) -> PairedErrors | AreaTests | None:
    """The errors for the first target ``[seeds, G]``, or its areas under the ROC."""
    known = np.isfinite(target)
    truth, sides = target[known], [side[:, known] for side in sides]
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
    if not (set(before) == set(after) == {NORM}):
        return math.nan
    without, with_sepnorm = (paper_value(dataset, side[NORM]) for side in (before, after))
    if norm_name(before[NORM]) != "shared-ln" or norm_name(after[NORM]) == "shared-ln":
        return math.nan
    return round(100 * (with_sepnorm - without) / without, 1)


def paper_value(dataset: str, norm: str) -> float:
    """The test metric that the paper reports for a data set: nan if nothing of such a norm."""
    without, with_sepnorm = _PAPER.get(dataset, (math.nan, math.nan))
    of_norm = {"shared-ln": without, "bn+ln": with_sepnorm, "bn+bn": with_sepnorm}
    return of_norm.get(norm_name(norm), math.nan)


def paper_in_words(dataset: str) -> str:
    """What the paper reports for one of its data sets, as ``MAE 0.069 to 0.052``."""
    without, with_sepnorm = _PAPER[dataset]
    if dataset != "ogbg-molhiv":
        return f"MAE {without:.3f} to {with_sepnorm:.3f}"
    points = 100 * (with_sepnorm - without)
    return f"ROC-AUC {100 * without:.2f} % to {100 * with_sepnorm:.2f} %, {points:+.2f} points"


@dataclass(frozen=True)
class FactorEffect:
    """The effect of a factor on the test metric.

    Attributes:
        name: Of the effect; with the other options of its arms, if there are several factorials.
        difference: With it less without it, paired by seed.
        holm_p: Its p-value, adjusted for all effects.
    """

    name: str
    difference: PairedDifference
    holm_p: float = 1.0


def factor_effects(results: Results) -> list[FactorEffect]:
    """Return the effects of all factorials among the arms; empty if they form none.

    Arms are of one factorial if they have the same options but for the norm. An effect is left out
    if no seed is finished under all arms that it is taken from.
    """
    cells: dict[str, dict[str, ArmResult]] = {}
    for arm in results.arms:
        options = {name: value for name, value in arm.options.items() if name != NORM}
        others = ", ".join(f"{name}={value}" for name, value in sorted(options.items()))
        cells.setdefault(others, {})[_norm(results, arm)] = arm
    factorials = {
        others: of_norm
        for others, of_norm in cells.items()
        if any(norms <= of_norm.keys() for norms in _FACTORIALS)
    }
    found = []
    for others, of_norm in factorials.items():
        for name, difference in norm_effects({n: arm.tests for n, arm in of_norm.items()}).items():
            title = f"{name}, {others}" if len(factorials) > 1 else name
            found.append(FactorEffect(title, difference))
    adjusted = holm([one.difference.p_value for one in found]).tolist()
    return [replace(one, holm_p=p) for one, p in zip(found, adjusted, strict=True)]


def norm_effects(values: Mapping[str, Mapping[int, float]]) -> dict[str, PairedDifference]:
    """Return the effects of BatchNorm and of separation, by name, as far as the norms allow.

    Args:
        values: A metric by canonical name of the norm, and by seed. The seeds that all norms of an
            effect have are taken.
    """
    found = {}
    for name, (without, having, times) in _EFFECTS.items():
        if not {*without, *having} <= values.keys():
            continue
        seeds = [s for s in values[without[0]] if all(s in values[n] for n in (*without, *having))]
        if seeds:
            sides = (
                [times * sum(values[norm][seed] for norm in side) / len(side) for seed in seeds]
                for side in (without, having)
            )
            found[name] = paired_difference(*sides)
    return found


def _norm(results: Results, arm: ArmResult) -> str:
    """The norm of an arm, its own or that of all of them, without an alias."""
    name = arm.options.get(NORM) or str(results.configuration.get("model", {}).get("norm"))
    return NORM_ALIASES.get(name.lower(), name.lower())
