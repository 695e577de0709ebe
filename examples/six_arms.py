"""What the two experiments with `replace_norms` share: the runs, the table, the figure.

    examples/sepnorm_vit_mae.py       a masked autoencoder of small images
    examples/sepnorm_smiles_bert.py   BERT and SimCSE on SMILES

All six arms are trained with every seed, paired: the same initial weights, batches and random
masks. What is measured of a run is a row of OUT/runs.csv, and a run that stands there is not run
again, so that a broken off experiment goes on where it was.
"""

import argparse
import csv
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import nn

from graphormer_sepnorm import replace_norms
from graphormer_sepnorm.compare.statistics import (
    PairedDifference,
    holm,
    norm_effects,
    paired_difference,
    verdict,
)
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import replacing
from graphormer_sepnorm.formatting import count, interval, mean_and_sd, p_value, signed

BASELINE = "shared-ln"
ARMS = (BASELINE, "shared-bn", "bn+ln", "bn+bn", "ln+ln", "ln+bn")
DECIMALS = 4
Runs = dict[tuple[str, int], dict[str, float]]


def put_norms(model: nn.Module, arm: str, where: str = "*") -> None:
    """Replace the norms of a model by those of an arm."""
    if arm != BASELINE:
        shared = arm.startswith("shared-")
        cls_norm, tok_norm = [arm[-2:]] * 2 if shared else arm.split("+")
        replace_norms(model, cls_norm, tok_norm, shared=shared, where=where)


def options(text: str, seeds: int, folder: str) -> argparse.ArgumentParser:
    """The options of both."""
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=seeds, help="0, 1, ... (%(default)s of them)")
    parser.add_argument("--arms", default=",".join(ARMS), help="some of %(default)s")
    parser.add_argument("--out", type=Path, default=Path(folder), help="folder (%(default)s)")
    return parser


def run_all(
    out: Path,
    arms: Sequence[str],
    seeds: int,
    settings: Mapping[str, object],
    run: Callable[[str, int], dict[str, float]],
) -> Runs:
    """Run every arm with every seed, whole seeds first.

    Args:
        out: Folder of ``runs.csv``.
        arms: Their names.
        seeds: How many.
        settings: What all runs have in common; kept with each.
        run: Trains an arm with a seed and returns what is measured.

    Raises:
        DataError: The folder holds runs with other settings, or an arm does not exist.
    """
    if BASELINE not in arms or not {*arms} <= {*ARMS}:
        raise DataError(f"{','.join(arms)}: take {BASELINE} and others of {', '.join(ARMS)}")
    out.mkdir(parents=True, exist_ok=True)
    table = out / "runs.csv"
    common = " ".join(f"{name}={value}" for name, value in settings.items())
    rows = list(csv.DictReader(table.open(encoding="utf-8"))) if table.is_file() else []
    other = {row["settings"] for row in rows} - {common}
    if other:
        raise DataError(f"{table} holds runs with {other.pop()}, not {common}: take another --out")
    done = {(row["arm"], int(row["seed"])) for row in rows}
    wanted = [(arm, seed) for seed in range(seeds) for arm in arms]
    for place, (arm, seed) in enumerate(wanted, start=1):
        if (arm, seed) in done:
            continue
        start = time.process_time()
        found = run(arm, seed)
        rows.append(
            {"arm": arm, "seed": str(seed)}
            | {name: repr(value) for name, value in found.items()}
            | {"cpu_seconds": f"{time.process_time() - start:.1f}", "settings": common}
        )
        with replacing(table) as partial, partial.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        said = "  ".join(f"{name} {value:.4f}" for name, value in found.items())
        print(f"{place} of {len(wanted)}  {arm:<9}  seed {seed}  {said}", flush=True)
    kept = read(table)
    return {key: kept[key] for key in wanted}


def read(table: Path) -> Runs:
    """Return what was measured, and ``cpu_seconds``, of each run of a ``runs.csv``."""
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    others = {"arm", "seed", "settings"}
    return {
        (row["arm"], int(row["seed"])): {
            name: float(value) for name, value in row.items() if name not in others
        }
        for row in rows
    }


def report(runs: Runs, arms: Sequence[str], better: Mapping[str, str]) -> str:
    """Return the tables: each metric of each arm, and the effects of the factors.

    An arm is better or worse if Holm's p over the arms is below 0.05 and the interval leaves out 0;
    not significant if only the interval does; all else is not resolved. So it is in the reports of
    `train.py compare`.

    Args:
        runs: What `run_all` returned.
        arms: Their names, the baseline first.
        better: By metric, whether ``higher`` or ``lower`` is better; or ``""``: neither.
    """
    seeds = sorted({seed for _, seed in runs})
    text = []
    for metric, direction in better.items():
        values = {arm: {seed: runs[arm, seed][metric] for seed in seeds} for arm in arms}
        others = [arm for arm in arms if arm != BASELINE]
        changes = {
            arm: paired_difference(list(values[BASELINE].values()), list(values[arm].values()))
            for arm in others
        }
        text += ["", f"| {metric} | mean ± sd | change | 95 % interval | p | Holm's p | verdict |"]
        text += ["| :-- | --: | --: | --: | --: | --: | :-- |"]
        text += [
            f"| {BASELINE} | {mean_and_sd(list(values[BASELINE].values()), DECIMALS)} | | | | | |"
        ]
        adjusted = holm([change.p_value for change in changes.values()])
        for (arm, change), p in zip(changes.items(), adjusted, strict=True):
            cells = (
                mean_and_sd(list(values[arm].values()), DECIMALS),
                *_cells(change, p, direction),
            )
            text.append(f"| {arm} | {' | '.join(cells)} |")
        effects = norm_effects(values)
        if not effects:
            continue
        adjusted = holm([effect.p_value for effect in effects.values()])
        text += ["", f"| effect on {metric} | change | 95 % interval | p | Holm's p | verdict |"]
        text += ["| :-- | --: | --: | --: | --: | :-- |"]
        for (name, effect), p in zip(effects.items(), adjusted, strict=True):
            name = name.replace("the atoms", "the tokens")
            text.append(f"| {name} | {' | '.join(_cells(effect, p, direction))} |")
    cost = sum(one["cpu_seconds"] for one in runs.values())
    text += [
        "",
        f"{count(len(seeds), 'seed')}, {len(runs)} runs, {cost / 60:.1f} minutes of a core.",
    ]
    return "\n".join(text[1:])


def _cells(change: PairedDifference, adjusted: float, direction: str) -> tuple[str, ...]:
    return (
        signed(change.mean, DECIMALS),
        interval(change.low, change.high, DECIMALS),
        p_value(change.p_value),
        p_value(adjusted),
        verdict(change, adjusted, direction),
    )


def draw(runs: Runs, arms: Sequence[str], metrics: Mapping[str, str], path: Path) -> None:
    """Draw each metric of each arm: a line a seed, and the mean.

    Args:
        runs: What `run_all` returned.
        arms: Their names.
        metrics: Names, and what the axis says.
        path: Of the PNG.
    """
    figure = Figure(figsize=(4.0 * len(metrics), 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    places = range(len(arms))
    for axes, (metric, label) in zip(
        figure.subplots(1, len(metrics)), metrics.items(), strict=True
    ):
        of_seed = [
            [runs[arm, seed][metric] for arm in arms] for seed in sorted({seed for _, seed in runs})
        ]
        for values in of_seed:
            axes.plot(places, values, "o-", color="#BBBBBB", markersize=3, linewidth=0.8)
        means = [sum(column) / len(column) for column in zip(*of_seed, strict=True)]
        axes.plot(places, means, "_", color="#D55E00", markersize=18, markeredgewidth=2.5)
        axes.set_xticks(places, arms, rotation=30)
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
    with replacing(path) as partial:
        figure.savefig(partial, format="png", dpi=100)


def finish(out: Path, runs: Runs, arms: Sequence[str], better: Mapping[str, str],
           metrics: Mapping[str, str]) -> None:  # fmt: skip
    """Write OUT/report.md and OUT/figure.png, and print the former."""
    text = report(runs, arms, better)
    with replacing(out / "report.md") as partial:
        partial.write_text(text + "\n", encoding="utf-8")
    draw(runs, arms, metrics, out / "figure.png")
    print(text)
