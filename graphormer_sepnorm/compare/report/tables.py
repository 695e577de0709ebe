"""The tables of a report, as text."""

from __future__ import annotations

import math

import numpy as np
from sklearn.metrics import average_precision_score, brier_score_loss

from graphormer_sepnorm.compare.arm_comparisons import paper_in_words
from graphormer_sepnorm.compare.factors import factor_effects
from graphormer_sepnorm.compare.model_geometry import ATOMS, GRAPH_TOKEN, OUTPUT
from graphormer_sepnorm.compare.predictions import Predictions
from graphormer_sepnorm.compare.report.blocks import Table
from graphormer_sepnorm.compare.report.numbers import (
    NONE,
    Metric,
    count,
    in_unit,
    interval,
    number,
    p_value,
    percent,
    signed,
    spread,
)
from graphormer_sepnorm.compare.report.text import arm_label, cautions, sign_flip, verdict
from graphormer_sepnorm.compare.results_file import Results
from graphormer_sepnorm.compare.roc_statistics import AreaTests
from graphormer_sepnorm.compare.statistics import CONFIDENCE, PairedErrors

_LEVEL = f"{100 * CONFIDENCE:g} % interval"


def arms_table(results: Results) -> Table:
    """What each arm is, and its metric over the seeds."""
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
    beside = " Below the arms: simple models on the same split." if results.baselines else ""
    if results.baselines and results.baselines_left_out:
        beside += f" {results.baselines_left_out}"
    return Table(
        f"The arms. Mean ± standard deviation over the seeds; {results.better} is better. "
        f"{results.baseline} is the baseline.{beside}",
        ["arm", "options", "parameters", f"validation {metric.label}", f"test {metric.label}"],
        rows,
        labels=2,
    )


def seeds_table(results: Results) -> Table:
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
    header = ["arm", *(f"seed {seed}" for seed in results.seeds)]
    return Table(f"{metric.label} of each run.", header, rows)


def differences_table(results: Results) -> Table | None:
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
    if not rows:
        return None
    quoted = ""
    if not all(math.isnan(one.paper_relative_percent) for one in results.made):
        quoted = (
            f" The paper reports {paper_in_words(results.dataset)} for this data set: single "
            "numbers, of a variant of SepNorm that it does not name."
        )
    return Table(
        f"Difference to {results.baseline}, arm minus baseline, paired by seed: t interval over "
        f"the seeds and two-sided {sign_flip(results)} p; in brackets the smallest p that this "
        f"number of seeds allows.{quoted}",
        [
            *("arm", "seeds", f"difference{in_unit(metric.unit)}", _LEVEL, "relative", "paper"),
            *("p (smallest)", "Holm's p (smallest)", "verdict"),
        ],
        rows,
    )


def factors_table(results: Results) -> Table | None:
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
    if not rows:
        return None
    return Table(
        f"Effects on the test {metric.name}, paired by seed, {results.better} is better: t "
        "interval over the seeds and two-sided sign-flip p, in brackets the smallest that this "
        "number of seeds allows; Holm's p is over all effects.",
        ["effect", "seeds", f"change{in_unit(metric.unit)}", _LEVEL, "p (smallest)", "Holm's p"],
        rows,
    )


def paper_table(results: Results) -> Table:
    """Each arm with its metric, its difference to the baseline and the p-values, for a paper."""
    metric, unit = Metric.of(results), in_unit(Metric.of(results).unit)
    rows = []
    for arm in results.arms:
        difference, ps = NONE, (NONE, NONE)
        for one in results.made:
            if one.arm == arm.name and (test := one.test):
                ends = interval(test.low, test.high, metric.decimals)
                difference = f"{signed(test.mean, metric.decimals)} [{ends}]"
                ps = p_value(test.p_value), p_value(one.holm_p)
        values = (spread(arm.values(part), metric.decimals) for part in ("validation", "test"))
        rows.append([arm_label(results, arm), number(arm.parameters, 0), *values, difference, *ps])
    for simple in results.baselines:
        values = (number(x, metric.decimals) for x in (simple.validation, simple.test))
        rows.append([simple.name, NONE, *values, NONE, NONE, NONE])
    finished = [len(arm.values("test")) for arm in results.arms]
    most = count(max(finished), "seed")
    seeds = most if len(set(finished)) == 1 else f"{min(finished)} to {most}"
    partial = "" if results.complete else "PARTIAL RESULTS. "
    text = (
        f"{partial}{metric.name} on {results.dataset} ({results.better} is better), mean ± SD over "
        f"{seeds}; difference to {results.baseline}, paired by seed, with its t interval; "
        f"{sign_flip(results)} p, plain and with Holm's correction."
    )
    return Table(
        " ".join([text, *cautions(results)]),
        [
            *("Arm", "Parameters", f"Validation{unit}", f"Test{unit}"),
            *(f"Difference [95 %]{unit}", "p", "p (Holm)"),
        ],
        rows,
    )


def molecules_table(results: Results) -> Table | None:
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
    if not rows:
        return None
    return Table(
        f"Change of the absolute error per test molecule{_of_target(results)}, averaged over the "
        "runs of an arm (not the error of their averaged predictions, which the figures show); "
        "sign-flip p over molecules. Conditional on these models: it says whether they differ on "
        "molecules like these, not whether the next training would.",
        ["arm", "molecules", "mean change", _LEVEL, "p", "improved", "worsened"],
        rows,
    )


def areas_table(results: Results) -> Table | None:
    """The paired tests over molecules of a classification."""
    tests = {
        one.arm: one.per_molecule for one in results.made if isinstance(one.per_molecule, AreaTests)
    }
    if not tests:
        return None
    rows = [
        [
            f"{arm}, {name}",
            number(area.auc_a, 4),
            number(area.auc_b, 4),
            signed(100 * area.difference, 2),
            interval(100 * area.low, 100 * area.high, 2),
            p_value(area.p_value),
        ]
        for arm, of_arm in tests.items()
        for name, area in (
            ("DeLong", of_arm.delong),
            ("stratified paired bootstrap", of_arm.bootstrap),
        )
    ]
    first = next(iter(tests.values()))
    deviation = ""
    if not math.isnan(first.standard_error):  # undefined with one molecule in a class
        points = number(100 * first.standard_error, 1)
        deviation = f": one area has a standard error of {points} points"
    return Table(
        f"ROC-AUC of the seed-averaged probabilities{_of_target(results)} (an ensemble, so not the "
        "mean of the runs), paired by molecule. Conditional on these models: it says whether they "
        "differ on molecules like these, not whether the next training would. "
        f"{count(first.positives, 'positive')}{deviation}.",
        ["arm, test", results.baseline, "arm", "points", _LEVEL, "p"],
        rows,
    )


def _of_target(results: Results) -> str:
    """Which target is meant, where there are several."""
    targets = results.task.targets
    return f" for {targets[0]}, the first of {len(targets)} targets" if len(targets) > 1 else ""


def precision_table(predictions: Predictions) -> Table | None:
    """Average precision and Brier score of a classification."""
    positive = predictions.target == 1
    if positive.all() or not positive.any():
        return None
    return Table(
        "Other measures of the seed-averaged probabilities. Chance has an average precision equal "
        f"to the share of positives, {number(float(positive.mean()), 4)}.",
        ["arm", "average precision (AP)", "Brier score"],
        [
            [
                name,
                number(float(average_precision_score(positive, scores)), 4),
                number(float(brier_score_loss(positive, scores)), 4),
            ]
            for name, scores in predictions.arms.items()
        ],
    )


def cost_table(results: Results) -> Table:
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
    return Table(
        f"Cost per run, mean over the seeds (± standard deviation); differences are to "
        f"{results.baseline}. Runs that shared a machine slowed each other down.",
        [
            *("arm", "extra parameters", "ms per step", "extra ms", "graphs per second"),
            *("training, min", "in all, min", "epochs", "steps"),
        ],
        rows,
    )


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else math.nan


def geometry_table(results: Results) -> Table | None:
    """The geometry at the output."""
    columns = (
        *(("uniformity", 2), ("effective_rank", 1), ("effective_rank_centred", 1)),
        ("cosine_to_atoms", 3),
    )
    rows = []
    for arm in results.arms:
        for what, title in ((GRAPH_TOKEN, "[CLS]"), (ATOMS, "atoms")):
            found = (run.cloud(OUTPUT, what) for run in arm.analysed)
            clouds = [cloud for cloud in found if cloud]
            if clouds:
                cells = (
                    spread([x for one in clouds if not math.isnan(x := getattr(one, name))], digits)
                    for name, digits in columns
                )
                rows.append([f"{arm.name}, {title}", *cells])
    if not rows:
        return None
    return Table(
        "Geometry at the output, mean ± standard deviation over the seeds.",
        ["arm", "uniformity", "effective rank", "effective rank, centred", "cosine to atoms"],
        rows,
    )
