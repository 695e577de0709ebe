"""The tables of a report, as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.metrics import average_precision_score

from graphormer_sepnorm.compare.embeddings import OUTPUT
from graphormer_sepnorm.compare.model_geometry import ATOMS, GRAPH_TOKEN
from graphormer_sepnorm.compare.paper import in_words
from graphormer_sepnorm.compare.predictions import Predictions
from graphormer_sepnorm.compare.report.blocks import Table
from graphormer_sepnorm.compare.report.data import (
    Results,
    arm_names,
    arm_of,
    at_layer,
    baselines_of,
    geometry_of,
    made_comparisons,
    values_of,
)
from graphormer_sepnorm.compare.report.text import (
    NONE,
    arm_label,
    decimals_of,
    interval,
    metric_name,
    number,
    p_value,
    percent,
    sign_flip,
    signed,
    spread,
)
from graphormer_sepnorm.compare.report.verdict import verdict


def arms_table(results: Results) -> Table:
    """What each arm is, and its metric over the seeds."""
    decimals, metric = decimals_of(results), f"{metric_name(results)}{_in_unit(results)}"
    rows = []
    for name in arm_names(results):
        arm = arm_of(results, name)
        options = ", ".join(f"{key}={value}" for key, value in arm["options"].items())
        parameters = arm.get("parameters")
        rows.append(
            [
                arm_label(results, name),
                options or "as configured",
                number(parameters, 0),
                spread(values_of(results, name, "validation"), decimals),
                spread(values_of(results, name, "test"), decimals),
            ]
        )
    simple = baselines_of(results)
    rows += [
        [
            one["name"],
            NONE,
            NONE,
            number(one["validation"], decimals),
            number(one["test"], decimals),
        ]
        for one in simple
    ]
    beside = ""
    if simple:
        beside = " Below the arms: simple models on the same split."
        left_out = results.get("baselines_left_out")
        beside += f" {left_out}" if left_out else ""
    return Table(
        f"The arms. Mean ± standard deviation over the seeds; {results['better']} is better. "
        f"{results['baseline']} is the baseline.{beside}",
        ["arm", "options", "parameters", f"validation {metric}", f"test {metric}"],
        rows,
        labels=2,
    )


def seeds_table(results: Results) -> Table:
    """The metric of each run; the state of one that is not finished."""
    decimals = decimals_of(results)
    rows = []
    for name in arm_names(results):
        runs = {run["seed"]: run for run in arm_of(results, name)["runs"]}
        for part in ("validation", "test"):
            cells = [_cell(runs.get(seed), part, decimals) for seed in results["seeds"]]
            rows.append([f"{name}, {part}", *cells])
    return Table(
        f"{metric_name(results)}{_in_unit(results)} of each run.",
        ["arm", *(f"seed {seed}" for seed in results["seeds"])],
        rows,
    )


def _cell(run: dict[str, Any] | None, part: str, decimals: int) -> str:
    if run is None:
        return "missing"
    return number(run[part], decimals) if run["status"] == "finished" else run["status"]


def differences_table(results: Results) -> Table | None:
    """The paired differences to the baseline."""
    decimals, rows = decimals_of(results), []
    for one in made_comparisons(results):
        for part in ("test", "validation"):
            difference = one.get(part)
            if not difference:
                continue
            test, seeds = part == "test", str(difference["seeds"])
            paper = one.get("paper_relative_percent") if test else None
            rows.append(
                [
                    f"{one['arm']}, {part}",
                    seeds if len(results["seeds"]) == difference["seeds"] else f"{seeds} (partial)",
                    signed(difference["mean"], decimals),
                    interval(difference["low"], difference["high"], decimals),
                    percent(difference["relative_percent"]),
                    percent(paper),
                    f"{p_value(difference['p_value'])} ({p_value(difference['smallest_p'])})",
                    f"{p_value(one['holm_p'])} ({p_value(one['smallest_holm_p'])})"
                    if test
                    else NONE,
                    verdict(results, one) if test else NONE,
                ]
            )
    if not rows:
        return None
    quotable = any(one.get("paper_relative_percent") for one in made_comparisons(results))
    said = in_words(results["dataset"]) if quotable else None
    quoted = (
        f" The paper reports {said} for this data set: single numbers, of a variant of SepNorm "
        "that it does not name."
        if said
        else ""
    )
    return Table(
        f"Difference to {results['baseline']}, arm minus baseline, paired by seed: t interval over "
        f"the seeds and two-sided {sign_flip(results)} p; in brackets the smallest p that this "
        f"number of seeds allows.{quoted}",
        [
            "arm",
            "seeds",
            f"difference{_in_unit(results)}",
            _level(results),
            "relative",
            "paper",
            "p (smallest)",
            "Holm's p (smallest)",
            "verdict",
        ],
        rows,
    )


def _in_unit(results: Results) -> str:
    return f" ({results['unit']})" if results["unit"] else ""


def _of_target(results: Results) -> str:
    """Which target is meant, where there are several."""
    targets = results["task"]["targets"]
    return f" for {targets[0]}, the first of {len(targets)} targets" if len(targets) > 1 else ""


def _level(results: Results) -> str:
    return f"{100 * made_comparisons(results)[0]['test']['confidence']:g} % interval"


def molecules_table(results: Results) -> Table | None:
    """The paired test over molecules of a regression."""
    decimals, rows = decimals_of(results), []
    for one in made_comparisons(results):
        errors = one.get("per_molecule")
        if errors and "improved" in errors:
            rows.append(
                [
                    one["arm"],
                    number(errors["molecules"], 0),
                    signed(errors["mean"], decimals),
                    interval(errors["low"], errors["high"], decimals),
                    p_value(errors["p_value"]),
                    number(100 * errors["improved"], 1) + " %",
                    number(100 * errors["worsened"], 1) + " %",
                ]
            )
    if not rows:
        return None
    return Table(
        f"Change of the absolute error per test molecule{_of_target(results)}, averaged over the "
        "runs of an arm (not the error of their averaged predictions, which the figures show); "
        "sign-flip p over molecules. Conditional on these models: it says whether they differ on "
        "molecules like these, not whether the next training would.",
        ["arm", "molecules", "mean change", _level(results), "p", "improved", "worsened"],
        rows,
    )


def areas_table(results: Results) -> Table | None:
    """The paired tests over molecules of a classification."""
    rows, known = [], []
    for one in made_comparisons(results):
        tests = one.get("per_molecule") or {}
        for key, name in (("delong", "DeLong"), ("bootstrap", "stratified paired bootstrap")):
            area = tests.get(key)
            if area:
                known.append(tests)
                rows.append(
                    [
                        f"{one['arm']}, {name}",
                        number(area["auc_a"], 4),
                        number(area["auc_b"], 4),
                        signed(100 * area["difference"], 2),
                        interval(100 * area["low"], 100 * area["high"], 2)
                        if area["low"] is not None
                        else NONE,
                        p_value(area["p_value"]),
                    ]
                )
    if not rows:
        return None
    positives = known[0]["positives"]
    deviation = known[0]["standard_error"]  # undefined with one molecule in a class
    spread = ""
    if deviation is not None:
        spread = f": one area has a standard error of {number(100 * deviation, 1)} points"
    return Table(
        f"ROC-AUC of the seed-averaged probabilities{_of_target(results)} (an ensemble, so not the "
        "mean of the runs), "
        "paired by molecule. Conditional on these models: it says whether they differ on molecules "
        "like these, not whether the next training would. "
        f"{positives:,} positive{'s' * (positives != 1)}{spread}.",
        ["arm, test", results["baseline"], "arm", "points", _level(results), "p"],
        rows,
    )


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
                number(float(((scores - predictions.target) ** 2).mean()), 4),
            ]
            for name, scores in predictions.arms.items()
        ],
    )


def cost_table(results: Results) -> Table:
    """What each arm costs: parameters, time, throughput; and its difference to the baseline."""
    rows = []
    baseline = results["baseline"]
    base_step = values_of(results, baseline, "ms_per_step")
    base_parameters = arm_of(results, baseline).get("parameters")
    for name in arm_names(results):
        step = values_of(results, name, "ms_per_step")
        parameters = arm_of(results, name).get("parameters")
        more_parameters, slower = NONE, NONE
        if name != baseline and parameters is not None and base_parameters is not None:
            more_parameters = signed(parameters - base_parameters, 0)
        if name != baseline and len(step) and len(base_step):
            slower = signed(float(step.mean() - base_step.mean()), 1)
        rows.append(
            [
                arm_label(results, name),
                more_parameters,
                spread(step, 1),
                slower,
                spread(values_of(results, name, "graphs_per_second"), 1),
                _mean(values_of(results, name, "training_seconds"), 60),
                _mean(values_of(results, name, "seconds"), 60),
                _mean(values_of(results, name, "epochs")),
                _mean(values_of(results, name, "steps")),
            ]
        )
    return Table(
        f"Cost per run, mean over the seeds (± standard deviation); differences are to {baseline}. "
        "Runs that shared a machine slowed each other down.",
        [
            "arm",
            "extra parameters",
            "ms per step",
            "extra ms",
            "graphs per second",
            "training, min",
            "in all, min",
            "epochs",
            "steps",
        ],
        rows,
    )


def _mean(values: np.ndarray, unit: float = 1) -> str:
    return number(float(values.mean()) / unit, 1 if unit > 1 else 0) if len(values) else NONE


def geometry_table(results: Results) -> Table | None:
    """The geometry at the output."""
    rows = list(_geometry_rows(results))
    if not rows:
        return None
    return Table(
        "Geometry at the output, mean ± standard deviation over the seeds.",
        ["arm", "uniformity", "effective rank", "effective rank, centred", "cosine to atoms"],
        rows,
    )


def _geometry_rows(results: Results) -> Iterator[list[str]]:
    keys = ("uniformity", 2), ("effective_rank", 1), ("effective_rank_centred", 1)
    for name in arm_names(results):
        for what, title in ((GRAPH_TOKEN, "[CLS]"), (ATOMS, "atoms")):
            entries = [at_layer(run, OUTPUT, what) for run in geometry_of(results, name)]
            if any(entries):
                yield [
                    f"{name}, {title}",
                    *(
                        spread([one[key] for one in entries if one.get(key) is not None], decimals)
                        for key, decimals in (*keys, ("cosine_to_atoms", 3))
                    ),
                ]
