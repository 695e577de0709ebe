"""The cells of the tables of a report. A table that has nothing to show has no rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.metrics import average_precision_score, brier_score_loss

from graphormer_sepnorm.compare.arm_comparisons import factor_effects
from graphormer_sepnorm.compare.model_geometry import ATOMS, GRAPH_TOKEN, OUTPUT
from graphormer_sepnorm.compare.predictions import Predictions
from graphormer_sepnorm.compare.report.numbers import (
    NONE,
    Metric,
    in_unit,
    interval,
    number,
    p_value,
    percent,
    signed,
    spread,
)
from graphormer_sepnorm.compare.report.text import arm_label, verdict
from graphormer_sepnorm.compare.results_file import Results
from graphormer_sepnorm.compare.roc_statistics import AreaTests
from graphormer_sepnorm.compare.statistics import CONFIDENCE, PairedErrors

_LEVEL = f"{100 * CONFIDENCE:g} % interval"


@dataclass(frozen=True)
class Table:
    """Titles of the columns and the cells; the first `words` columns hold words, others numbers."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1


def arms(results: Results) -> Table:
    """What each arm is, and its metric over the seeds; below them the simple models."""
    metric = Metric.of(results)
    rows = [
        [
            arm_label(results, arm),
            ", ".join(f"{key}={value}" for key, value in arm.options.items()) or "as configured",
            number(arm.parameters, 0),
            *(spread(arm.values(part), metric.decimals) for part in ("validation", "test")),
        ]
        for arm in results.arms
    ]
    rows += [
        [one.name, NONE, NONE, *(number(x, metric.decimals) for x in (one.validation, one.test))]
        for one in results.baselines
    ]
    of_splits = (f"{split} {metric.label}" for split in ("validation", "test"))
    return Table(["arm", "options", "parameters", *of_splits], rows, words=2)


def differences(results: Results) -> Table:
    """The paired differences to the baseline."""
    metric, rows = Metric.of(results), []
    for one in results.made:
        for part, difference in (("test", one.test), ("validation", one.validation)):
            if difference is None:
                continue
            of_test, seeds = part == "test", str(difference.seeds)
            adjusted = f"{p_value(one.holm_p)} ({p_value(one.smallest_holm_p)})"
            rows.append(
                [
                    f"{one.arm}, {part}",
                    seeds if len(results.seeds) == difference.seeds else f"{seeds} (partial)",
                    signed(difference.mean, metric.decimals),
                    interval(difference.low, difference.high, metric.decimals),
                    percent(difference.relative_percent),
                    percent(one.paper_relative_percent if of_test else math.nan),
                    f"{p_value(difference.p_value)} ({p_value(difference.smallest_p)})",
                    adjusted if of_test else NONE,
                    verdict(results, one) if of_test else NONE,
                ]
            )
    header = [
        "arm",
        "seeds",
        f"difference{in_unit(metric.unit)}",
        _LEVEL,
        "relative",
        "paper",
        "p (smallest)",
        "Holm's p (smallest)",
        "verdict",
    ]
    return Table(header, rows)


def seeds(results: Results) -> Table:
    """The metric of each run; the state of one that is not finished."""
    metric = Metric.of(results)
    rows = []
    for arm in results.arms:
        runs = {run.seed: run for run in arm.runs}
        for part in ("validation", "test"):
            cells = [
                number(getattr(runs[seed], part), metric.decimals)
                if runs[seed].status == "finished"
                else runs[seed].status
                for seed in results.seeds
            ]
            rows.append([f"{arm.name}, {part}", *cells])
    return Table(["arm", *(f"seed {seed}" for seed in results.seeds)], rows)


def molecules(results: Results) -> Table:
    """The paired test over molecules of a regression."""
    decimals = Metric.of(results).decimals
    rows = [
        [
            one.arm,
            number(errors.molecules, 0),
            signed(errors.mean, decimals),
            interval(errors.low, errors.high, decimals),
            p_value(errors.p_value),
            *(f"{number(100 * share, 1)} %" for share in (errors.improved, errors.worsened)),
        ]
        for one in results.made
        if isinstance(errors := one.per_molecule, PairedErrors)
    ]
    return Table(["arm", "molecules", "mean change", _LEVEL, "p", "improved", "worsened"], rows)


def areas(results: Results) -> Table:
    """The paired test over molecules of a classification."""
    rows = [
        [
            one.arm,
            number(area.auc_a, 4),
            number(area.auc_b, 4),
            signed(100 * area.difference, 2),
            interval(100 * area.low, 100 * area.high, 2),
            p_value(area.p_value),
        ]
        for one in results.made
        if isinstance(tests := one.per_molecule, AreaTests)
        for area in (tests.delong,)
    ]
    return Table(["arm", results.baseline, "this arm", "points", _LEVEL, "p"], rows)


def precision(predictions: Predictions) -> Table:
    """Average precision and Brier score of a classification; both classes are needed."""
    positive = predictions.target == 1
    rows = [
        [
            name,
            number(float(average_precision_score(positive, scores)), 4),
            number(float(brier_score_loss(positive, scores)), 4),
        ]
        for name, scores in predictions.arms.items()
        if positive.any() and not positive.all()
    ]
    return Table(["arm", "average precision (AP)", "Brier score"], rows)


def factors(results: Results) -> Table:
    """The effects of the norms' factors, where the arms form a factorial."""
    metric = Metric.of(results)
    rows = [
        [
            one.name,
            str(difference.seeds),
            signed(difference.mean, metric.decimals),
            interval(difference.low, difference.high, metric.decimals),
            f"{p_value(difference.p_value)} ({p_value(difference.smallest_p)})",
            p_value(one.holm_p),
        ]
        for one in factor_effects(results)
        for difference in (one.difference,)
    ]
    change = f"change{in_unit(metric.unit)}"
    return Table(["effect", "seeds", change, _LEVEL, "p (smallest)", "Holm's p"], rows)


def cost(results: Results) -> Table:
    """What each arm costs: parameters, time, throughput; and its difference to the baseline."""
    baseline, rows = results.arms[0], []
    for arm in results.arms:
        step, more, slower = arm.values("ms_per_step"), math.nan, math.nan
        if arm is not baseline:
            more = arm.parameters - baseline.parameters
            slower = _mean(step) - _mean(baseline.values("ms_per_step"))
        rows.append(
            [
                arm_label(results, arm),
                signed(more, 0),
                spread(step, 1),
                signed(slower, 1),
                spread(arm.values("graphs_per_second"), 1),
                number(_mean(arm.values("training_seconds")) / 60, 1),
                number(_mean(arm.values("seconds")) / 60, 1),
                number(_mean(arm.values("epochs")), 0),
                number(_mean(arm.values("steps")), 0),
            ]
        )
    header = [
        "arm",
        "extra parameters",
        "ms per step",
        "extra ms",
        "graphs per second",
        "training, min",
        "in all, min",
        "epochs",
        "steps",
    ]
    return Table(header, rows)


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else math.nan


def geometry(results: Results) -> Table:
    """The geometry at the output."""
    columns = {
        "uniformity": ("uniformity", 2),
        "effective rank": ("effective_rank", 1),
        "effective rank, centred": ("effective_rank_centred", 1),
        "cosine to atoms": ("cosine_to_atoms", 3),
    }
    rows = []
    for arm in results.arms:
        for what, title in ((GRAPH_TOKEN, "[CLS]"), (ATOMS, "atoms")):
            found = (run.cloud(OUTPUT, what) for run in arm.analysed)
            if clouds := [cloud for cloud in found if cloud]:
                cells = (
                    spread([x for one in clouds if not math.isnan(x := getattr(one, name))], digits)
                    for name, digits in columns.values()
                )
                rows.append([f"{arm.name}, {title}", *cells])
    return Table(["arm", *columns], rows)


def origin(results: Results) -> Table:
    """The data, the code and the machine."""
    sizes = [f"{part} {size:,}" for part, size in results.molecules.items() if size is not None]
    found = results.environment
    packages, machine = (found.get(name) or {} for name in ("packages", "machine"))
    rows = [
        ["data set", results.dataset],
        ["fingerprint of the data", results.dataset_fingerprint],
        ["molecules", ", ".join(sizes)],
        ["targets", ", ".join(results.task.targets)],
        ["seeds", ", ".join(map(str, results.seeds))],
        ["baseline", results.baseline],
        ["commit", str(found.get("commit") or "not known")],
        ["Python", str(found.get("python") or "not known")],
        ["packages", ", ".join(f"{name} {version}" for name, version in packages.items())],
        ["machine", ", ".join(f"{name}: {value}" for name, value in machine.items())],
    ]
    return Table(["what", "value"], rows, words=2)
