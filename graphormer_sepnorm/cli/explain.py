"""The verb explain of predict.py: a page that shows which atoms make a prediction."""

from __future__ import annotations

import time
from pathlib import Path

from graphormer_sepnorm.cli.main import OneLineParser, check_least
from graphormer_sepnorm.cli.table_verbs import (
    COUNTS,
    LAYOUT,
    add_computing,
    add_table,
    check_molecules,
    checked_job,
    finished,
)
from graphormer_sepnorm.errors import ConfigError

USAGE = "predict.py explain MODEL SMILES [SMILES ...] | -i FILE  -o FILE [options]"

DESCRIPTION = """\
Write a page with the contribution of each atom to a prediction, in the unit of the target (log-odds
for classes): picture, prediction, largest contributions.

methods:
  integrated_gradients    along the way from unknown atoms to these; adds up to the prediction
  leave_one_fragment_out  what the prediction loses where a ring, or what is between, is unknown

The default is what found known contributions better: integrated_gradients where atoms have
BatchNorm (as in bn+bn and all bundled models), the other where they have LayerNorm (as in bn+ln).
"""

EPILOG = """\
examples:
  predict.py explain esol "CC(=O)Oc1ccccc1C(=O)O" -o why.html
  predict.py explain RUN -i molecules.csv --target logD --method leave_one_fragment_out -o why.html

how well each method finds what is known to be true: docs/how-to/explain.md
"""


def explain(arguments: list[str]) -> int:
    """Run ``predict.py explain`` with the words after the verb; return the exit status."""
    parser = OneLineParser(
        prog="predict.py explain", usage=USAGE, description=DESCRIPTION, epilog=EPILOG
    )
    add_table(parser, "HTML page to write", molecules=True)
    add = parser.add_argument
    add("--target", metavar="NAME", help="target to explain; required with several targets")
    add("--method", metavar="NAME", help="see above; default: chosen by the norm")
    add_computing(parser)
    options = parser.parse_intermixed_args(arguments)
    if Path(options.output).suffix.lower() != ".html":
        raise ConfigError(f"{options.output}: explain writes an HTML page, NAME.html")
    check_molecules(options, "explain", (*LAYOUT, "input_format", "jobs"))
    check_least(options, COUNTS)
    job = checked_job(options, output_format="html", verb="explained")
    from graphormer_sepnorm.inference.explain import Explainer
    from graphormer_sepnorm.inference.predictor import Predictor
    from graphormer_sepnorm.inference.table_job import Outcome
    from graphormer_sepnorm.pages.explanation import explain_smiles, explain_table

    outcome = Outcome()
    predictor = Predictor.load(options.model, options.device)
    explainer = Explainer(predictor, options.target, options.method)
    started = time.monotonic()
    if options.input is None:
        explain_smiles(explainer, options.smiles, job, options.model, outcome)
    else:
        explain_table(explainer, job, options.model, outcome)
    return finished(job, outcome, started)
