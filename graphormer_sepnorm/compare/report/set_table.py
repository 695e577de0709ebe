"""One table of a set of comparisons, in Markdown and as CSV, beside the numbers of the paper."""

from __future__ import annotations

import csv
import math
from pathlib import Path

from graphormer_sepnorm.compare.arm_comparisons import paper_value
from graphormer_sepnorm.compare.arms import NORM
from graphormer_sepnorm.compare.comparison_set import TABLE, TABLE_CSV, names_in
from graphormer_sepnorm.compare.report.numbers import (
    NONE,
    Metric,
    interval,
    number,
    signed,
    spread,
)
from graphormer_sepnorm.compare.report.text import arm_label, verdict
from graphormer_sepnorm.compare.results_file import ArmResult, Results
from graphormer_sepnorm.compare.statistics import mean_sd
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import replacing
from graphormer_sepnorm.formatting import aligned

_COLUMNS = (
    "comparison",
    "dataset",
    "metric",
    "better",
    "arm",
    "parameters",
    "seeds",
    "epochs",
    "steps",
    "test_mean",
    "test_sd",
    "difference",
    "low",
    "high",
    "holm_p",
    "verdict",
    "paper",
)
_HEADER = (
    "comparison",
    "metric",
    "arm",
    "epochs",
    "seeds",
    "test",
    "difference",
    "95 % interval",
    "verdict",
    "paper",
)
_NOTES = """\
Test: mean ± standard deviation over the seeds. Difference: to the first arm, paired by seed, with
Student's interval; the verdict goes by Holm's p and that interval, as in each report. Paper: Chen
et al., NeurIPS 2023, single numbers of trainings whose length it does not state, of a variant of
SepNorm that it does not name.
"""


def write_set_table(directory: Path) -> str | None:
    """Write the table of a set of comparisons.

    Args:
        directory: Of the set; comparisons without results are named below the table.

    Returns:
        The table for a terminal; None if no comparison has results, and nothing is written.

    Raises:
        DataError: Results cannot be read, or the table cannot be written.
    """
    found = {name: Results.read(directory / name) for name in names_in(directory)}
    known = {name: results for name, results in found.items() if results is not None}
    if not known:
        return None
    arms = [(name, results, arm) for name, results in known.items() for arm in results.arms]
    table = [_HEADER, *(_cells(*one) for one in arms)]
    lacking = [name for name in found if name not in known]
    try:
        with replacing(directory / TABLE) as partial:
            partial.write_text(_markdown(table, list(known), lacking), encoding="utf-8")
        with (
            replacing(directory / TABLE_CSV) as partial,
            partial.open("w", newline="", encoding="utf-8") as file,
        ):
            csv.writer(file).writerows([_COLUMNS, *(_values(*one) for one in arms)])
    except OSError as error:
        raise DataError(f"the table of {directory} cannot be written: {error}") from error
    return "\n".join([aligned(table), *(f"{name}: no results yet" for name in lacking)])


def _values(name: str, results: Results, arm: ArmResult) -> list[object]:
    """A row of the CSV, in the order of `_COLUMNS`; what could not be had is empty."""
    test = arm.values("test")
    mean, sd = mean_sd(test) if len(test) else (math.nan, math.nan)
    one = next((one for one in results.made if one.arm == arm.name), None)
    difference = one.test if one else None
    row = [
        name,
        results.dataset,
        results.metric,
        results.better,
        arm.name,
        arm.parameters,
        len(test),
        *(_mean(arm, what) for what in ("epochs", "steps")),
        mean,
        sd,
        *(getattr(difference, what, math.nan) for what in ("mean", "low", "high")),
        *((one.holm_p, verdict(results, one)) if one else (math.nan, "")),
        _paper(results, arm),
    ]
    return ["" if isinstance(cell, float) and math.isnan(cell) else cell for cell in row]


def _cells(name: str, results: Results, arm: ArmResult) -> tuple[str, ...]:
    """A row for people, in the order of `_HEADER`."""
    metric = Metric.of(results)
    one = next((one for one in results.made if one.arm == arm.name), None)
    test = one.test if one else None
    return (
        name,
        metric.label,
        arm_label(results, arm),
        number(_mean(arm, "epochs"), 0),
        str(len(arm.values("test"))),
        spread(arm.values("test"), metric.decimals),
        signed(test.mean, metric.decimals) if test else NONE,
        interval(test.low, test.high, metric.decimals) if test else NONE,
        verdict(results, one) if one else NONE,
        number(_paper(results, arm), 4 if results.better == "higher" else 3),
    )


def _mean(arm: ArmResult, what: str) -> float:
    values = arm.values(what)
    return float(values.mean()) if len(values) else math.nan


def _paper(results: Results, arm: ArmResult) -> float:
    """What the paper has for the norm of an arm that is a norm and nothing else."""
    norm = arm.options.get(NORM)
    # A table of the user's is called as its file is, which may be what a data set is called.
    of_users = results.configuration.get("data", {}).get("table")
    if not norm or len(arm.options) > 1 or of_users:
        return math.nan
    return paper_value(results.dataset, norm)


def _markdown(table: list[tuple[str, ...]], known: list[str], lacking: list[str]) -> str:
    lines = [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in table]
    rule = f"|{'|'.join(' --- ' for _ in _HEADER)}|"
    parts = ["# Comparisons", "\n".join([lines[0], rule, *lines[1:]]), _NOTES.rstrip()]
    parts.append("Reports: " + ", ".join(f"[{name}]({name}/report.md)" for name in known) + ".")
    if lacking:
        parts.append(f"No results yet: {', '.join(lacking)}.")
    return "\n\n".join(parts) + "\n"
