"""What the folds of a cross-validation came to: metrics, predictions, and what differs."""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from graphormer_sepnorm.compare.predictions_figure import draw_predictions
from graphormer_sepnorm.compare.statistics import FoldDifference, fold_difference, mean_sd
from graphormer_sepnorm.datasets.splits import SPLITS
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import replacing, require_json, write_json
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.metrics import METRICS, metrics_of
from graphormer_sepnorm.runs.directory import RunDirectory
from graphormer_sepnorm.runs.plan import Arm, CrossValidation, RunSpec

FOLDS, OUT_OF_FOLD, SUMMARY = "folds.csv", "out_of_fold.csv", "summary.json"
FIGURE = "out_of_fold.png"
_FORMAT_VERSION = 1
_ALONE = "network alone"  # of a blend

# Metrics by name, of each fold ``[n]``; nan where one is undefined or not recorded.
Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class Fold:
    """A finished run.

    Attributes:
        run: Which.
        data: Fingerprint of the molecules, labels and folds that it had; empty if not recorded.
        network: What the network is called.
        molecules: In its training, validation and test split.
        sha256: Of the files of the table that it read; empty if not recorded.
        test: Test metrics of the network by name, those of single targets too.
        recorded: Test metrics of each simple model that the run recorded, by its name.
        simple: The same, but none of a model whose metrics are means over other targets than the
            network's.
        rows: Of ``test_predictions.csv``; empty where the run has left none.
        confidence: How good it is what the model says of its errors, as the summary keeps it.
    """

    run: RunSpec
    data: str
    network: str
    molecules: dict[str, int]
    sha256: tuple[str, ...]
    test: dict[str, float]
    recorded: dict[str, dict[str, float]]
    simple: dict[str, dict[str, float]]
    rows: list[dict[str, str]]
    confidence: dict[str, float]


@dataclass(frozen=True)
class Spread:
    """A metric over the folds where it is defined: mean, standard deviation, and how many."""

    mean: float
    sd: float
    folds: int


@dataclass(frozen=True)
class ModelResult:
    """A network or a simple model over the folds.

    Attributes:
        name: What it is called.
        metrics: By name.
        out_of_fold: A network's, of all molecules, each predicted by the run that had not seen it:
            the mean over the repeats that are whole; empty if there is none.
        confidence: How good it is what the networks say of their errors, as `Fold`, the mean over
            the folds by their test molecules; empty where they say nothing.
    """

    name: str
    metrics: dict[str, Spread]
    out_of_fold: dict[str, float] = field(default_factory=dict)
    confidence: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Difference:
    """A model against another one; what is undefined on a fold leaves that fold out."""

    model: str
    baseline: str
    metrics: dict[str, FoldDifference]


@dataclass(frozen=True)
class FoldResults:
    """A cross-validation, or as much of it as is finished, as ``summary.json`` keeps it.

    Attributes:
        command: One that does all of this.
        split: ``scaffold`` or ``random``.
        split_seed: Of the folds of the first repeat.
        seeds: Of the repeats.
        folds: How many there are in a repeat.
        folds_finished: Of all repeats, under every arm.
        runs: How many there are when all is finished.
        networks: In the order of the arms.
        baselines: The simple models that the runs recorded beside their network.
        differences: Of each network from each simple model (of those of one network from its own),
            and from the first network.
    """

    command: list[str]
    dataset: str
    task: Task
    split: str
    split_seed: int
    seeds: tuple[int, ...]
    folds: int
    repeats: int
    folds_finished: int
    runs: int
    networks: list[ModelResult]
    baselines: list[ModelResult]
    differences: list[Difference]

    def write(self, path: Path) -> None:
        """Write them to a file."""
        plain = {"format_version": _FORMAT_VERSION, **asdict(self)}
        for one in (*plain["networks"], *plain["baselines"]):
            for name in ("out_of_fold", "confidence"):
                if not one[name]:
                    del one[name]
        for one, difference in zip(plain["differences"], self.differences, strict=True):
            for name, found in difference.metrics.items():
                one["metrics"][name]["resolved"] = found.resolved
        write_json(path, plain)


def collect(plan: CrossValidation, runs: Sequence[RunSpec], directory: Path) -> FoldResults:
    """Collect what the finished ones of all runs came to; write the files of results.

    Raises:
        DataError: No fold is finished under every arm, or the files of a run are damaged.
    """
    finished = [_read(run) for run in runs if run.finished]
    if not finished:
        raise DataError(f"{directory}: no fold is finished, so there is nothing to report")
    report = require_json(finished[0].run.files.data_report_file)
    names, units = zip(*((one["name"], one["unit"]) for one in report["targets"]), strict=True)
    metric, one_of = metrics_of(report["kind"])[0].name, report.get("one_of", "")
    task = Task(report["kind"], names, units, metric, one_of)
    # A fold counts when all arms have it, so that all numbers are of the same folds.
    by_fold: dict[tuple[int, int], dict[str, Fold]] = {}
    for one in finished:
        by_fold.setdefault((one.run.repeat, one.run.fold), {})[one.run.arm] = one
    for (repeat, fold), found in by_fold.items():
        if len({one.data for one in found.values()} - {""}) > 1:
            raise DataError(
                f"{directory}: the arms of repeat {repeat} fold {fold} had different data: the "
                "table has changed meanwhile; begin in another directory"
            )
    _refuse_rows_twice(finished, directory)
    if len({one.sha256 for one in finished if one.sha256}) > 1:
        raise DataError(
            f"{directory}: the table has changed between folds; begin in another directory"
        )
    _write_folds(directory / FOLDS, finished)
    _write_out_of_fold(directory / OUT_OF_FOLD, finished, task)
    _draw_out_of_fold(directory / FIGURE, finished, task)
    whole = [found for found in by_fold.values() if len(found) == len(plan.arms)]
    if not whole:
        raise DataError(f"{directory}: no fold is finished under every arm, so none is compared")
    of_arms = [[found[arm.name] for found in whole] for arm in plan.arms]
    networks = {own[0].network: _columns([one.test for one in own]) for own in of_arms}
    simple = _simple(of_arms)
    molecules = {
        own[0].network: _trained_and_tested(plan, arm, own)
        for arm, own in zip(plan.arms, of_arms, strict=True)
    }
    results = FoldResults(
        command=plan.command_line(),
        dataset=report["name"],
        task=task,
        split=plan.configuration.get("data", {}).get("split", "auto").replace("auto", "scaffold"),
        split_seed=plan.split_seed,
        seeds=plan.seeds,
        folds=plan.folds,
        repeats=len(plan.seeds),
        folds_finished=len(whole),
        runs=len(runs),
        networks=[
            ModelResult(name, _spreads(columns), _pooled(own, plan, task), _confidence(own))
            for (name, columns), own in zip(networks.items(), of_arms, strict=True)
        ],
        baselines=[ModelResult(one.name, _spreads(one.columns)) for one in simple],
        differences=_differences(networks, simple, molecules),
    )
    results.write(directory / SUMMARY)
    return results


def _refuse_rows_twice(folds: Sequence[Fold], directory: Path) -> None:
    """Raise a DataError if a row of the table is predicted by two folds of one repeat."""
    seen: set[tuple[str, int, str]] = set()
    for one in folds:
        for row in one.rows:
            place = one.run.arm, one.run.repeat, row["row"]
            if place in seen:
                raise DataError(
                    f"{directory}: row {row['row']} was tested by two folds of repeat "
                    f"{one.run.repeat}: the table has changed meanwhile; begin in another directory"
                )
            seen.add(place)


def _read(run: RunSpec) -> Fold:
    summary = run.files.summary()
    if summary is None or not run.files.data_report_file.is_file():
        raise DataError(f"{run.directory} is damaged: remove it and start the same command again")
    report = require_json(run.files.data_report_file)
    kind = "Graphormer blended with trees" if summary.get("network") else "Graphormer"
    recorded, others = simple_models(summary), _of_other_targets(summary)
    rows: list[dict[str, str]] = []
    if run.files.test_predictions_file.is_file():
        with run.files.test_predictions_file.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    return Fold(
        run=run,
        data=_data_of(run.files),
        network=run.arm if run.named else f"{kind}, {summary.get('norm', '')}",
        molecules=report["splits"],
        sha256=tuple(report.get("sha256", ())),
        test=_numbers(summary, "test_"),
        recorded=recorded,
        simple={name: {} if name in others else one for name, one in recorded.items()},
        rows=rows,
        confidence={
            name: math.nan if value is None else value
            for name, value in (summary.get("confidence") or {}).items()
        },
    )


def _data_of(run: RunDirectory) -> str:
    """Return what is recorded of a run, or, where it is an ensemble, of its first member."""
    members = (RunDirectory(path) for path in sorted(run.members.glob("seed*/")))
    records = (one.record() for one in (run, *members))
    return next((one.dataset_fingerprint for one in records if one is not None), "")


def simple_models(summary: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Test metrics of the models that a run recorded beside the one that it saved, by their names.

    Where that is a blend, the network in it is one of them.
    """
    found = {_ALONE: _numbers(summary.get("network") or {}, "test_")}
    found |= {one["name"]: _numbers(one["test"]) for one in summary.get("baselines") or []}
    return {name: values for name, values in found.items() if values}


def _of_other_targets(summary: Mapping[str, Any]) -> set[str]:
    """The models that lack a target: what their metrics are means over is not what others' are."""
    return {
        one["name"] for one in summary.get("baselines") or [] if not one.get("comparable", True)
    }


def _numbers(values: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Those of which the names begin so, by the rest of the name."""
    return {
        name.removeprefix(prefix): float(value)
        for name, value in values.items()
        if name.startswith(prefix)
        and isinstance(value, int | float)
        and not isinstance(value, bool)
    }


@dataclass(frozen=True)
class _Simple:
    """A simple model over the folds.

    Attributes:
        name: What it is called.
        columns: Its metrics.
        network: The one that it is compared with; empty: all.
    """

    name: str
    columns: Columns
    network: str = ""


def _simple(of_arms: Sequence[Sequence[Fold]]) -> list[_Simple]:
    """Return the models beside the networks.

    Trees of arms that train them on the same molecules are the same, and stand there once. A
    network alone is that of its own arm, and so are trees that differ: those of an arm whose
    members have folds are trained on the validation split, too.
    """
    found = []
    for name in dict.fromkeys(name for arm in of_arms for one in arm for name in one.simple):
        of_name = {
            arm[0].network: [one.simple.get(name, {}) for one in arm]
            for arm in of_arms
            if any(name in one.simple for one in arm)
        }
        (network, first), *others = of_name.items()
        if name != _ALONE and all(_equal(first, other) for _, other in others):
            found.append(_Simple(name, _columns(first)))
            continue
        for network, rows in of_name.items():
            own = name if len(of_arms) == 1 else f"{name}, {network}"
            found.append(_Simple(own, _columns(rows), network))
    return found


def _equal(some: Sequence[Mapping[str, float]], others: Sequence[Mapping[str, float]]) -> bool:
    return all(
        one.keys() == other.keys()
        and all(math.isclose(one[name], other[name]) or one[name] != one[name] for name in one)
        for one, other in zip(some, others, strict=True)
    )


def _trained_and_tested(
    plan: CrossValidation, arm: Arm, folds: Sequence[Fold]
) -> tuple[float, float]:
    """Return on how many molecules a model of a fold is trained, and tested, on average.

    Where members of an ensemble have folds, they and trees are trained on the validation split too.
    """
    options = {**plan.configuration, **arm.options}
    by_folds = options.get("ensemble_by") == "folds" and int(options.get("ensemble", 1)) > 1
    parts = ("train", "validation") if by_folds else ("train",)
    train = np.mean([sum(one.molecules[part] for part in parts) for one in folds])
    return float(train), float(np.mean([one.molecules["test"] for one in folds]))


def _columns(rows: Sequence[Mapping[str, float]]) -> Columns:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: np.array([row.get(name, math.nan) for row in rows]) for name in names}


def _spreads(columns: Columns) -> dict[str, Spread]:
    found = {}
    for name, column in columns.items():
        known = column[np.isfinite(column)]
        mean, sd = mean_sd(known) if len(known) else (math.nan, math.nan)
        found[name] = Spread(mean, sd, len(known))
    return found


def _pooled(own: Sequence[Fold], plan: CrossValidation, task: Task) -> dict[str, float]:
    """Metrics of all molecules of a repeat together, on average over the whole repeats."""
    found: list[dict[str, float]] = []
    for repeat in range(len(plan.seeds)):
        folds = [one for one in own if one.run.repeat == repeat]
        if len(folds) < plan.folds or not all(one.rows for one in folds):
            continue
        rows = [row for one in folds for row in one.rows]
        labels, predictions = (
            np.array(
                [[float(row[f"{of}_{name}"] or "nan") for name in task.targets] for row in rows]
            )
            for of in ("label", "pred")
        )
        found.append(task.evaluate(labels, predictions))
    names = found[0] if found else {}
    return {name: float(np.mean([one[name] for one in found])) for name in names}


def _confidence(folds: Sequence[Fold]) -> dict[str, float]:
    """Means over the folds by their test molecules, of what all of them were judged by.

    A fold counts where it is defined: its test split may lack a class.
    """
    molecules = np.array([one.molecules["test"] for one in folds])
    means = {}
    for name in folds[0].confidence:
        if all(name in one.confidence for one in folds):
            column = np.array([one.confidence[name] for one in folds])
            known = np.isfinite(column)
            if known.any():
                means[name] = float(np.average(column[known], weights=molecules[known]))
    return means


def _differences(
    networks: Mapping[str, Columns],
    simple: Sequence[_Simple],
    molecules: Mapping[str, tuple[float, float]],
) -> list[Difference]:
    """Compare each network with the first, and with the simple models that stand beside it.

    `molecules` are those that each was trained and tested on (`_trained_and_tested`).
    """
    first, *others = networks.items()
    pairs = [(model, first) for model in others]
    pairs += [
        (model, (one.name, one.columns))
        for model, one in itertools.product(networks.items(), simple)
        if one.network in ("", model[0])
    ]
    found = []
    for (model, after), (other, before) in pairs:
        metrics = {}
        for name in [one for one in after if one in METRICS and one in before]:
            known = np.isfinite(before[name]) & np.isfinite(after[name])
            if known.any():
                columns = before[name][known], after[name][known]
                metrics[name] = fold_difference(*columns, *molecules[model])
        if metrics:
            found.append(Difference(model, other, metrics))
    return found


def _write_folds(path: Path, folds: Sequence[Fold]) -> None:
    rows = []
    for one in folds:
        row = one.run.columns | {f"{name}_molecules": one.molecules[name] for name in SPLITS}
        row |= {f"test_{name}": value for name, value in one.test.items()}
        for model, metrics in one.recorded.items():
            row |= {f"{model}: test_{name}": value for name, value in metrics.items()}
        rows.append({name: "" if value != value else value for name, value in row.items()})
    _write_csv(path, rows)


def _write_out_of_fold(path: Path, folds: Sequence[Fold], task: Task) -> None:
    """Each usable row of the table once per repeat and arm, in the table's order."""
    values = [f"{of}_{name}" for of in ("label", "pred") for name in task.targets]
    ends = [f"{of}_{name}" for of in ("low", "high") for name in task.targets]
    rows = [
        {name: row[name] for name in ("row", "smiles", *values)}
        | {name: row[name] for name in ends if name in row}
        | one.run.columns
        for one in folds
        for row in one.rows
    ]
    rows.sort(key=lambda row: (row.get("arm", ""), row["repeat"], int(row["row"])))
    _write_csv(path, rows)


def _draw_out_of_fold(path: Path, folds: Sequence[Fold], task: Task) -> None:
    """Draw each usable row once: of the first arm in the first repeat."""
    first = folds[0].run
    of_first = [one for one in folds if (one.run.arm, one.run.repeat) == (first.arm, first.repeat)]
    rows = [row for one in of_first for row in one.rows]

    def column(of: str, name: str) -> list[float]:
        return [float(row[f"{of}_{name}"] or math.nan) for row in rows]

    labels, predictions = (
        np.array([column(of, name) for name in task.targets]).T for of in ("label", "pred")
    )
    draw_predictions(path, task, labels, predictions)


def _write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows of which some may lack columns of others."""
    columns = dict.fromkeys(name for row in rows for name in row)
    with replacing(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*columns], restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
