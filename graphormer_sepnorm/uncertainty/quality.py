"""How good it is what a model says of its own errors, judged on molecules with labels.

n molecules.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from graphormer_sepnorm.metrics import METRICS
from graphormer_sepnorm.uncertainty.calibration import (
    Calibration,
    error_by_chance,
    expected_error,
)
from graphormer_sepnorm.uncertainty.conformal import LEVELS

# The level of which most is said.
_SAID = 0.9
_OPEN, _CONTRADICTED = (f"{name}_{100 * _SAID:g}" for name in ("open", "contradicted"))


@dataclass(frozen=True)
class OfIntervals:
    """Of the intervals of one target.

    Attributes:
        labels: How many there were.
        levels: Of intervals.
        inside: The share of the labels inside the intervals of each level; nan: there were none.
        widths: Mean widths of those that have two ends, in the unit of the target; nan: none has.
        rank_correlation: Spearman's, of expected and actual absolute errors; nan: undefined.
        open: The share of the intervals of each level that have no end on one side.
        bounds: How many labels were bounds, beside the others.
        contradicted: How many of these say that no value of the interval can be, of each level.
    """

    labels: int
    levels: tuple[float, ...]
    inside: tuple[float, ...]
    widths: tuple[float, ...]
    rank_correlation: float
    open: tuple[float, ...] = ()
    bounds: int = 0
    contradicted: tuple[int, ...] = ()


@dataclass(frozen=True)
class OfProbabilities:
    """Of the probabilities of one target.

    Attributes:
        labels: How many there were.
        map: How they were calibrated.
        error_before: Expected calibration error of what network and trees say, without what chance
            adds to it.
        error: The same of the calibrated probabilities.
        levels: Of sets of classes.
        held: Of each level, of the molecules of class 0 and of those of class 1 the share whose set
            holds their class; nan: there were none.
        classes: Of each level how many classes a set holds, on average.
        by_chance: What calibrated probabilities that are exactly right would show as an error.
    """

    labels: int
    map: str
    error_before: float
    error: float
    levels: tuple[float, ...]
    held: tuple[tuple[float, float], ...]
    classes: tuple[float, ...]
    by_chance: float


def evaluate_intervals(
    labels: np.ndarray,
    values: np.ndarray,
    expected: np.ndarray,
    ends: Mapping[float, tuple[np.ndarray, np.ndarray]],
    bounds: np.ndarray,
) -> OfIntervals:
    """Judge intervals.

    Args:
        labels: ``[n]``; nan = missing, one or more are not.
        values: Predictions ``[n]``.
        expected: What absolute errors were expected ``[n]``.
        ends: By level, both ends, ``[n]`` each; nan: there is no interval.
        bounds: Of missing labels what they are at least, and at most, ``[n, 2]``; nan where nothing
            is known.
    """
    known = ~np.isnan(labels)
    errors, least, most = np.abs(values - labels)[known], *bounds.T
    inside, widths, opened, contradicted = [], [], [], []
    for low, high in ends.values():
        there, width = not (np.isnan(low) | np.isnan(high)).any(), high - low
        right = (low <= labels) & (labels <= high)
        inside.append(float(right[known].mean()) if there else math.nan)
        closed = np.isfinite(width) & there
        widths.append(float(width[closed].mean()) if closed.any() else math.nan)
        opened.append(float(np.isinf(width).mean()) if there else math.nan)
        contradicted.append(int(np.sum((high < least) | (low > most))))
    return OfIntervals(
        len(errors),
        tuple(ends),
        tuple(inside),
        tuple(widths),
        METRICS["spearman"].of(errors, expected[known]),
        tuple(opened),
        int(np.sum(~np.isnan(bounds).all(axis=1))),
        tuple(contradicted),
    )


def evaluate_probabilities(
    labels: np.ndarray,
    before: np.ndarray,
    probabilities: np.ndarray,
    calibration: Calibration,
    calibrated_by: str,
) -> OfProbabilities:
    """Judge probabilities, and the sets of classes that come of them.

    Args:
        labels: 0 and 1, ``[n]``, none missing.
        before: What network and trees say ``[n]``.
        probabilities: Calibrated ``[n]``.
        calibration: Gives the sets.
        calibrated_by: See `Uncertainty.calibrated_by`.
    """
    sets = [calibration.sets(probabilities, level) for level in LEVELS]
    return OfProbabilities(
        len(labels),
        calibrated_by,
        expected_error(before, labels),
        expected_error(probabilities, labels),
        LEVELS,
        tuple((_mean(one[labels == 0, 0]), _mean(one[labels == 1, 1])) for one in sets),
        tuple(float(one.sum(axis=1).mean()) for one in sets),
        error_by_chance(probabilities),
    )


def summarised(found: Iterable[OfIntervals | OfProbabilities]) -> dict[str, float]:
    """Return means over the targets, flat, as the summary of a run keeps them."""
    found = [*found]
    intervals = [one for one in found if isinstance(one, OfIntervals)]
    classes = [one for one in found if isinstance(one, OfProbabilities)]
    values: dict[str, float] = {}
    if intervals:
        for place, level in enumerate(LEVELS):
            values[f"inside_{100 * level:g}"] = _mean(one.inside[place] for one in intervals)
        if len(intervals) == 1:  # widths of several have no mean
            widths = zip(LEVELS, intervals[0].widths, strict=True)
            values |= {f"width_{100 * level:g}": width for level, width in widths}
        values["spearman_of_errors"] = _mean(one.rank_correlation for one in intervals)
        place = LEVELS.index(_SAID)
        if bounds := sum(one.bounds for one in intervals):
            values["bounds"] = bounds
            values[_CONTRADICTED] = sum(one.contradicted[place] for one in intervals)
        if any(one.open and one.open[place] > 0 for one in intervals):
            values[_OPEN] = _mean(one.open[place] for one in intervals)
    if classes:
        values["calibration_error"] = _mean(one.error for one in classes)
        values["calibration_error_before"] = _mean(one.error_before for one in classes)
        values["calibration_error_by_chance"] = _mean(one.by_chance for one in classes)
        for place, level in enumerate(LEVELS):
            name = f"sets_{100 * level:g}"
            for label in (0, 1):
                values[f"{name}_hold_{label}"] = _mean(one.held[place][label] for one in classes)
            values[f"{name}_classes"] = _mean(one.classes[place] for one in classes)
    return values


def in_words(values: Mapping[str, float], unit: str = "") -> str:
    """Return a sentence on what `summarised` gave; empty where that is nothing."""
    if "calibration_error" in values:
        error, before = values["calibration_error"], values["calibration_error_before"]
        said = f"expected calibration error of the test probabilities {error:.3f}"
        said += f", before calibration {before:.3f}"
        if "calibration_error_by_chance" in values:
            said += f" (beyond the {values['calibration_error_by_chance']:.3f} that chance makes)"
        zeros, ones = (_percent(values.get(f"sets_90_hold_{label}", math.nan)) for label in (0, 1))
        return f"{said}; sets of level 90 % hold {zeros} % of class 0, {ones} % of class 1"
    levels = [f"{100 * level:g}" for level in LEVELS if f"inside_{100 * level:g}" in values]
    if not levels:
        return ""
    inside = ", ".join(_percent(values[f"inside_{level}"]) for level in levels)
    said = f"intervals of level {', '.join(levels)} % hold {inside} % of the test labels"
    if math.isfinite(width := values.get(f"width_{100 * _SAID:g}", math.nan)):
        said += f"; those of 90 % are {width:.3g} {unit}".rstrip() + " wide on average"
    if _OPEN in values:
        said += (
            f", but for {_percent(values[_OPEN])} %, which an assay's limit leaves without an end"
        )
    if "bounds" in values:
        said += f"; {values[_CONTRADICTED]:.0f} of {values['bounds']:.0f} bounds contradict theirs"
    return said


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.0f}"


def _mean(values: Iterable[float] | np.ndarray) -> float:
    defined = [value for value in values if not math.isnan(value)]
    return float(np.mean(defined)) if defined else math.nan
