"""The statistics of a comparison: runs of several arms, or folds of two models.

Every difference is treatment minus baseline, so for an error a negative one is an improvement.
Arms are compared by the logarithms of their errors, so that differences are ratios of errors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaincinv, nctdtr, ndtr, ndtri, stdtr, stdtrit

from graphormer_sepnorm.compare.arms import SIGNIFICANT
from graphormer_sepnorm.formatting import count

CONFIDENCE = 0.95  # of all intervals
# Standard deviation of the logarithm of a test error from seed to seed: the median of the eight
# settings of docs/experiments/findings.md, which have 2.0 to 6.0 %.
TYPICAL_SD = 0.033
EXACT_UP_TO = 20
DRAWS = 99_999

# Relative to the values compared: far above what summation in float64 loses, far below what a
# metric can mean.
_ROUNDING = 1e-12

# Gauss and Legendre's nodes and weights, moved to (0, 1).
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(80)
_QUANTILES, _WEIGHTS = (_NODES + 1) / 2, _WEIGHTS / 2

# Norms ([CLS] + atoms) without and with a factor, and what the difference of their means is
# multiplied by: an interaction is a difference of effects, twice that of means. Of all six norms
# half of [CLS] and half of the atoms have BatchNorm on both sides, so that separation differs.
_SHARED, _SEPARATE = ("shared-ln", "shared-bn"), ("ln+ln", "ln+bn", "bn+ln", "bn+bn")
Sides = tuple[Sequence[str], Sequence[str], int]
_EFFECTS: dict[str, Sides] = {
    "BatchNorm on the atoms": (("ln+ln", "bn+ln"), ("ln+bn", "bn+bn"), 1),
    "BatchNorm on [CLS]": (("ln+ln", "ln+bn"), ("bn+ln", "bn+bn"), 1),
    "interaction of the two": (("ln+bn", "bn+ln"), ("ln+ln", "bn+bn"), 2),
    "separation of LayerNorm": (("shared-ln",), ("ln+ln",), 1),
    "separation of BatchNorm": (("shared-bn",), ("bn+bn",), 1),
    "separation, the same kind on both": (_SHARED, ("ln+ln", "bn+bn"), 1),
    "separation, all six arms": (_SHARED, _SEPARATE, 1),
}
# What is pooled over settings whose arms are norms.
CONTRASTS: dict[str, Sides] = {
    "shared BatchNorm vs ShareNorm": (("shared-ln",), ("shared-bn",), 1),
    "SepNorm vs ShareNorm": (("shared-ln",), ("bn+ln",), 1),
    "shared BatchNorm vs SepNorm": (("bn+ln",), ("shared-bn",), 1),
    "separate vs shared BatchNorm": (("shared-bn",), ("bn+bn",), 1),
    "separate vs shared LayerNorm": (("shared-ln",), ("ln+ln",), 1),
    "separation, all six arms": (_SHARED, _SEPARATE, 1),
}
# A value by arm and by seed, or fold.
Values = Mapping[str, Mapping[int, float]]


@dataclass(frozen=True, kw_only=True)
class MeanDifference:
    """The mean of a difference, treatment - baseline, in the unit of what is compared.

    Attributes:
        mean: The difference of the means.
        low: Lower end of its interval; nan where no spread can be measured.
        high: Its upper end.
        p_value: Two-sided; nan where no spread can be measured.
        confidence: Of the interval.
    """

    mean: float
    low: float
    high: float
    p_value: float
    confidence: float = CONFIDENCE

    @property
    def percent(self) -> tuple[float, float, float]:
        """Of logarithms: how much the value itself changes, and the ends of that, in percent."""
        mean, low, high = (100 * math.expm1(one) for one in (self.mean, self.low, self.high))
        return mean, low, high


@dataclass(frozen=True, kw_only=True)
class Contrast(MeanDifference):
    """The means of some arms minus those of others, over runs with several seeds.

    Attributes:
        sd: Standard deviation of the runs of an arm, of all arms together; nan with a run each.
        signs_p: The p-value that exchanges the arms within each seed (`sign_flip_p`), which takes
            nothing to be normal; nan without a common seed.
        smallest_signs_p: The smallest that so many seeds allow.
    """

    sd: float
    signs_p: float = math.nan
    smallest_signs_p: float = math.nan


@dataclass(frozen=True, kw_only=True)
class Pooled(MeanDifference):
    """A contrast in several settings, each of the same weight.

    Interval and p-value are Student's, with the spread of seeds within settings (Welch and
    Satterthwaite): they are about these settings. Where a setting has a single seed it is the
    spread from setting to setting, and they are about others like these too.

    Attributes:
        signs_p: The p-value that exchanges the arms within each seed of each setting.
        settings: How many.
        pairs: Seeds of all of them.
        without_one: Smallest and largest mean that is left without one of the settings; nan if
            there is only one.
    """

    signs_p: float
    settings: int
    pairs: int
    without_one: tuple[float, float]


def _t_test(mean: float, error: float, freedom: float) -> dict[str, float]:
    """Student's interval and p-value of a mean; nan without a degree of freedom."""
    half = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * error if freedom > 0 else math.nan
    p = 2 * float(stdtr(freedom, -abs(mean) / error)) if error > 0 else math.nan
    return {"mean": mean, "low": mean - half, "high": mean + half, "p_value": p}


def mean_sd(values: ArrayLike) -> tuple[float, float]:
    """Return the mean of ``[n]`` values and their standard deviation (n - 1), nan of one value."""
    column = np.asarray(values, dtype=np.float64)
    return float(column.mean()), float(column.std(ddof=1)) if len(column) > 1 else math.nan


def log_errors(values: ArrayLike, *, higher_is_better: bool) -> np.ndarray:
    """Return logarithms of errors ``[n]``: of v, or of 1 - v where a higher metric is better.

    nan where that is not positive.
    """
    column = np.asarray(values, dtype=np.float64)
    errors = 1 - column if higher_is_better else column
    return np.log(errors, out=np.full(errors.shape, math.nan), where=errors > 0)


def _spread(values: Values) -> tuple[float, int]:
    """The standard deviation of the runs of an arm, of all arms together, and its freedom."""
    runs = [np.array([*of_seed.values()], dtype=np.float64) for of_seed in values.values()]
    freedom = sum(max(0, len(one) - 1) for one in runs)
    squares = sum(float(((one - one.mean()) ** 2).sum()) for one in runs if len(one))
    sd = math.sqrt(squares / freedom) if freedom else math.nan
    largest = max((float(np.abs(one).max(initial=0)) for one in runs), default=0.0)
    return 0.0 if sd <= _ROUNDING * largest else sd, freedom


def _exchanged(values: Values, without: Sequence[str], having: Sequence[str]) -> dict[str, float]:
    """The p-value of exchanged signs over the seeds that all arms have."""
    differences = _by_seed(values, without, having)
    n = len(differences)
    if not n:
        return {}
    smallest = 2.0 ** (1 - n) if n <= EXACT_UP_TO else 1 / (DRAWS + 1)
    return {"signs_p": sign_flip_p(differences), "smallest_signs_p": smallest}


def beyond(score: float, sizes: Sequence[int], freedom: int) -> float:
    """Return the probability that the largest |t| is beyond a score, where arms do not differ.

    The |t| are those of Dunnett's test, see `against`. With λᵢ² = nᵢ / (nᵢ + n₀) the scores of the
    arms are independent, given the baseline's mean and the standard deviation: two integrals, here
    over their quantiles. (`scipy.stats.dunnett` samples them, and its search for the interval may
    end far from it.)

    Args:
        score: At least 0.
        sizes: Runs of the baseline, then of each arm.
        freedom: Degrees of freedom of the standard deviation.
    """
    if len(sizes) == 2:  # Student's test, which also knows the smallest ones
        return 2 * float(stdtr(freedom, -score))
    of_mean = ndtri(_QUANTILES)[:, None]
    of_sd = score * np.sqrt(2 * gammaincinv(freedom / 2, _QUANTILES) / freedom)
    inside = np.ones((len(_QUANTILES), len(_QUANTILES)))
    for size in sizes[1:]:
        loading = math.sqrt(size / (size + sizes[0]))
        rest = math.sqrt(1 - loading**2)
        middle = loading * of_mean
        inside *= ndtr((middle + of_sd) / rest) - ndtr((middle - of_sd) / rest)
    return min(1.0, max(0.0, 1 - float(_WEIGHTS @ inside @ _WEIGHTS)))


def critical(sizes: Sequence[int], freedom: int, level: float) -> float:
    """Return the score that the largest |t| stays below with this probability; see `beyond`."""
    # One comparison needs less, and Bonferroni's bound for all of them more.
    share = (1 - level) / 2
    low, high = (float(stdtrit(freedom, 1 - share / count)) for count in (1, len(sizes) - 1))
    for _ in range(20):
        middle = (low + high) / 2
        above = beyond(middle, sizes, freedom) > 1 - level
        low, high = (middle, high) if above else (low, middle)
    return high


def against(values: Values, baseline: str) -> dict[str, Contrast]:
    """Compare the arms with one of them, by Dunnett's test.

    Its p-values and intervals hold for all arms together, so that nothing is left to be adjusted
    (Dunnett 1955, Journal of the American Statistical Association 50:1096-1121). Runs are not
    paired: in most recorded settings the same seed under two arms has nothing in common. Runs of
    all arms are taken to differ alike.

    Args:
        values: What is compared, finite, by arm and seed; arms may have different seeds.
        baseline: The arm that the others are compared with.

    Returns:
        By arm; an arm without a run has none.
    """
    arms = {name: of_seed for name, of_seed in values.items() if of_seed}
    before = arms.pop(baseline, None)
    if not arms or before is None:
        return {}
    sd, freedom = _spread({**arms, baseline: before})
    columns = [np.array([*of_seed.values()]) for of_seed in (before, *arms.values())]
    means = [float(column.mean() - columns[0].mean()) for column in columns[1:]]
    p_values, ends = [math.nan] * len(arms), np.full(len(arms), math.nan if freedom < 1 else 0.0)
    if sd > 0:
        sizes = [len(column) for column in columns]
        errors = [sd * math.sqrt(1 / size + 1 / sizes[0]) for size in sizes[1:]]
        scores = [abs(mean) / error for mean, error in zip(means, errors, strict=True)]
        p_values = [beyond(score, sizes, freedom) for score in scores]
        ends = critical(sizes, freedom, CONFIDENCE) * np.array(errors)
    return {
        name: Contrast(
            mean=mean,
            low=mean - float(half),
            high=mean + float(half),
            p_value=p,
            sd=sd,
            **_exchanged(values, [baseline], [name]),
        )
        for name, mean, half, p in zip(arms, means, ends, p_values, strict=True)
    }


def contrast(
    values: Values, without: Sequence[str], having: Sequence[str], times: float = 1
) -> Contrast:
    """Compare the mean over some arms with that over others.

    Interval and p-value are Student's, unpaired, with the spread of the runs of all arms.

    Args:
        values: By arm and by seed, other arms too.
        without: Arms, and ...
        having: ... those that they are compared with; each has a run.
        times: What the difference is multiplied by.
    """
    sd, freedom = _spread(values)
    sides = [[[*values[arm].values()] for arm in side] for side in (without, having)]
    means = [sum(float(np.mean(runs)) for runs in side) / len(side) for side in sides]
    variance = sum(1 / len(runs) / len(side) ** 2 for side in sides for runs in side)
    tested = _t_test(times * (means[1] - means[0]), times * sd * math.sqrt(variance), freedom)
    return Contrast(**tested, sd=sd, **_exchanged(values, without, having))


def norm_effects(values: Values) -> dict[str, Contrast]:
    """Return the effects of BatchNorm and of separation, by name, as far as the norms allow.

    An effect is the mean of the norms that have something minus the mean of those that have not.

    Args:
        values: By canonical name of the norm, and by seed.
    """
    known = {norm: of_seed for norm, of_seed in values.items() if of_seed}
    return {
        name: contrast(known, *sides)
        for name, sides in _EFFECTS.items()
        if {*sides[0], *sides[1]} <= known.keys()
    }


def pooled(
    settings: Sequence[Values], without: Sequence[str], having: Sequence[str]
) -> Pooled | None:
    """Compare arms over several settings, as data sets: each counts the same, whatever its seeds.

    Args:
        settings: Logarithms of errors, by arm and by seed.
        without: Arms, and ...
        having: ... those that they are compared with, by the mean over each side.

    Returns:
        None where no setting has a seed under all these arms.
    """
    wanted = {*without, *having}
    found = [_by_seed(one, without, having) for one in settings if wanted <= one.keys()]
    found = [one for one in found if len(one)]
    if not found:
        return None
    count = len(found)
    means, sds = zip(*map(mean_sd, found), strict=True)
    mean, spread = mean_sd(means)
    tested = _t_test(mean, spread / math.sqrt(count), count - 1)
    if min(map(len, found)) > 1:
        variances = [sd**2 / len(one) for sd, one in zip(sds, found, strict=True)]
        terms = [v**2 / (len(one) - 1) for v, one in zip(variances, found, strict=True) if v > 0]
        freedom = sum(variances) ** 2 / sum(terms) if terms else 0.0
        tested = _t_test(mean, math.sqrt(sum(variances)) / count, freedom)
    weighted = np.concatenate([one / (count * len(one)) for one in found])
    left = [(sum(means) - mean) / (count - 1) for mean in means] if count > 1 else [math.nan]
    return Pooled(
        **tested,
        signs_p=sign_flip_p(weighted),
        settings=count,
        pairs=len(weighted),
        without_one=(min(left), max(left)),
    )


def _by_seed(values: Values, without: Sequence[str], having: Sequence[str]) -> np.ndarray:
    """The mean of some arms minus that of others, for each seed that all of them have, ``[n]``."""
    arms = [values[arm] for arm in (*without, *having)]
    common = [seed for seed in arms[0] if all(seed in one for one in arms)]
    columns = np.array([[one[seed] for seed in common] for one in arms])
    differences = columns[len(without) :].mean(axis=0) - columns[: len(without)].mean(axis=0)
    rounding = _ROUNDING * np.abs(columns).max(axis=0)  # which is no difference
    return np.where(np.abs(differences) <= rounding, 0.0, differences)


def power(change: float, sd: float, seeds: int, others: int) -> float:
    """Return the chance that a change is found, if there is one.

    By the t-test of two arms at a level that is divided by the number of comparisons, which is a
    little stricter than Dunnett's.

    Args:
        change: Relative decrease of the error: 0.1 is 10 %.
        sd: Standard deviation of the logarithm of the error, from run to run of an arm.
        seeds: Runs of each arm.
        others: Arms that are compared with the baseline.
    """
    freedom = (seeds - 1) * (others + 1)
    if freedom < 1 or not sd > 0:
        return math.nan
    needed = float(stdtrit(freedom, 1 - SIGNIFICANT / 2 / others))
    return 1 - float(nctdtr(freedom, -math.log1p(-change) / (sd * math.sqrt(2 / seeds)), needed))


def chances(sd: float, seeds: int, others: int) -> str:
    """Return in words with what probability changes of an error are found; see `power`."""
    small, large = (power(one, sd, seeds, others) for one in (0.05, 0.1))
    if math.isnan(small):
        return "one seed cannot tell a difference of arms from one of runs"
    return (
        f"{count(seeds, 'seed')} of {count(others + 1, 'arm')} find a change of the error by 5 % "
        f"with probability {small:.2f} and by 10 % with {large:.2f}, where runs of an arm differ "
        f"by {100 * sd:.1f} % (standard deviation)"
    )


def verdict(difference: MeanDifference, better: str) -> str:
    """Return what may be stated of a difference, by the one rule of all reports.

    Args:
        difference: Treatment minus baseline; of a comparison its p-value is adjusted.
        better: Whether ``higher`` or ``lower`` is.

    Returns:
        ``better`` or ``worse`` if the p-value is below `SIGNIFICANT`, and ``not significant`` else.
    """
    if not (difference.low < difference.high and difference.p_value < SIGNIFICANT):
        return "not significant"
    return "better" if (difference.mean > 0) == (better == "higher") else "worse"


def fold_difference(
    baseline: ArrayLike, treatment: ArrayLike, train: float, test: float
) -> MeanDifference:
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
    before, after = (np.asarray(side, dtype=np.float64) for side in (baseline, treatment))
    scale, n = np.maximum(np.abs(before), np.abs(after)), len(before)
    differences = after - before
    differences[np.abs(differences) <= _ROUNDING * scale] = 0.0  # what only rounding makes
    mean, sd = mean_sd(differences)
    error = (0.0 if sd <= _ROUNDING * scale.max() else sd) * math.sqrt(1 / n + test / train)
    return MeanDifference(**_t_test(mean, error, n - 1))


def sign_flip_p(differences: ArrayLike) -> float:
    """Return the two-sided randomization p-value of a mean of paired differences.

    If the arms do not differ, each difference could as well have had the other sign. The p-value
    is the share of all 2^n assignments of signs whose mean is at least as far from zero as the
    one observed (Fisher 1935, The Design of Experiments, section 21).

    With more than `EXACT_UP_TO` differences the assignments are sampled: k of m reach the observed
    mean, and (k + 1) / (m + 1) is returned (Phipson & Smyth 2010, Statistical Applications in
    Genetics and Molecular Biology 9:39). The same differences always give the same p-value.

    Args:
        differences: ``[n]``, in any unit.
    """
    column = np.asarray(differences, dtype=np.float64)
    threshold = abs(float(column.sum())) - _ROUNDING * float(np.abs(column).sum())
    if len(column) <= EXACT_UP_TO:
        # The other half of the assignments are these with every sign reversed.
        sums = column[:1]
        for difference in column[1:]:
            sums = np.concatenate((sums + difference, sums - difference))
        return float((np.abs(sums) >= threshold).mean())
    generator, sums = np.random.default_rng(0), np.zeros(DRAWS)
    for start in range(0, len(column), 8):  # eight signs are one random byte
        block, drawn = column[start : start + 8], generator.integers(0, 256, DRAWS, dtype=np.uint8)
        bits = np.unpackbits(drawn[:, None], axis=1, count=len(block))
        sums += (1.0 - 2.0 * bits) @ block
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
