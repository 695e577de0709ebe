"""The command `predict.py`: a model and molecules in, a table of predicted values out."""

from __future__ import annotations

import argparse
import json
import math
import shlex
import shutil
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphormer_sepnorm import __version__
from graphormer_sepnorm.cli.main import OneLineParser, check_least, run
from graphormer_sepnorm.cli.table_verbs import (
    COUNTS,
    EXIT_NOTHING_PREDICTED,
    LAYOUT,
    add_computing,
    add_table,
    check_molecules,
    checked_job,
    finished,
    run_job,
)
from graphormer_sepnorm.errors import ConfigError, closest, did_you_mean
from graphormer_sepnorm.formatting import aligned, four_digits
from graphormer_sepnorm.metrics import metrics_of
from graphormer_sepnorm.process import command
from graphormer_sepnorm.runs.directory import RunDirectory, find_checkpoint

if TYPE_CHECKING:
    from graphormer_sepnorm.inference.predictor import Predictions, Predictor

DESCRIPTION = """\
Predict molecular properties. MODEL is a checkpoint file, a run directory of train.py (its best
checkpoint), or the name of a model that comes with the package: {models}.

The output has the rows and columns of the input, in the same order, followed by pred_<target>,
warning and error (the reason if there is no prediction). Models trained on a table also give:

  low_<target>, high_<target>  90 % prediction interval (-inf or inf beyond the range of an assay)
  expected_error_<target>      expected absolute error
  similarity                   to the most similar training molecule
  distance                     of the [CLS] embedding from those of training; about 1 is typical
  in_domain                    no outside the applicability domain; warning says why
  spread_<target>              standard deviation over the members of an ensemble (no error bar)
"""

EMBED = """\
Write the embedding of each molecule of a table: the graph token ([CLS]) after the last norm, from
which predictions are computed. The output has the rows and columns of the table, in the same order,
followed by cls_0, cls_1, ... (one per channel), warning and error. In Python, Predictor.embed gives
arrays, with atoms=True also those of the atoms.
"""

EXPLAIN = """\
Write a page with the contribution of each atom to a prediction, in the unit of the target (log-odds
for classes): picture, prediction, largest contributions.

methods:
  integrated_gradients    along the way from unknown atoms to these; adds up to the prediction
  leave_one_fragment_out  what the prediction loses where a ring, or what is between, is unknown

The default is what found known contributions better: integrated_gradients where atoms have
BatchNorm (as in bn+bn and all bundled models), the other where they have LayerNorm (as in bn+ln).
"""

EXPLAIN_EXAMPLES = """\
examples:
  predict.py explain esol "CC(=O)Oc1ccccc1C(=O)O" -o why.html
  predict.py explain RUN -i molecules.csv --target logD --method leave_one_fragment_out -o why.html

how well each method finds what is known to be true: docs/how-to/explain.md
"""

# Columns that a terminal shows without their target.
_SHORT = ("expected_error", "spread", "low", "high")

EXAMPLES = """\
examples:
  predict.py esol "CCO" "c1ccccc1O" -o two.csv
  predict.py esol -i molecules.csv -o predicted.csv
  predict.py RUN -i test.sdf -o predicted.csv --evaluate logS
  cat molecules.smi | predict.py esol -i - > predicted.csv
  predict.py info esol

exit status: 0, or 1 if no row has a prediction; 2 after a user error, 130 after Ctrl-C
"""


def _info(arguments: list[str]) -> None:
    what = "Print what a model predicts, how well, and from what."
    parser = OneLineParser(prog="predict.py info", usage=VERBS["info"][0], description=what)
    parser.add_argument("model", metavar="MODEL", help="checkpoint, run directory or bundled name")
    options = parser.parse_args(arguments)
    file = find_checkpoint(options.model)
    from graphormer_sepnorm.inference.checkpoint import in_one_line, read_checkpoint
    from graphormer_sepnorm.inference.model_card import describe

    checkpoint = read_checkpoint(file)
    with in_one_line(file):
        print(describe(checkpoint, file))


def _embed(arguments: list[str]) -> int:
    parser = OneLineParser(prog="predict.py embed", usage=VERBS["embed"][0], description=EMBED)
    add_table(parser, "file to write; - (default) writes CSV to standard output", default="-")
    add_computing(parser)
    options = parser.parse_args(arguments)
    check_least(options, COUNTS)
    job = checked_job(options, verb="embedded")
    from graphormer_sepnorm.inference.predictor import Predictor

    load = partial(Predictor.load, options.model, options.device)
    return run_job(job, options.model, load, ["embed", *arguments])[0]


def _explain(arguments: list[str]) -> int:
    parser = OneLineParser(
        prog="predict.py explain",
        usage=VERBS["explain"][0],
        description=EXPLAIN,
        epilog=EXPLAIN_EXAMPLES,
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


# Verb -> its usage, and what runs it: takes the words after it, may return an exit status.
VERBS: dict[str, tuple[str, Callable[[list[str]], int | None]]] = {
    "info": ("predict.py info MODEL", _info),
    "embed": ("predict.py embed MODEL -i FILE [-o FILE] [options]", _embed),
    "explain": (
        "predict.py explain MODEL SMILES [SMILES ...] | -i FILE  -o FILE [options]",
        _explain,
    ),
}
USAGE = "\n       ".join(
    [
        "predict.py MODEL SMILES [SMILES ...]",
        "predict.py MODEL -i FILE [-o FILE] [options]",
        *(usage for usage, _ in VERBS.values()),
    ]
)


def main(argv: list[str] | None = None) -> int:
    """Run `predict.py` with these arguments (those of the process if None)."""
    return run("predict.py", _predict, argv)


def _predict(arguments: list[str]) -> int | None:
    if not arguments:
        _parser().print_help()
        return 0
    first, second = (*arguments, "")[:2]
    if first in VERBS:
        return VERBS[first][1](arguments[1:])
    if second in VERBS and not first.startswith("-"):
        raise ConfigError(f"the subcommand comes first: predict.py {second} {first}")
    others = ("train", "fit", "test", "validate", "pretrain", "compare", "crossvalidate", "pool")
    if first.isalpha() and closest(first, [*VERBS, *others], 0.75) and not Path(first).exists():
        raise ConfigError(
            f"{first} is no model{did_you_mean(first, VERBS)}: the subcommands of predict.py are "
            f"{', '.join(VERBS)}, and train.py trains, tests and compares"
        )
    options = _parse(arguments)
    if options.input is None:
        return 0 if _predict_arguments(options) else EXIT_NOTHING_PREDICTED
    from graphormer_sepnorm.inference.table_job import Shard

    job = checked_job(options, shard=Shard.parse(options.shard) if options.shard else None)
    load = partial(_ready, options)
    status, outcome = run_job(job, options.model, load, arguments)
    if outcome.evaluation is not None:
        print(outcome.evaluation.text(), file=sys.stdout if job.to_file else sys.stderr)
    return status


def _parser() -> OneLineParser:
    from graphormer_sepnorm.resources import bundled_models

    parser = OneLineParser(
        prog="predict.py",
        usage=USAGE,
        description=DESCRIPTION.format(models=", ".join(bundled_models()) or "none"),
        epilog=EXAMPLES,
    )
    parser.add_argument("--version", action="version", version=f"graphormer_sepnorm {__version__}")
    what = "file to write; - (default) writes CSV to standard output"
    add_table(parser, what, "-", molecules=True)
    values = ", ".join(metric.label for metric in metrics_of("regression"))
    classes = ", ".join(metric.label for metric in metrics_of("binary"))
    parser.add_argument(
        "--evaluate",
        metavar="COLUMN",
        action="append",
        default=[],
        help=f"label column to compare with: {values}; for classes {classes}. With several targets "
        "repeat the option for each (columns named like the targets, or in their order), or all",
    )
    sure = parser.add_argument_group("uncertainty (models trained on a table)")
    sure.add_argument(
        "--interval",
        metavar="LEVEL",
        type=_level,
        help="level of the prediction intervals low_<target> to high_<target>, between 0 and 1 "
        "(0.9), or none; for classes: also write set_<target>, the classes that cannot be excluded",
    )
    near = "also list the K most similar training molecules"
    sure.add_argument("--neighbors", type=int, metavar="K", help=near)
    add = parser.add_argument_group("many machines (docs/how-to/clusters.md)").add_argument
    add("--shard", metavar="K/N", help="predict only part K of N of the table")
    computing = parser.add_argument_group("computing")
    add_computing(computing)
    computing.add_argument("--debug", action="store_true", help="show tracebacks of errors")
    return parser


def _parse(arguments: list[str]) -> argparse.Namespace:
    """Parse, and raise a ConfigError for options that are unknown or contradict each other."""
    parser = _parser()
    # Intermixed: molecules may stand before and after options.
    options, rest = parser.parse_known_intermixed_args(arguments)
    if rest:
        known = [name for action in parser._actions for name in action.option_strings]
        name = rest[0].partition("=")[0]
        if name in ("--model", "--checkpoint"):
            raise ConfigError(f"unknown option {name}: the model comes first, predict.py MODEL ...")
        raise ConfigError(f"unknown option {name}{did_you_mean(name, known)}")
    of_tables = ("resume", "evaluate", "input_format", "jobs", "shard")
    check_molecules(options, "predict", (*LAYOUT, *of_tables))
    if options.shard and options.evaluate:
        raise ConfigError("--evaluate compares whole tables: leave it out with --shard")
    names = ("interval", "neighbors")
    asked = {n: value for n in names if (value := getattr(options, n)) is not None}
    options.asked = json.dumps(asked) if asked else ""  # as a job has them
    options.evaluate = tuple(options.evaluate)
    check_least(options, COUNTS)
    return options


def _level(text: str) -> float | str:
    try:
        return text if text == "none" else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"it is {text}: give a number, or none") from None


def _predict_arguments(options: argparse.Namespace) -> bool:
    """Predict what stands on the command line; return whether any of it could be."""
    job = checked_job(options)
    from graphormer_sepnorm.inference.predict_table import rounded
    from graphormer_sepnorm.inference.table_job import forget_progress
    from graphormer_sepnorm.tables.writer import create_table

    predictor = _ready(options)
    found = predictor.predict(options.smiles, job.batch_size, job.max_atoms)
    if not job.to_file and options.output_format is None and sys.stdout.isatty():
        print(_for_terminal(predictor, found))
        return not all(found.errors)
    types = dict.fromkeys(found.columns, "float64")
    columns = ["smiles", *found.table, "warning", "error"]
    cells = [
        [*map(rounded, cells)] if name in types else cells for name, cells in found.table.items()
    ]
    writer = create_table(job.destination, columns, format=options.output_format, types=types)
    try:
        forget_progress(job)
        writer.write(zip(found.smiles, *cells, found.warnings, found.errors, strict=True))
        writer.commit()
    except BaseException:
        writer.discard()
        raise
    return not all(found.errors)


def _for_terminal(predictor: Predictor, found: Predictions) -> str:
    """Return predictions in lines: a row for each molecule, or one below the other if too wide.

    Names of columns are short there, and numbers have four digits.
    """

    def short(cell: Any) -> str:
        if not isinstance(cell, float):
            return cell
        return "" if math.isnan(cell) else four_digits(cell)  # an interval may be missing

    task = predictor.task
    shown = {f"{kind}_{name}": kind for kind in _SHORT for name in task.targets}
    for name, unit in zip(task.targets, task.units, strict=True):
        shown[f"pred_{name}"] = f"{name} [{unit}]" if unit else name
    cells = [[*map(short, column)] for column in found.table.values()]
    remarks = [one or other for one, other in zip(found.errors, found.warnings, strict=True)]
    header = ["smiles", *(shown.get(name, name) for name in found.table), ""]
    rows = [*zip(found.smiles, *cells, remarks, strict=True)]
    table = aligned([header, *rows])
    if max(map(len, table.splitlines())) <= shutil.get_terminal_size().columns:
        return table
    of_each = ([one for one in zip(header, row, strict=True) if one[1]] for row in rows)
    return "\n\n".join(map(aligned, of_each))


def _ready(options: argparse.Namespace) -> Predictor:
    """Load the model, and set what its predictions come with."""
    from graphormer_sepnorm.datasets.catalog import PRETRAINING
    from graphormer_sepnorm.inference.predictor import Predictor

    predictor = Predictor.load(options.model, options.device)
    if predictor.facts["dataset"] == PRETRAINING:
        raise ConfigError(
            f"{options.model} is a pre-trained network, whose outputs are standardized descriptors "
            f"and no property: train with --model.from_pretrained {options.model}, or take its "
            f"vectors with python predict.py embed {options.model}"
        )
    predictor.configure(options.interval, options.neighbors)
    run = RunDirectory(Path(options.model).expanduser())
    if run.configuration_file.is_file() and not run.finished and not options.quiet:
        print(
            f"{options.model} has not ended: intervals and the trees of a blend come last. "
            f"{command('train')} fit --resume {shlex.quote(options.model)} continues it",
            file=sys.stderr,
        )
    return predictor


if __name__ == "__main__":
    sys.exit(main())
