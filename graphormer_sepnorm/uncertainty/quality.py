"""The quality of intervals and probabilities, evaluated on molecules with labels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from graphormer_sepnorm.formatting import four_digits
from graphormer_sepnorm.metrics import METRICS
from graphormer_sepnorm.uncertainty.calibration import Calibration, error_by_chance, expected_error
from graphormer_sepnorm.uncertainty.conformal import LEVELS

# The level that is printed most of, and the levels as names have them.
_MAIN = LEVELS.index(0.9)
_NAMES = [f"{100 * level:g}" for level in LEVELS]


def evaluate_intervals(
    labels: np.ndarray,
    values: np.ndarray,
    expected: np.ndarray,
    ends: Mapping[float, tuple[np.ndarray, np.ndarray]],
    bounds: np.ndarray,
) -> dict[str, Any]:
    """Evaluate the intervals of one target.

    Args:
        labels: ``[n]``; nan = missing, one or more are not.
        values: Predictions ``[n]``.
        expected: Expected absolute errors ``[n]``.
        ends: By level, both ends, ``[n]`` each; nan: there is no interval.
        bounds: Lower and upper bounds of missing labels, ``[n, 2]``; nan = unknown.

    Returns:
        The numbers of ``labels`` and ``bounds``, and ``rank_correlation``, Spearman's, of expected
        and actual absolute errors. Of each of the ``levels``: the share of the labels ``inside``,
        mean ``widths`` of intervals with two ends, the share that are ``open`` on one side, how
        many bounds have ``contradicted`` theirs. nan: undefined.
    """
    known = ~np.isnan(labels)
    errors, least, most = np.abs(values - labels)[known], *bounds.T
    rows = []
    for low, high in ends.values():
        there, width = not (np.isnan(low) | np.isnan(high)).any(), high - low
        inside = ((low <= labels) & (labels <= high))[known]
        rows.append(
            (
                float(inside.mean()) if there else math.nan,
                _mean(width[np.isfinite(width) & there]),
                float(np.isinf(width).mean()) if there else math.nan,
                int(np.sum((high < least) | (low > most))),
            )
        )
    by_level = zip(*rows, strict=True)
    return {
        "labels": len(errors),
        "levels": [*ends],
        "rank_correlation": METRICS["spearman"].of(errors, expected[known]),
        "bounds": int(np.sum(~np.isnan(bounds).all(axis=1))),
        **dict(zip(("inside", "widths", "open", "contradicted"), map(list, by_level), strict=True)),
    }


def evaluate_probabilities(
    labels: np.ndarray,
    before: np.ndarray,
    probabilities: np.ndarray,
    calibration: Calibration,
    calibrated_by: str,
) -> dict[str, Any]:
    """Evaluate the probabilities of one target, and its sets of classes.

    Args:
        labels: 0 and 1, ``[n]``, none missing.
        before: Uncalibrated probabilities ``[n]``.
        probabilities: Calibrated ones ``[n]``.
        calibration: Gives the sets.
        calibrated_by: See `Uncertainty.calibrated_by`.

    Returns:
        The number of ``labels``, the ``map``, the expected calibration error ``error`` and
        ``error_before`` it, and what exactly right probabilities would show, ``by_chance``. Of each
        of the ``levels``: of either class the share whose set ``held`` it, and how many ``classes``
        a set has on average.
    """
    sets = [calibration.sets(probabilities, level) for level in LEVELS]
    return {
        "labels": len(labels),
        "map": calibrated_by,
        "error_before": expected_error(before, labels),
        "error": expected_error(probabilities, labels),
        "levels": [*LEVELS],
        "held": [[_mean(one[labels == label, label]) for label in (0, 1)] for one in sets],
        "classes": [float(one.sum(axis=1).mean()) for one in sets],
        "by_chance": error_by_chance(probabilities),
    }


def summarized(found: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Return means over the targets, flat, as the summary of a run stores them."""
    found = [*found]
    intervals = [one for one in found if "inside" in one]
    classes = [one for one in found if "held" in one]
    values: dict[str, float] = {}
    if intervals:
        for index, name in enumerate(_NAMES):
            values[f"inside_{name}"] = _mean(one["inside"][index] for one in intervals)
        if len(intervals) == 1:  # widths of several have no mean
            widths = zip(_NAMES, intervals[0]["widths"], strict=True)
            values |= {f"width_{name}": width for name, width in widths}
        values["spearman_of_errors"] = _mean(one["rank_correlation"] for one in intervals)
        if bounds := sum(one["bounds"] for one in intervals):
            values["bounds"] = bounds
            values["contradicted_90"] = sum(one["contradicted"][_MAIN] for one in intervals)
        if any(one["open"][_MAIN] > 0 for one in intervals):
            values["open_90"] = _mean(one["open"][_MAIN] for one in intervals)
    if classes:
        for name, part in (("", "error"), ("_before", "error_before"), ("_by_chance", "by_chance")):
            values[f"calibration_error{name}"] = _mean(one[part] for one in classes)
        for index, name in enumerate(_NAMES):
            for label in (0, 1):
                held = (one["held"][index][label] for one in classes)
                values[f"sets_{name}_hold_{label}"] = _mean(held)
            values[f"sets_{name}_classes"] = _mean(one["classes"][index] for one in classes)
    return values


def in_words(values: Mapping[str, float], unit: str = "") -> str:
    """Return a sentence on what `summarized` gave; empty where that is nothing."""
    if "calibration_error" in values:
        error, before = values["calibration_error"], values["calibration_error_before"]
        text = f"expected calibration error of the test probabilities {error:.3f}"
        text += f", before calibration {before:.3f}"
        text += f" (beyond the {values['calibration_error_by_chance']:.3f} that chance makes)"
        zeros, ones = (_percent(values.get(f"sets_90_hold_{label}", math.nan)) for label in (0, 1))
        return f"{text}; sets of level 90 % cover {zeros} % of class 0, {ones} % of class 1"
    levels = [name for name in _NAMES if f"inside_{name}" in values]
    if not levels:
        return ""
    inside = ", ".join(_percent(values[f"inside_{level}"]) for level in levels)
    text = f"intervals of level {', '.join(levels)} % cover {inside} % of the test labels"
    if math.isfinite(width := values.get("width_90", math.nan)):
        text += f"; those of 90 % are {four_digits(width)} {unit}".rstrip() + " wide on average"
    if "open_90" in values:
        share = _percent(values["open_90"])
        text += f", but for {share} %, which an assay's limit leaves without an end"
    if "bounds" in values:
        count = values["contradicted_90"]
        text += f"; {count:.0f} of {values['bounds']:.0f} bounds contradict theirs"
    return text


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.0f}"


def _mean(values: Iterable[float] | np.ndarray) -> float:
    defined = [value for value in values if not math.isnan(value)]
    return float(np.mean(defined)) if defined else math.nan
