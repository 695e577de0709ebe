"""What a report is made from: results.json as a dict.

The schema is that of `graphormer_sepnorm.compare.results`. A number that could not be had is None
there, and a run that is not finished has no result; everything here copes with both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

Results = dict[str, Any]


def arm_names(results: Results) -> list[str]:
    """Names of all arms, the baseline's first."""
    names = [arm["name"] for arm in results["arms"]]
    return sorted(names, key=lambda name: name != results["baseline"])


def arm_of(results: Results, name: str) -> dict[str, Any]:
    """The entry of an arm."""
    return next(arm for arm in results["arms"] if arm["name"] == name)


def runs_of(results: Results, name: str) -> list[dict[str, Any]]:
    """The runs of an arm that are finished."""
    return [run for run in arm_of(results, name)["runs"] if run["status"] == "finished"]


def values_of(results: Results, name: str, key: str) -> np.ndarray:
    """A number of all finished runs of an arm, where they have it: float64 ``[n]``."""
    values = [run.get(key) for run in runs_of(results, name)]
    return np.array([value for value in values if value is not None], dtype=np.float64)


def unfinished_runs(results: Results) -> Iterator[tuple[str, dict[str, Any]]]:
    """All runs that are not finished, each with the name of its arm."""
    for arm in results["arms"]:
        for run in arm["runs"]:
            if run["status"] != "finished":
                yield arm["name"], run


def made_comparisons(results: Results) -> list[dict[str, Any]]:
    """The comparisons for which there was at least one pair of runs."""
    return [
        one for one in results["comparisons"] if (one.get("test") or {}).get("mean") is not None
    ]


def baselines_of(results: Results) -> list[dict[str, Any]]:
    """The simple models beside the arms; none where they were not asked for."""
    return results.get("baselines") or []


def geometry_of(results: Results, name: str) -> list[list[dict[str, Any]]]:
    """The geometry of each finished run of an arm that has been analysed."""
    return [run["geometry"] for run in runs_of(results, name) if run.get("geometry")]


def layer_names(results: Results) -> list[str]:
    """Names of the layers in order, of the arm that has most."""
    found = (
        list(dict.fromkeys(entry["layer"] for entry in geometry))
        for arm in arm_names(results)
        for geometry in geometry_of(results, arm)
    )
    return max(found, key=len, default=[])


def at_layer(geometry: list[dict[str, Any]], layer: str, what: str) -> dict[str, Any]:
    """The entry of a layer, of [CLS] or of the atoms; empty if there is none."""
    entries = (one for one in geometry if one["layer"] == layer and one["what"] == what)
    return next(entries, {})
