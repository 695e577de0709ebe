"""The verb explain of predict.py: which atoms make a prediction, as pictures, a page or numbers."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from graphormer_sepnorm.cli.main import OneLineParser, check_least
from graphormer_sepnorm.cli.table_verbs import (
    COUNTS,
    LAYOUT,
    add_computing,
    add_table,
    check_molecules,
    finished,
    job_of,
)
from graphormer_sepnorm.errors import ConfigError

USAGE = "predict.py explain MODEL SMILES [SMILES ...] | -i FILE  -o FILE [options]"

DESCRIPTION = """\
Say what each atom contributes to a prediction, in its unit (log-odds where classes are predicted).

.html       a page that needs nothing beside itself: picture, prediction, what contributes most
.svg .png   a picture of up to 60 molecules, with the scale of its colours
.json       numbers: prediction, baseline, and the contributions of atoms and fragments

methods:
  leave_one_atom_out      what the prediction loses where the atom is unknown
  leave_one_fragment_out  the same of whole rings and what is between them
  integrated_gradients    along the way from unknown atoms to these; adds up to the prediction
  gradient_times_input    the first order of that; quickest
  attention_rollout       what [CLS] attends to, through all layers; no contribution

The default is what found known contributions best: integrated_gradients where atoms have BatchNorm
(as in bn+bn and all bundled models), leave_one_atom_out where they have LayerNorm (as in bn+ln).
"""

EPILOG = """\
examples:
  predict.py explain esol "CC(=O)Oc1ccccc1C(=O)O" -o why.html
  predict.py explain RUN -i molecules.csv --target logD --method integrated_gradients -o why.json

how well each method finds what is known to be true: docs/explaining.md
"""
FORMATS = ("html", "svg", "png", "json")


def explain(arguments: list[str]) -> int:
    """Run ``predict.py explain`` with the words after the verb; return the exit status.

    Raises:
        GraphormerError: A user's mistake.
    """
    options, format = _parse(arguments)
    from graphormer_sepnorm.inference.explanation import Explainer
    from graphormer_sepnorm.inference.explanation_file import explain_smiles, explain_table
    from graphormer_sepnorm.inference.predictor import Predictor
    from graphormer_sepnorm.inference.table_job import Outcome

    job = job_of(options, output_format=format, jobs=options.jobs, verb="explained", in_parts=False)
    outcome = Outcome()
    predictor = Predictor.load(options.model, options.device)
    explainer = Explainer(predictor, options.target, options.method)
    started = time.monotonic()
    if options.input is None:
        explain_smiles(explainer, options.smiles, job, options.model, outcome)
    else:
        explain_table(explainer, job, options.model, outcome)
    return finished(job, outcome, started)


def _parse(arguments: list[str]) -> tuple[argparse.Namespace, str]:
    """Return the options and the format of the output."""
    parser = OneLineParser(
        prog="predict.py explain", usage=USAGE, description=DESCRIPTION, epilog=EPILOG
    )
    formats = ", ".join(f".{format}" for format in FORMATS)
    add_table(parser, f"file to write: {formats}", molecules=True)
    add = parser.add_argument
    add("--target", metavar="NAME", help="what is explained; needed where the model has several")
    add("--method", metavar="NAME", help="how contributions are found; default: by the norm")
    add_computing(parser)
    options = parser.parse_intermixed_args(arguments)
    ending = Path(options.output).suffix.lower().removeprefix(".")
    if ending not in FORMATS:
        raise ConfigError(
            f"{options.output}: what format is this? name a file .html, .svg, .png or .json"
        )
    check_molecules(options, "explain", (*LAYOUT, "input_format", "jobs"))
    check_least(options, COUNTS)
    return options, ending
