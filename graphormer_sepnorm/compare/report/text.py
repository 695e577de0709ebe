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
    baselines_of,
    made_comparisons,
    runs_of,
    unfinished_runs,
    values_of,
)
from graphormer_sepnorm.compare.report.verdict import (
    SIGNIFICANT,
    agreeing_seeds,
    rule,
    seeds_needed,
    verdict,
)
from graphormer_sepnorm.compare.statistics import EXACT_UP_TO, mean_sd
from graphormer_sepnorm.metrics import METRICS, monitored
from graphormer_sepnorm.training.report import format_table

MINUS = "\N{MINUS SIGN}"
NONE = "\N{EN DASH}"
# With more, the arms whose effect is not resolved share one sentence.
FEW_ARMS = 3

Difference = dict[str, Any]


def metric_name(results: Results) -> str:
    """What the metric is called, as ``MAE``."""
    return METRICS[results["metric"]].label


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


def plain(text: str) -> str:
    """Text for a terminal that shows ASCII only."""
    for sign, ours in ((MINUS, "-"), (NONE, "-"), ("±", "+/-")):
        text = text.replace(sign, ours)
    return text.encode("ascii", "replace").decode()


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
        open_ones = [one for one in comparisons if verdict(results, one) == "not resolved"]
        together = len(comparisons) > FEW_ARMS and len(open_ones) > 1
        told = [one for one in comparisons if one not in open_ones or not together]
        texts = [_answer(results, one) for one in told]
        if together:
            texts.append(
                f"Not resolved for {len(open_ones)} of {count(len(comparisons), 'arm')} against "
                f"{open_ones[0]['baseline']}: {', '.join(one['arm'] for one in open_ones)}. Their "
                "differences, and their intervals if there are several seeds, are in Table 2."
            )
        if results["complete"]:
            return texts
        return [f"So far: {_continued(text)}" for text in texts]
    decimals, unit = decimals_of(results), unit_of(results)
    finished = [name for name in arm_names(results) if len(values_of(results, name, "test"))]
    if len(arm_names(results)) > 1 or not finished:
        return ["No answer yet: no seed is finished under both the baseline and another arm."]
    values = values_of(results, finished[0], "test")
    return [
        f"Nothing to compare: {finished[0]} is the only arm. Its test {metric_name(results)} is "
        f"{spread(values, decimals)}{unit} over {count(len(values), 'seed')}."
    ]


def _continued(sentence: str) -> str:
    """A sentence behind a colon: without its capital, unless a name begins it."""
    return f"not{sentence[3:]}" if sentence.startswith("Not ") else sentence


def _answer(results: Results, comparison: dict[str, Any]) -> str:
    decimals, unit = decimals_of(results), unit_of(results)
    test, arm, baseline = comparison["test"], comparison["arm"], comparison["baseline"]
    change = f"{signed(test['mean'], decimals)}{unit}"
    if METRICS[results["metric"]].in_percent:
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
    several = len(made_comparisons(results)) > 1
    p = (
        f"Holm's p over the arms {p_value(comparison['holm_p'])}"
        if several
        else (f"p {p_value(comparison['holm_p'])}")
    )
    said = verdict(results, comparison)
    if said in ("better", "worse"):
        return (
            f"{arm} is {said} than {baseline}: the {metric} goes "
            f"from {values}, a change of {change} with a {level} of {ends} over {seeds} "
            f"({relative}; {better}; {p})."
        )
    if said == "not significant":
        direction = "lower" if test["mean"] < 0 else "higher"
        smallest = p_value(comparison["smallest_holm_p"])
        return (
            f"Not significant: {arm} has a {direction} {metric} than {baseline} in "
            f"{agreeing_seeds(results, comparison)} of {count(len(comparison['seeds']), 'seed')}, "
            f"{values}, a change of {change} whose {level} of {ends} leaves out 0; but {p} is not "
            f"below {SIGNIFICANT:g} (smallest possible here {smallest}; {relative}; {better})."
        )
    if test["low"] is None:
        why = f"there is no {level} with one seed"
    elif not test["sd"]:
        why = "every seed gave the same difference, so that its spread has not been measured"
    else:
        why = f"the {level} of {ends} includes 0"
    return (
        f"Not resolved: {arm} changes the {metric} of {baseline} by {change} over {seeds}, but "
        f"{why} ({values}, {relative}; {better}; {p})."
    )


def beaten_by(results: Results) -> Iterator[str]:
    """What is said if arms do not reach the best of the simple models beside them."""
    lower = results["better"] == "lower"
    simple = [one for one in baselines_of(results) if one["comparable"] and one["test"] is not None]
    means = {
        name: float(values.mean())
        for name in arm_names(results)
        if len(values := values_of(results, name, "test"))
    }
    if not simple or not means:
        return
    best = (min if lower else max)(simple, key=lambda one: one["test"])
    losing = [
        name
        for name, mean in means.items()
        if not (mean < best["test"] if lower else mean > best["test"])
    ]
    if not losing:
        return
    decimals, unit = decimals_of(results), unit_of(results)
    several = len(losing) > 1
    if len(losing) == len(means) and several:
        who = "No arm is"
    else:
        who = f"{' and '.join(losing)} {'are' if several else 'is'} not"
    values = ", ".join(f"{name} {number(means[name], decimals)}{unit}" for name in losing)
    yield (
        f"{who} better than {best['name']}, whose test {metric_name(results)} is "
        f"{number(best['test'], decimals)}{unit} on the same split: {values} (mean over the seeds)."
    )


def summary(results: Results) -> str:
    """What is said on a terminal: the test metric of all, and the answer."""
    decimals, unit = decimals_of(results), unit_of(results)
    rows = [
        (f"  {one['name']}", f"{number(one['test'], decimals)}{unit}")
        for one in baselines_of(results)
    ]
    rows += [
        (
            f"  {arm_label(results, name)}",
            f"{spread(values_of(results, name, 'test'), decimals)}{unit}",
        )
        for name in arm_names(results)
    ]
    heading = f"test {metric_name(results)}, mean ± standard deviation over the seeds"
    left_out = [text] if (text := results.get("baselines_left_out")) else []
    said = [*unfinished(results), *answers(results), *beaten_by(results), *cautions(results)]
    return "\n\n".join(["\n".join([heading, format_table(rows), *left_out]), *said])


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
    few = [one for one in comparisons if one["smallest_holm_p"] >= SIGNIFICANT]
    if few:
        needed, several = seeds_needed(len(comparisons)), len(comparisons) > 1
        fewest, most = (end(one["test"]["seeds"] for one in few) for end in (min, max))
        seeds = count(most, "seed")
        text = (
            f"Only {seeds if fewest == most else f'{fewest} to {seeds}'}, fewer than {needed}: "
            f"whatever the effect, the {sign_flip(results)} p cannot be below "
            f"{p_value(min(one['test']['smallest_p'] for one in few))}"
        )
        if several:
            text += f", nor Holm's for {len(comparisons)} arms below " + p_value(
                min(one["smallest_holm_p"] for one in few)
            )
        yield (
            f"{text}, so no arm can be called better or worse. The interval takes the differences "
            "to be normal, which so few cannot show."
        )


def method(results: Results) -> str:
    """How the comparison was made."""
    several = len(made_comparisons(results))
    return (
        "All arms have the same data, the same seeds and the same options but for those named in "
        f"the first table. {_tested(results)} Differences are paired: the same seed gives all "
        "arms the same initial values of the parameters they share and the same order of the data. "
        f"{rule(several)}"
        + (
            " The intervals are not adjusted for the number of arms, Holm's p-values are."
            if several > 1
            else ""
        )
    )


def _tested(results: Results) -> str:
    targets = len(results["task"]["targets"])
    metric = metric_name(results)
    chosen = monitored(results.get("selected_on") or results["metric"]).label
    mean = f"The {metric} is the mean over {targets} targets. " if targets > 1 else ""
    return f"{mean}Tested is the checkpoint of each run whose validation {chosen} is best."


def arm_label(results: Results, name: str) -> str:
    """The name of an arm; with what it lacks, if it is not complete."""
    wanted = len(results["seeds"])
    finished = len(runs_of(results, name))
    return name if finished == wanted else f"{name} (partial: {finished} of {wanted} seeds)"
