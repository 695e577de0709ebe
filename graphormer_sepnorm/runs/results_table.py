"""The table of results, in Markdown."""

from __future__ import annotations

import itertools
import math
import shlex
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from graphormer_sepnorm.metrics import LAST, METRICS, monitored
from graphormer_sepnorm.old_names import current_option
from graphormer_sepnorm.runs.records import Experiment, SeedRun

_T = TypeVar("_T")
SINGLE, UNFINISHED, CHANGED = "†", "‡", "§"
_NOTHING = "-"

_INTRODUCTION = f"""\
# Results

Made by `python train.py results` from run directories and kept in [{{folder}}/]({{folder}}/), not \
edited by hand.
Mean ± standard deviation over the seeds (n - 1). Every test value is that of the checkpoint with
the best validation, or of the end of training where it says so below; rows stand in the order of
their validation, the test set decides nothing.
Wall time is that of one run, start-up and validations included, on average.

{SINGLE} a single seed. {UNFINISHED} not finished: steps so far, the best validation so far, no test
value; in a row with finished seeds only those are counted.

Options that were typed stand behind the name of the configuration file.
{CHANGED} the file has changed: below the table, with the command, stand the values that it had then
and has no longer, `default` where it said nothing. To repeat such a row, type them too, or take its
commit. Commands stand as they were typed; names that options had then are understood today, options
that are gone are not.
"""
_HEADER = "| experiment | seeds | parameters | steps | wall time | device | validation | test |"


def render(
    experiments: Iterable[Experiment], folder: str, files: Mapping[str, Mapping[str, Any]]
) -> str:
    """Return the document, by data set and its split, the best validation first.

    Args:
        experiments: In any order.
        folder: Of the records, as it is called from the document.
        files: What configuration files say today, by their names: the options of ``fit`` that
            differ from the program's defaults, as in `Experiment.options`.
    """
    parts = [_INTRODUCTION.format(folder=folder)]
    ordered = sorted(experiments, key=lambda one: (*_group(one), *_rank(one)))
    for _, members in itertools.groupby(ordered, key=_group):
        parts.append(_section(list(members), files))
    return "\n".join(parts)


def _group(one: Experiment) -> tuple[str, str]:
    return one.dataset, one.dataset_fingerprint  # another split, another fingerprint


def _rank(one: Experiment) -> tuple[bool, float, str, str]:
    """Finished before unfinished, then by validation."""
    values = _known(one.shown_runs, lambda run: run.validation)
    worst_first = -1 if METRICS[one.metric].higher_is_better else 1
    value = worst_first * statistics.fmean(values) if values else math.inf
    return not one.shown_runs[0].finished, value, one.name, one.fingerprint


def _section(experiments: Sequence[Experiment], files: Mapping[str, Mapping[str, Any]]) -> str:
    first = experiments[0]
    # Records of earlier releases say less about the same data.
    unit, split, molecules = (
        next((said for one in experiments if (said := getattr(one, name))), None)
        for name in ("unit", "split", "molecules")
    )
    metric = METRICS[first.metric]
    label = metric.label + (f", {unit}" if unit else "")
    facts = [f"Metric: {label} ({metric.better} is better)."]
    if molecules:
        sizes = " / ".join(f"{size:,}" for size in molecules)
        facts.append(f"{sizes} molecules in training / validation / test.")
    facts.append(f"Split: {split or 'that of the data set'}.")
    facts.append(f"Fingerprint of the data: {first.dataset_fingerprint[:12]}.")
    if all(one.data_note is None for one in experiments):
        facts.append("The runs say nothing more about their data.")
    notes = dict.fromkeys(one.data_note for one in experiments if one.data_note)
    rows, details = [], []
    for number, one in enumerate(experiments, start=1):
        meant = _no_longer_said(one, files)
        rows.append(_row(number, one, CHANGED * bool(meant)))
        details.append(_details(number, one, meant))
    return "\n".join(
        [
            f"## {first.dataset}\n",
            " ".join(facts),
            *(f"\n**{note}**" for note in notes),
            f"\n{_HEADER}",
            "| --- | --- | ---: | ---: | --- | --- | ---: | ---: |",
            *rows,
            "",
            *details,
            "",
        ]
    )


def _no_longer_said(one: Experiment, files: Mapping[str, Mapping[str, Any]]) -> str:
    """Options that were not typed and that its configuration file does not give today."""
    today = files.get(configuration_file(one))
    if today is None:  # a user's own
        return ""
    names = (today.keys() | one.options.keys()) - _typed(one)
    return ", ".join(
        f"{name}={one.options.get(name, 'default')}"
        for name in sorted(names)
        if one.options.get(name) != today.get(name)
    )


def configuration_file(one: Experiment) -> str:
    """The name of the configuration file of an experiment; that of the data set without one."""
    return one.name.split(" · ")[0]


def _typed(one: Experiment) -> set[str]:
    """Options that were given on the command line."""
    words = [word for command in one.commands for word in shlex.split(command)]
    names = (word.removeprefix("--").partition("=")[0] for word in words if word.startswith("--"))
    return set(map(current_option, names))


def _row(number: int, one: Experiment, changed: str) -> str:
    shown = one.shown_runs
    unfinished = UNFINISHED * (not all(run.finished for run in one.runs))
    marks = SINGLE * (len(shown) == 1) + unfinished + changed
    seeds = ", ".join(f"{run.seed}{UNFINISHED * (not run.finished)}" for run in one.runs)
    cells = [
        f"{number}. {one.name} {marks}".strip(),
        seeds,
        _span(_known(shown, lambda run: run.parameters)),
        _steps(one),
        _wall_time(shown),
        _different(shown, lambda run: run.device),
        _score(one, lambda run: run.validation),
        _score(one, lambda run: run.test),
    ]
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _details(number: int, one: Experiment, meant: str) -> str:
    commands = ", then ".join(f"`{command}`" for command in one.commands)
    average = one.options.get("ema_decay")
    weights = f"moving average of the weights ({average})" if average else "weights as trained"
    commits = [
        commit[:10] + ("+changes" if commit.endswith("+changes") else "")
        for run in one.shown_runs
        for commit in (run.commit or "").split("; ")
        if commit
    ]
    return (
        f"{number}. {commands}  \n"
        f"   {_selection(one.selected_on)}; {weights}; "
        f"torch {_different(one.shown_runs, lambda run: run.torch)}; "
        f"commit {', '.join(dict.fromkeys(commits)) or _NOTHING}"
        + (f"; {CHANGED} {meant}" if meant else "")
    )


def _selection(selected_on: str) -> str:
    metric = monitored(selected_on)
    return "end of training" if metric is LAST else f"selected on validation {metric.label}"


def _steps(one: Experiment) -> str:
    finished = [run.steps for run in one.runs if run.finished]
    parts = [_span(finished)] if finished else []
    for run in one.runs:
        if not run.finished:
            planned = _NOTHING if run.planned_steps is None else f"{run.planned_steps:,}"
            parts.append(f"{run.steps:,} of {planned}{UNFINISHED}")
    return ", ".join(parts)


def _wall_time(runs: Sequence[SeedRun]) -> str:
    seconds = statistics.fmean(run.seconds for run in runs)
    if seconds < 100:
        text = f"{seconds:.0f} s"
    elif seconds < 6000:
        text = f"{seconds / 60:.0f} min"
    else:
        text = f"{seconds / 3600:.1f} h"
    interruptions = sum(run.interruptions for run in runs if run.finished)
    return text + (
        f", {interruptions} interruption{'s' * (interruptions > 1)}" if interruptions else ""
    )


def _score(one: Experiment, value: Callable[[SeedRun], float | None]) -> str:
    """Mean and sample standard deviation; AUROC in per cent."""
    values = _known(one.shown_runs, value)
    if not values:
        return _NOTHING
    scale, digits, sign = (100, 2, " %") if METRICS[one.metric].in_percent else (1, 4, "")
    text = f"{scale * statistics.fmean(values):.{digits}f}"
    if len(values) > 1:
        text += f" ± {scale * statistics.stdev(values):.{digits}f}"
    return text + sign


def _known(runs: Iterable[SeedRun], value: Callable[[SeedRun], _T | None]) -> list[_T]:
    return [found for run in runs if (found := value(run)) is not None]


def _span(values: Sequence[int]) -> str:
    """One number, or the smallest and the largest."""
    if not values:
        return _NOTHING
    return " to ".join(f"{value:,}" for value in sorted({min(values), max(values)}))


def _different(runs: Iterable[SeedRun], value: Callable[[SeedRun], str | None]) -> str:
    return "; ".join(dict.fromkeys(_known(runs, value))) or _NOTHING
