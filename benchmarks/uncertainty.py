"""How good the uncertainty of predictions is, over the test folds of cross-validations.

python -m benchmarks.uncertainty DIR ...

DIR is what ``train.py crossvalidate -o`` wrote for a table. Prints tables in Markdown: how many
labels lie in their intervals (regression), how good probabilities and sets of classes are, and how
large errors are outside the domain.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import pandas
from scipy.stats import spearmanr

from benchmarks.report import table
from graphormer_sepnorm.files import require_json, typed
from graphormer_sepnorm.metrics import METRICS
from graphormer_sepnorm.runs.directory import RunDirectory
from graphormer_sepnorm.uncertainty.calibration import expected_error
from graphormer_sepnorm.uncertainty.conformal import LEVELS
from graphormer_sepnorm.uncertainty.domain import Domain


class Fold(NamedTuple):
    """The test molecules of a fold; n molecules, T targets.

    Attributes:
        errors: ``[n]``, mean absolute error over the targets that have a label.
        similarity: ``[n]``, to the most similar training molecule.
        distance: ``[n]``, of [CLS] from training molecules; nan for a model that does not read it.
        outside: bool ``[n]``, whether it is outside the domain.
        levels: Of each of `LEVELS` the share of labels inside and the mean width.
        score: Mean interval score at 90 % (Gneiting and Raftery 2007, equation 43): the width, and
            20 times how far a label is outside.
        rank: Spearman's correlation of expected and actual errors.
        labels: ``[n, T]`` of classes, nan where it is missing; empty for real values.
        probabilities: ``[n, T]``, as `labels`.
        held: ``[T, 4, 2]``, of each of `LEVELS` the shares of class 0 and class 1 whose sets cover
            their class; nan where there are none.
        classes: ``[T, 4]``, how many classes a set has on average.
    """

    errors: np.ndarray
    similarity: np.ndarray
    distance: np.ndarray
    outside: np.ndarray
    levels: np.ndarray = np.empty(0)
    score: float = np.nan
    rank: float = np.nan
    labels: np.ndarray = np.empty(0)
    probabilities: np.ndarray = np.empty(0)
    held: np.ndarray = np.empty(0)
    classes: np.ndarray = np.empty(0)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what a run left."""
        run = RunDirectory(path)
        stored = require_json(run.uncertainty_file)
        column = pandas.read_csv(run.test_predictions_file).select_dtypes("number").astype(float)
        targets = [name[6:] for name in column if name.startswith("label_")]
        labels, predicted = (
            column[[f"{kind}_{one}" for one in targets]].to_numpy() for kind in ("label", "pred")
        )
        errors = np.abs(predicted - labels)
        known = ~np.isnan(errors).all(axis=1)
        similarity = column["similarity"].to_numpy()[known]
        distance = column["distance"].to_numpy()[known] if "distance" in column else None
        outside = typed(Domain, stored["domain"]).outside(similarity, distance)
        if distance is None:
            distance = np.full(len(similarity), np.nan)
        common = np.nanmean(errors[known], axis=1), similarity, distance, outside
        if f"low_{targets[0]}" not in column:
            # A target may have no label among the molecules.
            nothing = {"held": [[None, None]] * len(LEVELS), "classes": [np.nan] * len(LEVELS)}
            measured = [stored["test"].get(one, nothing) for one in targets]
            held = np.array([one["held"] for one in measured], np.float64)  # null becomes nan
            classes = np.array([one["classes"] for one in measured])
            given = {"labels": labels, "probabilities": predicted, "held": held}
            return cls(*common, **given, classes=classes)
        measured = stored["test"].values()
        levels = np.mean([[one["inside"], one["widths"]] for one in measured], axis=0)
        scores = []
        for one in targets:
            low, high, label = (column[f"{kind}_{one}"] for kind in ("low", "high", "label"))
            beyond = np.maximum(0, np.maximum(low - label, label - high))
            scores.append(np.nanmean(high - low + 20 * beyond))
        rank = np.mean([one["rank_correlation"] for one in measured])
        return cls(*common, levels, float(np.mean(scores)), float(rank))


def joined(folds: Sequence[Fold], name: str) -> np.ndarray:
    """Return a column of all folds, behind each other."""
    return np.concatenate([getattr(fold, name) for fold in folds])


def interval_row(name: str, folds: Sequence[Fold]) -> list[str]:
    """Shares inside and widths, each molecule counting the same."""
    sizes = [len(fold.errors) for fold in folds]
    inside, widths = np.average([fold.levels for fold in folds], axis=0, weights=sizes)
    score = np.average([fold.score for fold in folds], weights=sizes)
    rank = np.mean([fold.rank for fold in folds])
    shares = [f"{100 * share:.1f}" for share in inside]
    width = widths[LEVELS.index(0.9)]
    return [name, f"{sum(sizes):,}", *shares, f"{width:.2f}", f"{score:.2f}", f"{rank:.2f}"]


def class_row(name: str, folds: Sequence[Fold]) -> list[str]:
    """Of all folds together; means over the targets, a share of each class for itself."""
    labels, said = joined(folds, "labels"), joined(folds, "probabilities")
    pairs = [(p[~np.isnan(y)], y[~np.isnan(y)]) for p, y in zip(said.T, labels.T, strict=True)]
    error = np.mean([expected_error(p, y) for p, y in pairs])
    loss = np.mean([METRICS["log_loss"].of(y, p) for p, y in pairs])
    # [folds, T, 1, 2]: how many molecules each share is of.
    sizes = np.array([[[[(y == c).sum() for c in (0, 1)]] for y in f.labels.T] for f in folds])
    held = np.nansum([f.held * size for f, size in zip(folds, sizes, strict=True)], axis=0)
    shares = 100 * (held / sizes.sum(axis=0)).mean(axis=0)
    means = [np.nanmean(fold.classes, axis=0)[LEVELS.index(0.9)] for fold in folds]
    classes = np.average(means, weights=[len(fold.labels) for fold in folds])
    known = sum(len(y) for _, y in pairs)
    cells = [f"{zeros:.1f}, {ones:.1f}" for zeros, ones in shares]
    return [name, f"{known:,}", f"{error:.3f}", f"{loss:.3f}", *cells, f"{classes:.2f}"]


def domain_row(name: str, folds: Sequence[Fold]) -> list[str]:
    """Errors inside and outside, and how well similarity and distance rank them in a fold."""
    errors, outside = joined(folds, "errors"), joined(folds, "outside")
    means = [errors[part].mean() for part in (~outside, outside)]
    ranks = [
        np.mean(np.array([spearmanr(sign * getattr(fold, of), fold.errors)[0] for fold in folds]))
        for of, sign in (("similarity", -1), ("distance", 1))
    ]
    count = f"{outside.sum():,} of {len(outside):,}"
    return [name, count, *(f"{mean:.3f}" for mean in means), *(f"{rank:.2f}" for rank in ranks)]


def main(argv: Sequence[str] | None = None) -> None:
    """Read the folds and print the tables."""
    parser = argparse.ArgumentParser(prog="benchmarks.uncertainty", description=__doc__)
    parser.add_argument("directories", type=Path, nargs="+", metavar="DIR")
    named = {}
    for directory in parser.parse_args(argv).directories:
        folds = sorted(path.parent for path in directory.glob("repeat*/fold*/uncertainty.json"))
        if not folds:
            advice = "give what train.py crossvalidate wrote for a table"
            sys.exit(f"{directory} has no fold with uncertainty.json: {advice}")
        # random/bace and scaffold/bace are two.
        name = str(directory) if directory.name in named else directory.name
        named[name] = [Fold.read(fold) for fold in folds]
    percent = [f"{100 * level:.0f} %" for level in LEVELS]
    intervals = ["labels", *percent, "width at 90 %", "score at 90 %", "rank correlation"]
    classes = ["labels", "calibration error", "log loss"]
    classes += [*(f"sets {level}" for level in percent), "classes in a set at 90 %"]
    domain = ["outside", "error inside", "outside", "similarity ranks", "[CLS] ranks"]
    for header, row, kind in (
        (intervals, interval_row, "levels"),
        (classes, class_row, "labels"),
        (domain, domain_row, "errors"),
    ):
        rows = [row(*one) for one in named.items() if getattr(one[1][0], kind).size]
        if rows:
            print(table(["data", *header], rows), end="\n\n")


if __name__ == "__main__":
    main()
