"""The verb compare: trains every arm with every seed, then reports what differs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from graphormer_sepnorm.cli.comparison_job import (
    SEEDS,
    VERB,
    check,
    report,
    with_baseline,
)
from graphormer_sepnorm.cli.main import check_least
from graphormer_sepnorm.cli.many_runs import EXIT_FAILED, parser_of, show
from graphormer_sepnorm.errors import ConfigError, GraphormerError
from graphormer_sepnorm.resources import arms_names

USAGE = "train.py compare -c CONFIG.yaml --arms ARMS --seeds SEEDS -o DIR [options of fit]"

DESCRIPTION = """\
Train every arm with every seed, each run a process of its own, and report what differs.

The same seed gives all arms the same initial values, order of training and dropout. Options that
are not listed here go to fit, for all arms: see train.py fit --help.

-c may name a set of comparisons, a YAML file {name: {config: FILE, option: value}}: each of them is
made in a folder of DIR, and a table of all stands in DIR. With the package comes paper_table, the
graph table of SepNorm's paper with a short schedule.
"""

EPILOG = """\
The same command again continues: finished runs stay, interrupted and failed ones go on from their
last checkpoint. -o DIR alone is enough for that. Seeds and arms can be added in this way.

exit status: 0 all runs are finished (with --report-only: the report is made), 1 some have failed,
130 interrupted

examples:
  train.py compare -c configs/zinc_subset.yaml --arms sharenorm,sepnorm -o runs/zinc-compare
  train.py compare -c configs/quickstart.yaml --arms arms.yaml --seeds 0,1,2 -o runs/mine
  train.py compare -o runs/mine --seeds 3,4,5
  train.py compare -c paper_table --arms sharenorm,sepnorm --data.root DIR -o runs/paper
"""


def compare(arguments: list[str]) -> int:
    """Run ``train.py compare`` with the words after the verb; return the exit status.

    Raises:
        GraphormerError: A user's mistake; nothing has been started.
        Interrupted: After Ctrl-C, SIGTERM or SIGHUP.
    """
    options, words = _parse(arguments)
    directory = Path(options.output).expanduser()
    from graphormer_sepnorm.cli.configs import take_set
    from graphormer_sepnorm.compare.comparison import FILE
    from graphormer_sepnorm.compare.comparison_set import names_in, read_set

    fit_options, file = take_set(words)
    named = read_set(file) if file else {}
    kept = names_in(directory)
    if file and (directory / FILE).is_file():
        raise ConfigError(f"{directory} holds a single comparison: begin the set elsewhere")
    if kept and not file and any(word.startswith(("-c", "--config")) for word in words):
        raise ConfigError(
            f"{directory} holds a set of comparisons ({', '.join(kept)}): leave -c out to continue "
            "it, or begin elsewhere"
        )
    if options.report_only:
        return _report_set(kept, directory, options) if kept else _report_only(directory, options)
    if file or kept:
        members = {name: [] for name in kept} | named
        return _train_set(members, directory, options, fit_options)
    return check(directory, options, fit_options).train()


def _train_set(
    members: Mapping[str, Sequence[str]],
    directory: Path,
    options: argparse.Namespace,
    fit_options: Sequence[str],
) -> int:
    """Check all comparisons of a set, then train one after the other; return the exit status.

    Raises:
        GraphormerError: One of them cannot be trained; nothing has been started.
        Interrupted: With what is finished.
    """
    from graphormer_sepnorm.compare.comparison_set import write_names

    jobs = []
    for name, words in members.items():
        try:
            jobs.append(check(directory / name, options, [*words, *fit_options]))
        except GraphormerError as error:
            raise type(error)(f"{name}: {error}") from None
    jobs = [job.keep() for job in jobs]
    write_names(directory, list(members))
    status = 0
    for job in jobs:
        print(f"comparison  {job.directory}", flush=True)
        status = max(status, _go_on(job.directory, lambda job=job: job.train(again=directory)))
        _table(directory)
    return status


def _report_set(names: Sequence[str], directory: Path, options: argparse.Namespace) -> int:
    """Report on the comparisons of a set as far as they have come; return the exit status."""
    statuses = []
    for name in names:
        place = directory / name
        statuses.append(_go_on(place, lambda place=place: _report_only(place, options)))
    _table(directory)
    return max(statuses)


def _go_on(directory: Path, work: Callable[[], int]) -> int:
    """Do something with one comparison of a set; what is wrong with it does not stop the others."""
    try:
        return work()
    except GraphormerError as error:
        print(f"train.py: {directory.name}: {error}", file=sys.stderr, flush=True)
        return EXIT_FAILED


def _table(directory: Path) -> None:
    """Make the table of a set, if one of its comparisons has results."""
    from graphormer_sepnorm.compare.comparison_set import TABLE
    from graphormer_sepnorm.compare.report.set_table import write_set_table

    text = write_set_table(directory)
    if text is not None:
        show(f"{text}\n")
        print(f"table  {directory / TABLE}", flush=True)


def _report_only(directory: Path, options: argparse.Namespace) -> int:
    """Report on a comparison as far as it has come."""
    from graphormer_sepnorm.cli.known_warnings import silence_known_noise
    from graphormer_sepnorm.compare.comparison import FILE, Comparison

    kept = Comparison.read(directory)
    if kept is None:
        raise ConfigError(f"there is no comparison in {directory}: no {FILE} is there")
    if options.baseline:
        with_baseline(kept, options.baseline)
    silence_known_noise()
    report(directory, options.baseline)
    return 0


def _parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the options of the comparison, and the words that are for ``fit``."""
    parser = parser_of(VERB, "comparison", USAGE, DESCRIPTION, EPILOG)
    parser.add_argument(
        "--arms",
        metavar="ARMS",
        help="names of norms, as sharenorm,sepnorm, or a YAML file {arm: {option: value}} in which "
        "each arm overrides options of fit, or the name of one that comes with the package: "
        f"{' or '.join(arms_names())}; all but factorial are for zinc_subset_best",
    )
    parser.add_argument("--seeds", metavar="SEEDS", help=f"default: {SEEDS}")
    parser.add_argument(
        "--baseline", metavar="ARM", help="arm that the others are compared with; default: first"
    )
    parser.add_argument(
        "--report-only",
        action="store_true",
        help="train nothing, report on what there is, unfinished runs too",
    )
    options, rest = parser.parse_known_args(arguments)
    if options.output is None:
        raise ConfigError("compare needs -o DIR, the directory of the comparison")
    check_least(options, {"jobs": 1})
    if options.report_only and (rest or options.arms or options.seeds):
        extra = rest[0] if rest else "--arms" if options.arms else "--seeds"
        raise ConfigError(f"--report-only trains nothing: leave {extra} out")
    return options, rest
