"""The verb embed of predict.py: the embeddings of molecules as a table."""

from __future__ import annotations

from functools import partial

from graphormer_sepnorm.cli.main import OneLineParser, check_least
from graphormer_sepnorm.cli.table_verbs import (
    COUNTS,
    add_computing,
    add_table,
    checked_job,
    run_job,
)

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
    add_computing(parser)
    options = parser.parse_args(arguments)
    check_least(options, COUNTS)
    job = checked_job(options, verb="embedded")
    from graphormer_sepnorm.inference.predictor import Predictor

    load = partial(Predictor.load, options.model, options.device)
    return run_job(job, options.model, load, ["embed", *arguments])[0]
