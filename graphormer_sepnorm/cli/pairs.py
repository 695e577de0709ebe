"""The verb pairs of predict.py: what exchanging one part of a molecule does to its prediction."""

from __future__ import annotations

import argparse
import sys
import time

from graphormer_sepnorm.cli.main import OneLineParser, check_least
from graphormer_sepnorm.cli.table_verbs import (
    COUNTS,
    add_computing,
    add_table,
    finished,
    job_of,
)

USAGE = "predict.py pairs MODEL -i FILE -o FILE [--label COLUMN] [options]"

DESCRIPTION = """\
Find the matched pairs of a series, molecules that differ in one part at one place, and say what
that exchange does to the prediction. The table that is written has a row for each pair: its rows
and molecules, the core that they share, the part of each ([*:1] is where it sits, [H][*:1] a
hydrogen), both predictions and the change; with --label what was measured too. The exchanges of
most pairs are printed.
"""

EPILOG = """\
example:
  predict.py pairs esol -i series.csv --label logS -o pairs.csv
"""


def pairs(arguments: list[str]) -> int:
    """Run ``predict.py pairs`` with the words after the verb; return the exit status.

    Raises:
        GraphormerError: A user's mistake.
    """
    options = _parse(arguments)
    from graphormer_sepnorm.inference.pair_table import pair_table
    from graphormer_sepnorm.inference.predictor import Predictor
    from graphormer_sepnorm.inference.table_job import Outcome

    job = job_of(options, in_parts=False)
    predictor, outcome = Predictor.load(options.model, options.device), Outcome()
    target = predictor.task.number_of(options.target, "compare")
    started = time.monotonic()
    found = pair_table(predictor, target, job, options.label, outcome)
    if not options.quiet:
        exchanges = len({pair[3:] for pair in found.pairs})
        print(f"{len(found.pairs):,} pairs, {exchanges:,} exchanges", file=sys.stderr)
        for line in found.summary():
            print(f"  {line}", file=sys.stderr)
    return finished(job, outcome, started)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = OneLineParser(
        prog="predict.py pairs", usage=USAGE, description=DESCRIPTION, epilog=EPILOG
    )
    add_table(parser, "table to write; - is standard output")
    add = parser.add_argument
    add("--label", metavar="COLUMN", help="measured values, to compare with what is predicted")
    add("--target", metavar="NAME", help="what is predicted; needed where the model has several")
    add_computing(parser, "")
    options = parser.parse_args(arguments)
    check_least(options, COUNTS)
    return options
