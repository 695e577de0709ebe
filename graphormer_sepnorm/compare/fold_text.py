"""The results of a cross-validation as text for a terminal."""

from __future__ import annotations

import math

from graphormer_sepnorm.compare.fold_results import Difference, FoldResults, Spread
from graphormer_sepnorm.compare.report.numbers import (
    NONE,
    count,
    in_unit,
    interval,
    number,
    p_value,
)
from graphormer_sepnorm.formatting import aligned
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.uncertainty.quality import in_words

_DECIMALS = 4


def results_text(results: FoldResults) -> str:
    """Return a table of all metrics, and a sentence for each pair of models that is compared."""
    planned, finished = results.folds * results.repeats, results.folds_finished
    lacking = f"; {finished} of {planned} are finished" * (finished < planned)
    head = (
        f"{results.dataset}: {results.folds} folds ({results.split}), "
        f"{count(results.repeats, 'repeat')}{lacking}\n"
        f"test, mean ± standard deviation over {count(finished, 'fold')}"
    )
    lines = [head, _table(results)]
    if _lacks_folds(results):
        lines.append(
            "(n): over n folds; in the others it is undefined, or the model lacks a target"
        )
    unit = results.task.units[0]  # a width is that of a single target
    said = [
        (one.name, in_words(one.confidence, unit)) for one in results.networks if one.confidence
    ]
    lines += [""] * bool(said) + [f"{name}: {words}" for name, words in said]
    if results.differences:
        lines.append("")
        lines += [_sentence(one, results.task) for one in results.differences]
        lines.append("(differences by the corrected resampled t-test, Nadeau & Bengio 2003)")
    return "\n".join(lines)


def _table(results: FoldResults) -> str:
    """The metrics that have a mean over the targets, the main one first."""
    known = {name for one in results.networks for name in one.metrics}
    shown = [metric for metric in results.task.metrics if metric.name in known]
    rows = [["", *(f"{one.label}{in_unit(results.task.unit_of(one))}" for one in shown)]]
    for one in (*results.networks, *results.baselines):
        found = [one.metrics.get(metric.name) for metric in shown]
        rows.append([f"  {one.name}", *(_cell(spread, results.folds_finished) for spread in found)])
        if one.out_of_fold:
            cells = [
                number(one.out_of_fold.get(metric.name, math.nan), _DECIMALS) for metric in shown
            ]
            rows.append(["    all molecules, out of fold", *cells])
    return aligned(rows)


def _lacks_folds(results: FoldResults) -> bool:
    """Whether a metric of the table is not over all folds that are finished."""
    return any(
        0 < one.metrics[metric.name].folds < results.folds_finished
        for one in (*results.networks, *results.baselines)
        for metric in results.task.metrics
        if metric.name in one.metrics
    )


def _cell(spread: Spread | None, finished: int) -> str:
    """Mean and standard deviation, and over how many folds if those are not all."""
    if spread is None or not spread.folds:
        return NONE
    text = f"{number(spread.mean, _DECIMALS)} ± {number(spread.sd, _DECIMALS)}"
    return text if spread.folds == finished else f"{text} ({spread.folds})"


def _sentence(difference: Difference, task: Task) -> str:
    """Say what differs in the main metric; the interval decides on the words."""
    main = task.main
    found = difference.metrics.get(main.name)
    if found is None:
        return f"{difference.model} and {difference.baseline}: no fold with {main.label} of both"
    change = f"{main.label} {number(abs(found.mean), _DECIMALS)} "
    change += "higher" if found.mean > 0 else "lower"
    if found.standard_error > 0:
        limits = interval(found.low, found.high, _DECIMALS)
        p = f"p = {p_value(found.p_value)}".replace("= <", "<")
        change += f", {found.confidence:.0%} interval of the difference {limits}, {p}"
    else:
        change += f" over {count(found.folds, 'fold')}, which have no spread to judge it by"
    model, other = difference.model, difference.baseline
    if not found.resolved:
        return f"Not resolved: {model} against {other}, {change}"
    better = (found.mean > 0) == main.higher_is_better
    return f"{model} is {'better' if better else 'worse'} than {other}: {change}"
