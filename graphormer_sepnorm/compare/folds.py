"""The results of a cross-validation: metrics, out-of-fold predictions, and what differs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphormer_sepnorm.compare.statistics import fold_difference, mean_sd, verdict
from graphormer_sepnorm.datasets.splits import SPLITS
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import require_json, write_columns, write_json
from graphormer_sepnorm.formatting import (
    aligned,
    count,
    decimals_of,
    interval,
    number,
    p_value,
    signed,
)
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.metrics import METRICS, metrics_of
from graphormer_sepnorm.pages.predictions import draw_predictions
from graphormer_sepnorm.runs.plan import Plan, RunSpec
from graphormer_sepnorm.uncertainty.quality import in_words

FOLDS, OUT_OF_FOLD, SUMMARY = "folds.csv", "out_of_fold.csv", "summary.json"
FIGURE = "out_of_fold.png"
_FORMAT_VERSION = 1
_ALONE = "network alone"  # of a blend

# Metrics by name; of several folds, nan where one is undefined or not recorded.
Metrics = dict[str, float]
Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class Fold:
    """A finished run: its results, the report on its data, its ``test_predictions.csv``."""

    run: RunSpec
    summary: dict[str, Any]
    report: dict[str, Any]
    rows: list[dict[str, str]]

    @property
    def columns(self) -> dict[str, Any]:
        """What it is called in tables: ``arm``, if that has a name, ``repeat`` and ``fold``."""
        arm = {"arm": self.run.arm} if self.run.arm else {}
        return arm | {"repeat": self.run.repeat, "fold": self.run.fold}

    @property
    def model(self) -> str:
        """The name of its model."""
        kind = "Graphormer blended with trees" if self.summary.get("network") else "Graphormer"
        norm = self.summary.get("norm")
        alone = " and ".join(self.run.config.members)
        return self.run.arm or (f"{kind}, {norm}" if norm else alone)

    @property
    def test(self) -> Metrics:
        """Test metrics of its model, those of single targets too."""
        return _numbers(self.summary, "test_")

    def baselines(self, *, comparable: bool = False) -> dict[str, Metrics]:
        """Return test metrics of the simple models, by name; of a blend its network is one.

        One that lacks a target, so that its metrics are means over others than the model's, is not
        comparable.
        """
        found = {_ALONE: _numbers(self.summary.get("network") or {}, "test_")}
        for one in self.summary.get("baselines") or []:
            if one.get("comparable", True) or not comparable:
                found[one["name"]] = _numbers(one["test"])
        own = self.test if len(self.run.config.members) == 1 else None  # it is a baseline itself
        return {name: values for name, values in found.items() if values and values != own}


def _numbers(values: Mapping[str, Any], prefix: str = "") -> Metrics:
    """The numbers whose names begin with a prefix, by the rest of the name."""
    return {
        name.removeprefix(prefix): float(value)
        for name, value in values.items()
        if name.startswith(prefix) and isinstance(value, int | float)
    }


def collect(plan: Plan, runs: Sequence[RunSpec], directory: Path) -> dict[str, Any]:
    """Collect the results of all finished runs; write the files of results.

    Returns:
        What ``summary.json`` holds, with nan for null: the plan; ``networks`` and ``baselines``
        (the simple models that the runs recorded), each with its ``metrics`` over the folds where
        they are defined (``mean``, ``sd`` and ``folds``), a network also with its metrics of all
        molecules ``out_of_fold`` and with its ``uncertainty``; and ``differences`` of each network
        from its baselines and from the first network.

    Raises:
        DataError: No fold is finished under every arm, or the files of a run are damaged.
    """
    folds = []
    for run in runs:
        if (summary := run.files.summary()) is not None:
            report = require_json(run.files.data_report_file)
            folds.append(Fold(run, summary, report, run.files.test_predictions()))
    if not folds:
        raise DataError(f"{directory}: no fold is finished, so there is nothing to report")
    report = folds[0].report
    names, units = zip(*((one["name"], one["unit"]) for one in report["targets"]), strict=True)
    kind = report["kind"]
    task = Task(kind, names, units, metrics_of(kind)[0].name, report.get("one_of", ""))
    by_fold: dict[tuple[int, int], dict[str, Fold]] = {}
    for one in folds:
        by_fold.setdefault((one.run.repeat, one.run.fold), {})[one.run.arm] = one
    if len({(*one.report["sha256"],) for one in folds}) > 1:
        raise DataError(
            f"{directory}: the table has changed between runs, which had different data: start in "
            "another directory"
        )
    _write_tables(directory, folds, task)
    first = [f for f in folds if (f.run.arm, f.run.repeat) == (runs[0].arm, folds[0].run.repeat)]
    draw_predictions(directory / FIGURE, task, *_pooled(first, task))
    # A fold counts when all arms have it, so that all numbers are of the same folds.
    whole = [found for found in by_fold.values() if len(found) == len(plan.arms)]
    if not whole:
        raise DataError(f"{directory}: no fold is finished under every arm, so none is compared")
    networks, baselines, differences = [], [], []
    reference: Columns = {}  # of the first network
    for arm in plan.arms:
        own = [found[arm.name] for found in whole]
        name, values = own[0].model, _columns([one.test for one in own])
        network = {"name": name, "metrics": _spreads(values)}
        network["out_of_fold"] = _out_of_fold(own, plan, task)
        network["uncertainty"] = _uncertainty(own)
        networks.append({key: value for key, value in network.items() if value})
        others = {networks[0]["name"]: reference} if reference else {}
        reference = reference or values
        simple = [one.baselines(comparable=True) for one in own]
        for model in dict.fromkeys(model for one in simple for model in one):
            title = model if len(plan.arms) == 1 else f"{model}, {name}"
            others[title] = _columns([one.get(model, {}) for one in simple])
            baselines.append({"name": title, "metrics": _spreads(others[title])})
        # Where members of an ensemble have folds, the validation split is trained on too.
        config = plan.config_of(arm)
        by_folds = config.ensemble_by == "folds" and config.ensemble > 1
        sizes = _columns([one.report["splits"] for one in own])
        train = sizes["train"].mean() + (sizes["validation"].mean() if by_folds else 0.0)
        for title, before in others.items():
            metrics = {}
            for metric in [one for one in values if one in METRICS and one in before]:
                known = np.isfinite(before[metric]) & np.isfinite(values[metric])
                if known.any():
                    sides = before[metric][known], values[metric][known]
                    found = fold_difference(*sides, train, sizes["test"].mean())
                    said = verdict(found, METRICS[metric].better)
                    metrics[metric] = asdict(found) | {"verdict": said}
            if metrics:
                differences.append({"model": name, "baseline": title, "metrics": metrics})
    results = {
        "dataset": report["name"],
        "task": asdict(task),
        "split": plan.base.data.split.replace("auto", "scaffold"),
        "split_seed": plan.base.data.split_seed,
        "seeds": plan.seeds,
        "folds": plan.folds,
        "repeats": len(plan.seeds),
        "folds_finished": len(whole),
        "runs": len(runs),
        "networks": networks,
        "baselines": baselines,
        "differences": differences,
    }
    write_json(directory / SUMMARY, {"format_version": _FORMAT_VERSION, **results})
    return results


def _write_tables(directory: Path, folds: Sequence[Fold], task: Task) -> None:
    """Write every test metric of every fold, and every usable row of the table as predicted."""
    rows = []
    for one in folds:
        row = one.columns | {f"{name}_molecules": one.report["splits"][name] for name in SPLITS}
        models = {"": one.test} | {f"{name}: ": found for name, found in one.baselines().items()}
        for model, metrics in models.items():
            row |= {f"{model}test_{name}": value for name, value in metrics.items()}
        rows.append({name: "" if value != value else value for name, value in row.items()})
    parts = ("label", "pred", "low", "high")
    columns = ["row", "smiles", *(f"{part}_{name}" for part in parts for name in task.targets)]
    predicted = [
        {name: row[name] for name in columns if name in row} | one.columns
        for one in folds
        for row in one.rows
    ]
    # Once per repeat and arm, in the table's order.
    predicted.sort(key=lambda row: (row.get("arm", ""), row["repeat"], int(row["row"])))
    for file, lines in ((FOLDS, rows), (OUT_OF_FOLD, predicted)):
        names = dict.fromkeys(name for line in lines for name in line)
        write_columns(directory / file, {n: [line.get(n, "") for line in lines] for n in names})


def _columns(rows: Sequence[Metrics]) -> Columns:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: np.array([row.get(name) for row in rows], dtype=np.float64) for name in names}


def _spreads(columns: Columns) -> dict[str, dict[str, float]]:
    found = {}
    for name, column in columns.items():
        known = column[np.isfinite(column)]
        mean, sd = mean_sd(known) if len(known) else (math.nan, math.nan)
        found[name] = {"mean": mean, "sd": sd, "folds": len(known)}
    return found


def _pooled(folds: Sequence[Fold], task: Task) -> tuple[np.ndarray, np.ndarray]:
    """Labels and predictions of the test molecules of all folds, each ``[G, T]``."""
    rows = [row for one in folds for row in one.rows]
    names = [f"{of}_{name}" for of in ("label", "pred") for name in task.targets]
    cells = [[float(row.get(name) or "nan") for name in names] for row in rows]
    both = np.array(cells).reshape(-1, len(names))
    return both[:, : len(task.targets)], both[:, len(task.targets) :]


def _out_of_fold(own: Sequence[Fold], plan: Plan, task: Task) -> Metrics:
    """Metrics of all molecules of a repeat together, on average over the whole repeats."""
    found: list[Metrics] = []
    for repeat in range(len(plan.seeds)):
        folds = [one for one in own if one.run.repeat == repeat]
        if len(folds) == plan.folds and all(one.rows for one in folds):
            found.append(task.evaluate(*_pooled(folds, task)))
    names = found[0] if found else {}
    return {name: float(np.mean([one[name] for one in found])) for name in names}


def _uncertainty(folds: Sequence[Fold]) -> Metrics:
    """The quality of the networks' uncertainty: means by the number of test molecules.

    A fold counts where a number is defined: its test split may lack a class.
    """
    molecules = np.array([one.report["splits"]["test"] for one in folds])
    means = {}
    for name, column in _columns([one.summary.get("uncertainty") or {} for one in folds]).items():
        known = np.isfinite(column)
        if known.any():
            means[name] = float(np.average(column[known], weights=molecules[known]))
    return means


def results_text(results: Mapping[str, Any]) -> str:
    """Return what `collect` returned as tables: all metrics, and what differs in the main one."""
    task = Task(**results["task"])
    planned, finished = results["folds"] * results["repeats"], results["folds_finished"]
    lacking = f"; {finished} of {planned} are finished" * (finished < planned)
    known = {name for one in results["networks"] for name in one["metrics"]}
    shown = [metric for metric in task.metrics if metric.name in known]
    header = [f"{m.label} ({unit})" if (unit := task.unit_of(m)) else m.label for m in shown]
    rows, models = [["", *header]], (*results["networks"], *results["baselines"])
    means = [[one["metrics"].get(m.name, {}).get("mean", 0) for one in models] for m in shown]
    digits = [decimals_of(float(np.median(np.nan_to_num(np.abs(one))))) for one in means]
    for one in models:
        cells = [f"  {one['name']}"]
        for metric, decimals in zip(shown, digits, strict=True):
            found = one["metrics"].get(metric.name, {"folds": 0})
            text = number(math.nan, 0)
            if n := found["folds"]:
                mean, sd = (number(found[what], decimals) for what in ("mean", "sd"))
                text = f"{mean} ± {sd}" + f" ({n:.0f})" * (n != finished)
            cells.append(text)
        rows.append(cells)
        if pooled := one.get("out_of_fold"):
            values = (pooled.get(metric.name, math.nan) for metric in shown)
            rows.append(["    all molecules, out of fold", *map(number, values, digits)])
    lines = [
        f"{results['dataset']}: {results['folds']} folds ({results['split']}), "
        f"{count(results['repeats'], 'repeat')}{lacking}",
        f"test, mean ± standard deviation over {count(finished, 'fold')}; (n): over n folds, where "
        "it is defined",
        aligned(rows),
    ]
    lines += [
        f"{one['name']}: {in_words(one['uncertainty'], task.units[0])}"  # a width is of one target
        for one in results["networks"]
        if "uncertainty" in one
    ]
    rows = [["", f"{task.main.label} difference", "95 % interval", "p", "verdict"]]
    for one in results["differences"]:
        if found := one["metrics"].get(task.main.name):
            decimals = decimals_of(found["low"], found["high"], digits=3)
            change = signed(found["mean"], decimals)
            ends = interval(found["low"], found["high"], decimals)
            title = f"  {one['model']} against {one['baseline']}"
            rows.append([title, change, ends, p_value(found["p_value"]), found["verdict"]])
    if len(rows) > 1:
        lines += ["by the corrected resampled t-test (Nadeau & Bengio 2003)", aligned(rows)]
    return "\n".join(lines)
