"""The verb compare: trains every arm with every seed, then reports what differs."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from graphormer_sepnorm.cli.known_warnings import silence_known_noise
from graphormer_sepnorm.cli.main import check_least
from graphormer_sepnorm.cli.many_runs import (
    EXIT_FAILED,
    OWN,
    Job,
    parse_base,
    parser_of,
    show,
)
from graphormer_sepnorm.errors import ConfigError, DataError, GraphormerError
from graphormer_sepnorm.resources import arms_names

USAGE = "train.py compare -c CONFIG.yaml --arms ARMS --seeds SEEDS -o DIR [options of fit]"

DESCRIPTION = """\
Train every arm with every seed, each run a process of its own, and report what differs.

The same seed gives all arms the same initial values, order of training and dropout. Options that
are not listed here go to fit, for all arms: see train.py fit --help. -c may name a set, a YAML file
{name: {config: FILE, option: value}}: a comparison for each, in a folder of DIR, and a table of
them. With the package comes paper_table, the graph table of SepNorm's paper with a short schedule.
"""

EPILOG = """\
The same command again, or -o DIR alone, continues: finished runs stay, others go on from their last
checkpoint. Seeds and arms can be added in this way.

exit status: 0 all runs are finished, 1 some have failed, 130 interrupted

examples:
  train.py compare -c configs/zinc_subset.yaml --arms sharenorm,sepnorm -o runs/zinc-compare
  train.py compare -o runs/zinc-compare --seeds 4-7
  train.py compare -c paper_table --arms sharenorm,sepnorm --data.root DIR -o runs/paper
"""
SEEDS = "0-3"
# What it decides itself; and what arms have in common.
_REFUSED = (*OWN, "seed_everything", "blend", "ensemble", "ensemble_by", "keep")
_OF_ALL_ARMS = (*_REFUSED, "config", "baselines")


def compare(arguments: list[str]) -> int:
    """Run ``train.py compare`` with the words after the verb; return the exit status.

    Raises:
        GraphormerError: A user's mistake; nothing has been started.
        Interrupted: After Ctrl-C, SIGTERM or SIGHUP.
    """
    options, words = _parse(arguments)
    directory = options.output
    from graphormer_sepnorm.cli.configs import find_set
    from graphormer_sepnorm.compare.comparison_set import CONFIG, names_in, read_set, write_names
    from graphormer_sepnorm.runs.plan import Comparison

    sets = [path for name in options.config if (path := find_set(name))]
    stored = names_in(directory)
    if sets and len(options.config) > 1:
        raise ConfigError(f"{sets[0]} is a set of comparisons: leave the other -c out")
    if sets and (directory / Comparison.file).is_file():
        raise ConfigError(f"{directory} holds a single comparison: begin the set elsewhere")
    if stored and options.config and not sets:
        raise ConfigError(
            f"{directory} holds a set of comparisons ({', '.join(stored)}): leave -c out to "
            "continue it, or begin elsewhere"
        )
    members = {name: dict[str, Any]() for name in stored}
    if sets:
        members |= {one.name: one.options for one in read_set(sets[0], _REFUSED)}
    if options.report_only:
        if not stored:
            return make_report(directory, options.baseline)
        places = [directory / name for name in stored]
        reports = [partial(make_report, place, options.baseline) for place in places]
        return _one_by_one(directory, places, reports)
    if not members:
        return _check(directory, options, options.config, words).train()
    jobs = []
    for name, own in members.items():
        files = [str(own.pop(CONFIG))] if CONFIG in own else []
        try:
            jobs.append(_check(directory / name, options, files, words, own))
        except GraphormerError as error:
            raise type(error)(f"{name}: {error}") from None
    for job in jobs:
        job.write()
    write_names(directory, list(members))
    places = [job.directory for job in jobs]
    return _one_by_one(directory, places, [partial(job.train, directory) for job in jobs])


def _check(
    directory: Path,
    options: argparse.Namespace,
    files: Sequence[str],
    words: Sequence[str],
    own: Mapping[str, Any] | None = None,
) -> Job:
    """Check everything that a command asks of a comparison; nothing is written or started.

    Args:
        directory: Of the comparison.
        options: Of the command.
        files: Configuration files that it starts from.
        words: For ``fit``.
        own: Options of one of a set; those of the command win.
    """
    from graphormer_sepnorm.compare.arms import parse_arms
    from graphormer_sepnorm.runs.plan import Comparison

    stored = Comparison.read(directory)
    request = parse_base(files, words, _REFUSED, stored)
    changed = {name: value for name, value in (own or {}).items() if name not in request.typed}
    base = request.config.with_options(changed)
    arms = parse_arms(options.arms, _OF_ALL_ARMS) if options.arms is not None else ()
    seeds = parse_seeds(options.seeds) if options.seeds is not None else ()
    if stored is not None:
        plan = stored.with_more(base, arms, seeds)
    elif len(arms) < 2:
        raise ConfigError("--arms names what is compared, two or more: as sharenorm,sepnorm")
    else:
        plan = Comparison(base, arms, seeds or parse_seeds(SEEDS), arms[0].name)
    if options.baseline:
        plan = replace(plan, baseline=options.baseline)
    return Job("compare", directory, plan, stored, options.jobs, lambda: make_report(directory))


def parse_seeds(text: str) -> tuple[int, ...]:
    """Read seeds with commas between, such as ``0,3`` or ``0-5``.

    Raises:
        ConfigError: One is no seed, or is there twice.
    """
    seeds: list[int] = []
    for word in text.split(","):
        found = re.fullmatch(r"\s*(\d{1,10})(?:-(\d{1,10}))?\s*", word, re.ASCII)
        if found is None:
            raise ConfigError(f"--seeds '{text}': '{word}' is no seed; give 0,1,2 or 0-2")
        seeds += range(int(found[1]), int(found[2] or found[1]) + 1)
    if len({*seeds}) < len(seeds):
        raise ConfigError(f"--seeds '{text}': one is there twice")
    return tuple(seeds)


def _one_by_one(directory: Path, places: Sequence[Path], work: Sequence[Callable[[], int]]) -> int:
    """Do something with the comparisons of a set, and make their table; return the exit status.

    What is wrong with one does not stop the others.
    """
    from graphormer_sepnorm.compare.comparison_set import TABLE
    from graphormer_sepnorm.compare.report.set_table import write_set_table

    statuses = []
    for place, do in zip(places, work, strict=True):
        print(f"comparison  {place}", flush=True)
        try:
            statuses.append(do())
        except GraphormerError as error:
            print(f"train.py: {place.name}: {error}", file=sys.stderr, flush=True)
            statuses.append(EXIT_FAILED)
        if (text := write_set_table(directory)) is not None:
            show(f"{text}\n")
            print(f"table  {directory / TABLE}", flush=True)
    return max(statuses)


def make_report(directory: Path, baseline: str | None = None) -> int:
    """Collect the results of the runs in a directory, write the report on them and sum it up.

    Where the run directories are gone (they are large), the report is made again from results.json.

    Args:
        directory: Of the comparison.
        baseline: Arm that the others are compared with; None: the comparison's own.

    Raises:
        GraphormerError: There is nothing to report, or what there is cannot be used.
    """
    if not directory.is_dir():
        raise ConfigError(f"there is no comparison in {directory}")
    silence_known_noise()
    from graphormer_sepnorm.compare.report.document import summary, write_report
    from graphormer_sepnorm.compare.results import collect, runs_are_gone
    from graphormer_sepnorm.runs.lifetime import REPORT_LOCK, locked

    try:
        with locked(directory, patience=600, name=REPORT_LOCK):
            if not runs_are_gone(directory):
                collect(directory, baseline)
            elif baseline is not None:
                raise DataError(f"{directory}: its runs are gone, so --baseline cannot be changed")
            results = write_report(directory)
    except OSError as error:
        raise DataError(f"the report on {directory} cannot be made: {error}") from error
    show(f"{summary(results)}\n")
    print(f"report  {directory / 'report.html'}", flush=True)
    return 0


def _parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the options of the comparison, and the words that are for ``fit``."""
    parser = parser_of("compare", USAGE, DESCRIPTION, EPILOG)
    parser.add_argument(
        "--arms",
        metavar="ARMS",
        help="names of norms, as sharenorm,sepnorm, or a YAML file {arm: {option: value}} in which "
        "each arm overrides options of fit, or the name of one that comes with the package: "
        f"{' or '.join(arms_names())}; all but factorial are for zinc_subset_best",
    )
    parser.add_argument("--seeds", metavar="SEEDS", help=f"as 0,1,2 or 0-5; default: {SEEDS}")
    parser.add_argument(
        "--baseline", metavar="ARM", help="arm that the others are compared with; default: first"
    )
    parser.add_argument(
        "--report-only",
        action="store_true",
        help="train nothing, report on what there is, unfinished runs too",
    )
    options, rest = parser.parse_known_args(arguments)
    check_least(options, {"jobs": 1})
    if options.report_only and (rest or options.config or options.arms or options.seeds):
        raise ConfigError("--report-only trains nothing: leave other options out")
    return options, rest
