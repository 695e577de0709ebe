"""The verb compare: trains every arm with every seed, then reports what differs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from graphormer_sepnorm.cli.comparison_job import (
    SEEDS,
    VERB,
    check,
    report,
    with_baseline,
)
from graphormer_sepnorm.cli.main import check_least
from graphormer_sepnorm.cli.many_runs import parser_of, show
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

exit status: 0 all runs are finished, 1 some have failed, 130 interrupted

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
    from graphormer_sepnorm.compare.comparison import FILE
    from graphormer_sepnorm.compare.comparison_set import names_in, without_set

    fit_options, named = without_set(words)
    names = names_in(directory)
    single = (directory / FILE).is_file()
    if named and single:
        raise ConfigError(f"{directory} holds a single comparison: begin the set elsewhere")
    if options.report_only:
        if single or not names:
            _report_only(directory, options.baseline)
        else:
            for name in names:
                _report_only(directory / name, options.baseline)
            _report_set(directory)
        return 0
    if named or (names and not single):
        members = named or {name: [] for name in names}
        return _compare_set(members, directory, options, fit_options)
    return check(directory, options, fit_options).train()


def _compare_set(
    members: Mapping[str, Sequence[str]],
    directory: Path,
    options: argparse.Namespace,
    fit_options: Sequence[str],
) -> int:
    """Check all comparisons of a set before the first one trains; return the exit status."""
    jobs = []
    for name, words in members.items():
        try:
            jobs.append(check(directory / name, options, [*words, *fit_options]))
        except GraphormerError as error:
            raise type(error)(f"{name}: {error}") from None
    status = 0
    for job in [job.keep() for job in jobs]:
        print(f"comparison  {job.directory}", flush=True)
        status = max(status, job.train(again=directory))
    _report_set(directory)
    return status


def _report_only(directory: Path, baseline: str | None) -> None:
    """Report on a comparison as far as it has come."""
    from graphormer_sepnorm.cli.known_warnings import silence_known_noise
    from graphormer_sepnorm.compare.comparison import FILE, Comparison

    kept = Comparison.read(directory)
    if kept is None:
        raise ConfigError(f"there is no comparison in {directory}: no {FILE} is there")
    if baseline:
        with_baseline(kept, baseline)
    silence_known_noise()
    report(directory, baseline)


def _report_set(directory: Path) -> None:
    """Make the table of a set, of the comparisons that have results."""
    from graphormer_sepnorm.compare.report.set_table import write_set_table

    show(f"{write_set_table(directory)}\n")
    print(f"table  {directory / 'comparisons.md'}", flush=True)


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
        "--seeds-together",
        "--seeds_together",
        metavar="N",
        type=int,
        default=1,
        help="seeds of an arm that one process trains at once; with --engine captured a GPU takes "
        "their steps as one, which a single small model does not fill. Each is the run that it "
        "would be alone; default: 1",
    )
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
    check_least(options, {"jobs": 1, "seeds-together": 1})
    if options.report_only and (rest or options.arms or options.seeds):
        extra = rest[0] if rest else "--arms" if options.arms else "--seeds"
        raise ConfigError(f"--report-only trains nothing: leave {extra} out")
    return options, rest
