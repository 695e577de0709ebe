"""Makes results.md from the records in docs/experiments/results, and adds records of runs to them.

    python docs/experiments/make_results.py [RUN ...]

RUN holds finished runs, at any depth. Those of one name, data and options are one experiment.
"""

import hashlib
import itertools
import json
import re
import shlex
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from graphormer_sepnorm.config import flat
from graphormer_sepnorm.files import require_json, write_text
from graphormer_sepnorm.metrics import LAST, METRICS, monitored
from graphormer_sepnorm.runs.directory import RunDirectory

RECORDS, TABLE = Path(__file__).parent / "results", Path(__file__).parent / "results.md"
# Options that make another experiment; the others are places, the seed, what is shown and kept.
COUNTS = re.compile(
    r"model\.(?!seed)|data\.(?!seed|root|dataset|\w*table|num_workers|member_fold)|metric|ema_decay"
    r"|trainer\.(max_|min_|precision|gradient|accumulate|check_val|limit_|strategy|devices)"
)
HEADER = """
| experiment | seeds | parameters | steps | wall time | device | validation | test |
| --- | --- | ---: | ---: | --- | --- | ---: | ---: |"""


def record_of(run: RunDirectory) -> dict[str, Any]:
    """Return the record of an experiment with one run."""
    if not (record := run.record()) or not (summary := run.summary()):
        sys.exit(f"{run.path} is no finished run")
    command = "\n".join(record.sessions[0].command)
    typed = dict(re.findall(r"^--?([\w.]+)[=\n](?!--)(.*)$", command, re.M))
    name = Path(typed.get("c", typed.get("config", record.dataset))).stem
    given = {option: value for option, value in typed.items() if COUNTS.match(option)}
    words = [word for one in given for word in (f"--{one}", given[one])]
    options = {option: v for option, v in flat(run.configuration()).items() if COUNTS.match(option)}
    machine = record.sessions[-1].machine or {}
    processor = f"{machine.get('processor')}, {machine.get('threads')} threads"
    own = {
        "seed": record.seed,
        "began": record.sessions[0].started,
        "steps": summary["steps"],
        "parameters": record.parameters,
        "seconds": record.seconds,
        "interruptions": sum(one.end != "trained" for one in record.sessions),
        "device": processor if machine.get("device") == "cpu" else machine.get("device"),
        "torch": record.sessions[-1].packages.get("torch"),
        "commit": _joined(one.commit for one in record.sessions),
        "validation": summary.get(f"best_validation_{record.metric}"),
        "test": summary.get(f"test_{record.metric}"),
    }
    facts = ("dataset", "dataset_fingerprint", "split", "data_note", "metric", "unit")
    return {
        "name": f"{name} · {', '.join(f'{k}={v}' for k, v in given.items())}".removesuffix(" · "),
        **{fact: getattr(record, fact) for fact in (*facts, "selected_on")},
        "molecules": list(record.molecules.values()) if record.molecules else None,
        "options": json.loads(json.dumps(options, default=str)),
        "commands": [f"python train.py fit -c {shlex.join([name, *words])} --seed_everything SEED"],
        "no_longer_said": "",
        "runs": [own],
    }


def add(new: dict[str, Any], folder: Path) -> None:
    """Write a record, together with the runs of the same experiment that are in the folder."""
    key = json.dumps([new["name"], new["dataset_fingerprint"], new["options"]], sort_keys=True)
    words = re.sub(r"[^\w.+=-]+", "-", f"{new['dataset']}-{new['name']}")[:80]
    path = folder / f"{words}-{hashlib.sha256(key.encode()).hexdigest()[:12]}.json"
    known = require_json(path)["runs"] if path.exists() else []
    runs = {run["seed"]: run for run in sorted(known + new["runs"], key=lambda run: run["began"])}
    content = new | {"runs": [runs[seed] for seed in sorted(runs)]}
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def tables(records: Iterable[dict[str, Any]]) -> str:
    """Return the tables, by data set and its split, the best validation first."""
    parts = []
    for _, members in itertools.groupby(sorted(records, key=_rank), key=lambda one: _rank(one)[:2]):
        group = list(members)
        first, metric = group[0], METRICS[group[0]["metric"]]
        said = {k: next((one[k] for one in group if one[k]), "") for k in first}  # older say less
        label = ", ".join(filter(None, [metric.label, said["unit"]]))
        facts = f"Metric: {label} ({metric.better} is better). "
        if sizes := " / ".join(f"{size:,}" for size in said["molecules"]):
            facts += f"{sizes} molecules in training / validation / test. "
        facts += f"Split: {said['split'] or 'that of the data set'}. Fingerprint of the data: "
        facts += f"{first['dataset_fingerprint'][:12]}."
        notes = dict.fromkeys(f"\n**{one['data_note']}**" for one in group if one["data_note"])
        rows, details = zip(*itertools.starmap(_shown, enumerate(group, start=1)), strict=True)
        parts += [f"## {first['dataset']}\n", facts, *notes, HEADER, *rows, "", *details, ""]
    return "\n".join(parts)


def _rank(one: dict[str, Any]) -> tuple[Any, ...]:
    values = [run["validation"] for run in one["runs"] if run["validation"] is not None]
    sign = -1 if METRICS[one["metric"]].higher_is_better else 1
    return one["dataset"], one["dataset_fingerprint"], sign * statistics.fmean(values), one["name"]


def _shown(number: int, one: dict[str, Any]) -> tuple[str, str]:
    runs, note = one["runs"], one["no_longer_said"]
    seconds, broken = (sum(run[name] for run in runs) for name in ("seconds", "interruptions"))
    mean = seconds / len(runs)
    time = f"{mean / 60:.0f} min" if mean < 6000 else f"{mean / 3600:.1f} h"
    time = f"{mean:.0f} s" if mean < 100 else time
    time += f", {broken} interruption{'s' * (broken > 1)}" * bool(broken)
    scale, digits, sign = (100, 2, " %") if METRICS[one["metric"]].in_percent else (1, 4, "")
    cells = [f"{number}. {one['name']} {'†' * (len(runs) == 1)}{'§' * bool(note)}".strip()]
    cells.append(", ".join(str(run["seed"]) for run in runs))
    for values in ([run[name] for run in runs] for name in ("parameters", "steps")):
        cells.append(" to ".join(f"{value:,}" for value in sorted({min(values), max(values)})))
    cells += [time, _joined(run["device"] for run in runs)]
    for name in ("validation", "test"):
        values = [scale * run[name] for run in runs if run[name] is not None]
        # Two values are two values, and no deviation.
        several = values[2:] and [statistics.fmean(values), statistics.stdev(values)]
        parts = [f"{part:.{digits}f}" for part in several or values]
        cells.append((" ± " if several else ", ").join(parts) + sign)
    metric, average = monitored(one["selected_on"]), one["options"].get("ema_decay")
    chosen = "end of training" if metric is LAST else f"selected on validation {metric.label}"
    weights = f"moving average of the weights ({average})" if average else "weights as trained"
    commits = [c for run in runs for c in (run["commit"] or "").split("; ") if c]
    short = ", ".join(dict.fromkeys(c[:10] + "+changes" * c.endswith("+changes") for c in commits))
    return (
        f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |",
        f"{number}. {', then '.join(f'`{command}`' for command in one['commands'])}  \n"
        f"   {chosen}; {weights}; torch {_joined(run['torch'] for run in runs)}; "
        f"commit {short or '-'}{note and f'; § {note}'}",
    )


def _joined(values: Iterable[str | None]) -> str:
    return "; ".join(dict.fromkeys(filter(None, values))) or "-"


def main(runs: list[str], records: Path = RECORDS, document: Path = TABLE) -> None:
    """Add the runs to the records, and write the tables of all below the introduction."""
    for found in sorted(path for name in runs for path in Path(name).rglob("run.json")):
        add(record_of(RunDirectory(found.parent)), records)
    every = tables(map(require_json, records.glob("*.json")))
    write_text(document, f"{document.read_text().partition('## ')[0]}{every}")


if __name__ == "__main__":
    main(sys.argv[1:])
