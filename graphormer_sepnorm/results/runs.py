"""From run directories to experiments."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from graphormer_sepnorm.compare.arms import Arm
from graphormer_sepnorm.compare.comparison import Comparison, flat
from graphormer_sepnorm.errors import ConfigError, DataError
from graphormer_sepnorm.metrics import METRICS, monitored
from graphormer_sepnorm.model.norm_arms import norm_name
from graphormer_sepnorm.results.commands import NO_DIFFERENCE, name_and_commands
from graphormer_sepnorm.results.records import Experiment, SeedRun, require_json

RUN_FORMAT = 1  # of run.json, see training/run_record.py


def read_experiments(
    directories: Iterable[Path], defaults: Mapping[str, Any]
) -> Iterator[Experiment]:
    """Read all runs in directories, each as an experiment with one run.

    Args:
        directories: Run directories, or folders with such at any depth, as comparisons are.
        defaults: Of the options of ``fit``, in sections.

    Raises:
        DataError: There is no run in one of them, or a run is damaged or of another version.
    """
    for directory in directories:
        if not directory.is_dir():
            raise DataError(f"there is no directory {directory}")
        found = sorted(directory.rglob("run.json"))
        if not found:
            raise DataError(
                f"no run has begun in {directory}: there is no run.json in it; give directories "
                "that train.py fit or train.py compare has made"
            )
        for path in found:
            yield read_run(path.parent, defaults)


def read_run(directory: Path, defaults: Mapping[str, Any]) -> Experiment:
    """Read one run directory.

    Args:
        directory: Of the run.
        defaults: Of the options of ``fit``, in sections.

    Raises:
        DataError: It is damaged or of another version.
    """
    path = directory / "run.json"
    record = require_json(path)
    if record.get("format_version", RUN_FORMAT) != RUN_FORMAT:
        raise DataError(
            f"{path} was written by another version of this program (format "
            f"{record['format_version']}, here {RUN_FORMAT}): take its results with that version"
        )
    summary_path = directory / "summary.json"
    summary = require_json(summary_path) if summary_path.is_file() else {}
    configuration = _configuration(directory)
    try:
        return _experiment(directory, record, summary, configuration, defaults)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DataError(
            f"the run in {directory} was written by another version of this program: "
            f"{type(error).__name__} {error}"
        ) from error


def _experiment(
    directory: Path,
    record: Mapping[str, Any],
    summary: Mapping[str, Any],
    configuration: Mapping[str, Any],
    defaults: Mapping[str, Any],
) -> Experiment:
    metric = record.get("metric") or _metric(directory, summary)
    selected_on = record.get("selected_on") or f"validation_{metric}"
    options = differing(configuration, defaults)
    name, commands = name_and_commands(record, options, _arm(directory))
    sessions = record["sessions"]
    # A finished run that is being made longer has a summary, of its earlier end.
    finished = bool(summary) and sessions[-1]["end"] == "trained"
    validation = summary.get(f"best_validation_{metric}")
    run = SeedRun(
        seed=int(record["seed"]),
        began=sessions[0]["started"],
        finished=finished,
        steps=int(summary["steps"] if finished else sessions[-1]["to_step"]),
        planned_steps=record.get("planned_steps"),
        parameters=record.get("parameters", summary.get("parameters")),
        seconds=round(sum(session["seconds"] for session in sessions), 1),
        interruptions=sum(session["end"] != "trained" for session in sessions),
        device=_joined(_device(session.get("machine")) for session in sessions),
        torch=_joined(session.get("packages", {}).get("torch") for session in sessions),
        commit=_joined(session.get("commit") for session in sessions),
        validation=validation if finished else _best_so_far(directory, metric, selected_on),
        test=summary.get(f"test_{metric}") if finished else None,
    )
    molecules = record.get("molecules")
    return Experiment(
        name=name,
        dataset=record["dataset"],
        dataset_fingerprint=record["dataset_fingerprint"],
        split=record.get("split"),
        molecules=None if molecules is None else tuple(molecules.values()),
        data_note=record.get("data_note"),
        metric=metric,
        unit=record.get("unit", ""),
        selected_on=selected_on,
        options=options,
        commands=commands,
        runs=(run,),
    )


def _arm(directory: Path) -> Arm | None:
    """Return the arm that a run is of, if it lies in the directory of a comparison."""
    try:
        comparison = Comparison.read(directory.parent.parent)
    except ConfigError:  # of another version; the run itself says what it did
        return None
    arms = comparison.arms if comparison else ()
    return next((arm for arm in arms if arm.name == directory.parent.name), None)


def _configuration(directory: Path) -> dict[str, Any]:
    path = directory / "config.yaml"
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path} cannot be read ({reason}): leave this run out") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} is damaged (it holds no options): leave this run out")
    return content


def differing(configuration: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return options that differ from the defaults and can change a result, as ``model.norm``.

    So an option that a run is too old to know is none.

    Args:
        configuration: Options of ``fit``, in sections.
        defaults: The same of the program.
    """
    options = {}
    defaults = dict(flat(defaults))
    for name, value in flat(configuration):
        value = json.loads(json.dumps(value, default=str))
        if name == "model.norm":
            value = norm_name(value)
        elif name == "ckpt_path" and value:
            value = Path(value).name
        if name not in NO_DIFFERENCE and value != defaults.get(name):
            options[name] = value
    return options


def _metric(directory: Path, summary: Mapping[str, Any]) -> str:
    """The main metric of a run whose record does not name it."""
    path = directory / "metrics.csv"
    columns = path.read_text(encoding="utf-8").partition("\n")[0] if path.is_file() else ""
    for metric in METRICS:
        if f"best_validation_{metric}" in summary or f"validation_{metric}" in columns.split(","):
            return metric
    raise ValueError("it names no metric")


def _best_so_far(directory: Path, metric: str, selected_on: str) -> float | None:
    path = directory / "metrics.csv"
    if not path.is_file():
        return None
    with path.open(newline="", encoding="utf-8") as file:
        rows = [
            (float(row[selected_on]), float(row[f"validation_{metric}"]))
            for row in csv.DictReader(file)
            if row.get(selected_on) and row.get(f"validation_{metric}")
        ]
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
