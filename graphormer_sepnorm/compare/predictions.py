"""The file predictions.csv of a comparison: test molecules and what each arm says of them."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from graphormer_sepnorm.files import replacing


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


def _columns(targets: Sequence[str], arm: str | None = None) -> list[str]:
    """The columns of the targets, or of what an arm says of them; an only target is unnamed."""
    first = "target" if arm is None else f"pred_{arm}"
    return [f"{first}:{name}" for name in targets] if len(targets) > 1 else [first]


def write_predictions(
    path: Path,
    smiles: Sequence[str],
    atoms: Sequence[int],
    names: Sequence[str],
    targets: np.ndarray,
    arms: Mapping[str, np.ndarray],
) -> None:
    """Write one row per test molecule.

    Args:
        path: Of the file.
        smiles: Of G molecules; empty where there is none.
        atoms: Number of atoms of each.
        names: Of the T targets.
        targets: ``[G, T]``, nan where a label is missing.
        arms: Seed-averaged predictions of each arm, ``[G, T]``.
    """
    columns = [name for arm in (None, *arms) for name in _columns(names, arm)]
    table = np.column_stack([targets, *arms.values()])
    with replacing(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["number", "smiles", "atoms", *columns])
        for number, values in enumerate(table):
            cells = ["" if math.isnan(value) else f"{value:.9g}" for value in values]
            writer.writerow([number, smiles[number], atoms[number], *cells])


def read_predictions(path: Path, targets: Sequence[str], arms: Sequence[str]) -> Predictions | None:
    """Read the first target of what `write_predictions` wrote, with the arms in this order.

    None if the file is missing or holds nothing to show.
    """
    target = _columns(targets)[0]
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row[target]]
    except (OSError, KeyError):
        return None

    def column(name: str) -> np.ndarray:
        return np.array([float(row.get(name) or "nan") for row in rows])

    of_arms = {arm: column(_columns(targets, arm)[0]) for arm in arms}
    shown = {arm: values for arm, values in of_arms.items() if np.isfinite(values).all()}
    if not rows or not shown:
        return None
    return Predictions(
        target_name=targets[0] if len(targets) > 1 else "",
        target=column(target),
        atoms=column("atoms"),
        numbers=tuple(row["number"] for row in rows),
        smiles=tuple(row["smiles"] for row in rows),
        arms=shown,
    )
