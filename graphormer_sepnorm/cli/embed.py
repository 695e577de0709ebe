"""The verb embed of predict.py: what a network makes of molecules, as a table or as arrays."""

from __future__ import annotations

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
from graphormer_sepnorm.errors import Interrupted
from graphormer_sepnorm.tables.formats import FORMATS

USAGE = "predict.py embed MODEL -i FILE [-o FILE] [options]"

DESCRIPTION = """\
Write the embedding of each molecule of a table: the graph token ([CLS]) after the last norm, from
which a model reads its predictions. As many rows come out as went in, in the same order, with the
columns of the table and behind them cls_0, cls_1, ... (one for each channel), warning and error.
From Python, Predictor.embed gives arrays, with atoms=True those of the atoms too.
"""


def embed(arguments: list[str]) -> int:
    """Run ``predict.py embed`` with the words after the verb; return the exit status.

    Raises:
        GraphormerError: A user's mistake.
    """
    parser = OneLineParser(prog="predict.py embed", usage=USAGE, description=DESCRIPTION)
    add_table(parser, "file to write; - (default) writes CSV to standard output", default="-")
    what = f"{', '.join(FORMATS)}; default: by the name of the file"
    parser.add_argument("--output_format", metavar="FORMAT", choices=FORMATS, help=what)
    what = "continue an interrupted job (.csv .tsv .sdf)"
    parser.add_argument("--resume", action="store_true", help=what)
    add_computing(parser)
    options = parser.parse_args(arguments)
    check_least(options, COUNTS)
    from graphormer_sepnorm.inference.checkpoint import find_checkpoint
    from graphormer_sepnorm.inference.predict_table import predict_table
    from graphormer_sepnorm.inference.predictor import Predictor
    from graphormer_sepnorm.inference.table_job import Outcome

    job = job_of(
        options,
        output_format=options.output_format,
        jobs=options.jobs,
        resume=options.resume,
        verb="embedded",
    )
    outcome = Outcome()
    try:
        predictor = Predictor.load(options.model, options.device)
        outcome.notes += filter(None, [predictor.embedding_note])
        started = time.monotonic()
        predict_table(predictor, job, find_checkpoint(options.model), outcome)
    except KeyboardInterrupt:
        raise Interrupted(what_is_left(job, outcome, ["embed", *arguments])) from None
    return finished(job, outcome, started)
