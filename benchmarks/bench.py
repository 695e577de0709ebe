"""Times this package beside others: ``make bench``, or ``python -m benchmarks.bench [SUBSET ...]``.

All sides of a row are started and warmed up, then they work in turn; see `benchmarks.rounds`.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib.metadata
import json
import platform
import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.environments import HOME, python_of
from benchmarks.molecules import FEW, MANY, Molecules, find_molecules
from benchmarks.processes import Command, SideFailed, SideProcess, variables
from benchmarks.report import lines_of
from benchmarks.rounds import take_turns
from benchmarks.rows import LONG, MATRIX_PRODUCT, ROWS, SUBSETS, Row, Side
from graphormer_sepnorm.process import cores, processor

MAX_PATH_LENGTH = 5  # Hugging Face's default; the same for both sides
BATCH_SIZE = 128
PACKAGES = ("torch", "numpy", "rdkit", "torch-geometric", "lightning")


def main(arguments: list[str] | None = None) -> None:
    """Run the rows that are asked for and print the table."""
    options = _options(arguments)
    rows = [_chosen(row, options) for row in ROWS if row.subset in options.subsets]
    pythons = _interpreters(rows)
    molecules = find_molecules()
    result: dict[str, Any] = {
        "command": _command(sys.argv[1:] if arguments is None else arguments),
        "machine": _machine(),
        "molecules": molecules.source,
        "rows": [],
    }
    for row in rows:
        for threads in row.threads:
            print(f"{row.title}, {threads} thread{'s' * (threads > 1)}", file=sys.stderr)
            try:
                result["rows"].append(run_row(row, threads, molecules, pythons, options))
            except SideFailed as error:
                print(f"  the row is left out: {error}", file=sys.stderr)
            if options.output:
                options.output.write_text(json.dumps(result, indent=1) + "\n")
    print("\n".join(["", *lines_of(result)]))


def run_row(
    row: Row,
    threads: int,
    molecules: Molecules,
    pythons: dict[str | None, Path],
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Return the raw rounds of one row; a side that cannot be prepared is left out and says why.

    Raises:
        SideFailed: A side that was ready failed.
    """
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as open_sides:
        scratch = Path(name)
        table_rows = options.streamed if row.streamed else options.many
        given = {
            **molecules.write(scratch, row.molecules, options.few, table_rows),
            "rows": table_rows,
            "batch_size": BATCH_SIZE,
            "max_path_length": MAX_PATH_LENGTH,
            **row.options,
            "scratch": name,
            "data_root": options.data_root,
        }
        ready: list[tuple[SideProcess | Command, dict[str, Any]]] = []
        for number, side in enumerate(row.sides):
            if side.environment not in pythons:
                continue
            try:
                python, log = pythons[side.environment], scratch / f"{number}.log"
                worker, facts = _start(side, row, python, threads, given, log)
            except SideFailed as error:
                print(f"  {side.label} is left out: {error}", file=sys.stderr)
                continue
            open_sides.callback(worker.close)
            ready.append((worker, {"label": side.label, **facts}))
        seconds = take_turns(
            [worker.round for worker, _ in ready],
            min(options.rounds, row.rounds or options.rounds),
            lambda done: print(f"  round {done}", end="\r", file=sys.stderr),
        )
        print(file=sys.stderr)
        for (worker, record), measured in zip(ready, seconds, strict=True):
            record.update(seconds=measured, peak=worker.peak)
            if isinstance(worker, Command) and worker.marks:
                record["marks"] = worker.marks
    records = [record for _, record in ready]
    return {"subset": row.subset, "title": row.title, "threads": threads, "sides": records}


def _start(
    side: Side, row: Row, python: Path, threads: int, given: dict[str, Any], log: Path
) -> tuple[SideProcess | Command, dict[str, Any]]:
    """Return a side that has warmed up, and what it says about its work."""
    environment = variables(threads, HOME if side.environment else None)
    script = [str(python), "-m", f"benchmarks.sides.{side.module}"]
    process = SideProcess(script, environment, log)
    try:
        answer = process.prepare(side.work, {**given, **side.options})
    except SideFailed:
        process.close()
        raise
    facts = {"facts": answer["facts"]}
    if not answer["command"]:
        return process, {**facts, "memory_before": answer["memory_before"]}
    process.close()
    rows = given["rows"] if row.streamed else 0
    command = Command(answer["command"], environment, log, rows)
    if row.rounds is None:
        command.round()
    return command, facts


def _interpreters(rows: list[Row]) -> dict[str | None, Path]:
    """Return the interpreter of each environment that there is; None is our own."""
    pythons: dict[str | None, Path] = {None: Path(sys.executable)}
    needed = dict.fromkeys(side.environment for row in rows for side in row.sides)
    for peer in filter(None, needed):
        try:
            pythons[peer] = python_of(peer)
        except SideFailed as error:
            print(f"{peer} is left out: {error}", file=sys.stderr)
    return pythons


def _command(arguments: list[str]) -> str:
    """Return the command for the record, without the folders of this machine."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for place in ("--output", "--data-root"):
        parser.add_argument(place)
    return shlex.join(["python", "-m", "benchmarks.bench", *parser.parse_known_args(arguments)[1]])


def _machine() -> dict[str, str]:
    """Return processor, cores, system, versions and the date, in words."""
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    return {
        "date": time.strftime("%Y-%m-%d"),
        "processor": processor(),
        "cores": str(cores()),
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "packages": versions,
    }


def _chosen(row: Row, options: argparse.Namespace) -> Row:
    """Return the row with the sides and numbers of threads that are asked for."""
    ours, *others = row.sides
    if options.against is not None:
        kept = {*options.against, MATRIX_PRODUCT}
        others = [side for side in others if kept & {side.module, side.label}]
    threads = options.threads or row.threads
    return dataclasses.replace(
        row,
        sides=(ours, *others),
        threads=tuple(number for number in row.threads if number in threads),
    )


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.bench", description=__doc__, allow_abbrev=False
    )
    parser.add_argument(
        "subsets",
        nargs="*",
        metavar="SUBSET",
        help=f"{', '.join(SUBSETS)}; default: all but {' and '.join(LONG)}",
    )
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each row (7)")
    parser.add_argument("--threads", type=int, nargs="+", help="only rows with so many threads")
    parser.add_argument(
        "--against",
        nargs="*",
        metavar="SIDE",
        help="only these beside ours: huggingface, chemprop, gps, plain (RDKit's parsing, torch's "
        "import); default: all",
    )
    parser.add_argument("--output", type=Path, metavar="FILE.json", help="keep all rounds")
    parser.add_argument("--data-root", metavar="DIR", help="for zinc: the folder with ZINC/raw")
    parser.add_argument("--few", type=int, default=FEW, help=f"molecules of short rows ({FEW})")
    parser.add_argument("--many", type=int, default=MANY, help=f"rows to predict ({MANY})")
    parser.add_argument(
        "--streamed", type=int, default=1_000_000, help="rows to stream (1,000,000)"
    )
    options = parser.parse_args(arguments)
    unknown = set(options.subsets) - set(SUBSETS)
    if unknown:
        parser.error(
            f"no such subset: {', '.join(sorted(unknown))}; there are {', '.join(SUBSETS)}"
        )
    options.subsets = options.subsets or [name for name in SUBSETS if name not in LONG]
    return options


if __name__ == "__main__":
    main()
