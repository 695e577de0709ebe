"""From run directories to experiments: their names, how they are made again, what came out."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.metrics import METRICS, monitored
from graphormer_sepnorm.model.norm_arms import norm_name
from graphormer_sepnorm.old_names import current_option, current_options
from graphormer_sepnorm.runs.directory import Record, RunDirectory, Summary, flat
from graphormer_sepnorm.runs.records import Experiment, SeedRun

# The name of an arm of a comparison, and the options of ``fit`` that it overrides.
ArmOf = tuple[str, Collection[str]]

# Options that make no other experiment: seed, places, what is shown and kept. Which data a run had
# says the fingerprint of the data.
NO_DIFFERENCE = {
    "seed_everything",
    "model.seed",
    "data.seed",
    "output",
    "resume",
    "checkpoint_minutes",
    "baselines",
    "ensemble",
    "ensemble_by",
    "keep",
    "data.num_workers",
    "data.member_fold",  # which goes with the seed
    "data.dataset",
    "data.root",
    "data.table",
    "data.validation_table",
    "data.test_table",
    "trainer.accelerator",
    "trainer.default_root_dir",
    "trainer.logger",
    "trainer.log_every_n_steps",
    "trainer.profiler",
    "trainer.enable_progress_bar",
    "trainer.enable_model_summary",
    "trainer.enable_checkpointing",
    "trainer.barebones",
}
_FILES = {
    "-c",
    "--config",
    "--ckpt_path",
    "--data.table",
    "--data.validation_table",
    "--data.test_table",
}


def read_experiments(
    directories: Iterable[Path],
    defaults: Mapping[str, Any],
    arm_of: Callable[[Path], ArmOf | None],
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
        # A finished run that is being made longer has that summary until its first checkpoint.
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
        if not _makes_no_difference(name) and value != defaults.get(name):
            options[name] = value
    return options


def _makes_no_difference(name: str) -> bool:
    """Whether an option, or a section that it stands in, is one of `NO_DIFFERENCE`."""
    name = name.removesuffix("+")  # one more of a list
    return any(name == one or name.startswith(f"{one}.") for one in NO_DIFFERENCE)


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
    """The metric of the checkpoint that is kept as the best; None without one, or undefined."""
    names = selected_on, f"validation_{metric}"
    rows = [[row[name] for name in names] for row in run.metrics() if row.keys() >= {*names}]
    rows = [row for row in rows if math.isfinite(row[0])]
    if not rows:
        return None
    value = monitored(selected_on).best(rows, key=lambda row: row[0])[1]  # the first of equals
    return value if math.isfinite(value) else None


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


def name_and_commands(
    record: Record, options: Mapping[str, Any], arm: ArmOf | None = None
) -> tuple[str, tuple[str, ...]]:
    """Return the name of an experiment, and what was typed, without places of that machine.

    Args:
        record: What the run was made with.
        options: Those that differ from the defaults.
        arm: Of the comparison that the run belongs to.

    Returns:
        The configuration file's name with what was given beside it, the norm first, an arm of
        several options by its name; and the command of the training, then those that continued it
        with other options.
    """
    first, *later = (_words(session.command) for session in record.sessions)
    if not first or "--resume" in dict(first):
        # Stopped before its first step, or not started by the command: as the options say.
        first = [("--data.dataset", record.dataset)]
        first += [(f"--{name}", str(value)) for name, value in options.items()]
    # Other options than before count from there on.
    later = [words for words in later if "--resume" in dict(words) and len(_counting(words)) > 0]
    commands = [_command([*first, ("--seed_everything", "SEED")])]
    commands += [_command(words) for words in later]
    given = dict(word for words in (first, *later) for word in _counting(words))
    arm_name, own = arm or ("", ())
    if len(own) > 1:
        given = {name: value for name, value in given.items() if name not in own}
    if "model.norm" in given:  # comes first, by its one name
        given = {"model.norm": norm_name(given["model.norm"])} | {
            name: value for name, value in given.items() if name != "model.norm"
        }
    files = [value for name, value in first if name in ("-c", "--config")]
    title = Path(files[-1]).stem if files else record.dataset
    parts = [title, arm_name if len(own) > 1 else ""]
    parts += [", ".join(f"{name}={value}" for name, value in given.items())]
    return " · ".join(part for part in parts if part), tuple(dict.fromkeys(commands))


def _words(command: Sequence[str]) -> list[tuple[str, str]]:
    """Names and values of the options of ``fit``; none of another command."""
    words = list(command[command.index("fit") + 1 :]) if "fit" in command else []
    found = []
    while words:
        name, equals, value = words.pop(0).partition("=")
        if name in ("--debug", "--allow-code", "--allow_code"):  # they have no value
            continue
        if not equals and words and not words[0].startswith("--"):
            value = words.pop(0)
        found.append(("--output" if name == "-o" else name, value))
    return found


def _counting(words: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Options that make an experiment what it is."""
    return [
        (current_option(name.removeprefix("--")), Path(value).name if name in _FILES else value)
        for name, value in words
        if name.startswith("--")
        and name != "--config"
        and not _makes_no_difference(name.removeprefix("--"))
    ]


def _command(words: Iterable[tuple[str, str]]) -> str:
    shown = ["python", "train.py", "fit"]
    seed = "--seed_everything"
    for name, value in words:
        if name == "--output" or (name == seed and value != "SEED"):
            continue
        if name.startswith("--trainer.logger"):  # may hold passwords
            continue
        if name == "--data.root":
            value = "DIR"
        elif name == "--data.member_fold":
            value = "FOLD"
        elif name == "--resume":
            value = "RUN"
        elif name in _FILES and not value.startswith("configs/"):
            value = Path(value).name
        shown += [name, value]
    return shlex.join(shown)
