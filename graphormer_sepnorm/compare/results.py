"""What runs came to, read into one table; of a comparison as results.json and predictions.csv.

A number that could not be had is nan here and null in a file, and a run that is not finished has
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
from typing import Any, Self

import numpy as np

from graphormer_sepnorm.baselines.evaluation import baselines_of
from graphormer_sepnorm.compare.model_geometry import CloudGeometry, geometry_of
from graphormer_sepnorm.compare.statistics import PairedDifference, holm, paired_difference, verdict
from graphormer_sepnorm.config import FitConfig
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import read_json, typed, write_columns, write_json
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.runs.directory import Record, RunDirectory, Summary
from graphormer_sepnorm.runs.plan import Comparison, RunSpec, other_format

log = logging.getLogger(__name__)

FORMAT_VERSION = 1
RESULTS, PREDICTIONS = "results.json", "predictions.csv"


@dataclass(frozen=True)
class Finished:
    """A finished run, as a comparison and a cross-validation read it.

    Attributes:
        run: Which.
        summary: What it came to.
        record: What it was made with; None: not recorded, as of an ensemble.
        rows: Of ``test_predictions.csv``; empty where it has left none.
    """

    run: RunSpec
    summary: Summary
    record: Record | None
    rows: list[dict[str, str]]

    @classmethod
    def read(cls, run: RunSpec) -> Self | None:
        """Read a run; None if it is not finished.

        Raises:
            DataError: It is damaged.
        """
        summary = run.files.summary()
        if summary is None:
            return None
        return cls(run, summary, run.files.record(), run.files.test_predictions())

    @property
    def fingerprint(self) -> str:
        """Of the molecules, labels and splits that it had; empty if not recorded."""
        return self.summary.get("dataset_fingerprint", "")

    def values(self, of: str, targets: Sequence[str]) -> np.ndarray:
        """The ``label`` or ``pred`` of each test molecule, ``[G, T]``; nan where there is none."""
        cells = [[float(row.get(f"{of}_{name}") or "nan") for name in targets] for row in self.rows]
        return np.array(cells, dtype=np.float64).reshape(-1, len(targets))


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
class ArmComparison:
    """An arm against the baseline, over the seeds that both have finished.

    Attributes:
        arm: Its name.
        baseline: The baseline's.
        seeds: Which they are.
        validation: Difference of the metric; None where it is undefined for some seed.
        test: The same on the test split.
        holm_p: The p-value of `test`, adjusted for all arms; nan without it.
        smallest_holm_p: The smallest that so many seeds and arms allow.
        verdict: What may be said of the test metric, see `statistics.verdict`.
    """

    arm: str
    baseline: str
    seeds: tuple[int, ...]
    validation: PairedDifference | None
    test: PairedDifference | None
    holm_p: float = math.nan
    smallest_holm_p: float = math.nan
    verdict: str = ""


@dataclass(frozen=True)
class Results:
    """What results.json holds; `arms` has the baseline first.

    Attributes:
        molecules: Number of each split.
        better: ``lower`` or ``higher``.
        unit: Of the metric; empty if it has none.
        command: One that does all of this.
        configuration: Of ``fit``, before an arm's options.
        complete: Whether all runs are finished.
        baselines: Simple models beside the arms: ``name``, ``validation``, ``test``, and whether
            they are ``comparable`` (means over the same targets).
        baselines_left_out: What they leave out.
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
    configuration: dict[str, Any] = field(default_factory=dict)
    baselines: tuple[dict[str, Any], ...] = ()
    baselines_left_out: str | None = None
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
            raise DataError(other_format(path, plain.get("format_version"), FORMAT_VERSION))
        return None if plain is None else typed(cls, plain)

    def write(self, directory: Path) -> None:
        """Write them to a directory, and what follows from them."""
        plain = {"format_version": FORMAT_VERSION, **asdict(self)}
        plain["comparisons"] = [asdict(one) for one in self.comparisons]
        for plain_one, one in zip(plain["comparisons"], self.comparisons, strict=True):
            for split in ("validation", "test"):
                if (difference := getattr(one, split)) is not None:
                    plain_one[split]["resolved"] = difference.resolved
        if not self.baselines:
            del plain["baselines"], plain["baselines_left_out"]
        write_json(directory / RESULTS, plain, indent=None)

    @functools.cached_property
    def comparisons(self) -> tuple[ArmComparison, ...]:
        """Each arm that has a seed in common with the baseline against it."""
        before, found = {run.seed: run for run in self.arms[0].finished}, []
        for arm in self.arms[1:]:
            pairs = [(before[run.seed], run) for run in arm.finished if run.seed in before]
            if pairs:
                validation, test = (_difference(pairs, part) for part in ("validation", "test"))
                seeds = tuple(run.seed for _, run in pairs)
                found.append(ArmComparison(arm.name, self.baseline, seeds, validation, test))
        adjusted = holm([one.test.p_value if one.test else math.nan for one in found])
        smallest = holm([one.test.smallest_p if one.test else math.nan for one in found])
        return tuple(
            replace(
                one,
                holm_p=p,
                smallest_holm_p=least,
                verdict=verdict(one.test, p, self.better) if one.test else "",
            )
            for one, p, least in zip(found, adjusted.tolist(), smallest.tolist(), strict=True)
        )

    def comparison(self, arm: str) -> ArmComparison | None:
        """That of an arm, if its metric is defined for all seeds."""
        return next((one for one in self.comparisons if one.arm == arm and one.test), None)


def _difference(
    pairs: Sequence[tuple[RunResult, RunResult]], split: str
) -> PairedDifference | None:
    """None where the metric is undefined for a seed, or there was no validation."""
    sides = np.array([[getattr(run, split) for run in pair] for pair in pairs]).T
    return paired_difference(*sides) if np.isfinite(sides).all() else None


def collect(directory: Path, baseline: str | None = None) -> None:
    """Read the runs of a comparison, measure their embeddings, write the results.

    Against its own baseline, unless another arm is named.

    Raises:
        DataError: No comparison was begun there, no run has finished, the data are not those
            that the runs were trained on, or earlier results are of another version.
        CheckpointError: Of a finished run something has to be computed, and it has no readable
            checkpoint.
    """
    comparison = Comparison.read(directory)
    if comparison is None:
        raise DataError(f"{directory} holds no comparison: there is no compare.yaml in it")
    earlier, runs = Results.read(directory), comparison.runs(directory)
    finished = {run: found for run in runs if (found := Finished.read(run)) is not None}
    if not finished:
        raise DataError(f"{directory}: no run has finished, there is nothing to report yet")
    data, geometry = _measure(finished)
    splits, task = data.splits, data.splits.task
    _write_predictions(directory / PREDICTIONS, data, finished)
    baselines, left_out = _baselines(comparison, data, earlier)
    environment, differing = _environments(finished.values())
    arms = []
    for arm in comparison.arms:
        own = [run for run in runs if run.arm == arm.name]
        of_arm = [finished[run] for run in own if run in finished]
        first = of_arm[0] if of_arm else None
        arms.append(
            ArmResult(
                name=arm.name,
                options=arm.options,
                parameters=first.summary["parameters"] if first else math.nan,
                runs=tuple(
                    _result(run, finished.get(run), geometry.get(run, ()), task.metric)
                    for run in own
                ),
                selected_on=first.record.selected_on if first and first.record else None,
            )
        )
    Results(
        dataset=splits.name,
        dataset_fingerprint=splits.fingerprint,
        molecules={name: len(part) for name, part in splits.parts.items()},
        task=task,
        metric=task.metric,
        better=task.main.better,
        unit=task.unit_of(task.main),
        command=tuple(comparison.command_line()),
        configuration=comparison.configuration,
        seeds=comparison.seeds,
        baseline=baseline or comparison.baseline,
        complete=len(finished) == len(runs),
        arms=tuple(arms),
        baselines=baselines,
        baselines_left_out=left_out,
        environment=environment,
        environments_differ=differing,
    ).write(directory)


def runs_are_gone(directory: Path) -> bool:
    """Whether results were collected of finished runs whose directories are no longer there.

    A run that was begun again since is not gone, whatever came of it; if none got so far as to
    begin, all are.

    Raises:
        DataError: Of some they are, of others not; or the results are of another version.
    """
    earlier = Results.read(directory)
    collected = [
        RunSpec(arm.name, FitConfig(), directory / run.directory)
        for arm in (earlier.arms if earlier else ())
        for run in arm.finished
    ]
    begun = [run.finished or run.files.record_file.is_file() for run in collected]
    if not any(begun):
        return bool(collected)
    if not all(there or run.failure.is_file() for there, run in zip(begun, collected, strict=True)):
        raise DataError(
            f"{directory}: some of the runs in {RESULTS} are gone, others are there: put them back "
            f"to report on all, or remove {RESULTS} to report on those that are there"
        )
    return False


def _measure(
    finished: Mapping[RunSpec, Finished],
) -> tuple[MoleculeDataModule, dict[RunSpec, tuple[CloudGeometry, ...]]]:
    """Return the data of the first run, and the geometry of each finished one."""
    loaded: dict[str, MoleculeDataModule] = {}
    found: dict[RunSpec, tuple[CloudGeometry, ...]] = {}
    for place, (run, one) in enumerate(finished.items(), start=1):
        config = run.files.configuration()
        length = config["model"]["max_path_length"]
        options = config["data"] | {"max_path_length": length, "num_workers": 0}
        key = json.dumps(options, sort_keys=True)  # most runs have the same
        if key not in loaded:
            loaded[key] = MoleculeDataModule(**options)
        data = loaded[key]
        if data.splits.fingerprint != one.fingerprint:
            raise DataError(
                f"{run.directory} was trained on other data than those that are there now (or on "
                "another split of them): what it predicts for these would mean nothing; put the "
                "data back, or compare anew in another directory"
            )
        log.info("analysing %s (%d of %d)", run.name, place, len(finished))
        # Histograms of one run per arm say enough, and are the largest part of the results.
        first = run.arm not in {other.arm for other in found}
        accelerator = (config.get("trainer") or {}).get("accelerator")
        found[run] = geometry_of(run.files, data, histograms=first, accelerator=accelerator)
    return next(iter(loaded.values())), found


def _write_predictions(
    path: Path, data: MoleculeDataModule, finished: Mapping[RunSpec, Finished]
) -> None:
    """Write what each arm predicts of the test molecules, the mean over its seeds."""
    numbers, targets = data.indices("test"), data.splits.task.targets
    smiles = data.splits.smiles
    columns: dict[str, Iterable[object]] = {
        "number": range(len(numbers)),
        "smiles": [""] * len(numbers) if smiles is None else smiles["test"],
        "atoms": data.store.num_atoms(numbers).tolist(),
    }
    of_arms: dict[str, list[np.ndarray]] = {}
    for run, one in finished.items():
        if len(one.rows) == len(numbers):
            of_arms.setdefault(f"pred_{run.arm}", []).append(one.values("pred", targets))
    tables = {"target": data.labels(numbers)}
    tables |= {name: np.mean(values, axis=0) for name, values in of_arms.items()}
    for name, table in tables.items():
        for target, column in zip(targets, table.T, strict=True):
            title = f"{name}:{target}" if len(targets) > 1 else name
            columns[title] = ["" if math.isnan(value) else f"{value:.9g}" for value in column]
    write_columns(path, columns)


def _baselines(
    comparison: Comparison, data: MoleculeDataModule, earlier: Results | None
) -> tuple[tuple[dict[str, Any], ...], str | None]:
    """The simple models, if ``--baselines`` asks for them: computed once, then taken from there."""
    if not comparison.configuration.get("baselines"):
        return (), None
    same = earlier and earlier.dataset_fingerprint == data.splits.fingerprint
    if earlier and same and earlier.baselines:
        return earlier.baselines, earlier.baselines_left_out
    found, left_out, _ = baselines_of(data)
    metric = data.splits.task.metric
    return tuple(one.by(metric) for one in found), left_out


def _result(
    run: RunSpec, finished: Finished | None, geometry: tuple[CloudGeometry, ...], metric: str
) -> RunResult:
    kept: dict[str, Any] = {"seed": run.seed, "directory": f"{run.arm}/{run.directory.name}"}
    if finished is not None:
        summary = finished.summary
        kept = summary | kept | {"status": "finished"}
        kept |= {"validation": summary.validation(metric), "test": summary.test(metric)}
        steps, seconds = summary.get("steps"), summary.get("training_seconds")
        kept["ms_per_step"] = 1000 * seconds / steps if steps and seconds else None
    elif run.failure.is_file():
        kept |= {"status": "failed", "error": run.failure.read_text(encoding="utf-8").strip()}
    else:
        kept["status"] = "unfinished" if run.directory.is_dir() else "missing"
    curve = learning_curve(run.files, metric)
    return replace(typed(RunResult, kept), curve=curve, geometry=geometry)


def learning_curve(run: RunDirectory, metric: str) -> tuple[CurvePoint, ...]:
    """Return the loss and the validation metric of each epoch of a run, as far as it has come."""
    columns = {"train_loss": "train_loss_epoch", "validation": f"validation_{metric}"}
    points: dict[int, CurvePoint] = {}
    for row in run.metrics():
        values = {ours: row[theirs] for ours, theirs in columns.items() if theirs in row}
        if values and "epoch" in row:
            # A step is counted from 0 in the log, by the number that was taken last.
            epoch, step = int(row["epoch"]) + 1, int(row["step"]) + 1
            points[step] = replace(points.get(step, CurvePoint(epoch, step)), **values)
    return tuple(points[step] for step in sorted(points))


def _environments(finished: Iterable[Finished]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Where the runs were trained: the first one's first session, and what differs from it.

    A run that was continued has several sessions; all of them, of all runs, are looked through.
    """
    sessions = [session for one in finished if one.record for session in one.record.sessions]
    first, differing = {}, {}
    for name in ("packages", "commit", "machine", "python"):
        values = [getattr(session, name) for session in sessions]
        first[name] = values[0] if values else None
        others = sorted({json.dumps(value, sort_keys=True) for value in values})
        if len(others) > 1:
            differing[name] = [json.loads(value) for value in others]
    return first, differing
