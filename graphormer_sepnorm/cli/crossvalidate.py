"""The verb crossvalidate: trains on every fold of a table, then says what came out."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from graphormer_sepnorm.cli.configs import resolve_config
from graphormer_sepnorm.cli.main import check_least
from graphormer_sepnorm.cli.many_runs import (
    check_all,
    check_words_of_fit,
    going_on,
    parser_of,
    refuse_changes,
    show,
    threads_of_runs,
    train_all,
    words_of_all_runs,
)
from graphormer_sepnorm.errors import ConfigError, DataError

if TYPE_CHECKING:
    from graphormer_sepnorm.compare.crossvalidation import CrossValidation

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

The same command again continues: finished folds stay, others go on from their last checkpoint. -o
DIR alone is enough for that; --repeats 3 adds repeats, with other folds and other initial values.

exit status: 0 all folds are finished, 1 some have failed, 130 interrupted

examples:
  train.py crossvalidate -c table_regression --data.table mine.csv -o runs/mine
  train.py crossvalidate -c table_regression --data.table mine.csv --data.split random -o runs/it
  train.py crossvalidate -o runs/mine --repeats 3
"""

FOLDS, REPEATS = 5, 1
_VERB, _NOUN = "crossvalidate", "cross-validation"
_OWN_NAMES = ("arms", "folds", "repeats", "jobs", "allow-code")
# Options of `fit` that belong to the cross-validation, and what to use in their place.
_OWN_OPTIONS = {
    "output": "the directory is given by -o",
    "resume": "start the same command again, it continues what is unfinished",
    "ckpt_path": "every fold starts from the beginning",
    "data.folds": "give --folds",
    "data.fold": "every fold is trained on",
}


def crossvalidate(arguments: list[str]) -> int:
    """Run ``train.py crossvalidate`` with the words after the verb; return the exit status.

    Raises:
        GraphormerError: A user's mistake; nothing has been started.
        Interrupted: After Ctrl-C, SIGTERM or SIGHUP.
    """
    options, fit_options = _parse(arguments)
    directory = Path(options.output).expanduser()
    from graphormer_sepnorm.compare.crossvalidation import CrossValidation
    from graphormer_sepnorm.compare.runner import places

    kept = CrossValidation.read(directory)
    # Without a seed of its own yet, it is only known how many runs there are.
    plan = _asked(directory, options, fit_options, kept)
    _refuse_folds_of_a_file(plan)
    folds = (f"--data.folds={plan.folds}", "--data.fold=0")
    checked = check_all(plan, kept, directory, options.allow_code, folds, ensembles=True)
    placed = places(options.jobs, checked.devices, len(plan.runs(directory)))
    if kept is None:
        plan = dataclasses.replace(
            plan,
            seeds=tuple(checked.seed + repeat for repeat in range(len(plan.seeds))),
            split_seed=checked.configuration["data"]["split_seed"],
            configuration=checked.configuration,
            dataset_fingerprint=checked.fingerprint,
            threads=threads_of_runs(placed[1]),
        )
    else:
        differences = kept.differences(checked.configuration)
        if checked.seed != kept.seeds[0]:
            differences.append(
                f"--seed_everything is {checked.seed} here and {kept.seeds[0]} in {kept.file}"
            )
        other = "another table than the one that is there now: put it back"
        refuse_changes(kept, checked, differences, directory, other)
        plan = going_on(plan, kept, checked, fit_options)
    return train_all(
        _VERB,
        plan,
        directory,
        kept=kept,
        checked=checked,
        placed=placed,
        any_code=options.allow_code,
        report=lambda: _report(plan, directory),
    )


def _parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the options of the cross-validation, and the words that are for ``fit``."""
    parser = parser_of(_VERB, _NOUN, USAGE, DESCRIPTION, EPILOG)
    parser.add_argument("--folds", metavar="K", type=int, help=f"default: {FOLDS}")
    parser.add_argument(
        "--repeats",
        metavar="R",
        type=int,
        default=REPEATS,
        help="how often the table is dealt into folds: repeat r has --data.split_seed and "
        f"--seed_everything larger by r than given; default: {REPEATS}",
    )
    parser.add_argument(
        "--arms",
        metavar="ARMS",
        help="several models on the same folds: as for train.py compare; the first is what the "
        "others are compared with",
    )
    options, rest = parser.parse_known_args(arguments)
    if options.output is None:
        raise ConfigError(f"{_VERB} needs -o DIR, the directory of the {_NOUN}")
    check_least(options, {"folds": 2, "repeats": 1, "jobs": 1})
    check_words_of_fit(rest, _VERB, _OWN_OPTIONS, _OWN_NAMES)
    return options, rest


def _asked(
    directory: Path,
    options: argparse.Namespace,
    fit_options: list[str],
    kept: CrossValidation | None,
) -> CrossValidation:
    """Return what is to be trained: what was kept and what is added to it.

    The seeds of one that is new are counted from 0; the given ones are known when its options are
    checked.
    """
    from graphormer_sepnorm.compare.arms import FILE_OF_AN_ARM, parse_arms
    from graphormer_sepnorm.compare.crossvalidation import (
        FOLD_OPTIONS,
        ONE_MODEL,
        CrossValidation,
    )

    refused = dict.fromkeys(FOLD_OPTIONS, "all have the same folds") | _OWN_OPTIONS
    refused["seed_everything"] = "all have the same seeds, the first is that of the command"
    refused["config"] = FILE_OF_AN_ARM
    arms = parse_arms(options.arms, refused) if options.arms is not None else ()
    if kept is None:
        return CrossValidation(
            base_options=tuple(fit_options),
            arms=arms or ONE_MODEL,
            seeds=tuple(range(options.repeats)),
            baseline=(arms or ONE_MODEL)[0].name,
            folds=options.folds or FOLDS,
        )
    if options.folds not in (None, kept.folds):
        raise ConfigError(
            f"--folds is {options.folds} here and {kept.folds} in {kept.file}: leave it out to "
            "continue, or begin in another directory"
        )
    if arms and not kept.with_arms:
        raise ConfigError(f"{kept.file} has no arms: leave --arms out, or begin elsewhere")
    seeds = tuple(kept.seeds[0] + repeat for repeat in range(options.repeats))
    base = words_of_all_runs(fit_options, kept, directory)
    return dataclasses.replace(kept.with_more(arms, seeds), base_options=base)


def _refuse_folds_of_a_file(plan: CrossValidation) -> None:
    """Raise a ConfigError if a configuration file says what --folds says."""
    for name, _ in plan.copies(Path()):
        data = yaml.safe_load(Path(resolve_config(name)).read_text(encoding="utf-8")).get("data")
        if isinstance(data, dict) and data.get("folds") is not None:
            raise ConfigError(f"{name} has data.folds: take it out, and give --folds")


def _report(plan: CrossValidation, directory: Path) -> None:
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
