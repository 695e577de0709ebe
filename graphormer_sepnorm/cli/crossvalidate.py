"""The verb crossvalidate: trains on every fold of a table, then says what came out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from graphormer_sepnorm.cli.main import check_least
from graphormer_sepnorm.cli.many_runs import (
    OWN,
    Job,
    parse_base,
    parser_of,
    show,
)
from graphormer_sepnorm.errors import ConfigError, DataError

if TYPE_CHECKING:
    from graphormer_sepnorm.runs.plan import CrossValidation

USAGE = (
    "train.py crossvalidate -c CONFIG.yaml --data.table FILE [--folds K] [--repeats R] -o DIR "
    "[options of fit]"
)

DESCRIPTION = """\
Train on every fold of a table, each a run and a process of its own, and say what came out.

The molecules are dealt into folds by scaffold, or by chance with --data.split random. Each fold is
the test split once; a tenth of the others is the validation split. Options that are not listed here
go to fit: see train.py fit --help.
"""

EPILOG = """\
In DIR: folds.csv (every test metric of every fold), out_of_fold.csv (every row of the table as the
run predicts it that has not seen it; drawn in out_of_fold.png), summary.json, and the runs,
DIR/repeat0/fold0 and so on. Each of them is a model for predict.py.

The same command again, or -o DIR alone, continues: finished folds stay, others go on from their
last checkpoint; --repeats 3 adds repeats, with other folds and other initial values.

exit status: 0 all folds are finished, 1 some have failed, 130 interrupted
"""

FOLDS = 5
# What it decides itself; and what arms have in common.
_REFUSED = (*OWN, "data.folds", "data.fold")
_OF_ALL_ARMS = (*_REFUSED, "config", "data.split_seed", "seed_everything")


def crossvalidate(arguments: list[str]) -> int:
    """Run ``train.py crossvalidate`` with the words after the verb; return the exit status.

    Raises:
        GraphormerError: A user's mistake; nothing has been started.
        Interrupted: After Ctrl-C, SIGTERM or SIGHUP.
    """
    parser = parser_of("crossvalidate", USAGE, DESCRIPTION, EPILOG)
    parser.add_argument("--folds", metavar="K", type=int, help=f"default: {FOLDS}")
    parser.add_argument(
        "--repeats",
        metavar="R",
        type=int,
        default=1,
        help="how often the table is dealt into folds: repeat r has --data.split_seed and "
        "--seed_everything larger by r than given; default: 1",
    )
    parser.add_argument(
        "--arms",
        metavar="ARMS",
        help="several models on the same folds: as for train.py compare; the first is what the "
        "others are compared with",
    )
    options, words = parser.parse_known_args(arguments)
    directory = options.output
    check_least(options, {"folds": 2, "repeats": 1, "jobs": 1})
    from graphormer_sepnorm.compare.arms import parse_arms
    from graphormer_sepnorm.runs.plan import ONE_MODEL, CrossValidation

    stored = CrossValidation.read(directory)
    base = parse_base(options.config, words, _REFUSED, stored).config
    if base.data.folds is not None:
        raise ConfigError("a configuration has data.folds: take it out, and give --folds")
    arms = parse_arms(options.arms, _OF_ALL_ARMS) if options.arms is not None else ()
    first = base.seed_everything
    seeds = tuple(first + repeat for repeat in range(options.repeats))
    if stored is None:
        arms = arms or ONE_MODEL
        plan = CrossValidation(base, arms, seeds, arms[0].name, folds=options.folds or FOLDS)
    elif options.folds not in (None, stored.folds):
        raise ConfigError(
            f"--folds is {options.folds} here and {stored.folds} in {stored.file}: leave it out "
            "to continue, or begin in another directory"
        )
    elif arms and stored.arms == ONE_MODEL:
        raise ConfigError(f"{stored.file} has no arms: leave --arms out, or begin elsewhere")
    else:
        plan = stored.with_more(base, arms, seeds)
    jobs = options.jobs
    job = Job("crossvalidate", directory, plan, stored, jobs, lambda: report(plan, directory))
    return job.train()


def report(plan: CrossValidation, directory: Path) -> None:
    """Collect what the folds came to, and say it."""
    from graphormer_sepnorm.compare.fold_results import (
        FIGURE,
        OUT_OF_FOLD,
        SUMMARY,
        collect,
        results_text,
    )
    from graphormer_sepnorm.compare.fold_results import FOLDS as FOLDS_FILE

    try:
        results = collect(plan, plan.runs(directory), directory)
    except OSError as error:
        raise DataError(f"the report on {directory} cannot be made: {error}") from error
    show(f"\n{results_text(results)}\n")
    for name in (FOLDS_FILE, OUT_OF_FOLD, SUMMARY, FIGURE):
        if (directory / name).is_file():  # a picture may have nothing to show
            print(f"results  {directory / name}", flush=True)
