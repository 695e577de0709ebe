"""From run directories to experiments."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.metrics import METRICS, monitored
from graphormer_sepnorm.model.norm_arms import norm_name
from graphormer_sepnorm.old_names import current_options
from graphormer_sepnorm.runs.commands import NO_DIFFERENCE, ArmOf, name_and_commands
from graphormer_sepnorm.runs.directory import RunDirectory, Summary, flat
from graphormer_sepnorm.runs.records import Experiment, SeedRun


def read_experiments(
    directories: Iterable[Path],
    defaults: Mapping[str, Any],
    arm_of: Callable[[Path], ArmOf | None] = lambda directory: None,
) -> Iterator[Experiment]:
    """Read all runs in directories, each as an experiment with one run.

    Args:
        directories: Run directories, or folders with such at any depth, as comparisons are.
        defaults: Of the options of ``fit``, in sections.
        arm_of: Tells of which arm of a comparison a run directory is.

    Raises:
        DataError: There is no run in one of them, or a run is damaged or of another version.
    """
    for directory in directories:
        if not directory.is_dir():
            raise DataError(f"there is no directory {directory}")
        name = RunDirectory(directory).record_file.name
        found = sorted(directory.rglob(name))
        if not found:
            raise DataError(
                f"no run has begun in {directory}: there is no {name} in it; give directories "
                "that train.py fit or train.py compare has made"
            )
        for path in found:
            yield _read_run(RunDirectory(path.parent), defaults, arm_of(path.parent))


def _read_run(run: RunDirectory, defaults: Mapping[str, Any], arm: ArmOf | None) -> Experiment:
    record, summary = run.record(), run.summary() or Summary()
    options = differing(run.configuration(), defaults)
    assert record is not None
    metric = record.metric or _metric(run, summary)
    selected_on = record.selected_on or f"validation_{metric}"
    try:
        name, commands = name_and_commands(record, options, arm)
        sessions = record.sessions
        # A finished run that is being made longer has a summary, of its earlier end.
        finished = bool(summary) and sessions[-1].end == "trained"
        best = summary.validation(metric) if finished else _best_so_far(run, metric, selected_on)
        seed_run = SeedRun(
            seed=int(record.seed),
            began=sessions[0].started,
            finished=finished,
            steps=int(summary["steps"] if finished else sessions[-1].to_step),
            planned_steps=record.planned_steps,
            parameters=record.parameters or summary.get("parameters"),
            seconds=record.seconds,
            interruptions=sum(session.end != "trained" for session in sessions),
            device=_joined(_device(session.machine) for session in sessions),
            torch=_joined(session.packages.get("torch") for session in sessions),
            commit=_joined(session.commit for session in sessions),
            validation=best,
            test=summary.test(metric) if finished else None,
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DataError(
            f"the run in {run.path} was written by another version of this program: "
            f"{type(error).__name__} {error}"
        ) from error
    return Experiment(
        name=name,
        dataset=record.dataset,
        dataset_fingerprint=record.dataset_fingerprint,
        split=record.split,
        molecules=None if record.molecules is None else tuple(record.molecules.values()),
        data_note=record.data_note,
        metric=metric,
        unit=record.unit,
        selected_on=selected_on,
        options=options,
        commands=commands,
        runs=(seed_run,),
    )


def differing(configuration: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return options that differ from the defaults and can change a result, as ``model.norm``.

    So an option that a run is too old to know is none.

    Args:
        configuration: Options of ``fit``, in sections.
        defaults: The same of the program.
    """
    options = {}
    defaults = dict(flat(defaults))
    for name, value in flat(current_options(configuration)):
        value = json.loads(json.dumps(value, default=str))
        if name == "model.norm":
            value = norm_name(value)
        elif name == "ckpt_path" and value:
            value = Path(value).name
        if name not in NO_DIFFERENCE and value != defaults.get(name):
            options[name] = value
    return options


def _metric(run: RunDirectory, summary: Summary) -> str:
    """The main metric of a run whose record does not name it."""
    columns = {column for row in run.metrics() for column in row}
    for metric in METRICS:
        if f"best_validation_{metric}" in summary or f"validation_{metric}" in columns:
            return metric
    raise DataError(
        f"the run in {run.path} was written by another version of this program: it names no metric"
    )


def _best_so_far(run: RunDirectory, metric: str, selected_on: str) -> float | None:
    names = selected_on, f"validation_{metric}"
    rows = [[row[name] for name in names] for row in run.metrics() if row.keys() >= {*names}]
    rows = [row for row in rows if math.isfinite(row[0])]
    return monitored(selected_on).best(rows)[1] if rows else None


def _device(machine: Mapping[str, Any] | None) -> str | None:
    if not machine:
        return None
    if machine["device"] == "cpu":
        threads = machine["threads"]
        return f"{machine['processor']}, {threads} thread{'s' * (threads > 1)}"
    processes = machine["processes"]
    return f"{processes} x {machine['device']}" if processes > 1 else machine["device"]


def _joined(values: Iterable[str | None]) -> str | None:
    """Different values, of several sessions, in their order."""
    return "; ".join(dict.fromkeys(value for value in values if value)) or None
