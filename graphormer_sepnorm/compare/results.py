"""The results of a comparison: read from its runs, stored as results.json.

A number that is not available is nan here and null in a file, and a run that is not finished has
none. What a file lacks has its default.
"""

from __future__ import annotations

import functools
import json
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from graphormer_sepnorm.compare.arms import NORM
from graphormer_sepnorm.compare.geometry import LayerGeometry, geometry_of
from graphormer_sepnorm.compare.statistics import (
    Contrast,
    against,
    holm,
    log_errors,
    norm_effects,
    verdict,
)
from graphormer_sepnorm.datasets.molecule_data import MoleculeData
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import read_json, typed, write_json
from graphormer_sepnorm.formatting import decimals_of
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.model.config import NORM_ALIASES
from graphormer_sepnorm.pages.learning_curve import metrics_by_epoch
from graphormer_sepnorm.runs.directory import Record
from graphormer_sepnorm.runs.plan import COMPARISON, OTHER_FORMAT, Arm, Plan, RunSpec

log = logging.getLogger(__name__)

FORMAT_VERSION = 2
RESULTS = "results.json"
_FACTORIALS = ({"ln+ln", "ln+bn", "bn+ln", "bn+bn"}, {"shared-ln", "shared-bn", "ln+ln", "bn+bn"})


@dataclass(frozen=True)
class CurvePoint:
    """The logged values at the end of an epoch; epochs are counted from 1."""

    epoch: int
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
    ms_per_step: float = math.nan
    curve: tuple[CurvePoint, ...] = ()
    geometry: tuple[LayerGeometry, ...] = ()


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
    def tests(self) -> dict[int, float]:
        """The test metric by seed, of the finished runs that have it."""
        return {run.seed: run.test for run in self.finished if not math.isnan(run.test)}

    def values(self, name: str) -> np.ndarray:
        """A number of the finished runs, where they have it: float64 ``[n]``."""
        column = np.array([getattr(run, name) for run in self.finished], dtype=np.float64)
        return column[~np.isnan(column)]


@dataclass(frozen=True)
class Results:
    """What results.json holds; `arms` has the baseline first.

    Attributes:
        molecules: Number of each split.
        configuration: Of ``fit``, before an arm's options.
        complete: Whether all runs are finished.
        environment: ``packages``, ``commit``, ``machine`` and ``python`` of the first run.
        environments_differ: Values of those of them that other runs do not share.
    """

    dataset: str
    dataset_fingerprint: str
    molecules: dict[str, int | None]
    task: Task
    seeds: tuple[int, ...]
    baseline: str
    complete: bool
    arms: tuple[ArmResult, ...]
    configuration: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    environments_differ: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        arms = sorted(self.arms, key=lambda arm: arm.name != self.baseline)
        object.__setattr__(self, "arms", tuple(arms))

    @classmethod
    def read(cls, directory: Path) -> Results | None:
        """Read the results in a directory; None if there are none, or they are not whole.

        Raises:
            DataError: They are of another version.
        """
        path = directory / RESULTS
        plain = read_json(path)
        if plain is not None and plain.get("format_version") != FORMAT_VERSION:
            found = plain.get("format_version")
            raise DataError(OTHER_FORMAT.format(path, found, FORMAT_VERSION))
        return None if plain is None else typed(cls, plain)

    def write(self, directory: Path) -> None:
        """Write them to a directory, with the comparisons that follow from them."""
        plain = {"format_version": FORMAT_VERSION, **asdict(self)}
        plain["comparisons"] = [
            asdict(one) | {"arm": arm, "percent": one.percent, "verdict": verdict(one, "lower")}
            for arm, one in self.comparisons.items()
        ]
        write_json(directory / RESULTS, plain, indent=None)

    @functools.cached_property
    def errors(self) -> dict[str, dict[int, float]]:
        """The logarithms of test errors by arm and by seed.

        Of the finished runs; of none where one of them has no error or one of 0, which has no
        logarithm: without it the arm would seem to be better, or worse, than it is.
        """
        higher = self.task.main.higher_is_better
        found = {}
        for arm in self.arms:
            logs = log_errors([*arm.tests.values()], higher_is_better=higher)
            whole = len(logs) == len(arm.finished) and bool(np.isfinite(logs).all())
            found[arm.name] = dict(zip(arm.tests, logs.tolist(), strict=True)) if whole else {}
        return found

    @functools.cached_property
    def comparisons(self) -> dict[str, Contrast]:
        """The logarithms of the test errors of each arm that has some against the baseline's."""
        return against(self.errors, self.baseline)

    def effects(self) -> list[tuple[str, Contrast, float]]:
        """Return the effects of the norms' factors, where the arms form a factorial of norms.

        Returns:
            Name, contrast of the logarithms of test errors, and its p-value, adjusted for all
            effects.
        """
        common = self.configuration.get("model", {}).get("norm")
        errors = {norm: self.errors[arm] for arm, norm in norms_of(self.arms, common).items()}
        if not any(norms <= errors.keys() for norms in _FACTORIALS):
            return []
        found = norm_effects(errors)
        adjusted = holm([one.p_value for one in found.values()]).tolist()
        return [(name, one, p) for (name, one), p in zip(found.items(), adjusted, strict=True)]

    @functools.cached_property
    def decimals(self) -> int:
        """Of values of the metric: as many as show four digits of the largest one."""
        values = [np.abs(arm.values(part)) for arm in self.arms for part in ("validation", "test")]
        return decimals_of(np.concatenate(values).max(initial=0))

    @property
    def label(self) -> str:
        """The metric as it is printed."""
        return self.task.main.label

    @property
    def error_label(self) -> str:
        """What changes are of: the metric, or 1 minus a metric of which more is better."""
        return f"1 - {self.label}" if self.task.main.higher_is_better else self.label

    @property
    def in_unit(self) -> str:
        """The unit in parentheses, with a blank before it; empty if there is none."""
        unit = self.task.unit_of(self.task.main)
        return f" ({unit})" if unit else ""


def norms_of(arms: Sequence[Arm | ArmResult], common: object) -> dict[str, str]:
    """Return the canonical norm of arms, by name: of those that differ from the first in it alone.

    Args:
        arms: At least one.
        common: The norm of an arm that names none.
    """
    others = [{n: v for n, v in arm.options.items() if n != NORM} for arm in arms]
    found = {
        arm.name: str(arm.options.get(NORM) or common).lower()
        for arm, own in zip(arms, others, strict=True)
        if own == others[0]
    }
    return {arm: NORM_ALIASES.get(norm, norm) for arm, norm in found.items()}


def collect(directory: Path, baseline: str | None = None) -> Results:
    """Read the runs of a comparison, measure their embeddings, write and return the results.

    Against its own baseline, unless another arm is named. Where no finished run is there any more
    (they are large), the results are those that were written before.

    Raises:
        DataError: There is no comparison, no run has finished, some that had are gone, the data
            are not those that they were trained on, or earlier results are of another version.
        CheckpointError: Of a finished run something has to be computed, and it has no readable
            checkpoint.
    """
    earlier = Results.read(directory)
    before = [run for arm in earlier.arms for run in arm.runs] if earlier else []
    # Where no run is left its plan is not needed: it may be of an earlier version.
    left = not before or any((directory / run.directory).is_dir() for run in before)
    plan = Plan.read(directory / COMPARISON) if left else None
    runs = plan.runs(directory) if plan is not None else []
    finished = {run: found for run in runs if (found := run.files.summary()) is not None}
    if plan is None or not finished:
        if earlier is None:
            raise DataError(f"{directory}: no run of a comparison has finished: nothing to report")
        if baseline is not None:
            Plan.check_baseline(baseline, [arm.name for arm in earlier.arms])
            earlier = replace(earlier, baseline=baseline)
            earlier.write(directory)
        return earlier
    known = {directory / run.directory for run in before if run.status == "finished"}
    for run in runs:
        if run.directory in known and not (run.directory.is_dir() or run.failure.is_file()):
            raise DataError(
                f"some of the runs in {directory / RESULTS} are gone, as {run.directory}: put them "
                f"back, or remove {RESULTS}"
            )
    plan = replace(plan, baseline=plan.baseline if baseline is None else baseline)
    records = {run: found for run in finished if (found := run.files.record()) is not None}
    data, geometry = _measure(finished)
    splits, task = data.splits, data.splits.task
    environment, differing = _environments(records.values())
    arms = []
    for arm in plan.arms:
        own = [run for run in runs if run.arm == arm.name]
        first = next((run for run in own if run in finished), None)
        arms.append(
            ArmResult(
                name=arm.name,
                options=arm.options,
                parameters=finished[first]["parameters"] if first else math.nan,
                runs=tuple(
                    _result(run, finished.get(run), geometry.get(run, ()), task.metric)
                    for run in own
                ),
                selected_on=records[first].selected_on if first in records else None,
            )
        )
    results = Results(
        dataset=splits.name,
        dataset_fingerprint=splits.fingerprint,
        molecules={name: len(part) for name, part in splits.parts.items()},
        task=task,
        configuration=plan.configuration,
        seeds=plan.seeds,
        baseline=plan.baseline,
        complete=len(finished) == len(runs),
        arms=tuple(arms),
        environment=environment,
        environments_differ=differing,
    )
    results.write(directory)
    return results


def _measure(
    finished: Mapping[RunSpec, dict[str, Any]],
) -> tuple[MoleculeData, dict[RunSpec, tuple[LayerGeometry, ...]]]:
    """Return the data of the first run, and the geometry of each finished one."""
    loaded: dict[str, MoleculeData] = {}
    found: dict[RunSpec, tuple[LayerGeometry, ...]] = {}
    for number, (run, summary) in enumerate(finished.items(), start=1):
        config = run.files.configuration()
        length = config["model"]["max_path_length"]
        options = config["data"] | {"max_path_length": length, "num_workers": 0}
        key = json.dumps(options, sort_keys=True)  # most runs have the same
        if key not in loaded:
            loaded[key] = MoleculeData(**options)
        if loaded[key].splits.fingerprint != summary.get("dataset_fingerprint", ""):
            raise DataError(
                f"{run.directory} was trained on other data, or another split, than are there now: "
                "put the data back, or compare in another directory"
            )
        log.info("analyzing %s (%d of %d)", run.name, number, len(finished))
        found[run] = geometry_of(run.files, loaded[key])
    return next(iter(loaded.values())), found


def _result(
    run: RunSpec, summary: dict[str, Any] | None, geometry: tuple[LayerGeometry, ...], metric: str
) -> RunResult:
    found: dict[str, Any] = {"seed": run.seed, "directory": f"{run.arm}/{run.directory.name}"}
    if summary is not None:
        found = summary | found | {"status": "finished"}
        found["validation"] = summary.get(f"best_validation_{metric}")
        found["test"] = summary.get(f"test_{metric}")
        steps, seconds = summary.get("steps"), summary.get("training_seconds")
        found["ms_per_step"] = 1000 * seconds / steps if steps and seconds else None
    elif run.failure.is_file():
        found |= {"status": "failed", "error": run.failure.read_text(encoding="utf-8").strip()}
    else:
        found["status"] = "unfinished" if run.directory.is_dir() else "missing"
    columns = ("train_loss_epoch", f"validation_{metric}")
    curve = tuple(
        CurvePoint(int(row["epoch"]), *(row.get(one, math.nan) for one in columns))
        for row in metrics_by_epoch(run.files)
    )
    return replace(typed(RunResult, found), curve=curve, geometry=geometry)


def _environments(records: Iterable[Record]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Where the runs were trained: the first one's first session, and what differs in others."""
    sessions = [session for record in records for session in record.sessions]
    first, differing = {}, {}
    for name in ("packages", "commit", "machine", "python"):
        values = [getattr(session, name) for session in sessions]
        first[name] = values[0] if values else None
        others = sorted({json.dumps(value, sort_keys=True) for value in values})
        if len(others) > 1:
            differing[name] = [json.loads(value) for value in others]
    return first, differing
