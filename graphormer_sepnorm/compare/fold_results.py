"""What the folds of a cross-validation came to: metrics, predictions, and what differs."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from graphormer_sepnorm.compare.predictions_figure import draw_predictions
from graphormer_sepnorm.compare.report.numbers import (
    NONE,
    count,
    in_unit,
    interval,
    number,
    p_value,
    signed,
)
from graphormer_sepnorm.compare.results import Finished
from graphormer_sepnorm.compare.statistics import fold_difference, mean_sd, verdict
from graphormer_sepnorm.datasets.splits import SPLITS
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import replacing, require_json, write_json
from graphormer_sepnorm.formatting import aligned
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.metrics import METRICS, metrics_of
from graphormer_sepnorm.runs.plan import Arm, CrossValidation, RunSpec
from graphormer_sepnorm.uncertainty.quality import in_words

FOLDS, OUT_OF_FOLD, SUMMARY = "folds.csv", "out_of_fold.csv", "summary.json"
FIGURE = "out_of_fold.png"
_FORMAT_VERSION = 1
_ALONE = "network alone"  # of a blend
_DECIMALS = 4

# Metrics by name.
Metrics = dict[str, float]


@dataclass(frozen=True)
class Fold(Finished):
    """A finished run of a cross-validation."""

    run: RunSpec

    @cached_property
    def report(self) -> dict[str, Any]:
        """What is kept of its data."""
        return require_json(self.run.files.data_report_file)

    @property
    def network(self) -> str:
        """What its network is called."""
        kind = "Graphormer blended with trees" if self.summary.get("network") else "Graphormer"
        return self.run.arm if self.run.named else f"{kind}, {self.summary.get('norm', '')}"

    @property
    def test(self) -> Metrics:
        """Test metrics of the network, those of single targets too."""
        return _numbers(self.summary, "test_")


def simple_models(summary: Mapping[str, Any], *, comparable: bool = False) -> dict[str, Metrics]:
    """Test metrics of the models that a run recorded beside the one that it saved, by their names.

    Where that is a blend, the network in it is one of them. A model that lacks a target, so that
    its metrics are means over others than the network's, is not comparable.
    """
    found = {_ALONE: _numbers(summary.get("network") or {}, "test_")}
    for one in summary.get("baselines") or []:
        if one.get("comparable", True) or not comparable:
            found[one["name"]] = _numbers(one["test"])
    return {name: values for name, values in found.items() if values}


def _numbers(values: Mapping[str, Any], prefix: str = "") -> Metrics:
    """Those of which the names begin so, by the rest of the name."""
    return {
        name.removeprefix(prefix): float(value)
        for name, value in values.items()
        if name.startswith(prefix)
        and isinstance(value, int | float)
        and not isinstance(value, bool)
    }


def collect(plan: CrossValidation, runs: Sequence[RunSpec], directory: Path) -> dict[str, Any]:
    """Collect what the finished ones of all runs came to; write the files of results.

    Returns:
        What ``summary.json`` holds, with nan for null: the plan; ``networks`` and ``baselines``
        (the simple models that the runs recorded beside their network), each with its ``metrics``
        over the folds where they are defined (``mean``, ``sd`` and ``folds``), a network also with
        its metrics of all molecules ``out_of_fold`` and with its ``confidence``; and
        ``differences`` of each network from its simple models and from the first network.

    Raises:
        DataError: No fold is finished under every arm, or the files of a run are damaged.
    """
    folds = [found for run in runs if (found := Fold.read(run)) is not None]
    if not folds:
        raise DataError(f"{directory}: no fold is finished, so there is nothing to report")
    report = folds[0].report
    names, units = zip(*((one["name"], one["unit"]) for one in report["targets"]), strict=True)
    kind = report["kind"]
    task = Task(kind, names, units, metrics_of(kind)[0].name, report.get("one_of", ""))
    by_fold: dict[tuple[int, int], dict[str, Fold]] = {}
    for one in folds:
        by_fold.setdefault((one.run.repeat, one.run.fold), {})[one.run.arm] = one
    of_folds = [{one.fingerprint for one in found.values()} for found in by_fold.values()]
    if len({(*one.report["sha256"],) for one in folds}) > 1 or max(map(len, of_folds)) > 1:
        raise DataError(
            f"{directory}: the table has changed between runs, which had different data: begin in "
            "another directory"
        )
    _write_folds(directory / FOLDS, folds)
    _write_out_of_fold(directory / OUT_OF_FOLD, folds, task)
    first = [f for f in folds if (f.run.arm, f.run.repeat) == (runs[0].arm, folds[0].run.repeat)]
    draw_predictions(directory / FIGURE, task, *_pooled(first, task))
    # A fold counts when all arms have it, so that all numbers are of the same folds.
    whole = [found for found in by_fold.values() if len(found) == len(plan.arms)]
    if not whole:
        raise DataError(f"{directory}: no fold is finished under every arm, so none is compared")
    networks, baselines, differences = [], [], []
    reference: dict[str, np.ndarray] = {}
    for arm in plan.arms:
        own = [found[arm.name] for found in whole]
        name, columns = own[0].network, _columns([one.test for one in own])
        network = {"name": name, "metrics": _spreads(columns)}
        network["out_of_fold"] = _out_of_fold(own, plan, task)
        network["confidence"] = _confidence(own)
        networks.append({key: value for key, value in network.items() if value})
        sizes = _trained_and_tested(plan, arm, [one.report["splits"] for one in own])
        if reference:
            differences.append(_difference(name, columns, networks[0]["name"], reference, sizes))
        reference = reference or columns
        simple = [simple_models(one.summary, comparable=True) for one in own]
        for model in dict.fromkeys(model for one in simple for model in one):
            title = model if len(plan.arms) == 1 else f"{model}, {name}"
            beside = _columns([one.get(model, {}) for one in simple])
            baselines.append({"name": title, "metrics": _spreads(beside)})
            differences.append(_difference(name, columns, title, beside, sizes))
    results = {
        "command": plan.command_line(),
        "dataset": report["name"],
        "task": asdict(task),
        "split": plan.configuration.get("data", {})
        .get("split", "auto")
        .replace("auto", "scaffold"),
        "split_seed": plan.split_seed,
        "seeds": plan.seeds,
        "folds": plan.folds,
        "repeats": len(plan.seeds),
        "folds_finished": len(whole),
        "runs": len(runs),
        "networks": networks,
        "baselines": baselines,
        "differences": [one for one in differences if one["metrics"]],
    }
    write_json(directory / SUMMARY, {"format_version": _FORMAT_VERSION, **results})
    return results


def _trained_and_tested(
    plan: CrossValidation, arm: Arm, sizes: Sequence[Mapping[str, int]]
) -> tuple[float, float]:
    """Return on how many molecules a model of a fold is trained, and tested, on average.

    Where members of an ensemble have folds, they and trees are trained on the validation split too.
    """
    options = {**plan.configuration, **arm.options}
    by_folds = options.get("ensemble_by") == "folds" and int(options.get("ensemble", 1)) > 1
    parts = ("train", "validation") if by_folds else ("train",)
    train = np.mean([sum(one[part] for part in parts) for one in sizes])
    return float(train), float(np.mean([one["test"] for one in sizes]))


def _columns(rows: Sequence[Metrics]) -> dict[str, np.ndarray]:
    """Metrics of each fold ``[n]``; nan where one is undefined or not recorded."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: np.array([row.get(name, math.nan) for row in rows]) for name in names}


def _spreads(columns: Mapping[str, np.ndarray]) -> dict[str, dict[str, float]]:
    found = {}
    for name, column in columns.items():
        known = column[np.isfinite(column)]
        mean, sd = mean_sd(known) if len(known) else (math.nan, math.nan)
        found[name] = {"mean": mean, "sd": sd, "folds": len(known)}
    return found


def _pooled(folds: Sequence[Fold], task: Task) -> tuple[np.ndarray, np.ndarray]:
    """Labels and predictions of the test molecules of all folds, each ``[G, T]``."""
    labels, predictions = (
        np.concatenate([one.values(of, task.targets) for one in folds]) for of in ("label", "pred")
    )
    return labels, predictions


def _out_of_fold(own: Sequence[Fold], plan: CrossValidation, task: Task) -> Metrics:
    """Metrics of all molecules of a repeat together, on average over the whole repeats."""
    found: list[Metrics] = []
    for repeat in range(len(plan.seeds)):
        folds = [one for one in own if one.run.repeat == repeat]
        if len(folds) == plan.folds and all(one.rows for one in folds):
            found.append(task.evaluate(*_pooled(folds, task)))
    names = found[0] if found else {}
    return {name: float(np.mean([one[name] for one in found])) for name in names}


def _confidence(folds: Sequence[Fold]) -> Metrics:
    """How good it is what the networks say of their errors: means by the number of test molecules.

    A fold counts where a number is defined: its test split may lack a class.
    """
    molecules = np.array([one.report["splits"]["test"] for one in folds])
    found = [one.summary.get("confidence") or {} for one in folds]
    means = {}
    for name in found[0]:
        column = np.array([one.get(name) for one in found], dtype=np.float64)
        known = np.isfinite(column)
        if known.any() and all(name in one for one in found):
            means[name] = float(np.average(column[known], weights=molecules[known]))
    return means


def _difference(
    model: str,
    after: Mapping[str, np.ndarray],
    baseline: str,
    before: Mapping[str, np.ndarray],
    sizes: tuple[float, float],
) -> dict[str, Any]:
    """A model against another one; what is undefined on a fold leaves that fold out."""
    metrics = {}
    for name in [one for one in after if one in METRICS and one in before]:
        known = np.isfinite(before[name]) & np.isfinite(after[name])
        if known.any():
            found = fold_difference(before[name][known], after[name][known], *sizes)
            said = verdict(found, found.p_value, METRICS[name].better)
            metrics[name] = {**asdict(found), "resolved": found.resolved, "verdict": said}
    return {"model": model, "baseline": baseline, "metrics": metrics}


def _write_folds(path: Path, folds: Sequence[Fold]) -> None:
    rows = []
    for one in folds:
        row = one.run.columns | {f"{name}_molecules": one.report["splits"][name] for name in SPLITS}
        row |= {f"test_{name}": value for name, value in one.test.items()}
        for model, metrics in simple_models(one.summary).items():
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


def _write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows of which some may lack columns of others."""
    columns = dict.fromkeys(name for row in rows for name in row)
    with replacing(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*columns], restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def results_text(results: Mapping[str, Any]) -> str:
    """Return what `collect` returned as tables: all metrics, and what differs in the main one."""
    task = Task(**results["task"])
    planned, finished = results["folds"] * results["repeats"], results["folds_finished"]
    lacking = f"; {finished} of {planned} are finished" * (finished < planned)
    models = [*results["networks"], *results["baselines"]]
    known = {name for one in results["networks"] for name in one["metrics"]}
    shown = [metric for metric in task.metrics if metric.name in known]
    rows = [["", *(f"{one.label}{in_unit(task.unit_of(one))}" for one in shown)]]
    for one in models:
        cells = (_cell(one["metrics"].get(metric.name), finished) for metric in shown)
        rows.append([f"  {one['name']}", *cells])
        if pooled := one.get("out_of_fold"):
            cells = (number(pooled.get(metric.name, math.nan), _DECIMALS) for metric in shown)
            rows.append(["    all molecules, out of fold", *cells])
    lines = [
        f"{results['dataset']}: {results['folds']} folds ({results['split']}), "
        f"{count(results['repeats'], 'repeat')}{lacking}",
        f"test, mean ± standard deviation over {count(finished, 'fold')}; (n): over n folds, where "
        "it is defined",
        aligned(rows),
    ]
    unit = task.units[0]  # a width is that of a single target
    lines += [
        f"{one['name']}: {in_words(one['confidence'], unit)}"
        for one in results["networks"]
        if "confidence" in one
    ]
    compared = [one for one in results["differences"] if task.main.name in one["metrics"]]
    if compared:
        rows = [["", f"{task.main.label} difference", "95 % interval", "p", "verdict"]]
        for one in compared:
            found = one["metrics"][task.main.name]
            rows.append(
                [
                    f"  {one['model']} against {one['baseline']}",
                    signed(found["mean"], _DECIMALS),
                    interval(found["low"], found["high"], _DECIMALS),
                    p_value(found["p_value"]),
                    found["verdict"],
                ]
            )
        lines += ["by the corrected resampled t-test (Nadeau & Bengio 2003)", aligned(rows)]
    return "\n".join(lines)


def _cell(spread: Mapping[str, float] | None, finished: int) -> str:
    """Mean and standard deviation, and over how many folds if those are not all."""
    if spread is None or not spread["folds"]:
        return NONE
    text = f"{number(spread['mean'], _DECIMALS)} ± {number(spread['sd'], _DECIMALS)}"
    return text if spread["folds"] == finished else f"{text} ({spread['folds']:.0f})"
