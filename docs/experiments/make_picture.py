"""Makes the picture of docs/explanation/norms.md from what `train.py compare` has written.

    python docs/experiments/make_picture.py docs/experiments/compare/zinc-subset FILE.png

On the left the features of [CLS] at the output under the baseline and under the arm after it, on
the right the learning curves of all arms.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from graphormer_sepnorm.files import replacing

NAMES = {"shared-ln": "ShareNorm", "bn+ln": "SepNorm (bn+ln)"}
# Okabe & Ito (2008): people with any colour vision tell them apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES = ("-", "--", "-.", ":") * 2
EDGE = 3.0  # of the values that are shown


def finished_runs(arm: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the runs of an arm that ended."""
    return [run for run in arm["runs"] if run["status"] == "finished"]


def known(point: dict[str, Any]) -> bool:
    """Whether an epoch was validated."""
    return isinstance(point["validation"], (int, float)) and np.isfinite(point["validation"])


def draw_features(axes: Axes, arm: dict[str, Any]) -> None:
    """Draw the histogram of each feature of [CLS] at the output, of the arm's first run."""
    found = next(
        entry["histogram"]
        for run in finished_runs(arm)
        for entry in run["geometry"]
        if entry["layer"] == "output" and entry["what"] == "graph token" and entry.get("histogram")
    )
    counts = np.array(found["counts"], dtype=float)
    shares = counts / counts.sum(1, keepdims=True)
    features = np.arange(len(shares) + 1) + 0.5
    mesh = axes.pcolormesh(
        found["edges"], features, shares, norm=PowerNorm(0.5, 0, 0.5), cmap="magma_r"
    )
    axes.set_facecolor(mesh.cmap(0.0))
    axes.set(
        xlim=(-EDGE, EDGE), xlabel="value", title=f"[CLS], {NAMES.get(arm['name'], arm['name'])}"
    )
    axes.invert_yaxis()


def draw_curves(axes: Axes, arms: list[dict[str, Any]]) -> None:
    """Draw the validation metric of each arm: the mean of its seeds, and from least to greatest."""
    for arm, colour, line in zip(arms, COLOURS, LINES, strict=False):
        runs = [
            {point["epoch"]: point["validation"] for point in run["curve"] if known(point)}
            for run in finished_runs(arm)
        ]
        epochs = sorted(set.intersection(*map(set, runs)))
        curves = np.array([[run[epoch] for epoch in epochs] for run in runs])
        label = NAMES.get(arm["name"], arm["name"])
        axes.plot(epochs, curves.mean(0), color=colour, linestyle=line, label=label)
        axes.fill_between(epochs, curves.min(0), curves.max(0), color=colour, alpha=0.18, lw=0)
    axes.legend(frameon=False, fontsize=9)
    axes.grid(alpha=0.3, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def make_picture(comparison: Path, picture: Path) -> None:
    """Draw a comparison.

    Args:
        comparison: Directory with the ``results.json`` of a comparison of at least two arms.
        picture: PNG file to be written.
    """
    results = json.loads((comparison / "results.json").read_text(encoding="utf-8"))
    arms = sorted(results["arms"], key=lambda arm: arm["name"] != results["baseline"])
    figure = Figure(figsize=(9.4, 3.1), layout="constrained", dpi=110)
    left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1, 1.3))
    draw_features(left, arms[0])
    draw_features(middle, arms[1])
    left.set_ylabel("feature")
    draw_curves(right, arms)
    metric = results["metric"].upper()
    right.set(xlabel="epoch", title=f"validation {metric}, {results['dataset']}")
    picture.parent.mkdir(parents=True, exist_ok=True)
    with replacing(picture) as partial:
        figure.savefig(partial, format="png", pil_kwargs={"optimize": True})


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} COMPARISON PICTURE.png")
    make_picture(Path(sys.argv[1]), Path(sys.argv[2]))
