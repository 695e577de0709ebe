"""The statistics of a paired comparison: the same seeds, folds or molecules under two arms.

Every difference is treatment minus baseline, so for an error a negative one is an improvement.
Comparisons of floats allow for rounding: two runs that give the same metric but for the order of
a sum are a tie. (`scipy.stats.permutation_test` misses ties that rounding hides, and takes half a
minute where the signs of four thousand molecules are sampled.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit

CONFIDENCE = 0.95  # of all intervals
SIGNIFICANT = 0.05
EXACT_UP_TO = 20
DRAWS = 99_999
# Parts of the molecules that a jackknife leaves out in turn.
_PARTS = 50

# Relative to the values compared: far above what summation in float64 loses, far below what a
# metric can mean.
_ROUNDING = 1e-12

# Norms ([CLS] + atoms) without and with a factor, and what the difference of their means is
# multiplied by: an interaction is a difference of effects, twice that of means. Of all six norms
# half of [CLS] and half of the atoms have BatchNorm on both sides, so that separation differs.
_SHARED, _SEPARATE = ("shared-ln", "shared-bn"), ("ln+ln", "ln+bn", "bn+ln", "bn+bn")
_EFFECTS = {
    "BatchNorm on the atoms": (("ln+ln", "bn+ln"), ("ln+bn", "bn+bn"), 1),
    "BatchNorm on [CLS]": (("ln+ln", "ln+bn"), ("bn+ln", "bn+bn"), 1),
    "interaction of the two": (("ln+bn", "bn+ln"), ("ln+ln", "bn+bn"), 2),
    "separation of LayerNorm": (("shared-ln",), ("ln+ln",), 1),
    "separation of BatchNorm": (("shared-bn",), ("bn+bn",), 1),
    "separation, the same kind on both": (_SHARED, ("ln+ln", "bn+bn"), 1),
    "separation, all six arms": (_SHARED, _SEPARATE, 1),
}


@dataclass(frozen=True, kw_only=True)
class MeanDifference:
    """The mean of paired differences, treatment - baseline, in the unit of what is compared.

    Attributes:
        mean: Of the n differences.
        low: Lower end of its t interval; nan of one pair.
        high: Its upper end.
        confidence: Of the interval.
        p_value: Two-sided.
    """

    mean: float
    low: float
    high: float
    confidence: float
    p_value: float

    @property
    def resolved(self) -> bool:
        """Whether the interval excludes 0.

        Never of one pair, and never if all differences are the same: then the seeds did nothing, or
        one run was counted twice, and the spread has not been measured.
        """
        return self.low < self.high and (self.low > 0 or self.high < 0)


@dataclass(frozen=True, kw_only=True)
class PairedDifference(MeanDifference):
    """A metric under two arms, each with the same seeds.

    Attributes:
        seeds: Number of pairs, n.
        baseline_mean: Mean of the metric under the baseline arm.
        treatment_mean: Mean of the metric under the treatment arm.
        sd: Standard deviation (n - 1) of the differences; nan with one seed.
        smallest_p: The smallest value that ``p_value`` can take with so many seeds.
        relative_percent: Mean difference in percent of the baseline mean's magnitude; nan if that
            is zero.
    """

    seeds: int
    baseline_mean: float
    treatment_mean: float
    sd: float
    smallest_p: float
    relative_percent: float


@dataclass(frozen=True, kw_only=True)
class FoldDifference(MeanDifference):
    """A metric of two models, on the same test folds.

    Attributes:
        folds: Number of pairs, n, of all repeats.
        baseline_mean: Mean of the metric under the baseline.
        treatment_mean: Mean of the metric under the treatment.
        standard_error: Of the mean, corrected for training sets that overlap; nan with one fold,
            and then, or if all differences are the same, so is ``p_value``.
    """

    folds: int
    baseline_mean: float
    treatment_mean: float
    standard_error: float


class _Pairs:
    """The differences of two columns ``[n]``; those that only rounding makes are 0."""

    def __init__(self, baseline: ArrayLike, treatment: ArrayLike) -> None:
        before, after = (np.asarray(side, dtype=np.float64) for side in (baseline, treatment))
        scale = np.maximum(np.abs(before), np.abs(after))
        self.differences = after - before
        self.differences[np.abs(self.differences) <= _ROUNDING * scale] = 0.0
        self.n = len(scale)
        self.rounding = _ROUNDING * float(scale.sum())
        self.means = {"baseline_mean": before.mean().item(), "treatment_mean": after.mean().item()}
        self.mean, sd = mean_sd(self.differences)
        self.sd = 0.0 if sd <= _ROUNDING * float(scale.max()) else sd


def _t_test(mean: float, error: float, n: int) -> dict[str, float]:
    """Student's interval and p-value of a mean of n values; nan of one of them."""
    half = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * error
    p = 2 * float(stdtr(n - 1, -abs(mean) / error)) if error > 0 else math.nan
    ends = {"low": mean - half, "high": mean + half}
    return {"mean": mean, **ends, "confidence": CONFIDENCE, "p_value": p}


def mean_sd(values: ArrayLike) -> tuple[float, float]:
    """Return the mean of ``[n]`` values and their standard deviation (n - 1), nan of one value."""
    column = np.asarray(values, dtype=np.float64)
    return float(column.mean()), float(column.std(ddof=1)) if len(column) > 1 else math.nan


def paired_difference(baseline: ArrayLike, treatment: ArrayLike) -> PairedDifference:
    """Compare a metric of two arms, trained with the same seeds.

    The interval is Student's, so it takes the differences to be normal; the p-value takes only
    their signs to be exchangeable (see `sign_flip_p`), and is coarse with few seeds. With 5 seeds
    or fewer it cannot go below 0.05, whatever the interval says.

    Args:
        baseline: The metric per seed, ``[n]``, all finite.
        treatment: The same seeds in the same order, ``[n]``.
    """
    pairs = _Pairs(baseline, treatment)
    reference = abs(pairs.means["baseline_mean"])
    p_value = sign_flip_p(pairs.differences, pairs.rounding)
    interval = _t_test(pairs.mean, pairs.sd / math.sqrt(pairs.n), pairs.n)
    return PairedDifference(
        seeds=pairs.n,
        sd=pairs.sd,
        **pairs.means,
        **(interval | {"p_value": p_value}),
        smallest_p=2.0 ** (1 - pairs.n) if pairs.n <= EXACT_UP_TO else 1 / (DRAWS + 1),
        relative_percent=100 * pairs.mean / reference if reference > 0 else math.nan,
    )


def verdict(difference: MeanDifference, adjusted_p: float, better: str = "") -> str:
    """Return what may be stated of a difference, by the one rule of all reports.

    It is significant if the p-value, adjusted for several comparisons, is below `SIGNIFICANT` and
    the interval excludes 0; *not significant* if only the interval does, which few seeds cannot
    change; and *not resolved* else.

    Args:
        difference: Treatment minus baseline.
        adjusted_p: See `holm`.
        better: Whether ``higher`` or ``lower`` is.

    Returns:
        ``better``, ``worse``, ``not significant`` or ``not resolved``; in place of the former two
        ``higher`` or ``lower`` if neither is better.
    """
    if not difference.resolved:
        return "not resolved"
    if not adjusted_p < SIGNIFICANT:
        return "not significant"
    direction = "higher" if difference.mean > 0 else "lower"
    return direction if not better else "better" if direction == better else "worse"


def fold_difference(
    baseline: ArrayLike, treatment: ArrayLike, train: float, test: float
) -> FoldDifference:
    """Compare a metric of two models, trained and tested on the same folds.

    By the corrected resampled t-test (Nadeau & Bengio 2003, Machine Learning 52:239-281), also for
    several repeats (Bouckaert & Frank 2004, PAKDD): training sets overlap, so that the differences
    are not independent, and the variance of their mean is taken as their variance times
    (1/n + test/train) instead of 1/n. Without it a t-test finds differences that are none.

    Args:
        baseline: The metric per fold, ``[n]``, all finite.
        treatment: The same folds in the same order, ``[n]``.
        train: Molecules in the training split of a fold, or their mean.
        test: Molecules in its test split.
    """
    pairs = _Pairs(baseline, treatment)
    error = pairs.sd * math.sqrt(1 / pairs.n + test / train)
    tested = _t_test(pairs.mean, error, pairs.n)
    return FoldDifference(folds=pairs.n, standard_error=error, **pairs.means, **tested)


def jackknifed(value: Callable[[np.ndarray], float], molecules: int) -> MeanDifference:
    """Evaluate a difference of two models over molecules, as of an area under the ROC curve.

    By the jackknife that leaves out a part of the molecules at a time (Shao and Wu 1989, Annals of
    Statistics 17:1176-1197). Of a mean of no more losses than parts it is the paired t-test.

    Args:
        value: The difference over some of the molecules, bool ``[n]``; nan: undefined.
        molecules: How many there are, n.

    Returns:
        Interval and p-value are nan where the difference is not defined without a part.
    """
    parts = np.random.default_rng(0).permutation(molecules) % _PARTS
    whole = value(parts >= 0)
    without = np.array([value(parts != part) for part in np.unique(parts)])
    count = len(without)
    # Of the jackknife, from its standard deviation.
    error = (count - 1) / math.sqrt(count) * mean_sd(without)[1] if count > 1 else math.nan
    return MeanDifference(**_t_test(whole, error, count))


def sign_flip_p(differences: ArrayLike, tolerance: float = 0.0) -> float:
    """Return the two-sided randomization p-value of a mean of paired differences.

    If the arms do not differ, each difference could as well have had the other sign. The p-value
    is the share of all 2^n assignments of signs whose mean is at least as far from zero as the
    one observed (Fisher 1935, The Design of Experiments, section 21).

    With more than `EXACT_UP_TO` differences the assignments are sampled: k of m reach the observed
    mean, and (k + 1) / (m + 1) is returned (Phipson & Smyth 2010, Statistical Applications in
    Genetics and Molecular Biology 9:39). The same differences always give the same p-value.

    Args:
        differences: ``[n]``, in any unit.
        tolerance: Sums that differ by no more than this, in the same unit, are ties.
    """
    column = np.asarray(differences, dtype=np.float64)
    threshold = abs(float(column.sum())) - tolerance - _ROUNDING * float(np.abs(column).sum())
    if len(column) <= EXACT_UP_TO:
        # The other half of the assignments are these with every sign reversed.
        sums = column[:1]
        for difference in column[1:]:
            sums = np.concatenate((sums + difference, sums - difference))
        return float((np.abs(sums) >= threshold).mean())
    # Eight signs are one random byte, and the 256 sums it can stand for are in a table.
    generator = np.random.default_rng(0)
    signs = 1.0 - 2.0 * np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
    sums = np.zeros(DRAWS)
    for start in range(0, len(column), 8):
        block = column[start : start + 8]
        table = signs[:, : len(block)] @ block
        sums += table[generator.integers(0, 256, DRAWS, dtype=np.uint8)]
    return (int((np.abs(sums) >= threshold).sum()) + 1) / (DRAWS + 1)


def holm(p_values: ArrayLike) -> np.ndarray:
    """Adjust p-values for several comparisons by Holm's step-down method.

    Rejecting where the result is at most 0.05 keeps the chance of any false rejection at 0.05 or
    less, however the tests depend on each other (Holm 1979, Scandinavian Journal of Statistics
    6:65-70).

    Args:
        p_values: ``[m]``; nan where a test could not be made, which then does not count.

    Returns:
        float64 ``[m]`` in the same order, at most 1; nan where it was nan.
    """
    raw = np.asarray(p_values, dtype=np.float64)
    made = np.flatnonzero(~np.isnan(raw))
    ascending = made[np.argsort(raw[made], kind="stable")]
    steps = raw[ascending] * np.arange(len(made), 0, -1)
    adjusted = np.full(len(raw), np.nan)
    adjusted[ascending] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def norm_effects(values: Mapping[str, Mapping[int, float]]) -> dict[str, PairedDifference]:
    """Return the effects of BatchNorm and of separation, by name, as far as the norms allow.

    An effect is the mean of the norms that have something minus the mean of those that have not,
    for each seed; over the seeds it is treated as the difference of two arms is.

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
