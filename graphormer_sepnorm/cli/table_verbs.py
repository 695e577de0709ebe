"""What all verbs of predict.py share: molecules, limits, and what is printed at the end."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from graphormer_sepnorm.errors import ConfigError, Interrupted
from graphormer_sepnorm.pipeline.first_look import look_at_columns, look_at_device
from graphormer_sepnorm.process import command, load_library
from graphormer_sepnorm.runs.directory import find_checkpoint
from graphormer_sepnorm.tables.opening import FORMATS

if TYPE_CHECKING:
    from graphormer_sepnorm.inference.predictor import Predictor
    from graphormer_sepnorm.inference.table_job import Outcome, TableJob

EXIT_NOTHING_PREDICTED = 1
_NOUNS = {"predicted": "a prediction", "embedded": "an embedding", "explained": "an explanation"}
# The least that these options may be.
COUNTS = {"batch_size": 1, "max_atoms": 1, "jobs": 1, "header_row": 1}
LAYOUT = ("smiles_column", "sheet", "header_row")  # what part of a file is the table


def add_table(
    parser: argparse.ArgumentParser,
    output: str,
    default: str | None = None,
    molecules: bool = False,
) -> None:
    """Add the model, the molecules and the output.

    Args:
        parser: Of a verb.
        output: Help of the file that is written.
        default: The output; None: it is required, and a page.
        molecules: Whether they may stand on the command line in place of a table.
    """
    add = parser.add_argument
    formats = f"{', '.join(FORMATS)}; default: by the file name"
    add("model", metavar="MODEL", help="checkpoint, run directory or bundled name")
    if molecules:
        add("smiles", metavar="SMILES", nargs="*", help="molecules")
    what = "table of molecules: .csv .tsv .smi .sdf (also .gz) .parquet .xlsx; - for stdin, no .sdf"
    add("-i", "--input", metavar="FILE", required=not molecules, help=what)
    needed = default is None
    add("-o", "--output", metavar="FILE", default=default, required=needed, help=output)
    add("--smiles_column", metavar="NAME", help="SMILES column; default: detected by name")
    what = "sheet of an Excel file; default: the only one that is not hidden"
    add("--sheet", metavar="NAME|N", help=what)
    what = "row with the column names (Excel, CSV, TSV); default: the first"
    add("--header_row", type=int, metavar="N", help=what)
    add("--input_format", metavar="FORMAT", choices=FORMATS, help=formats)
    if not needed:
        add("--output_format", metavar="FORMAT", choices=FORMATS, help=formats)
        what = "continue an interrupted job (.csv .tsv .sdf); on a CPU the file is identical"
        add("--resume", action="store_true", help=what)
    add("--overwrite", action="store_true", help="replace an existing output file")
    add("--quiet", action="store_true", help="show no progress and no summary")


def add_computing(parser: argparse._ActionsContainer) -> None:
    """Add how, and how much at once, is computed."""
    add = parser.add_argument
    add("--device", help="cpu, cuda, cuda:1 ...; default: a GPU if available")
    add("--batch_size", type=int, metavar="N", help="molecules per batch (128)")
    add("--max_atoms", type=int, metavar="N", help="larger molecules are reported as errors (500)")
    add("--jobs", type=int, metavar="N", help="processes (default: one per core; with a GPU 1)")


def checked_job(options: argparse.Namespace, **more: Any) -> TableJob:
    """Return what is to be done with a table, and load torch if nothing is wrong with it.

    Args:
        options: As they were given.
        more: Further fields of the job.

    Raises:
        GraphormerError: The model, the table, a column of it or the device is not there, or the
            output is.
    """
    from graphormer_sepnorm.inference.table_job import EVERY_TARGET, TableJob, check_places

    names = {field.name for field in fields(TableJob)}
    given = {n: value for n, value in vars(options).items() if n in names and value is not None}
    job = TableJob(options.input or "-", options.output, **(given | more))
    find_checkpoint(options.model)
    check_places(job)
    look_at_device("--device", options.device)
    if os.path.isfile(job.source):
        with job.opened() as reader:
            named = () if job.evaluate == EVERY_TARGET else job.evaluate
            look_at_columns(reader, job.layout, named)
    load_library("torch")
    return job


def run_job(
    job: TableJob, model: str, load: Callable[[], Predictor], words: list[str]
) -> tuple[int, Outcome]:
    """Predict or embed a table.

    Args:
        job: What is to be done.
        model: Its name.
        load: Loads it.
        words: Of the command line, for the command that resumes the job.

    Returns:
        The exit status, and the outcome.
    """
    from graphormer_sepnorm.inference.predict_table import predict_table
    from graphormer_sepnorm.inference.table_job import Outcome

    outcome = Outcome()
    try:
        predictor = load()
        started = time.monotonic()
        predict_table(predictor, job, find_checkpoint(model), outcome)
    except KeyboardInterrupt:
        raise Interrupted(what_is_left(job, outcome, words)) from None
    return finished(job, outcome, started), outcome


def check_molecules(options: argparse.Namespace, verb: str, of_tables: tuple[str, ...]) -> None:
    """Raise a ConfigError for no molecules, for molecules in two ways, and options `of_tables`."""
    if options.input is None:
        if not options.smiles:
            raise ConfigError(f"nothing to {verb}: give SMILES, or a table with -i FILE")
        for name in of_tables:
            if getattr(options, name):
                raise ConfigError(f"--{name} is for tables: give one with -i FILE")
        for text in options.smiles:
            if os.path.isfile(text):  # not a Path: a long SMILES is no name of a file
                raise ConfigError(f"{text} is a file: did you mean -i {text}?")
    elif options.smiles:
        raise ConfigError(
            f"{options.smiles[0]!r} and -i {options.input}: give molecules or a table, not both"
        )


def what_is_left(job: TableJob, outcome: Outcome, arguments: list[str]) -> str:
    """Return what an interrupted job leaves, and how to resume it, if that can be."""
    if not job.can_resume:
        return f"interrupted after {outcome.rows:,} rows; the output is incomplete"
    if not outcome.safe_rows:
        left = f"{job.partial} is as it was" if job.partial.exists() else "there is no output"
        return f"interrupted before a row was written; {left}"
    again = [word for word in arguments if word != "--resume"]
    return (
        f"interrupted: {job.partial} holds the first {outcome.safe_rows:,} rows, the rest is "
        f"missing; continue with: {command('predict')} {shlex.join(again)} --resume"
    )


def finished(job: TableJob, outcome: Outcome, started: float) -> int:
    """Print the outcome of a job that started then (`time.monotonic`); return the exit status."""
    seconds, failed = time.monotonic() - started, outcome.errors.total()
    if not job.quiet:
        text = f"{outcome.rows:,} rows, {outcome.rows - failed:,} {job.verb}"
        if failed:
            kinds = ", ".join(f"{kind} {count:,}" for kind, count in outcome.errors.most_common())
            text += f", {failed:,} without {_NOUNS[job.verb]} ({kinds})"
        if outcome.warnings:
            text += f", {outcome.warnings:,} with a warning"
        rate = (outcome.rows - outcome.earlier_rows) / max(seconds, 1e-3)
        text += f"; {seconds:.1f} s, {rate:,.0f} rows/s"
        text += f"; {job.destination}" if job.to_file else ""
        notes = [f"note: {note}" for note in outcome.notes]
        print(*notes, text, sep="\n", file=sys.stderr)
    if not outcome.rows and not job.shard:
        name = "standard input" if job.source == "-" else job.source
        print(f"{name} has no rows: nothing was {job.verb}", file=sys.stderr)
    nothing = failed == outcome.rows and not (job.shard and not outcome.rows)
    return EXIT_NOTHING_PREDICTED if nothing else 0
