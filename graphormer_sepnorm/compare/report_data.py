"""What a report is made from: results.json as a dict, and predictions.csv as columns.

The schema is that of `graphormer_sepnorm.compare.results`. A number that could not be had is None
there, and a run that is not finished has no result; everything here copes with both.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Results = dict[str, Any]


@dataclass(frozen=True)
class Predictions:
    """The test molecules with a known target, and what each arm says about them.

    Attributes:
        target_name: The target that is shown, empty if there is only one.
        target: float64 ``[n]``.
        atoms: Number of atoms, float64 ``[n]``.
        numbers: What the molecules are called.
        smiles: Their SMILES; empty where there is none.
        arms: Seed-averaged prediction of each arm, ``[n]``; only arms that have one.
    """

    target_name: str
    target: np.ndarray
    atoms: np.ndarray
    numbers: tuple[str, ...]
    smiles: tuple[str, ...]
    arms: dict[str, np.ndarray]

    def errors(self, arm: str) -> np.ndarray:
        """Absolute errors of an arm ``[n]``; for a probability its distance from 0 or 1."""
        return np.abs(self.arms[arm] - self.target)


def read_predictions(path: Path, results: Results) -> Predictions | None:
    """Read predictions.csv; None if it is missing or holds nothing to show.

    With several targets the first one is read.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except OSError:
        return None
    if not rows:
        return None
    name = str(results["task"]["targets"][0])
    several = f"target_{name}" in rows[0]
    suffix = f"_{name}" if several else ""
    target = _column(rows, f"target{suffix}")
    known = np.isfinite(target)
    arms = {arm: _column(rows, f"{arm}{suffix}")[known] for arm in arm_names(results)}
    arms = {arm: column for arm, column in arms.items() if np.isfinite(column).all()}
    if not known.any() or not arms:
        return None
    kept = [row for row, keep in zip(rows, known, strict=True) if keep]
    return Predictions(
        target_name=name if several else "",
        target=target[known],
        atoms=_column(kept, "atoms"),
        numbers=tuple(row["number"] for row in kept),
        smiles=tuple(row["smiles"] for row in kept),
        arms=arms,
    )


def _column(rows: list[dict[str, str]], name: str) -> np.ndarray:
    return np.array([_float(row.get(name)) for row in rows])


def _float(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return math.nan


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
