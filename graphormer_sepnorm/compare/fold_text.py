"""The results of a cross-validation as text for a terminal."""

from __future__ import annotations

import numpy as np

from graphormer_sepnorm.compare.fold_results import Difference, FoldResults
from graphormer_sepnorm.compare.report.numbers import (
    NONE,
    count,
    in_unit,
    interval,
    number,
    p_value,
    spread,
)
from graphormer_sepnorm.graphs.task import Task

_DECIMALS = 4


def results_text(results: FoldResults) -> str:
    """Return a table of all metrics, and a sentence for each pair of models that is compared."""
    planned = results.folds * results.repeats
    lacking = f"; {results.finished} of {planned} are finished" * (results.finished < planned)
    head = (
        f"{results.dataset}: {results.folds} folds ({results.split}), "
        f"{count(results.repeats, 'repeat')}{lacking}\n"
        f"test, mean ± standard deviation over {count(results.finished, 'fold')}"
    )
    lines = [head, *_table(results)]
    if results.differences:
        lines.append("")
        lines += [_sentence(one, results.task) for one in results.differences]
        lines.append("(differences by the corrected resampled t-test, Nadeau & Bengio 2003)")
    return "\n".join(lines)


def _table(results: FoldResults) -> list[str]:
    shown = results.shown
    titles = [f"{one.label}{in_unit(results.task.unit_of(one))}" for one in shown]
    rows = [["", *titles]]
    for one in (*results.networks, *results.simple):
        rows.append([f"  {one.name}"])
        for metric in shown:
            values = one.folds.get(metric.name, np.array([]))
            known = values[np.isfinite(values)]
            some = f" ({len(known)})" * (0 < len(known) < results.finished)
            rows[-1].append(spread(known, _DECIMALS) + some)
        if one.pooled:
            cells = [number(one.pooled.get(metric.name, np.nan), _DECIMALS) for metric in shown]
            rows.append(["    all molecules, out of fold", *cells])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _sentence(difference: Difference, task: Task) -> str:
    """Say what differs in the main metric; the interval decides on the words."""
    main = task.main
    found = difference.metrics.get(main.name)
    if found is None:
        return f"{difference.model} and {difference.baseline}: no fold with {main.label} of both"
    change = (
        f"{main.label} {number(abs(found.mean), _DECIMALS)} "
        f"{'higher' if found.mean > 0 else 'lower'}"
    )
    limits = interval(found.low, found.high, _DECIMALS)
    if limits != NONE and found.standard_error > 0:
        change += (
            f", {found.confidence:.0%} interval of the difference {limits}, p = "
            f"{p_value(found.p_value)}"
        ).replace("= <", "<")
    else:
        change += f" over {count(found.folds, 'fold')}, which have no spread to judge it by"
    if not found.resolved:
        return f"Not resolved: {difference.model} against {difference.baseline}, {change}"
    better = (found.mean > 0) == main.higher_is_better
    return (
        f"{difference.model} is {'better' if better else 'worse'} than {difference.baseline}: "
        f"{change}"
    )
