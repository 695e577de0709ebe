"""Records of experiments: what is kept of them when their run directories are gone."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import require_json, write_text
from graphormer_sepnorm.old_names import current_options, current_text

FORMAT_VERSION = 1


@dataclass(frozen=True)
class SeedRun:
    """One run of an experiment; what its directory does not say is None.

    Attributes:
        seed: Of initial values, order and dropout.
        began: When, ISO 8601.
        finished: Whether it is trained to its end and tested.
        steps: Optimiser steps taken.
        planned_steps: Of the whole run.
        parameters: That are trained.
        seconds: Wall-clock time of all sessions up to the end of training.
        interruptions: Sessions that ended otherwise than with the end of training.
        device: GPU, or processor and threads.
        torch: Version.
        commit: Of this code.
        validation: Main metric of the selected checkpoint; the best so far of an unfinished run.
        test: Main metric of the selected checkpoint; None of an unfinished run.
    """

    seed: int
    began: str
    finished: bool
    steps: int
    planned_steps: int | None
    parameters: int | None
    seconds: float
    interruptions: int
    device: str | None
    torch: str | None
    commit: str | None
    validation: float | None
    test: float | None


@dataclass(frozen=True)
class Experiment:
    """Runs whose configurations are equal but for the seed.

    Attributes:
        name: Configuration file and what was given beside it.
        dataset: Name.
        dataset_fingerprint: Which data these are.
        split: How a user's table was split, in words; None: the data set's own split.
        molecules: Numbers in training, validation and test, where they are known.
        data_note: What has to be said about the data beside any result; None: not recorded.
        metric: Name of the main metric.
        unit: Of the metric.
        selected_on: What decided on the checkpoint, as ``validation_mae``.
        options: All options of ``fit`` that differ from the program's defaults and can change a
            result.
        commands: What was typed: the training, and continuations with other options.
        runs: By seed.
    """

    name: str
    dataset: str
    dataset_fingerprint: str
    split: str | None
    molecules: tuple[int, ...] | None
    data_note: str | None
    metric: str
    unit: str
    selected_on: str
    options: dict[str, Any]
    commands: tuple[str, ...]
    runs: tuple[SeedRun, ...]

    @property
    def fingerprint(self) -> str:
        """Twelve digits that are those of any run with these data and options."""
        content = json.dumps([self.dataset_fingerprint, self.options], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:12]

    @property
    def file_name(self) -> str:
        """Name of the record."""
        words = re.sub(r"[^\w.+=-]+", "-", f"{self.dataset}-{self.name}").strip("-")
        return f"{words[:80]}-{self.fingerprint}.json"

    @property
    def shown_runs(self) -> tuple[SeedRun, ...]:
        """The runs whose numbers stand in the table: the finished ones, or all if none is."""
        return tuple(run for run in self.runs if run.finished) or self.runs

    def merged(self, other: Experiment) -> Experiment:
        """Return `other`, of the same fingerprint, with the runs of both.

        Of two runs with one seed a finished one stays, otherwise the one that began later.
        """
        runs = {run.seed: run for run in self.runs}
        for run in other.runs:
            known = runs.get(run.seed, run)
            if (run.finished, run.began) >= (known.finished, known.began):
                runs[run.seed] = run
        return dataclasses.replace(other, runs=tuple(runs[seed] for seed in sorted(runs)))


def merge(experiments: Iterable[Experiment]) -> dict[str, Experiment]:
    """Merge experiments of the same fingerprint; return them by it."""
    merged: dict[str, Experiment] = {}
    for one in experiments:
        known = merged.get(one.fingerprint)
        merged[one.fingerprint] = known.merged(one) if known else one
    return merged


def read_records(folder: Path) -> dict[Path, Experiment]:
    """Read all records of a folder; none if it is not there.

    Raises:
        DataError: One is damaged or of another version.
    """
    return {path: _read(path) for path in sorted(folder.glob("*.json"))}


def add_to_records(folder: Path, experiments: Iterable[Experiment]) -> list[Experiment]:
    """Merge experiments into the records of a folder; return all that are in it then.

    Raises:
        DataError: A record is damaged or of another version, or none can be written.
    """
    records = read_records(folder)
    places = {one.fingerprint: path for path, one in records.items()}
    new = merge(experiments)
    everything = merge([*records.values(), *new.values()])
    for fingerprint in new:
        one = everything[fingerprint]
        _write(places.get(fingerprint, folder / one.file_name), one)
    return list(everything.values())


def _read(path: Path) -> Experiment:
    content = require_json(path)
    if content.pop("format_version", None) != FORMAT_VERSION:
        raise DataError(f"{path} is no record of this version of the program: remove it")
    try:
        runs = tuple(SeedRun(**run) for run in content.pop("runs"))
        content["name"] = current_text(content["name"])
        content["options"] = current_options(dict(content["options"]))
        content["commands"] = tuple(content["commands"])  # as typed: also what that commit knows
        content["molecules"] = content["molecules"] and tuple(content["molecules"])
        return Experiment(**content, runs=runs)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{path} is no record of this version of the program ({error}): remove it"
        ) from error


def _write(path: Path, experiment: Experiment) -> None:
    content = {"format_version": FORMAT_VERSION, **dataclasses.asdict(experiment)}
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
