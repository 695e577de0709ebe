"""What simple models reach on the splits of a data set: the bar for Graphormer."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from graphormer_sepnorm.datasets.data_module import SPLITS, MoleculeDataModule

NAMES = {
    "mean": "mean of the training labels",
    "ridge": "ridge on Morgan fingerprints",
    "logistic": "logistic regression on Morgan fingerprints",
}
_TERMINAL_SECONDS, _LOG_SECONDS = 0.5, 30.0
_PATIENCE_SECONDS = 2.0  # what takes less needs no line


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
    line = _Line()
    try:
        fitted: Baselines = fit_baselines(splits.smiles, targets, splits.task.kind, line.show)
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


class _Line:
    """One line that is rewritten on a terminal; in a log file a line now and then."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._next = time.monotonic() + (_PATIENCE_SECONDS if self._terminal else _LOG_SECONDS)
        self._shown = False

    def show(self, what: str, done: int, total: int) -> None:
        """Say how far it is, if that was not said a moment ago."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + (_TERMINAL_SECONDS if self._terminal else _LOG_SECONDS)
        text = f"baselines: {what}, {done:,} of {total:,}"
        if self._terminal:
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
            self._shown = True
        else:
            print(text, file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
