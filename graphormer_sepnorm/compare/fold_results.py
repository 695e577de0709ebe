"""What the folds of a cross-validation came to: metrics, predictions, and what differs."""

from __future__ import annotations

import csv
import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphormer_sepnorm.compare.crossvalidation import CrossValidation, FoldRun
from graphormer_sepnorm.compare.statistics import FoldDifference, fold_difference, mean_sd
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import replacing, require_json, write_json
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.metrics import METRICS, Metric, metrics_of
from graphormer_sepnorm.runs.directory import Summary

FOLDS, OUT_OF_FOLD, SUMMARY = "folds.csv", "out_of_fold.csv", "summary.json"
_FORMAT_VERSION = 1
_SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Fold:
    """A finished run.

    Attributes:
        run: Which.
        network: What the network is called.
        molecules: In its training, validation and test split.
        test: Test metrics of the network by name, those of single targets too.
        simple: Test metrics of each simple model that the run recorded, by its name.
        rows: Of ``test_predictions.csv``; empty where the run has left none.
    """

    run: FoldRun
    network: str
    molecules: dict[str, int]
    test: dict[str, float]
    simple: dict[str, dict[str, float]]
    rows: list[dict[str, str]]


@dataclass(frozen=True)
class ModelResult:
    """A model over the folds.

    Attributes:
        name: The network's or the simple model's.
        folds: Metrics by name, of each fold ``[n]``; nan where one is undefined or not recorded.
        pooled: The network's, of all molecules, each predicted by the run that had not seen it: the
            mean over the repeats that are whole; empty for simple models.
    """

    name: str
    folds: dict[str, np.ndarray]
    pooled: dict[str, float]


@dataclass(frozen=True)
class Difference:
    """A model against another one.

    Attributes:
        model: Its name.
        baseline: The other's.
        metrics: By name of the metric; what is undefined on a fold leaves that fold out.
    """

    model: str
    baseline: str
    metrics: dict[str, FoldDifference]


@dataclass(frozen=True)
class FoldResults:
    """A cross-validation, or as much of it as is finished.

    Attributes:
        dataset: Name.
        task: What is predicted.
        split: ``scaffold`` or ``random``.
        folds: How many there are in a repeat.
        repeats: How many.
        finished: Folds that are trained and tested, of all repeats.
        networks: In the order of the arms.
        simple: What the runs recorded beside their network.
        differences: Of each network from each simple model, and from the first network.
    """

    dataset: str
    task: Task
    split: str
    folds: int
    repeats: int
    finished: int
    networks: list[ModelResult]
    simple: list[ModelResult]
    differences: list[Difference]

    @property
    def shown(self) -> list[Metric]:
        """The metrics of a table: those that have a mean over the targets, the main one first."""
        known = {name for one in self.networks for name in one.folds}
        return [metric for metric in metrics_of(self.task.kind) if metric.name in known]


def collect(plan: CrossValidation, runs: Sequence[FoldRun], directory: Path) -> FoldResults:
    """Collect what the finished runs came to, and write the three files of results.

    Args:
        plan: What was asked for.
        runs: All runs.
        directory: Of the cross-validation.

    Raises:
        DataError: No fold is finished under every arm, or the files of a run are damaged.
    """
    finished = [_read(run) for run in runs if run.finished]
    if not finished:
        raise DataError(f"{directory}: no fold is finished, so there is nothing to report")
    report = require_json(finished[0].run.files.data_report_file)
    names, units = zip(*((one["name"], one["unit"]) for one in report["targets"]), strict=True)
    kind = report["kind"]
    task = Task(kind, names, units, metrics_of(kind)[0].name)
    # A fold counts when all arms have it, so that all numbers are of the same folds.
    arms = [arm.name for arm in plan.arms]
    by_fold: dict[tuple[int, int], dict[str, Fold]] = {}
    for one in finished:
        by_fold.setdefault((one.run.repeat, one.run.fold), {})[one.run.arm] = one
    whole = {place: found for place, found in by_fold.items() if len(found) == len(arms)}
    _write_folds(directory / FOLDS, finished, plan.with_arms)
    _write_out_of_fold(directory / OUT_OF_FOLD, finished, task, plan.with_arms)
    if not whole:
        raise DataError(f"{directory}: no fold is finished under every arm, so none is compared")
    paired = [[found[arm] for found in whole.values()] for arm in arms]
    networks = [
        ModelResult(own[0].network, _columns(one.test for one in own), _pooled(own, plan, task))
        for own in paired
    ]
    first = paired[0]
    simple = [
        ModelResult(name, _columns(one.simple.get(name, {}) for one in first), {})
        for name in dict.fromkeys(name for one in first for name in one.simple)
    ]
    results = FoldResults(
        report["name"],
        task,
        plan.configuration.get("data", {}).get("split", "auto").replace("auto", "scaffold"),
        plan.folds,
        len(plan.seeds),
        len(whole),
        networks,
        simple,
        _differences(networks, simple, first),
    )
    write_json(directory / SUMMARY, _plain(results, plan, len(runs)))
    return results


def _read(run: FoldRun) -> Fold:
    summary = run.files.summary()
    if summary is None or not run.files.data_report_file.is_file():
        raise DataError(f"{run.directory} is damaged: remove it and start the same command again")
    molecules = require_json(run.files.data_report_file)["splits"]
    test = {name.removeprefix("test_"): value for name, value in _numbers(summary, "test_").items()}
    kind = "Graphormer blended with trees" if summary.get("network") else "Graphormer"
    network = run.arm if run.named else f"{kind}, {summary.get('norm', '')}"
    simple = simple_models(summary)
    rows: list[dict[str, str]] = []
    if run.files.test_predictions_file.is_file():
        with run.files.test_predictions_file.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    return Fold(run, network, molecules, test, simple, rows)


def simple_models(summary: Summary | Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return the test metrics of the models that a run recorded beside the one it saved.

    Args:
        summary: Of the run: ``network`` where the saved model is a blend, and ``baselines``.

    Returns:
        Metrics by name, of each model by its name; what is no number is left out.
    """
    found = {}
    if summary.get("network"):
        alone = _numbers(summary["network"], "test_")
        found["network alone"] = {name.removeprefix("test_"): alone[name] for name in alone}
    for one in summary.get("baselines") or []:
        found[one["name"]] = _numbers(one["test"])
    return {name: values for name, values in found.items() if values}


def _numbers(values: Mapping[str, Any], start: str = "") -> dict[str, float]:
    return {
        name: float(value)
        for name, value in values.items()
        if name.startswith(start) and isinstance(value, int | float) and not isinstance(value, bool)
    }


def _columns(tests: Iterable[Mapping[str, float]]) -> dict[str, np.ndarray]:
    """Metrics by name, each ``[folds]``."""
    rows = list(tests)
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: np.array([row.get(name, math.nan) for row in rows]) for name in names}


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


def _differences(
    networks: Sequence[ModelResult], simple: Sequence[ModelResult], folds: Sequence[Fold]
) -> list[Difference]:
    train, test = (float(np.mean([one.molecules[of] for one in folds])) for of in ("train", "test"))
    pairs = [(model, networks[0]) for model in networks[1:]]
    pairs += [(model, other) for model in networks for other in simple]
    found = []
    for model, other in pairs:
        metrics = {}
        for name in [one for one in model.folds if one in METRICS and one in other.folds]:
            before, after = other.folds[name], model.folds[name]
            known = np.isfinite(before) & np.isfinite(after)
            if known.any():
                metrics[name] = fold_difference(before[known], after[known], train, test)
        if metrics:
            found.append(Difference(model.name, other.name, metrics))
    return found


def _write_folds(path: Path, folds: Sequence[Fold], with_arms: bool) -> None:
    rows = []
    for one in folds:
        row: dict[str, Any] = {"arm": one.run.arm} if with_arms else {}
        row |= {"repeat": one.run.repeat, "fold": one.run.fold}
        row |= {f"{name}_molecules": one.molecules[name] for name in _SPLITS}
        row |= {f"test_{name}": value for name, value in one.test.items()}
        for model, metrics in one.simple.items():
            row |= {f"{model}: test_{name}": value for name, value in metrics.items()}
        rows.append({name: "" if value != value else value for name, value in row.items()})
    _write_csv(path, rows)


def _write_out_of_fold(path: Path, folds: Sequence[Fold], task: Task, with_arms: bool) -> None:
    """Each usable row of the table once per repeat and arm, in the table's order."""
    rows = []
    for one in folds:
        place: dict[str, Any] = {"arm": one.run.arm} if with_arms else {}
        place |= {"repeat": one.run.repeat, "fold": one.run.fold}
        for row in one.rows:
            columns = [f"{of}_{name}" for of in ("label", "pred") for name in task.targets]
            rows.append({name: row[name] for name in ("row", "smiles", *columns)} | place)
    rows.sort(key=lambda row: (row.get("arm", ""), row["repeat"], int(row["row"])))
    _write_csv(path, rows)


def _write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows of which some may lack columns of others."""
    columns = dict.fromkeys(name for row in rows for name in row)
    with replacing(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*columns], restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _plain(results: FoldResults, plan: CrossValidation, runs: int) -> dict[str, Any]:
    def models(found: Sequence[ModelResult]) -> list[dict[str, Any]]:
        return [
            {
                "name": one.name,
                "metrics": {name: _spread(values) for name, values in one.folds.items()},
                **({"out_of_fold": one.pooled} if one.pooled else {}),
            }
            for one in found
        ]

    return {
        "format_version": _FORMAT_VERSION,
        "command": plan.command_line(),
        "dataset": results.dataset,
        "task": results.task.to_plain(),
        "split": results.split,
        "split_seed": plan.split_seed,
        "seeds": list(plan.seeds),
        "folds": results.folds,
        "repeats": results.repeats,
        "folds_finished": results.finished,
        "runs": runs,
        "networks": models(results.networks),
        "baselines": models(results.simple),
        "differences": [
            {
                "model": one.model,
                "baseline": one.baseline,
                "metrics": {
                    name: dataclasses.asdict(difference) | {"resolved": difference.resolved}
                    for name, difference in one.metrics.items()
                },
            }
            for one in results.differences
        ],
    }


def _spread(values: np.ndarray) -> dict[str, Any]:
    known = values[np.isfinite(values)]
    mean, sd = mean_sd(known) if len(known) else (math.nan, math.nan)
    return {"mean": mean, "sd": sd, "folds": len(known)}
