"""Options that all verbs of predict.py share: which molecules, and how many at once."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.tables.formats import FORMATS

if TYPE_CHECKING:
    from graphormer_sepnorm.inference.table_job import TableJob


def add_table(parser: argparse.ArgumentParser) -> None:
    """Add how a table is read, and what stands in the way of the output."""
    add = parser.add_argument
    add("--smiles_column", metavar="NAME", help="default: found by its name")
    what = f"{', '.join(FORMATS)}; default: by the name of the file"
    add("--input_format", metavar="FORMAT", choices=FORMATS, help=what)
    add("--overwrite", action="store_true", help="replace an output file that is there")
    add("--quiet", action="store_true", help="no progress and no summary")


def add_computing(parser: argparse._ActionsContainer, what: str = "processes") -> None:
    """Add how, and how much at once, is computed; without `what` in one process."""
    add = parser.add_argument
    add("--device", help="cpu, cuda, cuda:1 ...; default: a GPU if there is one")
    add("--batch_size", type=int, metavar="N", help="molecules computed at once (128)")
    add("--max_atoms", type=int, metavar="N", help="larger molecules get an error (500)")
    if what:
        add("--jobs", type=int, metavar="N", help=f"{what} (on a CPU one per core, on a GPU 1)")


def job_of(options: argparse.Namespace, **more: Any) -> TableJob:
    """Return what is to be done with a table, and `more` than all verbs know of it.

    Raises:
        DataError: Something is in the way: there is no input, or the output is there already.
    """
    from graphormer_sepnorm.inference.table_job import TableJob, check_places

    job = TableJob(
        source=options.input or "-",
        destination=options.output,
        smiles_column=options.smiles_column,
        input_format=options.input_format,
        overwrite=options.overwrite,
        quiet=options.quiet,
        **limits_of(options),
        **more,
    )
    check_places(job)  # before the model is loaded: mistakes are answered at once
    return job


def limits_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the limits that were given; the defaults are the predictor's."""
    given = {"batch_size": options.batch_size, "max_atoms": options.max_atoms}
    return {name: value for name, value in given.items() if value is not None}


def check_counts(options: argparse.Namespace) -> None:
    """Refuse fewer than one.

    Raises:
        ConfigError: There is such a number.
    """
    for name in ("batch_size", "max_atoms", "jobs"):
        value = getattr(options, name, None)
        if value is not None and value < 1:
            raise ConfigError(f"--{name} is {value}: it must be 1 or more")


def check_molecules(options: argparse.Namespace, verb: str, of_tables: tuple[str, ...]) -> None:
    """Refuse no molecules, and molecules in two ways.

    Args:
        options: With ``smiles`` and ``input``.
        verb: What is done with them.
        of_tables: Options that say something of a table.

    Raises:
        ConfigError: It is so.
    """
    if options.input is None:
        if not options.smiles:
            raise ConfigError(f"nothing to {verb}: give SMILES, or a table with -i FILE")
        for name in of_tables:
            if getattr(options, name):
                raise ConfigError(f"--{name} is for tables: give one with -i FILE")
        for text in options.smiles:
            if Path(text).is_file():
                raise ConfigError(f"{text} is a file: did you mean -i {text}?")
    elif options.smiles:
        raise ConfigError(
            f"{options.smiles[0]!r} and -i {options.input}: give molecules or a table, not both"
        )
