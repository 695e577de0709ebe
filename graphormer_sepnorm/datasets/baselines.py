"""What simple models reach on the splits of a data set: the bar for Graphormer."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from graphormer_sepnorm.datasets.data_module import SPLITS, MoleculeDataModule
from graphormer_sepnorm.formatting import StatusLine

NAMES = {
    "mean": "mean of the training labels",
    "ridge": "ridge on Morgan fingerprints",
    "logistic": "logistic regression on Morgan fingerprints",
}


@dataclass(frozen=True)
class Baseline:
    """A simple model: the main metric, a mean over the targets for which it is defined.

    Attributes:
        name: In words, for a table.
        validation: Over the validation split; nan if it is defined for no target.
        test: Over the test split, in the same way.
        comparable: Whether it is a mean over the same targets as that of any other model.
    """

    name: str
    validation: float
    test: float
    comparable: bool

    def to_plain(self) -> dict[str, Any]:
        """Return it as a dict."""
        return asdict(self)


def baselines_of(data: MoleculeDataModule) -> tuple[list[Baseline], str]:
    """Return the baselines, and in words what was left out; shows on stderr how far it is.

    There are none for a data set without SMILES.

    Raises:
        DataError: A molecule that has a graph has no fingerprint.
    """
    from graphormer_sepnorm.chem.baselines import Baselines, fit_baselines

    splits = data.splits
    if splits.smiles is None:
        return [], ""
    targets = {split: data.store.targets[data.indices(split)] for split in SPLITS}
    line = StatusLine()

    def show(what: str, done: int, total: int) -> None:
        if line.is_due():
            line.show(f"baselines: {what}, {done:,} of {total:,}")

    try:
        fitted: Baselines = fit_baselines(splits.smiles, targets, splits.task.kind, show)
    finally:
        line.clear()
    has_metric = _has_metric(np.asarray(targets["test"]), splits.task.kind)
    found = []
    for name, scores in fitted.scores.items():
        known = ~np.isnan(scores.test)
        if known.any():
            validation, test = (
                float(values[known].mean()) for values in (scores.validation, scores.test)
            )
            comparable = bool((known == has_metric).all())
            found.append(Baseline(NAMES[name], validation, test, comparable))
    return found, _left_out(fitted, len(splits.task.targets))


def _has_metric(targets: np.ndarray, kind: str) -> np.ndarray:
    """Whether a test metric is defined, for each target."""
    if kind == "regression":
        return np.any(~np.isnan(targets), axis=0)
    return np.logical_and(np.any(targets > 0.5, axis=0), np.any(targets <= 0.5, axis=0))


def _left_out(fitted: Any, targets: int) -> str:
    parts = [
        f"{used:,} of {there:,} {split} molecules, drawn at random"
        for split, (used, there) in fitted.molecules.items()
        if used < there
    ]
    if fitted.targets < targets:
        parts.append(f"the first {fitted.targets:,} of {targets:,} targets")
    undefined = [name for name, scores in fitted.scores.items() if np.isnan(scores.test).all()]
    needed = "both classes" if "logistic" in undefined else "labels"
    texts = [f"No {NAMES[name]}: no target has {needed} in every split." for name in undefined]
    texts += [f"The baselines are of {', '.join(parts)}."] if parts else []
    if fitted.unconverged:
        texts.append(
            f"Logistic regression was stopped before it had converged for {fitted.unconverged:,} "
            f"of {targets:,} targets."
        )
    return " ".join(texts)
