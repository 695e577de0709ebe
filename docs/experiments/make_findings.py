"""Makes the picture and the table of findings.md from the records of results.md.

    python docs/experiments/make_findings.py docs/experiments/results docs/images/findings.png

prints the table. Differences are between tests of runs with the same seed, with 95 % intervals.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from graphormer_sepnorm.compare.statistics import (
    PairedDifference,
    norm_effects,
    paired_difference,
)
from graphormer_sepnorm.files import replacing
from graphormer_sepnorm.metrics import METRICS
from graphormer_sepnorm.model.config import NORMS

BASELINE = "shared-ln"
NAMES = {"shared-ln": "`sharenorm`", "bn+ln": "`sepnorm`"}
# Those of most interest first, as they stand in the picture from above.
ARMS = ("bn+ln", "shared-bn", "bn+bn", "ln+bn", "ln+ln")
# Okabe & Ito (2008): people with any color vision tell them apart.
COLORS = {"bn+ln": "#D55E00", "shared-bn": "#0072B2"}
OTHERS = "#555555"
_PAPER_TABLE = (
    " · model.norm={norm}, data.batch_size=128, trainer.max_steps=-1, model.warmup_steps=0.1, "
    "model.learning_rate=1e-3, trainer.max_epochs="
)
# A test of a norm, and of the norm that it is taken for.
_PAIRS = (("bn+ln", "shared-ln"), ("shared-bn", "shared-ln"), ("shared-bn", "bn+ln"))
_FACTORS = {
    "separation, all six arms": "separation, all six arms",
    "BatchNorm on the atoms": "BatchNorm on the atoms, norms separate",
}

Tests = Mapping[str, Mapping[int, float]]  # by norm and seed
Experiment = dict[str, Any]  # a record


@dataclass(frozen=True)
class Setting:
    """Experiments that differ in the norm.

    Attributes:
        title: In two lines, of the picture.
        column: Of the table; empty: it is in the picture only.
        experiment: Their name in results.md, with ``{norm}``.
    """

    title: str
    column: str
    experiment: str


SETTINGS = (
    Setting(
        "published size\nZINC-subset",
        "published size, ZINC-subset",
        "zinc_subset" + _PAPER_TABLE + "60",
    ),
    Setting("published size\nZINC", "", "zinc" + _PAPER_TABLE + "3"),
    Setting(
        "published size\nogbg-molhiv", "published size, ogbg-molhiv", "molhiv" + _PAPER_TABLE + "8"
    ),
    Setting(
        "6 layers of 64\nZINC-subset",
        "",
        "zinc_subset · model.norm={norm}, model.layers=6, model.width=64, model.ffn_width=64, "
        "data.batch_size=64, model.learning_rate=1e-3, model.schedule=cosine, "
        "model.warmup_steps=0.05, model.final_learning_rate=1e-6, trainer.max_epochs=18, "
        "trainer.max_steps=-1",
    ),
    Setting(
        "table_regression\nESOL",
        "",
        "table_regression · model.norm={norm}, data.units=[log mol/L], trainer.max_epochs=75",
    ),
    Setting(
        "recipe, from [CLS]\nand atoms, ZINC-subset",
        "recipe, read from [CLS] and atoms",
        "zinc_subset_best · {norm} · trainer.max_epochs=25",
    ),
    Setting(
        "recipe, from [CLS]\nalone, ZINC-subset",
        "recipe, [CLS] alone",
        "zinc_subset_best · model.norm={norm}, model.readout=graph_token, trainer.max_epochs=25",
    ),
    Setting(
        "newest recipe\nZINC-subset",
        "newest recipe",
        "zinc_subset_best · model.norm={norm}, data.batch_size=128, trainer.max_epochs=100",
    ),
)


def experiments_of(setting: Setting, records: Sequence[Experiment]) -> dict[str, Experiment]:
    """Return the experiments of a setting by norm; of several with one name that of most seeds."""
    found = {}
    for norm in NORMS:
        name = setting.experiment.format(norm=norm)
        named = [one for one in records if one["name"] == name]
        if named:
            found[norm] = max(named, key=lambda one: len(one["runs"]))
    if BASELINE not in found:
        raise SystemExit(f"no record is named {setting.experiment.format(norm=BASELINE)!r}")
    return found


def tests_of(experiments: Mapping[str, Experiment]) -> Tests:
    """Return the test metric of each finished run; of ROC-AUC in percent."""
    return {
        norm: {
            run["seed"]: run["test"] * (100 if METRICS[one["metric"]].in_percent else 1)
            for run in one["runs"]
        }
        for norm, one in experiments.items()
    }


def differences(tests: Tests, norm: str, baseline: str) -> tuple[list[float], PairedDifference]:
    """Return the difference of each seed that both norms have, and what they come to."""
    seeds = sorted(tests[norm].keys() & tests[baseline].keys())
    sides = [[tests[one][seed] for seed in seeds] for one in (baseline, norm)]
    single = [after - before for before, after in zip(*sides, strict=True)]
    return single, paired_difference(*sides)


def table(settings: Mapping[Setting, Mapping[str, Experiment]]) -> str:
    """Return the table of findings.md: an effect a row, a setting a column."""
    columns, heads = [], []
    for setting, experiments in settings.items():
        if not setting.column:
            continue
        tests = tests_of(experiments)
        metric = METRICS[experiments[BASELINE]["metric"]]
        effects = norm_effects(tests)
        cells = [_cell(differences(tests, *pair)[1], metric.in_percent) for pair in _PAIRS]
        cells += [_cell(effects.get(name), metric.in_percent) for name in _FACTORS]
        own = list(tests[BASELINE].values())
        mean = sum(own) / len(own)
        columns.append([*cells, f"{mean:.1f} %" if metric.in_percent else f"{mean:.3f}"])
        heads.append(f"{setting.column} ({len(own)} seeds)")
    firsts = [f"{_name(norm)} for {_name(baseline)}" for norm, baseline in _PAIRS]
    firsts += [*_FACTORS.values(), f"error, or ROC-AUC, of {_name(BASELINE)}"]
    rows = [["", *heads], ["---", *["---:"] * len(heads)]]
    rows += [[first, *cells] for first, *cells in zip(firsts, *columns, strict=True)]
    return "\n".join(f"| {' | '.join(row)} |".replace("|  |", "| |") for row in rows)


def _name(norm: str) -> str:
    return NAMES.get(norm, f"`{norm}`")


def _cell(difference: PairedDifference | None, in_percent: bool) -> str:
    if difference is None:
        return ""
    digits = 1 if in_percent else 3
    mean, low, high = (
        f"{value:+.{digits}f}".replace("-", "\N{MINUS SIGN}")
        for value in (difference.mean, difference.low, difference.high)
    )
    return f"{mean} [{low}, {high}]"


def draw_setting(axes: Axes, setting: Setting, experiments: Mapping[str, Experiment]) -> None:
    """Draw the difference of each norm from ShareNorm: seeds, their mean and its interval."""
    tests = tests_of(experiments)
    metric = METRICS[experiments[BASELINE]["metric"]]
    shown = []
    for row, norm in enumerate(ARMS):
        if norm not in tests:
            continue
        single, difference = differences(tests, norm, BASELINE)
        color = COLORS.get(norm, OTHERS)
        axes.hlines(row, difference.low, difference.high, colors=color, lw=2)
        axes.plot([difference.mean], [row], "o", color=color, markersize=6, zorder=3)
        axes.plot(single, [row + 0.27] * len(single), "|", color=color, markersize=6, alpha=0.8)
        shown += [difference.low, difference.high, *single]
    reach = 1.08 * max(map(abs, shown))
    # Better is on the left everywhere.
    axes.set_xlim(*((reach, -reach) if metric.higher_is_better else (-reach, reach)))
    axes.set_ylim(len(ARMS) - 0.4, -0.5)
    axes.axvline(0, color="black", lw=0.8)
    unit = "points of ROC-AUC" if metric.in_percent else metric.label
    axes.set_title(setting.title, fontsize=9)
    axes.set_xlabel(f"{unit}, {len(tests[BASELINE])} seeds", fontsize=8)
    axes.set_yticks(range(len(ARMS)), [NAMES.get(norm, norm).strip("`") for norm in ARMS])
    axes.locator_params(axis="x", nbins=4)  # with more the labels touch each other
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def make_findings(records: Path, picture: Path) -> str:
    """Draw the picture, and return the table.

    Args:
        records: Folder of the records of results.md.
        picture: PNG file to be written.
    """
    known = [
        json.loads(path.read_text(encoding="utf-8")) for path in sorted(records.glob("*.json"))
    ]
    settings = {setting: experiments_of(setting, known) for setting in SETTINGS}
    figure = Figure(figsize=(9.4, 4.6), layout="constrained", dpi=110)
    places = list(figure.subplots(2, 4, sharey=True).flat)
    for axes, (setting, experiments) in zip(places, settings.items(), strict=False):
        draw_setting(axes, setting, experiments)
    for axes in places[len(settings) :]:
        axes.set_axis_off()
    figure.suptitle("test, less that of ShareNorm: better \N{LEFTWARDS ARROW}", fontsize=10)
    picture.parent.mkdir(parents=True, exist_ok=True)
    with replacing(picture) as partial:
        figure.savefig(partial, format="png", pil_kwargs={"optimize": True})
    return table(settings)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} RECORDS PICTURE.png")
    print(make_findings(Path(sys.argv[1]), Path(sys.argv[2])))
