"""How far predictions say how sure they are, over the test folds of cross-validations.

python -m benchmarks.uncertainty DIR ... [-o FIGURE.png]

DIR is what ``train.py crossvalidate -o`` wrote for a table. Prints tables in Markdown: how many
labels lie in their intervals (regression), how good probabilities and sets of classes are, and how
large errors are outside the domain. The figure shows errors against similarity and distance of
[CLS], in fifths of the molecules.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from benchmarks.markdown import table
from graphormer_sepnorm.files import replacing, require_json, typed
from graphormer_sepnorm.metrics import METRICS
from graphormer_sepnorm.runs.directory import RunDirectory
from graphormer_sepnorm.uncertainty.calibration import expected_error
from graphormer_sepnorm.uncertainty.conformal import LEVELS
from graphormer_sepnorm.uncertainty.domain import Domain

# Okabe and Ito's, which the colour-blind can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
PARTS = 5


@dataclass(frozen=True)
class Fold:
    """The test molecules of a fold; n molecules, T targets.

    Attributes:
        errors: ``[n]``, mean absolute error over the targets that have a label.
        similarity: ``[n]``, to the most similar molecule of training.
        distance: ``[n]``, of [CLS] from those of training.
        outside: bool ``[n]``, whether it is outside the domain.
        levels: Of each of `LEVELS` the share of labels inside and the mean width; empty where
            there are classes.
        score: Mean interval score at 90 % (Gneiting and Raftery 2007, equation 43): the width, and
            20 times how far a label is outside. nan for classes.
        rank: Spearman's correlation of expected and actual errors; nan for classes.
        labels: ``[n, T]`` of classes, nan where it is missing; empty for real values.
        probabilities: ``[n, T]``, as `labels`.
        held: ``[T, 4, 2]``, of each of `LEVELS` the shares of class 0 and class 1 whose sets hold
            their class; nan where there are none; as `labels`.
        classes: ``[T, 4]``, how many classes a set holds on average.
    """

    errors: np.ndarray
    similarity: np.ndarray
    distance: np.ndarray
    outside: np.ndarray
    levels: np.ndarray
    score: float = np.nan
    rank: float = np.nan
    labels: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    probabilities: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    held: np.ndarray = field(default_factory=lambda: np.empty((0, len(LEVELS), 2)))
    classes: np.ndarray = field(default_factory=lambda: np.empty((0, len(LEVELS))))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what a run left."""
        run = RunDirectory(path)
        confidence = require_json(run.confidence_file)
        with run.test_predictions_file.open(newline="") as file:
            rows = list(csv.DictReader(file))
        column = {
            name: np.array([float(row[name] or "nan") for row in rows])
            for name in rows[0]
            if name.startswith(("label_", "pred_", "low_", "high_", "similarity", "distance"))
        }
        targets = [name[6:] for name in column if name.startswith("label_")]
        errors = np.abs([column[f"pred_{one}"] - column[f"label_{one}"] for one in targets])
        known = ~np.isnan(errors).all(axis=0)
        similarity = column["similarity"][known]
        distance = column["distance"][known] if "distance" in column else None
        outside = typed(Domain, confidence["domain"]).outside(similarity, distance)
        if distance is None:  # a model that does not read [CLS]
            distance = np.full(len(similarity), np.nan)
        mean = np.nanmean(errors[:, known], axis=0)
        if f"low_{targets[0]}" not in column:
            labels, said = (
                np.stack([column[f"{kind}_{one}"] for one in targets], axis=1)
                for kind in ("label", "pred")
            )
            # A target may have no label among the molecules.
            nothing = {"held": [[None, None]] * len(LEVELS), "classes": [np.nan] * len(LEVELS)}
            found = [confidence["test"].get(one, nothing) for one in targets]
            held = [one["held"] for one in found]
            return cls(
                mean,
                similarity,
                distance,
                outside,
                np.empty(0),
                labels=labels,
                probabilities=said,
                held=np.array(held, np.float64),  # null becomes nan
                classes=np.array([one["classes"] for one in found]),
            )
        found = confidence["test"].values()
        levels = np.mean([[one["inside"], one["widths"]] for one in found], axis=0)
        scores = []
        for one in targets:
            low, high, label = (column[f"{kind}_{one}"] for kind in ("low", "high", "label"))
            beyond = np.maximum(0, np.maximum(low - label, label - high))
            scores.append(np.nanmean(high - low + 20 * beyond))
        rank = np.mean([one["rank_correlation"] for one in found])
        return cls(mean, similarity, distance, outside, levels, float(np.mean(scores)), float(rank))


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
    classes = np.average(
        [np.nanmean(fold.classes, axis=0) for fold in folds],
        axis=0,
        weights=[len(f.labels) for f in folds],
    )
    known = sum(len(y) for _, y in pairs)
    return [
        name,
        f"{known:,}",
        f"{error:.3f}",
        f"{loss:.3f}",
        *(f"{zeros:.1f}, {ones:.1f}" for zeros, ones in shares),
        f"{classes[LEVELS.index(0.9)]:.2f}",
    ]


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


def draw(path: Path, named: dict[str, Sequence[Fold]]) -> None:
    """Draw errors, as multiples of their mean, against what is known of a molecule."""
    figure = Figure(figsize=(8.4, 3.6), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    labels = (
        ("similarity", "Tanimoto similarity to the most similar training molecule"),
        ("distance", "distance of [CLS] from training molecules (1: usual)"),
    )
    for axis, (of, label) in zip(axes, labels, strict=True):
        axis.axhline(1, color="#999999", linewidth=1)
        for (name, folds), color in zip(named.items(), COLOURS, strict=False):
            errors, values = joined(folds, "errors"), joined(folds, of)
            if np.isnan(values).any():
                continue
            parts = np.array_split(np.argsort(values), PARTS)
            places = [values[part].mean() for part in parts]
            heights = np.array([errors[part].mean() for part in parts])
            spread = [errors[part].std() / np.sqrt(len(part)) for part in parts]
            axis.errorbar(
                places,
                heights / errors.mean(),
                yerr=np.array(spread) / errors.mean(),
                marker="o",
                capsize=3,
                color=color,
                label=name,
            )
        axis.set_xlabel(label, fontsize=9)
    axes[0].set(ylabel="mean error, by that of all", ylim=(0, None))
    axes[0].invert_xaxis()
    axes[0].legend(frameon=False, fontsize=8)
    with replacing(path) as partial:
        figure.savefig(partial, dpi=130, format="png", metadata={"Software": None})


def main(argv: Sequence[str] | None = None) -> None:
    """Read the folds, print the tables, draw the figure."""
    parser = argparse.ArgumentParser(prog="benchmarks.uncertainty", description=__doc__)
    parser.add_argument("directories", type=Path, nargs="+", metavar="DIR")
    parser.add_argument("-o", "--output", type=Path, help="a PNG file for the figure")
    options = parser.parse_args(argv)
    named = {}
    for directory in options.directories:
        folds = sorted(path.parent for path in directory.glob("repeat*/fold*/confidence.json"))
        if not folds:
            sys.exit(
                f"{directory} has no fold with confidence.json: give what train.py crossvalidate "
                "wrote for a table"
            )
        try:
            # random/bace and scaffold/bace are two.
            name = str(directory) if directory.name in named else directory.name
            named[name] = [Fold.read(fold) for fold in folds]
        except KeyError as error:
            sys.exit(f"{directory} lacks {error} in its confidence.json: train it again")
    intervals = {name: folds for name, folds in named.items() if len(folds[0].levels)}
    if intervals:
        levels = [f"{100 * level:.0f} %" for level in LEVELS]
        header = ["data", "labels", *levels, "width at 90 %", "score at 90 %", "rank correlation"]
        print(table(header, [interval_row(*one) for one in intervals.items()]))
        print()
    classes = {name: folds for name, folds in named.items() if folds[0].labels.size}
    if classes:
        header = ["data", "labels", "calibration error", "log loss"]
        header += [f"sets {100 * level:.0f} %" for level in LEVELS] + ["classes in a set at 90 %"]
        print(table(header, [class_row(*one) for one in classes.items()]))
        print()
    header = ["data", "outside", "error inside", "outside", "similarity ranks", "[CLS] ranks"]
    print(table(header, [domain_row(*one) for one in named.items()]))
    if options.output:
        draw(options.output, named)


if __name__ == "__main__":
    main()
