"""The verb embed of predict.py: what a network makes of molecules, as a table or as arrays."""

from __future__ import annotations

import argparse
import time

from graphormer_sepnorm.cli.main import OneLineParser, check_least
from graphormer_sepnorm.cli.table_verbs import (
    COUNTS,
    add_computing,
    add_table,
    finished,
    job_of,
    what_is_left,
)
from graphormer_sepnorm.errors import ConfigError, Interrupted
from graphormer_sepnorm.tables.formats import FORMATS

USAGE = "predict.py embed MODEL -i FILE [-o FILE] [options]"

DESCRIPTION = """\
Write the embedding of each molecule of a table: the graph token ([CLS]) after the last norm, from
which a model reads its predictions. As many rows come out as went in, in the same order.

.csv .tsv .parquet .sdf  the columns of the table and behind them cls_0, cls_1, ... (one for each
                         channel), warning and error
.npz                     arrays: cls [rows, channels] float32 (nan where there is an error), smiles,
                         warning, error; with --atoms also atoms [all atoms, channels] and
                         first_atom [rows + 1]: row i has atoms[first_atom[i]:first_atom[i + 1]]
"""


def embed(arguments: list[str]) -> int:
    """Run ``predict.py embed`` with the words after the verb; return the exit status.

    Raises:
        GraphormerError: A user's mistake.
    """
    options = _parse(arguments)
    from graphormer_sepnorm.inference.checkpoint import find_checkpoint
    from graphormer_sepnorm.inference.embedding_file import embed_to_arrays
    from graphormer_sepnorm.inference.embeddings import Embedder
    from graphormer_sepnorm.inference.predictor import Predictor
    from graphormer_sepnorm.inference.stream import predict_table
    from graphormer_sepnorm.inference.table_job import Outcome

    job = job_of(
        options,
        output_format="npz" if _to_arrays(options) else options.output_format,
        jobs=options.jobs,
        resume=options.resume,
        verb="embedded",
    )
    outcome = Outcome()
    try:
        embedder = Embedder(Predictor.load(options.model, options.device), options.atoms)
        outcome.notes += filter(None, [embedder.note])
        started = time.monotonic()
        if _to_arrays(options):
            embed_to_arrays(embedder, job, outcome)
        else:
            predict_table(embedder, job, find_checkpoint(options.model), outcome)
    except KeyboardInterrupt:
        if _to_arrays(options):
            raise
        raise Interrupted(what_is_left(job, outcome, ["embed", *arguments])) from None
    return finished(job, outcome, started)


def _to_arrays(options: argparse.Namespace) -> bool:
    return options.output_format == "npz" or (
        options.output_format is None and options.output.lower().endswith(".npz")
    )


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = OneLineParser(prog="predict.py embed", usage=USAGE, description=DESCRIPTION)
    add_table(parser, "file to write; - (default) writes CSV to standard output", default="-")
    add = parser.add_argument
    add("--atoms", action="store_true", help="the embeddings of the atoms too (.npz)")
    formats = (*(format for format in FORMATS if format != "smi"), "npz")
    what = f"{', '.join(formats)}; default: by the name of the file"
    add("--output_format", metavar="FORMAT", choices=formats, help=what)
    add("--resume", action="store_true", help="continue an interrupted job (.csv .tsv .sdf)")
    add_computing(parser)
    options = parser.parse_args(arguments)
    check_least(options, COUNTS)
    if options.output == "-" and options.output_format == "npz":
        raise ConfigError("arrays cannot be written to standard output: name a file with -o")
    if options.atoms and not _to_arrays(options):
        raise ConfigError("--atoms needs arrays: give -o FILE.npz")
    return options
