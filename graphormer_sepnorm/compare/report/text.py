"""The words of a report: the answer in one sentence, what to hold against it, and numbers as text.

A difference is always arm minus baseline, in the metric's unit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from graphormer_sepnorm.compare.report.data import (
    Results,
    arm_names,
    made_comparisons,
    runs_of,
    unfinished_runs,
    values_of,
)
from graphormer_sepnorm.compare.statistics import EXACT_UP_TO, mean_sd
from graphormer_sepnorm.training.report import METRIC_NAMES

MINUS = "\N{MINUS SIGN}"
NONE = "\N{EN DASH}"
# With fewer, a sign-flip p below 0.05 cannot come out.
ENOUGH_SEEDS = 6
# With more, the arms whose effect is not resolved share one sentence.
FEW_ARMS = 3

Difference = dict[str, Any]


def metric_name(results: Results) -> str:
    """``MAE``, ``AUROC`` or whatever the metric is called."""
    return METRIC_NAMES.get(results["metric"], str(results["metric"]))


def unit_of(results: Results) -> str:
    """The unit of the metric, to be put behind a number: a blank first, or nothing at all."""
    return f" {results['unit']}" if results["unit"] else ""


def decimals_of(results: Results) -> int:
    """How many decimals show four digits of the largest value of the metric."""
    values = [
        abs(value)
        for name in arm_names(results)
        for key in ("validation", "test")
        for value in values_of(results, name, key)
        if value
    ]
    return min(8, max(0, 3 - math.floor(math.log10(max(values))))) if values else 4


def number(value: float | None, decimals: int) -> str:
    """A number with so many decimals; a dash if there is none."""
    if value is None or not math.isfinite(value):
        return NONE
    text = f"{value:,.{decimals}f}"
    negative = text.startswith("-") and text.strip("-0.,") != ""
    return (MINUS if negative else "") + text.lstrip("-")


def signed(value: float | None, decimals: int) -> str:
    """A difference, with its sign."""
    text = number(value, decimals)
    return f"+{text}" if text[0].isdigit() and text.strip("0.,") else text


def interval(low: float | None, high: float | None, decimals: int) -> str:
    """Both ends with their signs; a dash if there is none."""
    if low is None or high is None:
        return NONE
    return f"{signed(low, decimals)} to {signed(high, decimals)}"


def p_value(value: float | None) -> str:
    """A p-value with three decimals, a small one with its first digit, or ``< 0.0001``."""
    if value is None:
        return NONE
    if value < 1e-4:
        return "< 0.0001"
    return f"{value:.3f}".rstrip("0").rstrip(".") if value >= 0.001 else f"{value:.4f}"


def percent(value: float | None, decimals: int = 1) -> str:
    """A relative change."""
    text = signed(value, decimals)
    return text if text == NONE else f"{text} %"


def spread(values: Any, decimals: int) -> str:
    """Mean and standard deviation; one value has no standard deviation."""
    if not len(values):
        return NONE
    mean, sd = mean_sd(values)
    return f"{number(mean, decimals)} ± {number(sd, decimals)}"


def count(items: int, what: str) -> str:
    """``1 seed``, ``3 seeds``."""
    return f"{items:,} {what}" if items == 1 else f"{items:,} {what}s"


def title_of(results: Results) -> str:
    """What is compared with what, on which data."""
    baseline, *others = arm_names(results)
    arms = " and ".join(others) if len(others) <= FEW_ARMS else count(len(others), "arm")
    return f"{f'{arms} against ' if others else ''}{baseline} on {results['dataset']}"


def answers(results: Results) -> list[str]:
    """The answer: one sentence for each arm but the baseline, in the order of the arms.

    Of many arms, those that are not resolved are named together.
    """
    comparisons = made_comparisons(results)
    if comparisons:
        open_ones = [one for one in comparisons if not one["test"]["resolved"]]
        together = len(comparisons) > FEW_ARMS and len(open_ones) > 1
        told = [one for one in comparisons if one["test"]["resolved"] or not together]
        texts = [_answer(results, one) for one in told]
        if together:
            texts.append(
                f"Not resolved for {len(open_ones)} of {count(len(comparisons), 'arm')} against "
                f"{open_ones[0]['baseline']}: {', '.join(one['arm'] for one in open_ones)}. Their "
                "differences, and their intervals if there are several seeds, are in Table 2."
            )
        if results["complete"]:
            return texts
        return [f"So far: {text.replace('Not resolved', 'not resolved', 1)}" for text in texts]
    decimals, unit = decimals_of(results), unit_of(results)
    finished = [name for name in arm_names(results) if len(values_of(results, name, "test"))]
    if len(arm_names(results)) > 1 or not finished:
        return ["No answer yet: no seed is finished under both the baseline and another arm."]
    values = values_of(results, finished[0], "test")
    return [
        f"Nothing to compare: {finished[0]} is the only arm. Its test {metric_name(results)} is "
        f"{spread(values, decimals)}{unit} over {count(len(values), 'seed')}."
    ]


def _answer(results: Results, comparison: dict[str, Any]) -> str:
    decimals, unit = decimals_of(results), unit_of(results)
    test, arm, baseline = comparison["test"], comparison["arm"], comparison["baseline"]
    change = f"{signed(test['mean'], decimals)}{unit}"
    if results["metric"] == "auroc":
        change += f" ({signed(100 * test['mean'], decimals - 2)} points)"
    values = f"{number(test['baseline_mean'], decimals)}{unit} to " + (
        f"{number(test['treatment_mean'], decimals)}{unit}"
    )
    relative = percent(test["relative_percent"])
    ends = interval(test["low"], test["high"], decimals) + unit
    level = f"{100 * test['confidence']:g} % interval"
    seeds = count(test["seeds"], "paired seed")
    metric = f"test {metric_name(results)}"
    better = f"{results['better']} is better"
    if len(made_comparisons(results)) > 1:
        better += f"; Holm's p over the arms {p_value(comparison['holm_p'])}"
    if test["resolved"]:
        improved = (test["mean"] < 0) == (results["better"] == "lower")
        return (
            f"{arm} is {'better' if improved else 'worse'} than {baseline}: the {metric} goes "
            f"from {values}, a change of {change} with a {level} of {ends} over {seeds} "
            f"({relative}; {better})."
        )
    if test["low"] is None:
        why = f"there is no {level} with one seed"
    elif not test["sd"]:
        why = "every seed gave the same difference, so that its spread has not been measured"
    else:
        why = f"the {level} of {ends} includes 0"
    return (
        f"Not resolved: {arm} changes the {metric} of {baseline} by {change} over {seeds}, but "
        f"{why} ({values}, {relative}; {better})."
    )


def unfinished(results: Results) -> Iterator[str]:
    """What is said if not all runs are finished."""
    runs = sum(len(arm["runs"]) for arm in results["arms"])
    lacking = list(unfinished_runs(results))
    if lacking or not results["complete"]:
        states = ", ".join(f"{name} seed {run['seed']} ({run['status']})" for name, run in lacking)
        yield (
            f"Partial results: {runs - len(lacking)} of {runs} runs are finished. "
            + (f"Not finished: {states}. " if states else "")
            + "The numbers will change."
        )
    for name, run in lacking:
        if run.get("error"):
            yield f"{name} seed {run['seed']} failed: {run['error']}"


def sign_flip(results: Results) -> str:
    """How the sign-flip p over seeds was computed."""
    most = max((one["test"]["seeds"] for one in made_comparisons(results)), default=0)
    return "exact sign-flip" if most <= EXACT_UP_TO else "sign-flip (of sampled signs)"


def cautions(results: Results) -> Iterator[str]:
    """What has to be known before an answer is quoted: with few seeds, what they cannot show."""
    comparisons = made_comparisons(results)
    for one in results["comparisons"]:
        if one not in comparisons:
            yield (
                f"{one['arm']} is not compared: its {metric_name(results)}, or the baseline's, is "
                "undefined for some seed."
            )
    few = [one for one in comparisons if one["test"]["seeds"] < ENOUGH_SEEDS]
    if few:
        fewest, most = (end(one["test"]["seeds"] for one in few) for end in (min, max))
        seeds = count(most, "seed")
        text = (
            f"Only {seeds if fewest == most else f'{fewest} to {seeds}'}, fewer than "
            f"{ENOUGH_SEEDS}: whatever the effect, the {sign_flip(results)} p cannot be below "
            f"{p_value(min(one['test']['smallest_p'] for one in few))}"
        )
        if len(comparisons) > 1:
            text += f", nor Holm's for {len(comparisons)} arms below " + p_value(
                min(one["smallest_holm_p"] for one in few)
            )
        yield f"{text}. The interval takes the differences to be normal, which so few cannot show."


def method(results: Results) -> str:
    """How the comparison was made."""
    several = len(made_comparisons(results)) > 1
    return (
        "All arms have the same data, the same seeds and the same options but for those named in "
        f"the first table. {_tested(results)} Differences are paired: the same seed gives all "
        "arms the same initial values of the parameters they share and the same order of the data. "
        "An effect is called resolved if the t interval over the seeds excludes 0"
        + (
            "; the intervals are not adjusted for the number of arms, Holm's p-values are."
            if several
            else "."
        )
    )


def _tested(results: Results) -> str:
    targets = len(results["task"]["targets"])
    metric = metric_name(results)
    chosen = "loss" if results.get("selected_on") == "validation_loss" else metric
    mean = f"The {metric} is the mean over {targets} targets. " if targets > 1 else ""
    return f"{mean}Tested is the checkpoint of each run whose validation {chosen} is best."


def arm_label(results: Results, name: str) -> str:
    """The name of an arm; with what it lacks, if it is not complete."""
    wanted = len(results["seeds"])
    finished = len(runs_of(results, name))
    return name if finished == wanted else f"{name} (partial: {finished} of {wanted} seeds)"
