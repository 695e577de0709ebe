"""One table of a set of comparisons, in Markdown and as CSV, beside the numbers of the paper."""

from __future__ import annotations

import csv
import math
from pathlib import Path

from graphormer_sepnorm.compare.arms import NORM
from graphormer_sepnorm.compare.comparison_set import TABLE, TABLE_CSV, names_in
from graphormer_sepnorm.compare.report.document import SUMMARY, markdown, mean_of, variants
from graphormer_sepnorm.compare.report.numbers import number
from graphormer_sepnorm.compare.results import ArmResult, Results
from graphormer_sepnorm.compare.statistics import mean_sd
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import replacing
from graphormer_sepnorm.metrics import METRICS
from graphormer_sepnorm.model.config import norm_name

# Graphormer without and with SepNorm in the paper's table of graph tasks (Chen et al. 2023): test
# MAE, for ogbg-molhiv test ROC-AUC; single numbers, without seeds, of a variant that is not named.
_PAPER = {"zinc": (0.069, 0.052), "zinc-subset": (0.164, 0.144), "ogbg-molhiv": (0.7336, 0.7564)}
_COLUMNS = (
    *("comparison", "dataset", "metric", "better", "arm", "parameters", "seeds", "epochs", "steps"),
    *("test_mean", "test_sd", "difference", "low", "high", "holm_p", "verdict", "paper"),
)
_NOTES = """\
Test: mean ± standard deviation over the seeds. Difference: to the first arm, paired by seed, as in
each summary. Paper: Chen et al., NeurIPS 2023, single numbers of trainings whose length it does not
state, of a variant of SepNorm that it does not name.
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
    header: list[str] = []
    cells, values = [], []
    for name, results in known.items():
        label = METRICS[results.metric].label
        titles, *rows = variants(results)
        header = ["comparison", "metric", *titles[:2], "test", *titles[3:], "epochs", "paper"]
        for arm, row in zip(results.arms, rows, strict=False):  # simple models are below the arms
            values.append(_values(name, results, arm))
            last = number(mean_of(arm, "epochs"), 0), number(_paper(results, arm), 4)
            cells.append([name, label, *row, *last])
    parts = [markdown([header, *cells])]
    if lacking := [name for name in found if name not in known]:
        parts.append(f"No results yet: {', '.join(lacking)}.")
    text = "\n\n".join(parts)
    links = ", ".join(f"[{name}]({name}/{SUMMARY})" for name in known)
    try:
        with replacing(directory / TABLE) as partial:
            whole = f"# Comparisons\n\n{text}\n\n{_NOTES}\nSummaries: {links}.\n"
            partial.write_text(whole, encoding="utf-8")
        with (
            replacing(directory / TABLE_CSV) as partial,
            partial.open("w", newline="", encoding="utf-8") as file,
        ):
            csv.writer(file).writerows([_COLUMNS, *values])
    except OSError as error:
        raise DataError(f"the table of {directory} cannot be written: {error}") from error
    return text


def _values(name: str, results: Results, arm: ArmResult) -> list[object]:
    """A row of the CSV, in the order of `_COLUMNS`; what could not be had is empty."""
    test, one = arm.values("test"), results.comparison(arm.name)
    row = [
        name,
        results.dataset,
        results.metric,
        results.better,
        arm.name,
        arm.parameters,
        len(test),
        *(mean_of(arm, what) for what in ("epochs", "steps")),
        *(mean_sd(test) if len(test) else (math.nan, math.nan)),
        *(getattr(one.test if one else None, what, math.nan) for what in ("mean", "low", "high")),
        *((one.holm_p, one.verdict) if one else (math.nan, "")),
        _paper(results, arm),
    ]
    return ["" if isinstance(cell, float) and math.isnan(cell) else cell for cell in row]


def _paper(results: Results, arm: ArmResult) -> float:
    """What the paper has for the norm of an arm that is a norm and nothing else; nan if nothing."""
    norm = arm.options.get(NORM)
    # A table of the user's is called as its file is, which may be what a data set is called.
    of_users = results.configuration.get("data", {}).get("table")
    if not norm or len(arm.options) > 1 or of_users:
        return math.nan
    without, with_sepnorm = _PAPER.get(results.dataset, (math.nan, math.nan))
    of_norm = {"shared-ln": without, "bn+ln": with_sepnorm, "bn+bn": with_sepnorm}
    return of_norm.get(norm_name(norm), math.nan)
