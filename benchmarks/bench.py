"""Times this package and others: ``make bench``, or ``python -m benchmarks.bench [SUBSET ...]``.

All sides of a row are started and warmed up, then they work in turn; see `take_turns`.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib.metadata
import json
import os
import platform
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.environments import HOME, python_of
from benchmarks.molecules import FEW, MANY, Molecules, find_molecules
from benchmarks.processes import REPOSITORY, Command, SideFailed, SideProcess, variables
from benchmarks.report import text_of
from benchmarks.rows import MATRIX_PRODUCT, ROWS, SUBSETS, Row, Side
from graphormer_sepnorm.kernels.library import FORMS, library
from graphormer_sepnorm.process import cores, processor

MAX_PATH_LENGTH = 5  # Hugging Face's default; the same for both sides
BATCH_SIZE = 128
PACKAGES = ("torch", "numpy", "rdkit", "torch-geometric", "lightning")
# Variables that have a processor used as one with fewer instructions, by us and by the libraries.
LIMITS = ("GRAPHORMER_KERNELS", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA")
LIMITS += ("ATEN_CPU_CAPABILITY",)


def main(arguments: list[str] | None = None) -> None:
    """Run the rows that are asked for and print the table."""
    options = _options(arguments)
    rows = [_chosen(row, options) for row in ROWS if row.subset in (options.subsets or SUBSETS)]
    pythons = _interpreters(rows)
    molecules = find_molecules()
    limits = [f"{name}={os.environ[name]}" for name in LIMITS if name in os.environ]
    of_machine = argparse.ArgumentParser(add_help=False)
    of_machine.add_argument("--output")  # a path that is here only
    given = of_machine.parse_known_args(arguments)[1]
    result: dict[str, Any] = {
        "command": shlex.join([*limits, "python", "-m", "benchmarks.bench", *given]),
        "machine": _machine(),
        "molecules": molecules.source,
        "rows": [],
    }
    for row in rows:
        for threads in row.threads:
            print(f"{row.title}, {threads} thread{'s' * (threads > 1)}", file=sys.stderr)
            try:
                result["rows"].append(run_row(row, threads, molecules, pythons, options.rounds))
            except SideFailed as error:
                print(f"  the row is left out: {error}", file=sys.stderr)
            if options.output:
                options.output.write_text(json.dumps(result, indent=1) + "\n")
    print(f"\n{text_of(result)}")


def run_row(
    row: Row, threads: int, molecules: Molecules, pythons: dict[str | None, Path], rounds: int
) -> dict[str, Any]:
    """Return the raw rounds of one row; a side that cannot be prepared is left out and says why.

    Raises:
        SideFailed: A side that was ready failed.
    """
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as open_sides:
        scratch = Path(name)
        given = {
            **molecules.write(scratch, MANY if row.many else FEW),
            "batch_size": BATCH_SIZE,
            "max_path_length": MAX_PATH_LENGTH,
            **row.options,
            "scratch": name,
        }
        ready: list[tuple[Command, dict[str, Any]]] = []
        for number, side in enumerate(row.sides):
            if side.environment not in pythons:
                continue
            try:
                python, log = pythons[side.environment], scratch / f"{number}.log"
                worker, facts = _start(side, python, threads, given, log)
            except SideFailed as error:
                print(f"  {side.label} is left out: {error}", file=sys.stderr)
                continue
            open_sides.callback(worker.close)
            ready.append((worker, {"label": side.label, **facts}))
        seconds = take_turns([worker.round for worker, _ in ready], rounds)
        for (worker, record), measured in zip(ready, seconds, strict=True):
            record.update(seconds=measured, peak=worker.peak)
    records = [record for _, record in ready]
    return {"subset": row.subset, "title": row.title, "threads": threads, "sides": records}


def take_turns(sides: Sequence[Callable[[], float]], rounds: int) -> list[list[float]]:
    """Let all sides work in every round, each first in turn; return the seconds of each."""
    seconds: list[list[float]] = [[] for _ in sides]
    for number in range(rounds):
        for index in range(len(sides)):
            turn = (number + index) % len(sides)
            seconds[turn].append(sides[turn]())
        print(f"  round {number + 1}", end="\r", file=sys.stderr)
    print(file=sys.stderr)
    return seconds


def _start(
    side: Side, python: Path, threads: int, given: dict[str, Any], log: Path
) -> tuple[Command, dict[str, Any]]:
    """Return a side that has warmed up, and what it reports of its work."""
    folder = side.checkout or REPOSITORY
    environment = variables(threads, HOME if side.environment else None, folder)
    script = [str(python), "-m", f"benchmarks.sides.{side.module}"]
    process = SideProcess(script, environment, log, folder)
    try:
        answer = process.prepare(side.work, {**given, **side.options})
    except SideFailed:
        process.close()
        raise
    if not (words := answer.pop("command")):
        return process, answer
    process.close()
    command = Command(words, environment, log, folder)
    command.round()
    return command, {"facts": answer["facts"]}


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


def _machine() -> dict[str, str]:
    """Return processor, cores, system, versions and the date, in words."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "processor": processor(),
        "kernels": FORMS[compiled.form_in_use()] if (compiled := library()) else "torch",
        "cores": str(cores()),
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "packages": ", ".join(f"{one} {importlib.metadata.version(one)}" for one in PACKAGES),
    }


def _chosen(row: Row, options: argparse.Namespace) -> Row:
    """Return the row with the sides and numbers of threads that are asked for."""
    ours, *others = row.sides
    if options.against is not None:
        kept = {*options.against, MATRIX_PRODUCT}
        others = [side for side in others if kept & {side.module, side.label}]
    if options.checkout is not None:  # what it is compared with is how it was
        checkout = options.checkout.resolve()
        others.append(dataclasses.replace(ours, label="before", checkout=checkout))
    threads = tuple(n for n in row.threads if n in (options.threads or row.threads))
    return dataclasses.replace(row, sides=(ours, *others), threads=threads)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("benchmarks.bench", description=__doc__, allow_abbrev=False)
    named = f"{', '.join(SUBSETS)}; default: all"
    parser.add_argument("subsets", nargs="*", metavar="SUBSET", help=named)
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each row (7)")
    parser.add_argument("--threads", type=int, nargs="+", help="only rows with so many threads")
    only = "only these with ours: huggingface, chemprop, plain (RDKit's parsing, torch's import)"
    parser.add_argument("--against", nargs="*", metavar="SIDE", help=f"{only}; default: all")
    parser.add_argument("--output", type=Path, metavar="FILE.json", help="keep all rounds")
    version = "another version, its kernels compiled"
    parser.add_argument("--checkout", type=Path, metavar="DIR", help=version)
    options = parser.parse_args(arguments)
    if unknown := ", ".join(sorted(set(options.subsets) - set(SUBSETS))):
        parser.error(f"no such subset: {unknown}; there are {', '.join(SUBSETS)}")
    return options


if __name__ == "__main__":
    main()
