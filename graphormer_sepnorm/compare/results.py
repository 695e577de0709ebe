"""From the runs of a comparison to its results: ``results.json`` and ``predictions.csv``."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from graphormer_sepnorm.compare.analysis import RunAnalysis, analyse, device_of
from graphormer_sepnorm.compare.arm_comparisons import compare_arms
from graphormer_sepnorm.compare.predictions import write_predictions
from graphormer_sepnorm.compare.results_file import (
    RESULTS,
    ArmResult,
    CurvePoint,
    Results,
    RunResult,
    SimpleModel,
    typed,
)
from graphormer_sepnorm.config import FitConfig
from graphormer_sepnorm.datasets.baselines import baselines_of
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.runs.directory import RunDirectory, Summary
from graphormer_sepnorm.runs.plan import Comparison, RunSpec

log = logging.getLogger(__name__)

PREDICTIONS = "predictions.csv"


def collect(directory: Path, baseline: str | None = None) -> None:
    """Read the runs of a comparison, analyse them, write the results.

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
    comparison = replace(comparison, baseline=baseline or comparison.baseline)
    earlier = Results.read(directory)
    runs = comparison.runs(directory)
    summaries = {run: found for run in runs if (found := run.files.summary()) is not None}
    if not summaries:
        raise DataError(f"{directory}: no run has finished, there is nothing to report yet")
    data, analyses = _analyse_all(summaries)
    splits, task, numbers = data.splits, data.splits.task, data.indices("test")
    targets = data.labels(numbers)
    of_runs = {
        (run.arm, run.seed): _result(run, summaries.get(run), analyses.get(run), task.metric)
        for run in runs
    }
    predictions = {(run.arm, run.seed): one.predictions for run, one in analyses.items()}
    of_arms = {
        arm.name: [values for (name, _), values in predictions.items() if name == arm.name]
        for arm in comparison.arms
    }
    sizes = {run.arm: summary["parameters"] for run, summary in reversed(summaries.items())}
    write_predictions(
        directory / PREDICTIONS,
        _test_smiles(data),
        data.store.num_atoms(numbers).tolist(),
        task.targets,
        targets,
        {name: np.mean(values, axis=0) for name, values in of_arms.items() if values},
    )
    selected = _selections(summaries)
    baselines, left_out = _baselines(comparison, data, earlier)
    environment, differing = _environments(summaries)
    Results(
        dataset=splits.name,
        dataset_fingerprint=splits.fingerprint,
        molecules={name: len(part) for name, part in splits.parts.items()},
        task=task,
        metric=task.metric,
        better=task.main.better,
        unit=task.unit_of(task.main),
        command=tuple(comparison.command_line()),
        base_options=comparison.base_options,
        configuration=comparison.configuration,
        seeds=comparison.seeds,
        baseline=comparison.baseline,
        complete=len(summaries) == len(runs),
        arms=tuple(
            ArmResult(
                name=arm.name,
                options=arm.options,
                parameters=sizes.get(arm.name, math.nan),
                runs=tuple(of_runs[arm.name, seed] for seed in comparison.seeds),
                selected_on=selected.get(arm.name),
            )
            for arm in comparison.arms
        ),
        comparisons=compare_arms(comparison, of_runs, predictions, targets, task, data.dataset),
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
    failed = [run.failure.is_file() for run in collected]
    if not all(map(any, zip(begun, failed, strict=True))):
        raise DataError(
            f"{directory}: some of the runs in {RESULTS} are gone, others are there: put them back "
            f"to report on all, or remove {RESULTS} to report on those that are there"
        )
    return False


def _selections(finished: Iterable[RunSpec]) -> dict[str, str | None]:
    """What chose the tested checkpoints of each arm: it may have a ``metric`` of its own."""
    found: dict[str, str | None] = {}
    for run in finished:
        if run.arm not in found:
            record = run.files.record()
            found[run.arm] = record.selected_on if record else None
    return found


def _baselines(
    comparison: Comparison, data: MoleculeDataModule, earlier: Results | None
) -> tuple[tuple[SimpleModel, ...], str | None]:
    """The simple models, if ``--baselines`` asks for them: computed once, then taken from there."""
    if not comparison.configuration.get("baselines"):
        return (), None
    same = earlier and earlier.dataset_fingerprint == data.splits.fingerprint
    if earlier and same and earlier.baselines:
        return earlier.baselines, earlier.baselines_left_out
    found, left_out, _ = baselines_of(data)
    metric = data.splits.task.metric
    return tuple(SimpleModel(**one.by(metric)) for one in found), left_out


def _test_smiles(data: MoleculeDataModule) -> Sequence[str]:
    """SMILES of the test molecules; empty where there are none."""
    smiles = data.splits.smiles
    return [""] * len(data.splits.test) if smiles is None else smiles["test"]


def _analyse_all(
    summaries: dict[RunSpec, Summary],
) -> tuple[MoleculeDataModule, dict[RunSpec, RunAnalysis]]:
    """Return the data of the first run, and what was computed of each finished one."""
    loaded: dict[str, MoleculeDataModule] = {}
    analyses: dict[RunSpec, RunAnalysis] = {}
    for place, (run, summary) in enumerate(summaries.items(), start=1):
        data = _data_of(run, loaded)
        if data.splits.fingerprint != summary.get("dataset_fingerprint"):
            raise DataError(
                f"{run.directory} was trained on other data than those that are there now (or on "
                "another split of them): what it predicts for these would mean nothing; put the "
                "data back, or compare anew in another directory"
            )
        log.info("analysing %s (%d of %d)", run.name, place, len(summaries))
        # Histograms of one run per arm say enough, and are the largest part of the results.
        first = run.arm not in {other.arm for other in analyses}
        trainer = run.files.configuration().get("trainer") or {}
        device = device_of(trainer.get("accelerator"), trainer.get("devices"))
        analyses[run] = analyse(run.files, data, histograms=first, device=device)
    return next(iter(loaded.values())), analyses


def _data_of(run: RunSpec, loaded: dict[str, MoleculeDataModule]) -> MoleculeDataModule:
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


def _result(
    run: RunSpec, summary: Summary | None, analysis: RunAnalysis | None, metric: str
) -> RunResult:
    kept: dict[str, Any] = {"seed": run.seed, "directory": f"{run.arm}/{run.directory.name}"}
    if summary is not None:
        kept = summary | kept | {"status": "finished"}
        kept |= {"validation": summary.validation(metric), "test": summary.test(metric)}
        steps, seconds = summary.get("steps"), summary.get("training_seconds")
        kept["ms_per_step"] = 1000 * seconds / steps if steps and seconds else None
    elif run.failure.is_file():
        kept |= {"status": "failed", "error": run.failure.read_text(encoding="utf-8").strip()}
    else:
        kept["status"] = "unfinished" if run.directory.is_dir() else "missing"
    return replace(
        typed(RunResult, kept),
        curve=learning_curve(run.files, metric),
        geometry=analysis.geometry if analysis else (),
    )


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


def _environments(finished: Iterable[RunSpec]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Where the runs were trained: the first one's first session, and what differs from it.

    A run that was continued has several sessions; all of them, of all runs, are looked through.
    """
    records = [record for run in finished if (record := run.files.record())]
    sessions = [session for record in records for session in record.sessions]
    first, differing = {}, {}
    for name in ("packages", "commit", "machine", "python"):
        values = [getattr(session, name) for session in sessions]
        first[name] = values[0] if values else None
        others = sorted({json.dumps(value, sort_keys=True) for value in values})
        if len(others) > 1:
            differing[name] = [json.loads(value) for value in others]
    return first, differing
