"""What a comparison came to, as results.json keeps it and a report reads it.

A number that could not be had is nan here and null in the file, and a run that is not finished has
none. What a file lacks has its default.
"""

from __future__ import annotations

import functools
import math
import typing
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any

import numpy as np

from graphormer_sepnorm.compare.model_geometry import CloudGeometry
from graphormer_sepnorm.compare.roc_statistics import AreaTests
from graphormer_sepnorm.compare.statistics import PairedDifference, PairedErrors
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import read_json, write_json
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.runs.plan import other_format

FORMAT_VERSION = 1
RESULTS = "results.json"


@dataclass(frozen=True)
class SimpleModel:
    """A baseline's main metric; comparable if it is a mean over the same targets as an arm's."""

    name: str
    validation: float
    test: float
    comparable: bool


@dataclass(frozen=True)
class CurvePoint:
    """What is known at the end of an epoch, counted from 1."""

    epoch: int
    step: int
    train_loss: float = math.nan
    validation: float = math.nan


@dataclass(frozen=True)
class RunResult:
    """One arm with one seed; its status is finished, failed, unfinished or missing.

    Its directory is named from that of the comparison.
    """

    seed: int
    status: str
    directory: str = ""
    error: str | None = None
    steps: float = math.nan
    epochs: float = math.nan
    validation: float = math.nan
    test: float = math.nan
    seconds: float = math.nan
    training_seconds: float = math.nan
    graphs_per_second: float = math.nan
    ms_per_step: float = math.nan
    curve: tuple[CurvePoint, ...] = ()
    geometry: tuple[CloudGeometry, ...] = ()

    def cloud(self, layer: str, what: str) -> CloudGeometry | None:
        """The geometry at a layer, of [CLS] or of the atoms."""
        return next((one for one in self.geometry if (one.layer, one.what) == (layer, what)), None)


@dataclass(frozen=True)
class ArmResult:
    """An arm with all its runs.

    `selected_on` is what chose its tested checkpoints, as ``validation_mae``; None: no run of it is
    finished.
    """

    name: str
    options: dict[str, str]
    parameters: float
    runs: tuple[RunResult, ...]
    selected_on: str | None = None

    @property
    def finished(self) -> list[RunResult]:
        """The runs that are trained and tested."""
        return [run for run in self.runs if run.status == "finished"]

    @property
    def analysed(self) -> list[RunResult]:
        """The finished runs whose embeddings have been measured."""
        return [run for run in self.finished if run.geometry]

    @property
    def tests(self) -> dict[int, float]:
        """The test metric by seed, of the finished runs that have it."""
        return {run.seed: run.test for run in self.finished if not math.isnan(run.test)}

    def values(self, name: str) -> np.ndarray:
        """A number of the finished runs, where they have it: float64 ``[n]``."""
        column = np.array([getattr(run, name) for run in self.finished], dtype=np.float64)
        return column[~np.isnan(column)]


@dataclass(frozen=True)
class ArmComparison:
    """An arm against the baseline, over the seeds that both have finished.

    Attributes:
        arm: Its name.
        baseline: The baseline's.
        seeds: Which they are.
        validation: Difference of the metric; None where it is undefined for some seed.
        test: The same on the test split.
        per_molecule: Of the first target; None where it cannot be told.
        paper_relative_percent: What the paper reports for such a comparison; nan if nothing.
        holm_p: The p-value of `test`, adjusted for all arms; nan without it.
        smallest_holm_p: The smallest that so many seeds and arms allow.
    """

    arm: str
    baseline: str
    seeds: tuple[int, ...]
    validation: PairedDifference | None
    test: PairedDifference | None
    per_molecule: PairedErrors | AreaTests | None
    paper_relative_percent: float = math.nan
    holm_p: float = math.nan
    smallest_holm_p: float = math.nan


@dataclass(frozen=True)
class Results:
    """What results.json holds; `arms` has the baseline first.

    Attributes:
        molecules: Number of each split.
        better: ``lower`` or ``higher``.
        unit: Of the metric; empty if it has none.
        command: One that does all of this.
        base_options: Words for ``fit``, of all arms.
        configuration: Of ``fit``, before an arm's options.
        complete: Whether all runs are finished.
        baselines: Simple models beside the arms, and what they leave out.
        environment: ``packages``, ``commit``, ``machine`` and ``python`` of the first run.
        environments_differ: Values of those of them that other runs do not share.
    """

    dataset: str
    dataset_fingerprint: str
    molecules: dict[str, int | None]
    task: Task
    metric: str
    better: str
    unit: str
    command: tuple[str, ...]
    seeds: tuple[int, ...]
    baseline: str
    complete: bool
    arms: tuple[ArmResult, ...]
    comparisons: tuple[ArmComparison, ...]
    base_options: tuple[str, ...] = ()
    configuration: dict[str, Any] = field(default_factory=dict)
    baselines: tuple[SimpleModel, ...] = ()
    baselines_left_out: str | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    environments_differ: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Results:
        """Make them of what the file holds."""
        arms = sorted(plain["arms"], key=lambda arm: arm["name"] != plain["baseline"])
        return typed(cls, {**plain, "arms": arms})

    @classmethod
    def read(cls, directory: Path) -> Results | None:
        """Read the results in a directory; None if there are none, or they are not whole.

        Raises:
            DataError: They are of another version.
        """
        path = directory / RESULTS
        plain = read_json(path)
        if plain is not None and plain.get("format_version") != FORMAT_VERSION:
            raise DataError(other_format(path, plain.get("format_version"), FORMAT_VERSION))
        return None if plain is None else cls.from_plain(plain)

    def write(self, directory: Path) -> None:
        """Write them to a directory."""
        plain = {"format_version": FORMAT_VERSION, **asdict(self)}
        for one, comparison in zip(plain["comparisons"], self.comparisons, strict=True):
            for split in ("validation", "test"):
                difference = getattr(comparison, split)
                if difference is not None:
                    one[split]["resolved"] = difference.resolved
        if not self.baselines:
            del plain["baselines"], plain["baselines_left_out"]
        write_json(directory / RESULTS, plain, indent=None)

    def arm(self, name: str) -> ArmResult:
        """The arm of this name."""
        return next(arm for arm in self.arms if arm.name == name)

    @property
    def made(self) -> list[ArmComparison]:
        """The comparisons for which there was at least one pair of runs."""
        return [one for one in self.comparisons if one.test is not None]

    @property
    def layers(self) -> list[str]:
        """Names of the layers in order, of the arm that has most."""
        runs = (run for arm in self.arms for run in arm.analysed)
        return max(
            (list(dict.fromkeys(one.layer for one in run.geometry)) for run in runs),
            key=len,
            default=[],
        )


def typed(kind: Any, plain: Any) -> Any:
    """Make what a type hint says of what JSON holds.

    Null for a float is nan. A dataclass takes the entries that it has fields for; of several the
    first one is made whose fields are all there.
    """
    members = typing.get_args(kind)
    if kind is float:
        return math.nan if plain is None else plain
    if isinstance(kind, UnionType):
        fitting = (one for one in members if is_dataclass(one) and _fits(one, plain))
        return typed(next(fitting, None), plain)
    if is_dataclass(kind):
        hints = _hints(kind)
        found = {name: typed(hints[name], plain[name]) for name in hints if name in plain}
        return kind(**found)  # type: ignore[operator]
    if typing.get_origin(kind) is tuple:
        return tuple(typed(members[0], one) for one in plain or ())
    if typing.get_origin(kind) is dict:
        return {name: typed(members[1], one) for name, one in (plain or {}).items()}
    return plain


def _fits(kind: Any, plain: Any) -> bool:
    needed = {one.name for one in fields(kind) if one.default is MISSING}
    return isinstance(plain, dict) and needed <= plain.keys()


_hints = functools.cache(typing.get_type_hints)
