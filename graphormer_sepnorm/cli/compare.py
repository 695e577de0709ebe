"""The verbs compare and crossvalidate: train many runs as one plan, then report what differs."""

from __future__ import annotations

import re
import shlex
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from graphormer_sepnorm.cli.known_warnings import silence_known_noise
from graphormer_sepnorm.cli.main import OneLineParser, check_least
from graphormer_sepnorm.cli.options import long_help, options_of, parse, require_data
from graphormer_sepnorm.compare.arms import least_seeds, parse_arms
from graphormer_sepnorm.config import FitConfig, flat, refuse_shape
from graphormer_sepnorm.errors import ConfigError, DataError, GraphormerError, Interrupted, closest
from graphormer_sepnorm.pipeline.first_look import look_at_training
from graphormer_sepnorm.process import command
from graphormer_sepnorm.resources import bundled_arms
from graphormer_sepnorm.runs.plan import (
    COMPARISON,
    CROSS_VALIDATION,
    OF_A_COMPARISON,
    ONE_MODEL,
    Arm,
    Plan,
    RunSpec,
)

EXIT_FAILED = 1
FOLDS = 5
# Options of `fit` that a verb decides itself; and those that arms have in common.
_REFUSED = {
    "compare": (*OF_A_COMPARISON, "resume"),
    "crossvalidate": ("output", "resume", "data.folds", "data.fold"),
}
_OF_ALL_ARMS = ("config", "data.split_seed", "seed_everything")
_COMPARE = {
    "usage": "-c CONFIG.yaml --arms ARMS --seeds SEEDS -o DIR [options of fit]",
    "description": """\
Train every arm with every seed, each run in its own process, and report the differences.

With the same seed all arms have the same initial values, batch order and dropout. All other options
are those of fit and apply to all arms: see train.py fit --help.
""",
    "epilog": """\
The same command, or -o DIR alone, continues an interrupted comparison: finished runs are not
repeated, others continue from their last checkpoint. Seeds and arms can be added in the same way.

exit status: 0 all runs are finished, 1 some have failed, 130 interrupted
""",
}
_CROSSVALIDATE = {
    "usage": "-c CONFIG.yaml --data.table FILE [--folds K] [--repeats R] -o DIR [options of fit]",
    "description": """\
Train on every fold of a table, each run in its own process, and report the results.

Molecules are assigned to folds by scaffold, or at random with --data.split random. Each fold is the
test split once; a tenth of the others is the validation split. All other options are those of fit:
see train.py fit --help.
""",
    "epilog": """\
Results in DIR: folds.csv (every test metric of every fold), out_of_fold.csv (the out-of-fold
prediction of every row; plotted in out_of_fold.png), summary.json, and the runs DIR/repeat0/fold0
and so on, each of which is a model for predict.py.

The same command, or -o DIR alone, continues an interrupted cross-validation; --repeats 3 adds
repeats, with other folds and seeds.

exit status: 0 all folds are finished, 1 some have failed, 130 interrupted
""",
}


def compare(arguments: list[str]) -> int:
    """Run ``train.py compare`` with the words after the verb; return the exit status."""
    parser = _parser("compare", _COMPARE)
    parser.add_argument(
        "--arms",
        metavar="ARMS",
        help="names of norms, such as sharenorm,sepnorm; or a YAML file {arm: {option: value}} "
        f"with options of fit, or the name of a bundled one: {' or '.join(bundled_arms())} (the "
        "former is for zinc_subset_best)",
    )
    parser.add_argument(
        "--seeds",
        metavar="SEEDS",
        help="such as 0,1,2 or 0-5; default: from 0, as many as a sign-flip test needs for p < "
        "0.05: 6 for two arms, 7 for three or four, 8 for six",
    )
    parser.add_argument("--baseline", metavar="ARM", help="reference arm; default: the first")
    parser.add_argument(
        "--report-only",
        action="store_true",
        help="report on existing runs, including unfinished ones, without training",
    )
    options, words = parser.parse_known_args(arguments)
    check_least(options, {"jobs": 1})
    directory = options.output
    if options.report_only:
        if words or options.config or options.arms or options.seeds:
            raise ConfigError("--report-only trains nothing: remove other options")
        return make_report(directory, options.baseline)
    stored = Plan.read(directory / COMPARISON)
    base = _parse_base("compare", options, words, stored)
    arms = _arms("compare", options.arms)
    seeds = parse_seeds(options.seeds) if options.seeds is not None else ()
    if stored is not None:
        plan = stored.with_more(base, arms, seeds)
    elif len(arms) < 2:
        raise ConfigError("--arms names what is compared, two or more: as sharenorm,sepnorm")
    else:
        seeds = seeds or tuple(range(least_seeds(len(arms) - 1)))
        plan = Plan(base, arms, seeds, arms[0].name)
    if options.baseline:
        plan = replace(plan, baseline=options.baseline)
    return _train(directory, plan, stored, options.jobs)


def crossvalidate(arguments: list[str]) -> int:
    """Run ``train.py crossvalidate`` with the words after the verb; return the exit status."""
    parser = _parser("crossvalidate", _CROSSVALIDATE)
    parser.add_argument("--folds", metavar="K", type=int, help=f"default: {FOLDS}")
    parser.add_argument(
        "--repeats",
        metavar="R",
        type=int,
        default=1,
        help="number of times the table is divided into folds; repeat r adds r to "
        "--data.split_seed and --seed_everything; default: 1",
    )
    parser.add_argument(
        "--arms",
        metavar="ARMS",
        help="several models on the same folds, as for train.py compare; the first is the "
        "reference",
    )
    options, words = parser.parse_known_args(arguments)
    check_least(options, {"folds": 2, "repeats": 1, "jobs": 1})
    directory = options.output
    stored = Plan.read(directory / CROSS_VALIDATION)
    base = _parse_base("crossvalidate", options, words, stored)
    if base.data.table is None:
        raise ConfigError("folds are those of a table of your own: name it with --data.table")
    arms = _arms("crossvalidate", options.arms)
    seeds = tuple(base.seed_everything + repeat for repeat in range(options.repeats))
    if stored is None:
        arms = arms or ONE_MODEL
        plan = Plan(base, arms, seeds, arms[0].name, folds=options.folds or FOLDS)
    elif options.folds not in (None, stored.folds):
        raise ConfigError(
            f"--folds is {options.folds} here and {stored.folds} in {stored.file}: remove it to "
            "continue, or start in another directory"
        )
    elif arms and stored.arms == ONE_MODEL:
        raise ConfigError(f"{stored.file} has no arms: remove --arms, or start elsewhere")
    else:
        plan = stored.with_more(base, arms, seeds)
    return _train(directory, plan, stored, options.jobs)


def pool(arguments: list[str]) -> int:
    """Run ``train.py pool`` with the words after the verb; return the exit status."""
    parser = OneLineParser(
        prog="train.py pool",
        usage="train.py pool DIR DIR ... [-o FILE.csv]",
        description="Pool several comparisons, or cross-validations of several arms, with equal "
        "weight.",
    )
    add = parser.add_argument
    add("directories", metavar="DIR", nargs="+", type=_path, help="of compare or crossvalidate")
    add("-o", "--output", metavar="FILE", type=_path, help="also write the table as CSV")
    options = parser.parse_args(arguments)
    for missing in (one for one in options.directories if not one.is_dir()):
        raise DataError(f"{missing} is no directory")
    from graphormer_sepnorm.compare import pooling

    with _writing_reports(options.output or Path()):
        text = pooling.pooled_table(pooling.pool(options.directories), options.output)
    print(text)
    return 0


def _path(text: str) -> Path:
    return Path(text).expanduser()


def _parser(verb: str, texts: dict[str, str]) -> OneLineParser:
    """Return a parser with the options that both verbs have."""
    name = f"train.py {verb}"
    parser = OneLineParser(prog=name, **texts | {"usage": f"{name} {texts['usage']}"})
    add = parser.add_argument
    add("-c", "--config", metavar="FILE", action="append", default=[], help="see train.py fit")
    what = "show all options of fit and exit"
    add("--help-all", action="version", version=long_help("fit"), help=what)
    add(
        "-o",
        "--output",
        metavar="DIR",
        type=_path,
        required=True,
        help="directory for all runs and their results",
    )
    add(
        "--jobs",
        metavar="N",
        type=int,
        help="number of parallel runs; default: one per GPU, or per core without a GPU. They share "
        "the cores equally, unless OMP_NUM_THREADS is set",
    )
    return parser


def _arms(verb: str, text: str | None) -> tuple[Arm, ...]:
    return () if text is None else parse_arms(text, (*_REFUSED[verb], *_OF_ALL_ARMS))


def _parse_base(verb: str, own: Namespace, words: Sequence[str], stored: Plan | None) -> FitConfig:
    """Parse the options of ``fit`` that all runs share.

    Without a configuration file they are added to those that a plan was started with.
    """
    for word in words:
        name = word.partition("=")[0].removeprefix("--").replace("-", "_")
        if word.startswith("--") and name in _REFUSED[verb]:
            raise ConfigError(f"--{name} is decided by the subcommand: remove it, see --help")
        meant = closest(name, vars(own), 0.75)
        if word.startswith("--") and meant and name not in options_of("fit"):
            raise ConfigError(f"unknown option --{name} (did you mean '--{meant}'?)")
    before = flat(stored.base.to_plain()) if stored and not own.config else None
    request = parse("fit", [*(f"--config={file}" for file in own.config), *words], before)
    if stored is None:
        require_data(request)
    refuse_shape(request.config, request.typed)
    return request.config


def parse_seeds(text: str) -> tuple[int, ...]:
    """Read seeds with commas between, such as ``0,3`` or ``0-5``, or raise a ConfigError."""
    seeds: list[int] = []
    for word in text.split(","):
        found = re.fullmatch(r"\s*(\d{1,10})(?:-(\d{1,10}))?\s*", word, re.ASCII)
        own = range(int(found[1]), int(found[2] or found[1]) + 1) if found else ()
        if not own:
            raise ConfigError(f"--seeds '{text}': '{word}' is no seed; give 0,1,2 or 0-2")
        seeds += own
    return tuple(dict.fromkeys(seeds))


def _train(directory: Path, plan: Plan, stored: Plan | None, jobs: int | None) -> int:
    """Check a plan, train what is not finished while no other command is at work, and report."""
    runs = plan.runs(directory)
    if stored is None:
        for run in runs[: len(plan.arms)]:  # the first of each arm
            table = run is runs[0] or run.config.data != runs[0].config.data
            look_at_training(run.config, table)
    silence_known_noise(trains=False)
    from graphormer_sepnorm.runs import scheduler

    fingerprint, metric = _prepare(plan, runs)
    if stored is None:
        slots = scheduler.slots(jobs, plan.base.trainer, len(runs))[1]
        threads = scheduler.threads_of_runs(slots)
        plan = replace(plan, dataset_fingerprint=fingerprint, threads=threads)
    elif fingerprint != stored.dataset_fingerprint:
        raise ConfigError(
            f"{directory} was started with other data than those that are there now (or with "
            "another split of them): put them back, or start in another directory"
        )
    verb = "crossvalidate" if plan.folds else "compare"
    then = f"{command('train')} {verb} -o {shlex.quote(str(directory))}"
    with _at_work(directory, plan, stored) as lock:
        runs = plan.runs(directory)
        if not plan.folds and not all(run.finished for run in runs):
            from graphormer_sepnorm.compare.statistics import TYPICAL_SD, chances

            print(f"{chances(TYPICAL_SD, len(plan.seeds), len(plan.arms) - 1)}\n")
        whole = scheduler.train(runs, metric=metric, lock=lock, jobs=jobs, threads=plan.threads)
        unfinished = [run for run in runs if not run.finished]
        count = len(runs) - len(unfinished)
        done = f"interrupted, {count} of {len(runs)} runs are finished; continue with: {then}"
        if not whole and unfinished:
            raise Interrupted(done)
        if count:
            try:
                report_folds(plan, directory) if plan.folds else make_report(directory)
            except KeyboardInterrupt:
                raise Interrupted(done) from None
            except GraphormerError as error:
                if not unfinished:
                    raise
                print(f"train.py: {error}", file=sys.stderr)  # and which runs have failed
    if not unfinished:
        return 0
    print(
        f"train.py: {len(unfinished)} of {len(runs)} runs have failed: "
        f"{', '.join(run.name for run in unfinished)}; to try them again: {then}",
        file=sys.stderr,
    )
    return EXIT_FAILED


def _prepare(plan: Plan, runs: list[RunSpec]) -> tuple[str, str]:
    """Check the data of all arms before anything starts, and prepare them once for all.

    Returns:
        Fingerprint of the data, and main metric.
    """
    from graphormer_sepnorm.datasets.molecule_data import MoleculeData
    from graphormer_sepnorm.datasets.training_graphs import MemberFolds
    from graphormer_sepnorm.pipeline.decisions import monitored_metric

    modules: dict[str, MoleculeData] = {}
    fingerprint = metric = ""
    for arm, run in zip(plan.arms, runs, strict=False):  # the first run of each arm
        config = run.config
        folds = config.ensemble if config.ensemble_by == "folds" and config.ensemble > 1 else 0
        # Reading a table can take a while, and the size of a batch does not matter to it.
        length = config.model.max_path_length
        key = repr((replace(config.data, batch_size=2), length, folds))
        if key not in modules:
            modules[key] = MoleculeData(config.data, max_path_length=length)
            if folds:
                modules[key].assign_members(MemberFolds(folds))
        data = modules[key]
        task = data.splits.task
        for graphs in data.numbers.of_members or [data.numbers.validated]:
            labels = data.store.targets[graphs]
            monitored_metric(task, labels, config.metric, config.early_stopping)
        metric = task.metric
        if fingerprint not in ("", data.splits.fingerprint):
            raise ConfigError(
                f"arms '{plan.arms[0].name}' and '{arm.name}' have different data or splits: "
                "only arms with the same molecules can be compared"
            )
        fingerprint = data.splits.fingerprint
    return fingerprint, metric


@contextmanager
def _at_work(directory: Path, plan: Plan, stored: Plan | None) -> Iterator[int]:
    """Make the directory, keep other commands out, write the plan there, yield the lock."""
    from graphormer_sepnorm.runs.locks import locked

    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make {directory} ({error.strerror})") from error
    with locked(directory) as lock:
        if plan.read(directory / plan.file) != stored:
            raise ConfigError(
                f"another command has changed what is trained in {directory} meanwhile: start "
                "this one again"
            )
        for run in plan.runs(directory) if stored is None else ():
            if run.finished or run.begun or run.files.record_file.is_file():
                raise ConfigError(
                    f"there is a run in {run.directory}, and no {plan.file} in {directory} "
                    "has its options: put that back, or start in another directory"
                )
        plan.write(directory)
        yield lock


def make_report(directory: Path, baseline: str | None = None) -> int:
    """Collect the results of a comparison, write the report on them and print it.

    Arms are compared with `baseline` (None: the comparison's). A GraphormerError if that fails.
    """
    if not directory.is_dir():
        raise ConfigError(f"there is no comparison in {directory}")
    silence_known_noise(trains=False)
    from graphormer_sepnorm.compare.report import summary, write_report
    from graphormer_sepnorm.compare.results import collect
    from graphormer_sepnorm.runs.locks import REPORT_LOCK, locked

    with _writing_reports(directory), locked(directory, patience=600, name=REPORT_LOCK):
        results = collect(directory, baseline)
        write_report(results, directory)
    print(f"{summary(results)}\n\nreport  {directory / 'report.html'}", flush=True)
    return 0


def report_folds(plan: Plan, directory: Path) -> None:
    """Collect the results of the folds, write and print them."""
    from graphormer_sepnorm.compare import folds

    with _writing_reports(directory):
        results = folds.collect(plan, plan.runs(directory), directory)
    files = (folds.FOLDS, folds.OUT_OF_FOLD, folds.SUMMARY, folds.FIGURE)
    made = ", ".join(name for name in files if (directory / name).is_file())  # maybe no picture
    model = next(run.directory for run in plan.runs(directory) if run.finished)
    given = "-i TABLE" if plan.base.data.descriptor_columns else '"CCO"'
    print(f"\n{folds.results_text(results)}\n\nresults  {directory}: {made}")
    print(f"try      {command('predict')} {shlex.quote(str(model))} {given}", flush=True)


@contextmanager
def _writing_reports(where: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"{where}: the report cannot be written: {error}") from error
