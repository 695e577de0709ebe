"""Makes the picture and the tables of findings.md from the records of results.md.

    python docs/experiments/make_findings.py docs/experiments/results docs/images/findings.png

prints the tables. Changes are those of the test error (of ROC-AUC its distance from 1), in percent,
with 95 % intervals.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from graphormer_sepnorm.compare.pooling import pool_settings
from graphormer_sepnorm.compare.statistics import (
    CONTRASTS,
    MeanDifference,
    against,
    contrast,
    log_errors,
)
from graphormer_sepnorm.files import replacing, require_json
from graphormer_sepnorm.formatting import p_value, signed
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
Errors = dict[str, dict[int, float]]  # logarithms, by norm and seed
Experiment = dict[str, Any]  # a record


class Setting(NamedTuple):
    """Experiments that differ in the norm.

    Attributes:
        title: In two lines, of the picture; empty: it has no place there.
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
        f"zinc_subset{_PAPER_TABLE}60",
    ),
    Setting("published size\nZINC", "", f"zinc{_PAPER_TABLE}3"),
    Setting("published size\nogbg-molhiv", "published size, ogbg-molhiv", f"molhiv{_PAPER_TABLE}8"),
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
    Setting("", "", "table_regression_best · model.norm={norm}"),
)
NEWEST = "newest recipe"


def experiments_of(setting: Setting, records: Sequence[Experiment]) -> dict[str, Experiment]:
    """Return the experiments of a setting by norm; of several with one name that of most seeds."""
    found = {}
    for norm in NORMS:
        name = setting.experiment.format(norm=norm)
        if named := [one for one in records if one["name"] == name]:
            found[norm] = max(named, key=lambda one: len(one["runs"]))
    if not found:
        raise SystemExit(f"no record is named {setting.experiment!r}")
    return found


def errors_of(experiments: Mapping[str, Experiment]) -> Errors:
    """Return the logarithm of the test error of each finished run."""
    found = {}
    for norm, one in experiments.items():
        tests = {run["seed"]: run["test"] for run in one["runs"]}
        higher = METRICS[one["metric"]].higher_is_better
        logs = log_errors([*tests.values()], higher_is_better=higher).tolist()
        found[norm] = dict(zip(tests, logs, strict=True))
    return found


def table(settings: Mapping[Setting, Mapping[str, Experiment]]) -> str:
    """Return the first table of findings.md: a contrast a row, a setting a column."""
    columns = [["", *CONTRASTS, f"error, or ROC-AUC, of {NAMES[BASELINE]}"]]
    for setting, experiments in settings.items():
        if not setting.column:
            continue
        errors, before = errors_of(experiments), experiments[BASELINE]
        cells = [
            _cell(contrast(errors, *sides)) if {*sides[0], *sides[1]} <= errors.keys() else ""
            for sides in CONTRASTS.values()
        ]
        tests = [run["test"] for run in before["runs"]]
        mean = statistics.fmean(tests)
        mean = f"{100 * mean:.1f} %" if METRICS[before["metric"]].in_percent else f"{mean:.3f}"
        columns.append([f"{setting.column} ({len(tests)} seeds)", *cells, mean])
    return markdown([*zip(*columns, strict=True)])


def pooled_table(settings: Mapping[Setting, Mapping[str, Experiment]]) -> str:
    """Return the second table: the contrasts over all settings, and without the newest recipe."""
    errors = {setting: errors_of(experiments) for setting, experiments in settings.items()}
    found = pool_settings([*errors.values()])
    older = pool_settings([own for one, own in errors.items() if one.column != NEWEST])
    heads = ["settings, pairs", "change, %", "sign-flip p", "Holm-adjusted p", "t-test p"]
    rows = [["", *heads, "without the newest recipe"]]
    for name, (one, holm_p) in found.items():
        p = [p_value(one.signs_p), p_value(holm_p), p_value(one.p_value)]
        rows.append([name, f"{one.settings}, {one.pairs}", _cell(one), *p, _cell(older[name][0])])
    return markdown(rows)


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Return a table whose first row has its titles."""
    lines = [rows[0], ["---", *["---:"] * (len(rows[0]) - 1)], *rows[1:]]
    return "\n".join(f"| {' | '.join(row)} |".replace("|  |", "| |") for row in lines)


def _cell(one: MeanDifference) -> str:
    change, low, high = (signed(value, 1) for value in one.percent)
    return f"{change} [{low}, {high}]"


def draw_setting(axes: Axes, setting: Setting, experiments: Mapping[str, Experiment]) -> None:
    """Draw the change from ShareNorm under each norm: runs, their mean and its interval."""
    errors = errors_of(experiments)
    metric, before = METRICS[experiments[BASELINE]["metric"]], [*errors[BASELINE].values()]
    shown: list[float] = []
    for norm, found in against(errors, BASELINE).items():
        row, (change, low, high) = ARMS.index(norm), found.percent
        runs = 100 * np.expm1(np.array([*errors[norm].values()]) - np.mean(before))
        color = COLORS.get(norm, OTHERS)
        axes.hlines(row, low, high, colors=color, lw=2)
        axes.plot([change], [row], "o", color=color, markersize=6, zorder=3)
        axes.plot(runs, [row + 0.27] * len(runs), "|", color=color, markersize=6, alpha=0.8)
        shown += [low, high, *runs]
    reach = 1.08 * max(map(abs, shown))
    axes.set(xlim=(-reach, reach), ylim=(len(ARMS) - 0.4, -0.5))
    axes.axvline(0, color="black", lw=0.8)
    axes.set_title(setting.title, fontsize=9)
    label = f"1 - {metric.label}" if metric.higher_is_better else metric.label
    axes.set_xlabel(f"{label}, %, {len(before)} seeds", fontsize=8)
    axes.set_yticks(range(len(ARMS)), [NAMES.get(norm, norm).strip("`") for norm in ARMS])
    axes.locator_params(axis="x", nbins=4)  # with more the labels touch each other
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def make_findings(records: Path, picture: Path) -> str:
    """Draw the picture, and return the tables, of the records of results.md in a folder."""
    known = [*map(require_json, sorted(records.glob("*.json")))]
    settings = {setting: experiments_of(setting, known) for setting in SETTINGS}
    figure = Figure(figsize=(9.4, 4.6), layout="constrained", dpi=110)
    drawn = [(one, experiments) for one, experiments in settings.items() if one.title]
    for axes, shown in zip(figure.subplots(2, 4, sharey=True).flat, drawn, strict=True):
        draw_setting(axes, *shown)
    title = "change of the test error from ShareNorm's: better \N{LEFTWARDS ARROW}"
    figure.suptitle(title, fontsize=10)
    picture.parent.mkdir(parents=True, exist_ok=True)
    with replacing(picture) as partial:
        figure.savefig(partial, format="png", pil_kwargs={"optimize": True})
    return f"{table(settings)}\n\n{pooled_table(settings)}"


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} RECORDS PICTURE.png")
    print(make_findings(*map(Path, sys.argv[1:])))
