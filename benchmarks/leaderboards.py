"""Two public leaderboards: ``python -m benchmarks.leaderboards moleculeace|tdc DATA -o DIR``.

Each task is a run of ``train.py fit`` with one configuration, by the published split and metric:
MoleculeACE (van Tilborg et al. 2022), one seed, RMSE of all test molecules and of activity cliffs;
the ADMET group of TDC (Huang et al. 2021), five seeds. What is finished stands in ``runs.csv``,
which is enough to go on from, on another machine too; an interrupted run is resumed. With
``--development`` nothing but training parts is read, and errors are out of fold: by these a recipe
is chosen. Without it test files are opened, which ``openings.csv`` records.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import pandas

from graphormer_sepnorm.files import write_columns
from graphormer_sepnorm.inference.checkpoint import BLEND, read_checkpoint
from graphormer_sepnorm.metrics import METRICS
from graphormer_sepnorm.process import processor

REPOSITORY = Path(__file__).resolve().parents[1]
OPENINGS = REPOSITORY / "docs" / "experiments" / "leaderboards" / "openings.csv"
SEEDS = {"moleculeace": (0,), "tdc": (1, 2, 3, 4, 5)}
# Metrics of tasks of TDC, but for the AUROC of most classes.
_TDC = {
    "mae": "caco2_wang lipophilicity_astrazeneca solubility_aqsoldb ppbr_az ld50_zhu",
    "spearman": "vdss_lombardo half_life_obach clearance_hepatocyte_az clearance_microsome_az",
    "average_precision": "cyp2d6_veith cyp3a4_veith cyp2c9_veith cyp2d6_substrate_carbonmangels "
    "cyp2c9_substrate_carbonmangels",
}
_METRICS = {task: metric for metric, tasks in _TDC.items() for task in tasks.split()}
_SHOWN = {
    "moleculeace": ("CM_CheMeleon", "ACE_SVM_ECFP", "CM_RF_Morgan", "CM_minimol", "CM_Chemprop"),
    "tdc": ("MapLight", "MapLight + GNN", "MiniMol", "Chemprop-RDKit", "Chemprop"),
}


@dataclass(frozen=True)
class Task:
    """A task: its name, its metric, the columns of its tables, and these."""

    name: str
    metric: str
    smiles: str
    target: str
    train: Path
    test: Path | None

    def options(self, folder: Path, *, development: bool) -> list[str]:
        """Return the options of ``train.py fit`` that name its data."""
        table, split = self.train, ["--data.split", "random"]
        if development:  # all molecules of the training part are in the folds
            split = ["--data.split_column", "part"]
            of_training = (row for row in rows_of(table) if row.get("split") != "test")
            rows = [{**row, "part": "train"} for row in of_training]
            table = folder / f"{self.name}.csv"
            folder.mkdir(parents=True, exist_ok=True)
            write_columns(table, _columns(rows))
        elif self.test is None:
            split = ["--data.split_column", "split"]
        else:
            split = ["--data.test_table", str(self.test)]
        columns = ["--data.smiles_column", self.smiles, "--data.target_columns", self.target]
        return ["--data.table", str(table), *columns, *split]


def rows_of(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file, none of one that is not there."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def tasks_of(board: str, data: Path, names: Sequence[str] = ()) -> list[Task]:
    """Return the tasks of a leaderboard whose files are there, or some of them by name."""
    if board == "moleculeace":
        files = sorted((data / board).glob("CHEMBL*.csv"))
        found = [Task(one.stem, "rmse", "smiles", "y", one, None) for one in files]
    else:
        found = []
        for table in sorted((data / board).glob("*/train_val.csv")):
            name, test = table.parent.name, table.with_name("test.csv")
            found.append(Task(name, _METRICS.get(name, "auroc"), "Drug", "Y", table, test))
    missing = {*names} - {one.name for one in found}
    if missing or not found:
        raise SystemExit(f"{data} has no {', '.join(sorted(missing)) or board}")
    return [one for one in found if not names or one.name in names]


def train(task: Task, seed: int, options: argparse.Namespace) -> Path:
    """Train on a task unless that is done; return the directory of the run."""
    run = options.output / task.name / f"seed{seed}"
    if (run / "summary.json").is_file():
        return run
    words = ["--resume", str(run)]
    if not (run / "config.yaml").is_file():
        data = task.options(options.output / "tables", development=options.development)
        words = ["-c", options.config, *data, "--seed_everything", str(seed), "-o", str(run)]
        words += ["--data.root", str(options.output / "root"), *options.more]
    print(f"{task.name}, seed {seed}", file=sys.stderr, flush=True)
    log = options.output / f"{task.name}-seed{seed}.log"
    with log.open("a") as file:
        command = [sys.executable, "train.py", "fit", *words]
        done = subprocess.run(command, cwd=REPOSITORY, stdout=file, stderr=file, check=False)
    if done.returncode:
        raise SystemExit(f"{task.name}, seed {seed} has failed: see {log}")
    return run


def _columns(rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name, "") for row in rows] for name in names}


def values_of(task: Task, run: Path, *, development: bool) -> dict[str, float]:
    """Return the metric of a run, and of MoleculeACE that of cliffs; and that of each member.

    Of tests, or out of fold.
    """
    summary = json.loads((run / "summary.json").read_text())
    seconds = {"seconds": summary["seconds"]}
    part = "validation" if development else "test"
    members = {
        one["name"].split(" on ")[0]: one[part][task.metric]
        for one in summary.get("baselines", ())
        if one[part].get(task.metric) is not None
    }
    if (alone := summary.get("network", {}).get(f"{part}_{task.metric}")) is not None:
        members["networks"] = alone
    rows = pandas.read_csv(run / f"{part}_predictions.csv")
    labels, values = (rows[f"{what}_{task.target}"].to_numpy() for what in ("label", "pred"))
    metric = METRICS[task.metric]
    if development:
        blend = read_checkpoint(run).get(BLEND)
        own = blend["validation"][task.metric] if blend else metric.of(labels, values)
        return {"value": own, **members, **seconds}
    result = {"value": metric.of(labels, values), "molecules": len(rows), **members, **seconds}
    if task.test is None:
        cliffs = pandas.read_csv(task.train)["cliff_mol"].to_numpy()[rows["row"] - 1] == 1
        result["cliffs"] = metric.of(labels[cliffs], values[cliffs])
    return result


def published(board: str, data: Path) -> dict[str, dict[str, float]]:
    """Return the published values by task and model."""
    table = pandas.read_csv(data / f"{board}_published.csv")
    if board == "moleculeace":
        rows = table.set_index("dataset").astype(float).iterrows()
        return {str(name): row.dropna().to_dict() for name, row in rows}
    table["mean"] = table["mean"].astype(float)
    groups = table.groupby("benchmark")
    return {str(name): dict(zip(one.model, one["mean"], strict=True)) for name, one in groups}


def result_rows(
    board: str, data: Path, tasks: Sequence[Task], found: dict[str, list[dict[str, float]]]
) -> Iterator[dict[str, Any]]:
    """Yield a row for each task: ours over seeds, the rank among published rows, some of these."""
    others = published(board, data)
    for task in tasks:
        runs = found[task.name]  # out of fold there are no test molecules, and nothing is published
        theirs = others.get(task.name, {}) if "molecules" in runs[0] else {}
        values = [one["value"] for one in runs]
        value = statistics.fmean(values)
        sign = 1 if METRICS[task.metric].higher_is_better else -1
        best = max(theirs, key=lambda model: sign * theirs[model], default="")
        means = {
            name: statistics.fmean(one[name] for one in runs)
            for name in runs[0]
            if name != "value" and all(name in one for one in runs)
        }
        row: dict[str, Any] = {
            "task": task.name,
            "metric": task.metric,
            "seeds": len(values),
            "value": round(value, 4),
            "deviation": round(statistics.stdev(values), 4) if len(values) > 1 else "",
            **{name: round(one, 4) for name, one in means.items()},
        }
        if theirs:
            row["rank"] = 1 + sum(sign * one > sign * value for one in theirs.values())
            row |= {"best": best, "best value": theirs[best]}
            row |= {name: theirs.get(name, "") for name in _SHOWN[board]}
        yield row


def main(arguments: list[str] | None = None) -> None:
    """Run the tasks of a leaderboard and write ``results.csv``."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.leaderboards")
    parser.add_argument("board", choices=[*SEEDS])
    parser.add_argument("data", type=Path, help="folder with moleculeace/ and tdc/")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("-c", "--config", default="configs/table.yaml")
    parser.add_argument("--tasks", nargs="*", default=(), help="names; default: all")
    parser.add_argument("--seeds", nargs="*", type=int, help="default: 0, or 1 to 5 of tdc")
    parser.add_argument("--jobs", type=int, default=1, help="tasks at once")
    parser.add_argument("--development", action="store_true", help="out of fold, without tests")
    options, more = parser.parse_known_args(arguments)
    options.more = more
    data, board = options.data.resolve(), options.board
    tasks, seeds = tasks_of(board, data, options.tasks), options.seeds or SEEDS[board]
    words = shlex.join(["python", "-m", "benchmarks.leaderboards", *(arguments or sys.argv[1:])])
    words = words.replace(str(options.data), "DATA").replace(str(options.output), "DIR")
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    said = subprocess.run(describe, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    commit = {"commit": said.stdout.strip(), "date": today, "processor": processor()}
    record: dict[str, Any] = {"command": words, **commit}
    options.output = options.output.resolve()
    options.output.mkdir(parents=True, exist_ok=True)
    if not options.development:
        record["opening"] = _opened(board, record)
    file, lock = options.output / f"{'development' if options.development else 'runs'}.csv", Lock()
    runs: dict[Any, dict[str, Any]] = {(row["task"], row["seed"]): row for row in rows_of(file)}

    def finished(pair: tuple[Task, int]) -> dict[str, float]:
        key = pair[0].name, str(pair[1])
        if key not in runs:
            values = values_of(pair[0], train(*pair, options), development=options.development)
            with lock:
                runs[key] = {"task": key[0], "seed": key[1], **values}
                write_columns(file, _columns([*runs.values()]))
        return {name: float(one) for name, one in [*runs[key].items()][2:] if one != ""}

    pairs = [(task, seed) for task in tasks for seed in seeds]
    found: dict[str, list[dict[str, float]]] = {}
    with ThreadPoolExecutor(options.jobs) as pool:
        for (task, _), values in zip(pairs, pool.map(finished, pairs), strict=True):
            found.setdefault(task.name, []).append(values)
    rows = [*result_rows(board, data, tasks, found)]
    columns = _columns(rows)
    write_columns(options.output / "results.csv", columns)
    means = {
        name: round(statistics.fmean(row[name] for row in rows), 4)
        for name in ("value", "cliffs", "rank", "seconds")
        if all(isinstance(row.get(name), int | float) for row in rows)
    }
    (options.output / "record.json").write_text(json.dumps({**record, "means": means}, indent=1))
    for row in rows:
        print("  ".join(f"{name} {row[name]}" for name in columns if row.get(name, "") != ""))
    print(f"means of {len(rows)} tasks: {means}")


def _opened(board: str, record: dict[str, Any]) -> int:
    """Record that the test files of a leaderboard are opened; return how often they have been."""
    earlier = rows_of(OPENINGS)
    one = {"leaderboard": board} | {name: record[name] for name in ("date", "commit", "command")}
    same = [row for row in earlier if row["leaderboard"] == board]
    # The file of openings makes a tree dirty, and what goes on is no other opening.
    made = [(row["command"], row["commit"].removesuffix("-dirty")) for row in same]
    if (one["command"], one["commit"].removesuffix("-dirty")) not in made:
        earlier.append(one)
        same.append(one)
    write_columns(OPENINGS, {name: [row[name] for row in earlier] for name in one})
    return len(same)


if __name__ == "__main__":
    main()
