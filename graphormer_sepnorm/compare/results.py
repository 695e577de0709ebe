"""From the runs of a comparison to its results: ``results.json`` and ``predictions.csv``."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphormer_sepnorm.chem.features import get_featuriser
from graphormer_sepnorm.compare.analysis import RunAnalysis, analyse, device_of
from graphormer_sepnorm.compare.arm_comparisons import FinishedRun, compare_arms
from graphormer_sepnorm.compare.comparison import Comparison
from graphormer_sepnorm.compare.predictions import write_predictions
from graphormer_sepnorm.compare.results_file import FORMAT_VERSION, RESULTS, read_results
from graphormer_sepnorm.compare.runner import Run, planned_runs
from graphormer_sepnorm.datasets.baselines import baselines_of
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import write_json
from graphormer_sepnorm.graphs.packed_graphs import checked_graph
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.runs.directory import RunDirectory, Summary

log = logging.getLogger(__name__)

PREDICTIONS = "predictions.csv"

Summaries = Mapping[Run, Summary | None]


def collect(directory: Path, baseline: str | None = None) -> dict[str, Any]:
    """Read the runs of a comparison, analyse them, write the results.

    Args:
        directory: Of the comparison.
        baseline: Arm that the others are compared with; None: the comparison's own.

    Returns:
        What ``results.json`` holds.

    Raises:
        DataError: No comparison was begun there, no run has finished, the data are not those
            that the runs were trained on, or earlier results are of another version.
        CheckpointError: A finished run has no readable checkpoint.
    """
    comparison = Comparison.read(directory)
    if comparison is None:
        raise DataError(f"{directory} holds no comparison: there is no compare.yaml in it")
    if baseline is not None:
        comparison = dataclasses.replace(comparison, baseline=baseline)
    earlier = read_results(directory) or {}
    runs = planned_runs(comparison, directory)
    summaries = {run: run.files.summary() for run in runs}
    finished = [run for run in runs if summaries[run] is not None]
    if not finished:
        raise DataError(f"{directory}: no run has finished, there is nothing to report yet")
    data, analyses = _analyse_all(finished, summaries)
    task, numbers = data.splits.task, data.indices("test")
    targets = np.asarray(data.store.targets[numbers], dtype=np.float64)
    metric = task.metric
    found = {
        (run.arm, run.seed): FinishedRun(
            _number((summaries[run] or Summary()).validation(metric)),
            _number((summaries[run] or Summary()).test(metric)),
            analyses[run].predictions,
        )
        for run in finished
    }
    results = {
        "format_version": FORMAT_VERSION,
        "dataset": data.splits.name,
        "dataset_fingerprint": data.splits.fingerprint,
        "molecules": {name: len(part) for name, part in data.splits.parts.items()},
        "task": task.to_plain(),
        "metric": metric,
        "selected_on": record.selected_on if (record := finished[0].files.record()) else None,
        "better": task.main.better,
        "unit": task.unit_of(task.main),
        "command": comparison.command_line(),
        "base_options": list(comparison.base_options),
        "configuration": dict(comparison.configuration),
        "seeds": list(comparison.seeds),
        "baseline": comparison.baseline,
        "complete": len(finished) == len(runs),
        "arms": [
            _arm(arm.name, dict(arm.options), runs, summaries, analyses, metric)
            for arm in comparison.arms
        ],
        "comparisons": [
            one.to_plain() for one in compare_arms(comparison, found, targets, task, data.dataset)
        ],
        **_baselines(comparison, data, earlier),
        **_environments(finished),
    }
    means = {
        arm.name: np.mean([analyses[run].predictions for run in own], axis=0)
        for arm in comparison.arms
        if (own := [run for run in finished if run.arm == arm.name])
    }
    write_predictions(
        directory / PREDICTIONS,
        _test_smiles(data),
        data.store.num_atoms(numbers).tolist(),
        _target_names(task),
        targets,
        means,
    )
    write_json(directory / RESULTS, results, indent=None)
    return results


def runs_are_gone(directory: Path) -> bool:
    """Whether results were collected of finished runs whose directories are no longer there.

    Raises:
        DataError: Of some they are, of others not; or the results are of another version.
    """
    earlier = read_results(directory) or {}
    found = [
        RunDirectory(directory / run["directory"]).finished
        for arm in earlier.get("arms", [])
        for run in arm["runs"]
        if run["status"] == "finished"
    ]
    if any(found) and not all(found):
        raise DataError(
            f"{directory}: some of the runs in {RESULTS} are gone, others are there: put them back "
            f"to report on all, or remove {RESULTS} to report on those that are there"
        )
    return bool(found) and not any(found)


def _baselines(
    comparison: Comparison, data: MoleculeDataModule, earlier: Mapping[str, Any]
) -> dict[str, Any]:
    """The simple models, if ``--baselines`` asks for them: computed once, then taken from there."""
    names = ("baselines", "baselines_left_out")
    if not comparison.configuration.get("baselines"):
        return {}
    same = earlier.get("dataset_fingerprint") == data.splits.fingerprint
    if same and all(name in earlier for name in names):
        return {name: earlier[name] for name in names}
    try:
        found, left_out, _ = baselines_of(data)
    except DataError as error:  # a molecule that has a graph, but no fingerprint
        log.warning("no baselines: %s", error)
        return {}
    return dict(
        zip(names, ([one.by(data.splits.task.metric) for one in found], left_out), strict=True)
    )


def _target_names(task: Task) -> tuple[str, ...]:
    return tuple(task.targets) if len(task.targets) > 1 else ("",)


def _test_smiles(data: MoleculeDataModule) -> Sequence[str]:
    """SMILES of the test molecules, made from their graphs if need be; empty where that fails."""
    splits = data.splits
    if splits.smiles is not None:
        return splits.smiles["test"]
    way_back = get_featuriser(splits.featuriser).smiles_of if splits.featuriser else None
    graphs = splits.parts["test"]
    if way_back is None:
        return [""] * len(graphs)
    return [way_back(checked_graph(graph, f"test {n}")[0]) for n, graph in enumerate(graphs)]


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _analyse_all(
    finished: list[Run], summaries: Summaries
) -> tuple[MoleculeDataModule, dict[Run, RunAnalysis]]:
    """Return the data of the first run, and what was computed of each."""
    loaded: dict[str, MoleculeDataModule] = {}
    analyses: dict[Run, RunAnalysis] = {}
    with_histograms: set[str] = set()
    for place, run in enumerate(finished, start=1):
        data = _data_of(run, loaded)
        trained_on = (summaries[run] or {}).get("dataset_fingerprint")
        if data.splits.fingerprint != trained_on:
            raise DataError(
                f"{run.directory} was trained on other data than those that are there now (or on "
                "another split of them): what it predicts for these would mean nothing; put the "
                "data back, or compare anew in another directory"
            )
        log.info("analysing %s (%d of %d)", run.name, place, len(finished))
        # Histograms of one run per arm say enough, and are the largest part of the results.
        first = run.arm not in with_histograms
        with_histograms.add(run.arm)
        trainer = run.files.configuration().get("trainer") or {}
        device = device_of(trainer.get("accelerator"), trainer.get("devices"))
        analyses[run] = analyse(run.files, data, histograms=first, device=device)
    return _data_of(finished[0], loaded), analyses


def _data_of(run: Run, loaded: dict[str, MoleculeDataModule]) -> MoleculeDataModule:
    """The data of a run, as its configuration loads them; most runs have the same."""
    config = run.files.configuration()
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
    summaries: Summaries,
    analyses: dict[Run, RunAnalysis],
    metric: str,
) -> dict[str, Any]:
    own = [run for run in runs if run.arm == name]
    sizes = [summary["parameters"] for run in own if (summary := summaries[run]) is not None]
    return {
        "name": name,
        "options": options,
        "parameters": sizes[0] if sizes else None,
        "runs": [_run(run, summaries[run], analyses.get(run), metric) for run in own],
    }


def _run(
    run: Run, summary: Summary | None, analysis: RunAnalysis | None, metric: str
) -> dict[str, Any]:
    error = None
    if summary is not None:
        status = "finished"
    elif run.failure.is_file():
        status, error = "failed", run.failure.read_text(encoding="utf-8").strip()
    else:
        status = "unfinished" if run.directory.is_dir() else "missing"
    summary = summary or Summary()
    steps, seconds = summary.get("steps"), summary.get("training_seconds")
    return {
        "seed": run.seed,
        "status": status,
        "directory": f"{run.arm}/{run.directory.name}",
        "steps": steps,
        "epochs": summary.get("epochs"),
        "validation": summary.validation(metric),
        "test": summary.test(metric),
        "seconds": summary.get("seconds"),
        "training_seconds": seconds,
        "graphs_per_second": summary.get("graphs_per_second"),
        "ms_per_step": 1000 * seconds / steps if steps and seconds else None,
        "curve": learning_curve(run.files, metric),
        "geometry": [dataclasses.asdict(one) for one in analysis.geometry] if analysis else [],
        "error": error,
    }


def learning_curve(run: RunDirectory, metric: str) -> list[dict[str, float]]:
    """Return the loss and the validation metric of each epoch of a run.

    Returns:
        Entries with ``epoch`` and ``step`` (from 1) and, where they are known, ``train_loss`` and
        ``validation``.
    """
    columns = {"train_loss": "train_loss_epoch", "validation": f"validation_{metric}"}
    points: dict[int, dict[str, float]] = {}
    for row in run.metrics():
        values = {ours: row[theirs] for ours, theirs in columns.items() if theirs in row}
        if values and "epoch" in row:
            # A step is counted from 0 in the log, by the number that was taken last.
            epoch, step = int(row["epoch"]) + 1, int(row["step"]) + 1
            points.setdefault(step, {"epoch": epoch, "step": step}).update(values)
    return [points[step] for step in sorted(points)]


def _environments(finished: Iterable[Run]) -> dict[str, Any]:
    """Where the runs were trained: the first one's first session, and what differs from it.

    A run that was continued has several sessions; all of them, of all runs, are looked through.
    """
    names = ("packages", "commit", "machine", "python")
    sessions = [
        {name: getattr(session, name) for name in names}
        for run in finished
        if (record := run.files.record())
        for session in record.sessions
    ]
    differing = {
        name: [json.loads(text) for text in texts]
        for name in names
        if len(texts := sorted({json.dumps(session[name], sort_keys=True) for session in sessions}))
        > 1
    }
    return {
        "environment": sessions[0] if sessions else dict.fromkeys(names),
        "environments_differ": differing,
    }
