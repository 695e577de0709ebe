"""The report of a comparison: one self-contained HTML page, and a short summary in Markdown.

Made from results.json alone, so it can be made again at any time, and from partial results too,
which it marks. The page is page.html.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from textwrap import fill
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from graphormer_sepnorm.compare import figures
from graphormer_sepnorm.compare.arms import SIGNIFICANT
from graphormer_sepnorm.compare.results import RESULTS, Results
from graphormer_sepnorm.compare.statistics import CONFIDENCE, Contrast, chances, mean_sd, verdict
from graphormer_sepnorm.files import write_text
from graphormer_sepnorm.formatting import (
    NONE,
    count,
    interval,
    listed,
    mean_and_sd,
    number,
    p_value,
    signed,
)

PAGE, SUMMARY = "report.html", "summary.md"
# Of a change.
_HEADER = ("change, %", f"{100 * CONFIDENCE:g} % interval", "p")
_SIGNS = "sign-flip p"
# Standard deviations of arms, one so many times another, are worth a note.
_UNEQUAL = 3
_NAMED = 3  # arms in a title
# Cells by row, the first one of titles; none but that: there is nothing to show.
Table = list[list[str]]


def write_report(results: Results, directory: Path) -> None:
    """Write ``report.html`` and ``summary.md`` of a comparison to its directory (a DataError)."""
    write_text(directory / PAGE, page(results))
    write_text(directory / SUMMARY, f"{summary(results)}\n")


def page(results: Results) -> str:
    """Return the report as HTML that needs no other file."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        extensions=["jinja2.ext.do"],
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    drawn = (draw(results) for draw in (figures.seeds, figures.learning_curves, figures.geometry))
    pictures = [base64.b64encode(figures.png(one)).decode() if one else "" for one in drawn]

    def as_yaml(value: Any) -> str:
        return yaml.safe_dump(value, sort_keys=False).rstrip()

    return templates.get_template("page.html").render(
        title=title(results),
        results=results,
        notes=[*notes(results)],
        rule=rule(results),
        variants=variants(results),
        factors=factors(results),
        pictures=dict(zip(("seeds", "curves", "geometry"), pictures, strict=True)),
        number=number,
        mean_and_sd=mean_and_sd,
        arms=as_yaml({arm.name: arm.options for arm in results.arms}),
        configuration=as_yaml(results.configuration),
    )


def summary(results: Results) -> str:
    """Return the title, what has to be known, and the tables of what differs, in Markdown."""
    parts = [f"# {title(results)}", "\n".join(f"- {note}" for note in notes(results))]
    parts.append(markdown(variants(results)))
    if len(effects := factors(results)) > 1:
        parts.append(markdown(effects))
    return "\n\n".join(part for part in (*parts, fill(rule(results), 100)) if part)


def markdown(table: Table) -> str:
    """Return a table in Markdown, its columns aligned so that it can be read as it is."""
    rows = [[" ".join(cell.split()).replace("|", "/") for cell in row] for row in table]
    widths = [max(3, *map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, ["-" * width for width in widths])
    padded = ([cell.ljust(n) for cell, n in zip(row, widths, strict=True)] for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in padded)


def title(results: Results) -> str:
    """Return what is compared with what, on which data."""
    others = [arm.name for arm in results.arms[1:]]
    arms = " and ".join(others) if len(others) <= _NAMED else count(len(others), "arm")
    return f"{f'{arms} against ' if others else ''}{results.baseline} on {results.dataset}"


def rule(results: Results) -> str:
    """Return how the tables are to be read."""
    better = results.task.main.better
    return (
        f"Mean ± standard deviation over seeds; {better} is better. Change: of the test error "
        f"({results.error_label}) relative to {results.baseline}. Intervals and p: Dunnett's test "
        "on the logarithms of the errors, simultaneous over all arms. Verdict: better or worse if "
        f"p < {SIGNIFICANT:g}, else not significant. Sign-flip p: paired by seed, each arm alone, "
        "without assuming a normal distribution; in brackets the smallest value that this number "
        "of seeds allows."
    )


def notes(results: Results) -> Iterator[str]:
    """Yield what is missing, has failed, or has to be known before a number is quoted."""
    runs = [(f"{arm.name} seed {run.seed}", run) for arm in results.arms for run in arm.runs]
    lacking = [(name, run) for name, run in runs if run.status != "finished"]
    if lacking or not results.complete:
        states = ", ".join(f"{name} ({run.status})" for name, run in lacking)
        done = len(runs) - len(lacking)
        yield f"Partial results: {done} of {len(runs)} runs are finished. Unfinished: {states}."
    yield from (f"{name} failed: {run.error}" for name, run in lacking if run.error)
    errors = results.errors
    if undefined := [arm.name for arm in results.arms if arm.finished and not errors[arm.name]]:
        yield f"Not compared: {listed(undefined)}, because a test error is undefined or 0."
    if made := results.comparisons:
        runs = [errors[name] for name in (results.baseline, *made)]
        sd = next(iter(made.values())).sd  # one for all
        fewest = min(map(len, runs))
        if sd != 0 and (fewest > 1 or sd != sd):  # a verdict can rest on the runs of other arms
            yield f"{chances(sd, fewest, len(made))}.".capitalize()
        sds = [mean_sd([*one.values()])[1] for one in runs if len(one) > 1]
        if sds and max(sds) > _UNEQUAL * min(sds):
            spread = f"{100 * min(sds):.1f} to {100 * max(sds):.1f} %"
            yield (
                f"Standard deviations of the arms range over {spread}, and Dunnett's test assumes "
                "that they are equal: with few seeds see the sign-flip p too."
            )
    if results.environments_differ:
        differing = listed([*results.environments_differ])
        yield f"Not all runs had the same {differing}: {RESULTS} has which they had."


def variants(results: Results) -> Table:
    """Return the test metric of each arm and the change of its error against the baseline."""
    rows = [["arm", "seeds", f"test {results.label}{results.in_unit}", *_HEADER, "verdict", _SIGNS]]
    for arm in results.arms:
        wanted, finished = len(results.seeds), len(arm.finished)
        seeds = str(wanted) if finished == wanted else f"{finished} of {wanted}"
        cells = [NONE] * 5
        if one := results.comparisons.get(arm.name):
            *change, signs = _cells(one)
            cells = [*change, verdict(one, "lower"), signs]
        rows.append([arm.name, seeds, mean_and_sd(arm.values("test"), results.decimals), *cells])
    return rows


def factors(results: Results) -> Table:
    """Return the effects of the norms' factors, where the arms form a factorial."""
    rows = [["effect", *_HEADER, "Holm-adjusted p", _SIGNS]]
    for name, one, holm_p in results.effects():
        *change, signs = _cells(one)
        rows.append([name, *change, p_value(holm_p), signs])
    return rows


def _cells(one: Contrast) -> list[str]:
    """Change, interval, p, and p of exchanged signs with the smallest that is possible."""
    change, low, high = one.percent
    cells = [signed(change, 1), interval(low, high, 1)]
    signs = f"{p_value(one.signs_p)} ({p_value(one.smallest_signs_p)})"
    return [*cells, p_value(one.p_value), signs if one.signs_p == one.signs_p else NONE]
