"""Makes the picture at the top of the README.

    python docs/make_hero.py docs/experiments/compare/p1 docs/images/hero.png

On the left a prediction of the bundled model `esol`: the molecule with the contribution of each
atom, and the 90 % interval. On the right what protocol P1 measured of norms, from its records.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.image import imread
from rdkit import Chem
from rdkit.Chem.Draw import rdMolDraw2D

from graphormer_sepnorm import Predictor
from graphormer_sepnorm.compare.statistics import CONTRASTS, pooled
from graphormer_sepnorm.files import replacing
from graphormer_sepnorm.formatting import number

sys.path.append(str(Path(__file__).parent / "experiments"))
from make_tables import FIXED, errors_of_tables

SMILES, NAME = "CC(=O)Oc1ccccc1C(=O)O", "aspirin"
STRONG = 0.5  # contribution with the full color
NAMES = (
    "SepNorm instead of\nShareNorm (one LayerNorm)",
    "one BatchNorm\ninstead of SepNorm",
    "separate norms\ninstead of shared ones",
)
COLORS = LinearSegmentedColormap.from_list("contribution", ["#4f9fe0", "white", "#ff9933"])


def draw_molecule(axes: Axes, predictor: Predictor) -> None:
    """Draw the molecule; orange atoms raise the value, blue ones lower it."""
    [found] = predictor.explain([SMILES]).molecules
    shares = 0.5 + 0.5 * np.clip(found.contributions / STRONG, -1, 1)
    colors = {atom: COLORS(share)[:3] for atom, share in enumerate(shares)}
    drawing = rdMolDraw2D.MolDraw2DCairo(640, 470)
    options = drawing.drawOptions()
    options.useBWAtomPalette()
    options.highlightRadius = 0.4
    options.bondLineWidth = 3
    shown = {"highlightAtoms": [*colors], "highlightAtomColors": colors}
    drawing.DrawMolecule(Chem.MolFromSmiles(SMILES), highlightBonds=[], **shown)
    drawing.FinishDrawing()
    axes.imshow(imread(io.BytesIO(drawing.GetDrawingText())))
    axes.set_axis_off()
    axes.set_title(f"{NAME}: orange atoms raise the solubility,\nblue atoms lower it", fontsize=9)


def draw_interval(axes: Axes, predictor: Predictor) -> None:
    """Draw the predicted value on its 90 % interval."""
    result = predictor.predict([SMILES])
    low, value, high = (float(one[0, 0]) for one in (result.low, result.values, result.high))
    axes.hlines(0, low, high, lw=6, color="#0072B2", alpha=0.45)
    axes.plot([value], [0], "o", color="#0072B2", markersize=9)
    for place in (low, value, high):
        axes.annotate(number(place, 2), (place, 0.25), ha="center", va="bottom", fontsize=9)
    axes.set(xlim=(low - 0.4, high + 0.4), ylim=(-0.6, 1.2), yticks=[])
    axes.set_xlabel("predicted log solubility [log mol/L], 90 % interval", fontsize=9)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right", "left"]].set_visible(False)


def draw_norms(axes: Axes, records: Path) -> None:
    """Draw the change of the test error by each contrast, and of each table."""
    tables = errors_of_tables(records)
    for place, name in enumerate(FIXED):
        without, having, _ = CONTRASTS[name]
        found = pooled(tables, without, having)
        assert found is not None
        change, low, high = found.percent
        color = "#009E73" if high < 0 or low > 0 else "#555555"
        axes.hlines(place, low, high, lw=3, color=color)
        axes.plot([change], [place], "o", color=color, markersize=8)
        each = [pooled([one], without, having) for one in tables]
        ticks = [one.percent[0] for one in each if one is not None]
        axes.plot(ticks, [place + 0.25] * len(ticks), "|", color=color, alpha=0.7, markersize=8)
    axes.axvline(0, color="black", lw=1)
    axes.set(ylim=(2.6, -0.5), yticks=range(len(NAMES)), yticklabels=NAMES)
    axes.set_xlabel("change of the test error, %  (left: better)", fontsize=9)
    title = f"Graphormer with a [CLS] readout, {len(tables)} tables:\n"
    axes.set_title(f"{title}mean with 95 % interval; a tick for each table", fontsize=9)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def make_hero(records: Path, picture: Path) -> None:
    """Draw the picture, with the records of P1 in a folder."""
    predictor = Predictor.load("esol", "cpu")
    figure = Figure(figsize=(9.4, 3.6), layout="constrained", dpi=110)
    left, right = figure.subfigures(1, 2, width_ratios=(1, 1.35))
    top, bottom = left.subplots(2, 1, height_ratios=(3, 1))
    draw_molecule(top, predictor)
    draw_interval(bottom, predictor)
    draw_norms(right.subplots(), records)
    picture.parent.mkdir(parents=True, exist_ok=True)
    with replacing(picture) as partial:
        figure.savefig(partial, format="png", pil_kwargs={"optimize": True})


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} RECORDS PICTURE.png")
    make_hero(Path(sys.argv[1]), Path(sys.argv[2]))
