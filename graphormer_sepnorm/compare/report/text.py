"""The words of a report: the answer in one sentence, and what to hold against it.

A difference is always arm minus baseline, in the metric's unit.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from typing import Literal

from graphormer_sepnorm.compare.arm_comparisons import (
    FactorEffect,
    factor_effects,
    paper_in_words,
)
from graphormer_sepnorm.compare.report.numbers import (
    Metric,
    count,
    interval,
    number,
    p_value,
    percent,
    signed,
    spread,
)
from graphormer_sepnorm.compare.results_file import ArmComparison, ArmResult, Results
from graphormer_sepnorm.compare.roc_statistics import AreaTests
from graphormer_sepnorm.compare.statistics import EXACT_UP_TO, holm, smallest_sign_flip_p
from graphormer_sepnorm.formatting import aligned, listed
from graphormer_sepnorm.metrics import LAST, METRICS, monitored
from graphormer_sepnorm.model.config import ATOMS_ALONE

# With more, the arms whose effect is not resolved share one sentence.
FEW_ARMS = 3
SIGNIFICANT = 0.05

Verdict = Literal["better", "worse", "not significant", "not resolved"]


def verdict(results: Results, comparison: ArmComparison) -> Verdict:
    """Return what may be said of one of the comparisons that could be made.

    Every sentence and table goes by it: an arm *is better* or *is worse* than the baseline if
    Holm's p is below 0.05 and the interval over the seeds leaves out 0. If only the interval does,
    which few seeds cannot change, the difference is *not significant*; all else is *not resolved*.
    """
    test = comparison.test
    if test is None or not test.resolved:
        return "not resolved"
    if not comparison.holm_p < SIGNIFICANT:
        return "not significant"
    return "better" if (test.mean < 0) == (results.better == "lower") else "worse"


def seeds_needed(comparisons: int) -> int:
    """The fewest seeds with which so many comparisons can have a Holm's p below 0.05."""
    return next(
        seeds
        for seeds in itertools.count(1)
        if holm([smallest_sign_flip_p(seeds)] * comparisons).max() < SIGNIFICANT
    )


def title(results: Results) -> str:
    """What is compared with what, on which data."""
    others = [arm.name for arm in results.arms[1:]]
    arms = " and ".join(others) if len(others) <= FEW_ARMS else count(len(others), "arm")
    return f"{f'{arms} against ' if others else ''}{results.baseline} on {results.dataset}"


def arm_label(results: Results, arm: ArmResult) -> str:
    """The name of an arm; with what it lacks, if it is not complete."""
    wanted, finished = len(results.seeds), len(arm.finished)
    return arm.name if finished == wanted else f"{arm.name} (partial: {finished} of {wanted} seeds)"


def answers(results: Results) -> list[str]:
    """The answer: one sentence for each arm but the baseline, in the order of the arms.

    Of many arms, those that are not resolved are named together.
    """
    if results.made:
        open_ones = [one for one in results.made if verdict(results, one) == "not resolved"]
        together = len(results.made) > FEW_ARMS and len(open_ones) > 1
        told = [one for one in results.made if one not in open_ones or not together]
        texts = [_answer(results, one) for one in told]
        if together:
            texts.append(
                f"Not resolved for {len(open_ones)} of {count(len(results.made), 'arm')} against "
                f"{results.baseline}: {', '.join(one.arm for one in open_ones)}. Their "
                "differences, and their intervals if there are several seeds, are in Table 2."
            )
        if results.complete:
            return texts
        # Behind a colon a sentence has no capital, unless a name begins it.
        return [f"So far: {re.sub('^Not ', 'not ', text)}" for text in texts]
    metric, only = Metric.of(results), results.arms[0]
    if results.comparisons:
        kind = METRICS[results.metric]
        needs = f" (it needs {kind.lacking})" if kind.needs_contrast else ""
        return [
            f"No answer: seeds are finished under both {results.baseline} and another arm, but for "
            f"some of them the test {metric.name} is undefined{needs}."
        ]
    if len(results.arms) > 1 or not only.finished:
        return ["No answer yet: no seed is finished under both the baseline and another arm."]
    values = only.values("test")
    said = f"{spread(values, metric.decimals)}{metric.unit} over {count(len(values), 'seed')}"
    return [
        f"Nothing to compare: {only.name} is the only arm. Its test {metric.name} is "
        f"{said if len(values) else 'undefined'}."
    ]


def _answer(results: Results, comparison: ArmComparison) -> str:
    metric, test = Metric.of(results), comparison.test
    assert test is not None
    arm, baseline = comparison.arm, comparison.baseline
    change = metric.change(test.mean)
    if METRICS[results.metric].in_percent:
        change += f" ({signed(100 * test.mean, metric.decimals - 2)} points)"
    values = f"{metric.value(test.baseline_mean)} to {metric.value(test.treatment_mean)}"
    level = f"{100 * test.confidence:g} % interval"
    ends = f"{level} of {interval(test.low, test.high, metric.decimals)}{metric.unit}"
    context = f"{percent(test.relative_percent)}; {results.better} is better"
    over = "Holm's p over the arms" if len(results.made) > 1 else "p"
    p = f"{over} {p_value(comparison.holm_p)}"
    seeds = count(test.seeds, "paired seed")
    said = verdict(results, comparison)
    if said in ("better", "worse"):
        return (
            f"{arm} is {said} than {baseline}: the test {metric.name} goes from {values}, a change "
            f"of {change} with a {ends} over {seeds} ({context}; {p})."
        )
    if said == "not significant":
        before, after = results.arm(baseline).tests, results.arm(arm).tests
        agreeing = sum(
            math.copysign(1, test.mean) * (after[seed] - before[seed]) > 0
            for seed in comparison.seeds
        )
        return (
            f"Not significant: {arm} has a {'lower' if test.mean < 0 else 'higher'} test "
            f"{metric.name} than {baseline} in {agreeing} of "
            f"{count(len(comparison.seeds), 'seed')}, {values}, a change of {change} whose {ends} "
            f"leaves out 0; but {p} is not below {SIGNIFICANT:g} (smallest possible here "
            f"{p_value(comparison.smallest_holm_p)}; {context})."
        )
    if math.isnan(test.low):
        why = f"there is no {level} with one seed"
    elif not test.sd:
        why = "every seed gave the same difference, so that its spread has not been measured"
    else:
        why = f"the {ends} includes 0"
    return (
        f"Not resolved: {arm} changes the test {metric.name} of {baseline} by {change} over "
        f"{seeds}, but {why} ({values}, {context}; {p})."
    )


def beaten_by(results: Results) -> Iterator[str]:
    """What is said if arms do not reach the best of the simple models beside them."""
    sign = 1 if results.better == "lower" else -1
    simple = [one for one in results.baselines if one.comparable and not math.isnan(one.test)]
    means = {arm.name: float(arm.values("test").mean()) for arm in results.arms if arm.tests}
    best = min(simple, key=lambda one: sign * one.test, default=None)
    losing = [name for name, mean in means.items() if best and sign * mean >= sign * best.test]
    if best is None or not losing:
        return
    metric, who = Metric.of(results), f"{losing[0]} is not"
    if len(losing) > 1:
        who = "No arm is" if len(losing) == len(means) else f"{' and '.join(losing)} are not"
    values = ", ".join(f"{name} {metric.value(means[name])}" for name in losing)
    yield (
        f"{who} better than {best.name}, whose test {metric.name} is {metric.value(best.test)} on "
        f"the same split: {values} (mean over the seeds)."
    )


def summary(results: Results) -> str:
    """What is said on a terminal: the test metric of all, and the answer."""
    metric = Metric.of(results)
    rows = [(f"  {one.name}", metric.value(one.test)) for one in results.baselines]
    for arm in results.arms:
        values = f"{spread(arm.values('test'), metric.decimals)}{metric.unit}"
        rows.append((f"  {arm_label(results, arm)}", values))
    lines = [f"test {metric.name}, mean ± standard deviation over the seeds", aligned(rows)]
    if results.baselines_left_out:
        lines.append(results.baselines_left_out)
    said = [*unfinished(results), *answers(results), *beaten_by(results), *cautions(results)]
    if effects := factor_effects(results):
        rows = [(f"  {one.name}", _effect(metric, one)) for one in effects]
        said.append(f"Factor effects on the test {metric.name}\n{aligned(rows)}")
    return "\n\n".join(["\n".join(lines), *said])


def _effect(metric: Metric, effect: FactorEffect) -> str:
    difference = effect.difference
    ends = interval(difference.low, difference.high, metric.decimals)
    ps = f"p {p_value(difference.p_value)}, Holm's {p_value(effect.holm_p)}"
    return f"{metric.change(difference.mean)} [{ends}], {ps}"


def unfinished(results: Results) -> Iterator[str]:
    """What is said if not all runs are finished."""
    runs = [(arm.name, run) for arm in results.arms for run in arm.runs]
    lacking = [(name, run) for name, run in runs if run.status != "finished"]
    if lacking or not results.complete:
        states = ", ".join(f"{name} seed {run.seed} ({run.status})" for name, run in lacking)
        yield (
            f"Partial results: {len(runs) - len(lacking)} of {len(runs)} runs are finished. "
            + (f"Not finished: {states}. " if states else "")
            + "The numbers will change."
        )
    for name, run in lacking:
        if run.error:
            yield f"{name} seed {run.seed} failed: {run.error}"


def tested_checkpoint(results: Results) -> str:
    """Say which checkpoint of each run is tested; of each arm, where they differ."""
    usual = METRICS[results.metric].column
    arms: dict[str, list[str]] = {}
    for arm in results.arms:
        if arm.finished:
            arms.setdefault(_selected(arm.selected_on or usual), []).append(arm.name)
    if len(arms) < 2:
        return next(iter(arms), _selected(usual))
    return "; ".join(f"of {', '.join(names)} {checkpoint}" for checkpoint, names in arms.items())


def _selected(column: str) -> str:
    metric = monitored(column)
    if metric is LAST:
        return "the last checkpoint of each run"
    return f"the checkpoint of each run whose validation {metric.label} is best"


def sign_flip(results: Results) -> str:
    """How the sign-flip p over seeds was computed."""
    most = max((len(one.seeds) for one in results.made), default=0)
    return "exact sign-flip" if most <= EXACT_UP_TO else "sign-flip (of sampled signs)"


def of_the_paper(results: Results) -> str:
    """What the paper reports, where an arm differs from the baseline as in the paper."""
    if all(math.isnan(one.paper_relative_percent) for one in results.made):
        return ""
    return (
        f"The paper reports {paper_in_words(results.dataset)} for this data set: single numbers, "
        "of a variant of SepNorm that it does not name."
    )


def positives(results: Results) -> str:
    """How many molecules of a classification are positive, and what that leaves open."""
    found = (one.per_molecule for one in results.made)
    first = next(one for one in found if isinstance(one, AreaTests))
    text = count(first.positives, "positive")
    if math.isnan(first.standard_error):  # undefined with one molecule in a class
        return text
    points = number(100 * first.standard_error, 1)
    return f"{text}: one area has a standard error of {points} points"


def cautions(results: Results) -> Iterator[str]:
    """What has to be known before an answer is quoted: with few seeds, what they cannot show."""
    for one in results.comparisons:
        if one.test is None:
            yield (
                f"{one.arm} is not compared: its {Metric.of(results).name}, or the baseline's, is "
                "undefined for some seed."
            )
    few = [one for one in results.made if one.smallest_holm_p >= SIGNIFICANT]
    if few:
        comparisons = len(results.made)
        fewest, most = (end(one.test.seeds for one in few if one.test) for end in (min, max))
        seeds = count(most, "seed")
        text = (
            f"Only {seeds if fewest == most else f'{fewest} to {seeds}'}, fewer than "
            f"{seeds_needed(comparisons)}: whatever the effect, the {sign_flip(results)} p cannot "
            f"be below {p_value(min(one.test.smallest_p for one in few if one.test))}"
        )
        if comparisons > 1:
            smallest = p_value(min(one.smallest_holm_p for one in few))
            text += f", nor Holm's for {comparisons} arms below {smallest}"
        which = "no arm" if len(few) == comparisons else f"not {listed([one.arm for one in few])}"
        yield (
            f"{text}, so {which} can be called better or worse. The interval takes the differences "
            "to be normal, which so few cannot show."
        )


def unread_tokens(results: Results) -> str:
    """Name the arms whose predictions are read from the atoms alone; empty if there are none."""
    common = results.configuration.get("model", {}).get("readout")
    arms = [
        arm.name
        for arm in results.arms
        if arm.analysed and arm.options.get("model.readout", common) in ATOMS_ALONE
    ]
    if not arms:
        return ""
    return (
        f"Predictions of {' and '.join(arms)} are read from the atoms alone: the geometry of [CLS] "
        "is not that of what they are read from."
    )
