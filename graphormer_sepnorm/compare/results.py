"""From the runs of a comparison to its results: ``results.json`` and ``predictions.csv``."""

from __future__ import annotations

import csv
import json
import logging
import math
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from graphormer_sepnorm.compare.analysis import RunAnalysis, analyse
from graphormer_sepnorm.compare.comparison import Comparison
from graphormer_sepnorm.compare.roc_statistics import (
    auc_standard_error,
    delong,
    paired_bootstrap_auc,
)
from graphormer_sepnorm.compare.runner import Run, planned_runs
from graphormer_sepnorm.compare.statistics import holm, paired_difference, paired_errors
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.model.token_norm import norm_name
from graphormer_sepnorm.training.report import read_json, write_json

log = logging.getLogger(__name__)

FORMAT_VERSION = 1
# Relative change of the test metric that SepNorm's paper reports for Graphormer, in percent
# (Chen et al. 2023, table of graph tasks): single numbers, without seeds.
PAPER_PERCENT = {"zinc": -24.6, "zinc-subset": -12.2, "ogbg-molhiv": 3.1}


def collect(directory: Path) -> dict[str, Any]:
    """Read the runs of a comparison, analyse them, write the results.

    Args:
        directory: Of the comparison.

    Returns:
        What ``results.json`` holds.

    Raises:
        ConfigError: No comparison was begun there.
        DataError: No run has finished, or runs that should have the same data have not.
    """
    comparison = Comparison.read(directory)
    if comparison is None:
        raise DataError(f"{directory} holds no comparison: there is no compare.yaml in it")
    runs = planned_runs(comparison, directory)
    summaries = {run: read_json(run.directory / "summary.json") for run in runs}
    finished = [run for run in runs if summaries[run] is not None]
    if not finished:
        raise DataError(f"{directory}: no run has finished, there is nothing to report yet")
    _check_same_data(directory, [summaries[run] or {} for run in finished])
    loaded: dict[str, MoleculeDataModule] = {}
    data = _data_of(finished[0], loaded)
    analyses = {}
    seen: set[str] = set()
    for place, run in enumerate(finished, start=1):
        log.info("analysing %s (%d of %d)", run.name, place, len(finished))
        # Histograms of one run per arm say enough, and are the largest part of the results.
        analyses[run] = analyse(
            run.directory, _data_of(run, loaded), histograms=run.arm not in seen
        )
        seen.add(run.arm)
    task = data.splits.task
    arms = [
        _arm(arm.name, dict(arm.options), runs, summaries, analyses, task)
        for arm in comparison.arms
    ]
    record = read_json(finished[0].directory / "run.json") or {}
    results = {
        "format_version": FORMAT_VERSION,
        "dataset": data.splits.name,
        "dataset_fingerprint": data.splits.fingerprint,
        "molecules": {name: len(part) for name, part in data.splits.parts.items()},
        "task": task.to_plain(),
        "metric": task.metric,
        "better": "lower" if task.metric == "mae" else "higher",
        "unit": task.units[0] if len(set(task.units)) == 1 and task.metric == "mae" else "",
        "command": list(comparison.command),
        "base_options": list(comparison.base_options),
        "seeds": list(comparison.seeds),
        "baseline": comparison.baseline,
        "complete": len(finished) == len(runs),
        "arms": arms,
        "comparisons": _comparisons(comparison, finished, summaries, analyses, data),
        "environment": _environment(record),
    }
    _write_predictions(directory / "predictions.csv", comparison, finished, analyses, data)
    write_json(directory / "results.json", results, indent=1)
    return results


def _check_same_data(directory: Path, summaries: Iterable[dict[str, Any]]) -> None:
    prints = {summary["dataset_fingerprint"] for summary in summaries}
    if len(prints) > 1:
        raise DataError(
            f"{directory}: its runs were trained on {len(prints)} different versions of the data: "
            "their numbers cannot be compared; remove the runs on the old data and start again"
        )


def _data_of(run: Run, loaded: dict[str, MoleculeDataModule]) -> MoleculeDataModule:
    """The data of a run, as its configuration loads them; most runs have the same."""
    config = yaml.safe_load((run.directory / "config.yaml").read_text(encoding="utf-8"))
    options = config["data"] | {
        "max_path_length": config["model"]["max_path_length"],
        "num_workers": 0,
    }
    key = json.dumps(options, sort_keys=True)
    if key not in loaded:
        loaded[key] = MoleculeDataModule(**options)
    return loaded[key]


def _arm(
    name: str,
    options: dict[str, str],
    runs: list[Run],
    summaries: dict[Run, dict[str, Any] | None],
    analyses: dict[Run, RunAnalysis],
    task: Task,
) -> dict[str, Any]:
    own = [run for run in runs if run.arm == name]
    sizes = [summary["parameters"] for run in own if (summary := summaries[run]) is not None]
    return {
        "name": name,
        "options": options,
        "parameters": sizes[0] if sizes else None,
        "runs": [_run(run, summaries[run], analyses.get(run), task) for run in own],
    }


def _run(
    run: Run, summary: dict[str, Any] | None, analysis: RunAnalysis | None, task: Task
) -> dict[str, Any]:
    error = None
    if summary is not None:
        status = "finished"
    elif run.failure.is_file():
        status, error = "failed", run.failure.read_text(encoding="utf-8").strip()
    else:
        status = "unfinished" if run.directory.is_dir() else "missing"
    summary = summary or {}
    steps, seconds = summary.get("steps"), summary.get("training_seconds")
    return {
        "seed": run.seed,
        "status": status,
        "directory": f"{run.arm}/{run.directory.name}",
        "steps": steps,
        "epochs": summary.get("epochs"),
        "validation": summary.get(f"best_validation_{task.metric}"),
        "test": summary.get(f"test_{task.metric}"),
        "seconds": summary.get("seconds"),
        "training_seconds": seconds,
        "graphs_per_second": summary.get("graphs_per_second"),
        "ms_per_step": 1000 * seconds / steps if steps and seconds else None,
        "curve": learning_curve(run.directory / "metrics.csv", task.metric),
        "geometry": analysis.geometry if analysis else [],
        "error": error,
    }


def learning_curve(path: Path, metric: str) -> list[dict[str, float]]:
    """Read the loss and the validation metric of each epoch from ``metrics.csv``."""
    if not path.is_file():
        return []
    columns = {"train_loss": "train_loss_epoch", "validation": f"validation_{metric}"}
    points: dict[int, dict[str, float]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            values = {ours: row[theirs] for ours, theirs in columns.items() if row.get(theirs)}
            if not values or not row.get("epoch"):
                continue
            # A step is counted from 0 in the log, by the number that was taken last.
            epoch, step = int(row["epoch"]) + 1, int(row["step"]) + 1
            point = points.setdefault(step, {"epoch": epoch, "step": step})
            point.update({name: float(value) for name, value in values.items()})
    return [points[step] for step in sorted(points)]


def _comparisons(
    comparison: Comparison,
    finished: list[Run],
    summaries: dict[Run, dict[str, Any] | None],
    analyses: dict[Run, RunAnalysis],
    data: MoleculeDataModule,
) -> list[dict[str, Any]]:
    """Every arm against the baseline, over the seeds that both have finished."""
    by_place = {(run.arm, run.seed): run for run in finished}
    baseline = comparison.baseline
    found = []
    for arm in comparison.arms:
        seeds = [
            seed
            for seed in comparison.seeds
            if (arm.name, seed) in by_place and (baseline, seed) in by_place
        ]
        if arm.name == baseline or not seeds:
            continue
        pairs = [(by_place[baseline, seed], by_place[arm.name, seed]) for seed in seeds]
        found.append(
            {
                "arm": arm.name,
                "baseline": baseline,
                "seeds": seeds,
                **{
                    split: _difference(pairs, summaries, key)
                    for split, key in (
                        ("validation", f"best_validation_{data.splits.task.metric}"),
                        ("test", f"test_{data.splits.task.metric}"),
                    )
                },
                "per_molecule": _per_molecule(pairs, analyses, data),
                "paper_relative_percent": _paper(comparison, arm.name, data.splits.name),
            }
        )
    adjusted = holm([one["test"]["p_value"] if one["test"] else math.nan for one in found])
    for one, value in zip(found, adjusted.tolist(), strict=True):
        one["holm_p"] = value
        smallest = one["test"]["smallest_p"] if one["test"] else math.nan
        one["smallest_holm_p"] = min(1.0, len(found) * smallest)
    return found


def _difference(
    pairs: list[tuple[Run, Run]], summaries: dict[Run, dict[str, Any] | None], key: str
) -> dict[str, Any] | None:
    values = np.array(
        [[(summaries[run] or {}).get(key, math.nan) for run in pair] for pair in pairs], dtype=float
    )
    if not np.isfinite(values).all():
        return None  # an AUROC that is undefined
    difference = paired_difference(values[:, 0], values[:, 1])
    return asdict(difference) | {"resolved": difference.resolved}


def _per_molecule(
    pairs: list[tuple[Run, Run]], analyses: dict[Run, RunAnalysis], data: MoleculeDataModule
) -> dict[str, Any] | None:
    """The first target's errors, or its areas under the ROC, over the test molecules."""
    targets = np.asarray(data.store.targets[data.indices("test")], dtype=np.float64)[:, 0]
    known = ~np.isnan(targets)
    sides = [
        np.stack([analyses[pair[side]].predictions[known, 0] for pair in pairs]) for side in (0, 1)
    ]
    truth = targets[known]
    if data.splits.task.kind == "regression":
        before, after = (np.abs(side - truth).mean(axis=0) for side in sides)
        return asdict(paired_errors(before, after))
    if len(np.unique(truth)) < 2:
        return None
    before, after = (side.mean(axis=0) for side in sides)
    return {
        "delong": asdict(delong(truth, before, after)),
        "bootstrap": asdict(paired_bootstrap_auc(truth, before, after)),
        "positives": int(truth.sum()),
        "standard_error": auc_standard_error(truth, before),
    }


def _paper(comparison: Comparison, arm: str, dataset: str) -> float | None:
    """What the paper reports for this comparison, if it is the paper's."""
    norms = {}
    for one in comparison.arms:
        if set(one.options) != {"model.norm"}:
            return None
        norms[one.name] = norm_name(one.options["model.norm"])
    if norms[comparison.baseline] != "shared-ln" or norms[arm] not in ("bn+ln", "bn+bn"):
        return None
    return PAPER_PERCENT.get(dataset)


def _environment(record: dict[str, Any]) -> dict[str, Any]:
    session = (record.get("sessions") or [{}])[-1]
    return {name: session.get(name) for name in ("packages", "commit", "machine", "python")}


def _write_predictions(
    path: Path,
    comparison: Comparison,
    finished: list[Run],
    analyses: dict[Run, RunAnalysis],
    data: MoleculeDataModule,
) -> None:
    """One row per test molecule, with the mean prediction over the seeds of each arm."""
    numbers = data.indices("test")
    targets = np.asarray(data.store.targets[numbers], dtype=np.float64)
    smiles = (data.splits.smiles or {}).get("test") or [""] * len(numbers)
    several = len(data.splits.task.targets) > 1
    names = data.splits.task.targets if several else ("",)
    means = {
        arm.name: np.mean([analyses[run].predictions for run in own], axis=0)
        for arm in comparison.arms
        if (own := [run for run in finished if run.arm == arm.name])
    }
    header = ["number", "smiles", "atoms"]
    header += [f"target_{name}" if several else "target" for name in names]
    header += [f"{arm}_{name}" if several else arm for arm in means for name in names]
    atoms = data.store.num_atoms(numbers).tolist()
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        for row in range(len(numbers)):
            values = [*targets[row], *(value for mean in means.values() for value in mean[row])]
            cells = ["" if math.isnan(value) else f"{value:.9g}" for value in values]
            writer.writerow([row, smiles[row], atoms[row], *cells])
    os.replace(partial, path)
