"""A run on disk: the files of its directory, and what stands in them."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphormer_sepnorm.errors import CheckpointError, ConfigError, DataError, did_you_mean
from graphormer_sepnorm.files import require_json, write_json
from graphormer_sepnorm.formatting import shortened
from graphormer_sepnorm.resources import bundled_models

BEST, LAST, PREVIOUS = "best.ckpt", "last.ckpt", "previous.ckpt"
CHECKPOINTS = "checkpoints"
LOCK = ".lock"
_RECORD_FORMAT = 1


@dataclass(kw_only=True)
class Session:
    """One process that trained the run, from its start or from a checkpoint.

    Attributes:
        started: When, ISO 8601.
        ended: When; None: it was killed, and step and time are those of its last checkpoint.
        from_step: Optimizer steps that were taken when it began.
        to_step: Optimizer steps that were taken when it ended.
        seconds: Wall-clock time.
        end: ``trained``, ``interrupted``, ``failed: ...``; None: it was killed.
        command: What was typed, as words.
        commit: Of this code, with ``+changes`` if files differ from it.
        python: Version.
        packages: Versions by name.
        machine: Processor, device, threads and so on.
    """

    started: str
    ended: str | None = None
    from_step: int = 0
    to_step: int = 0
    seconds: float = 0.0
    end: str | None = None
    command: list[str]
    commit: str | None = None
    python: str | None = None
    packages: dict[str, str] = field(default_factory=dict)
    machine: dict[str, Any] | None = None


@dataclass(kw_only=True)
class Record:
    """What a run was made with and where, as ``run.json`` keeps it.

    Attributes:
        dataset: Name.
        dataset_fingerprint: Which data these are.
        feature_version: The atom and bond codes.
        molecules: Numbers in ``train``, ``validation`` and ``test``.
        split: How a user's table was split, in words; None: the data set's own split.
        data_note: What has to be stated about the data with any result; None: not recorded.
        metric: Name of the main metric.
        unit: Of the main metric.
        selected_on: What decides on the best checkpoint, as ``validation_mae``; None: nothing does.
        parameters: That are trained.
        planned_steps: Of the whole run; None where only time or a person ends it.
        seed: Of initial values, order and dropout.
        sessions: One; more if it was resumed.
    """

    dataset: str
    dataset_fingerprint: str
    feature_version: str | None = None
    molecules: dict[str, int] | None = None
    split: str | None = None
    data_note: str | None = None
    metric: str
    unit: str = ""
    selected_on: str | None = None
    parameters: int | None = None
    planned_steps: int | None = None
    seed: int
    sessions: list[Session]

    @property
    def seconds(self) -> float:
        """Wall-clock time of all sessions."""
        return round(sum(session.seconds for session in self.sessions), 1)


class RunDirectory:
    """The files of a run, whether they are there or not.

    Args:
        path: Of the directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.configuration_file = path / "config.yaml"
        self.record_file = path / "run.json"
        self.summary_file = path / "summary.json"
        self.metrics_file = path / "metrics.csv"
        self.test_predictions_file = path / "test_predictions.csv"
        self.validation_predictions_file = path / "validation_predictions.csv"
        self.test_predictions_figure = path / "test_predictions.png"
        self.learning_curve_file = path / "learning_curve.png"
        self.uncertainty_file = path / "uncertainty.json"
        self.data_report_file = path / "data_report.json"
        self.splits_file = path / "splits.csv"
        self.invalid_rows_file = path / "invalid_rows.csv"
        self.tensorboard = path / "tensorboard"
        self.checkpoints = path / CHECKPOINTS
        self.best, self.last, self.previous = (
            self.checkpoints / name for name in (BEST, LAST, PREVIOUS)
        )
        self.lock = path / LOCK
        self.members = path / "members"  # runs of their own, of an ensemble
        self.geometry_file = path / "geometry.json"  # kept by a comparison

    @property
    def tested(self) -> Path | None:
        """The checkpoint that counts: the best, or the last if nothing was validated."""
        return next((path for path in (self.best, self.last) if path.is_file()), None)

    @property
    def finished(self) -> bool:
        """Whether it is trained and tested, and all is made that was to follow."""
        return self.summary_file.is_file()

    def configuration(self) -> dict[str, Any]:
        """Read the options of ``fit``, in sections; a DataError where they cannot be read."""
        from graphormer_sepnorm.config import read_yaml  # which needs more than the files

        try:
            return read_yaml(self.configuration_file)[1]
        except ConfigError as error:
            raise DataError(f"{error}: leave this run out") from error

    def record(self) -> Record | None:
        """Read what the run was made with; None if it has not begun, a DataError if damaged."""
        path = self.record_file
        if not path.is_file():
            return None
        plain = require_json(path)
        try:
            if (version := plain.pop("format_version", None)) != _RECORD_FORMAT:
                raise ValueError(f"format {version}, here {_RECORD_FORMAT}")
            sessions = [Session(**one) for one in plain["sessions"]]
            return Record(**{**plain, "sessions": sessions})
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise DataError(
                f"{path} was written by another version of this program ({error}): take its "
                "results with that version"
            ) from error

    def write_record(self, record: Record) -> None:
        """Write what the run is made with."""
        plain = {"format_version": _RECORD_FORMAT, **dataclasses.asdict(record)}
        write_json(self.record_file, plain)

    def summary(self) -> dict[str, Any] | None:
        """Read what it came to, by flat names; None if not finished, a DataError if damaged."""
        return require_json(self.summary_file) if self.finished else None

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write what it came to, in a single line: with it the run is finished."""
        write_json(self.summary_file, dict(summary), indent=None)

    def metrics(self) -> list[dict[str, float]]:
        """Read what was logged: rows of the columns that have a value; none if there is no file.

        A run may be at work: a row that is just being written is left out. ``step`` and ``epoch``
        are counted from 0.
        """
        found = []
        for row in read_rows(self.metrics_file):
            with contextlib.suppress(TypeError, ValueError):
                found.append({name: float(value) for name, value in row.items() if value})
        return [row for row in found if row]

    def test_predictions(self) -> list[dict[str, str]]:
        """Read the rows of the test molecules, in their order; none if there is no such file."""
        return read_rows(self.test_predictions_file)


def read_rows(path: Path) -> list[dict[str, str]]:
    """Read a CSV file that a run, or what follows from runs, has; none if it cannot be read."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
    except (OSError, ValueError, csv.Error):
        return []


def find_checkpoint(path: str | Path) -> Path:
    """Return the checkpoint file that `path` means.

    Args:
        path: A file, a run directory (its best checkpoint), or the name of a bundled model. What
            lies in the current folder goes before a bundled model.

    Raises:
        CheckpointError: There is no such file or directory, or no checkpoint in it.
    """
    name, path = str(path), Path(path).expanduser()
    try:
        if path.is_file():
            return path
        if not path.exists():
            found = (known := bundled_models()).get(name)
            reason = f"no such checkpoint or run directory: {path}{did_you_mean(name, known)}; "
            reason += f"with the package come: {', '.join(known)}"
        else:
            run = RunDirectory(path)
            found = run.tested
            expected = run.best.relative_to(path)
            reason = f"no checkpoint in {path}: expected {expected}, as a training run leaves it"
    except OSError as error:  # a name that is too long, a folder that may not be entered
        raise CheckpointError(f"{shortened(name)}: {error.strerror}") from error
    if found is None:
        raise CheckpointError(reason)
    return found
