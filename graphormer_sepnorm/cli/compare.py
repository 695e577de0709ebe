"""The verb compare: trains every arm with every seed, then reports what differs."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from graphormer_sepnorm.cli.main import check_least
from graphormer_sepnorm.cli.many_runs import (
    check_all,
    check_words_of_fit,
    parser_of,
    refuse_changes,
    show,
    threads_of_runs,
    train_all,
)
from graphormer_sepnorm.errors import ConfigError, DataError, did_you_mean
from graphormer_sepnorm.resources import arms_names

if TYPE_CHECKING:
    from graphormer_sepnorm.compare.comparison import Comparison

USAGE = "train.py compare -c CONFIG.yaml --arms ARMS --seeds SEEDS -o DIR [options of fit]"

DESCRIPTION = """\
Train every arm with every seed, each run a process of its own, and report what differs.

The same seed gives all arms the same initial values, order of training and dropout. Options that
are not listed here go to fit, for all arms: see train.py fit --help.
"""

EPILOG = """\
The same command again continues: finished runs stay, interrupted and failed ones go on from their
last checkpoint. -o DIR alone is enough for that. Seeds and arms can be added in this way.

exit status: 0 all runs are finished, 1 some have failed, 130 interrupted

examples:
  train.py compare -c configs/zinc_subset.yaml --arms sharenorm,sepnorm -o runs/zinc-compare
  train.py compare -c configs/quickstart.yaml --arms arms.yaml --seeds 0,1,2 -o runs/mine
  train.py compare -o runs/mine --seeds 3,4,5
"""

SEEDS = "0,1,2,3"
_OWN_NAMES = ("arms", "seeds", "seeds-together", "jobs", "baseline", "report-only", "allow-code")
_VERB = "compare"


def compare(arguments: list[str]) -> int:
    """Run ``train.py compare`` with the words after the verb; return the exit status.

    Raises:
        GraphormerError: A user's mistake; nothing has been started.
        Interrupted: After Ctrl-C, SIGTERM or SIGHUP.
    """
    options, fit_options = _parse(arguments)
    directory = Path(options.output).expanduser()
    from graphormer_sepnorm.compare.comparison import FILE, Comparison

    kept = Comparison.read(directory)
    if options.report_only:
        if kept is None:
            raise ConfigError(f"there is no comparison in {directory}: no {FILE} is there")
        if options.baseline:
            _with_baseline(kept, options.baseline)
        from graphormer_sepnorm.cli.known_warnings import silence_known_noise

        silence_known_noise()
        _report(directory, options.baseline)
        return 0
    comparison = _asked(options, fit_options, kept)
    return _train(comparison, kept, directory, options)


def make_report(directory: Path, baseline: str | None = None) -> None:
    """Collect the results of the runs in a directory, write the report on them and sum it up.

    Where the run directories are gone (they are large), the report is made again from results.json.

    Args:
        directory: Of the comparison.
        baseline: Arm that the others are compared with; None: the comparison's own.

    Raises:
        GraphormerError: There is nothing to report, or what there is cannot be used.
    """
    from graphormer_sepnorm.compare.process_lifetime import REPORT_LOCK, locked
    from graphormer_sepnorm.compare.report.document import write_report
    from graphormer_sepnorm.compare.report.text import summary
    from graphormer_sepnorm.compare.results import collect, runs_are_gone

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


def _parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the options of the comparison, and the words that are for ``fit``."""
    parser = parser_of(_VERB, "comparison", USAGE, DESCRIPTION, EPILOG)
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


def _asked(
    options: argparse.Namespace, fit_options: list[str], kept: Comparison | None
) -> Comparison:
    """Return what is to be compared: what was kept and what is added to it."""
    from graphormer_sepnorm.compare.arms import OWN_OPTIONS, parse_arms
    from graphormer_sepnorm.compare.comparison import Comparison

    check_words_of_fit(fit_options, _VERB, OWN_OPTIONS, _OWN_NAMES)
    arms = parse_arms(options.arms) if options.arms is not None else ()
    seeds = _seeds(options.seeds) if options.seeds is not None else ()
    if kept is not None:
        # Other words may say the same, and a configuration may lie elsewhere now.
        base = tuple(fit_options) or kept.base_options
        comparison = dataclasses.replace(kept.with_more(arms, seeds), base_options=base)
    elif not arms:
        raise ConfigError("compare needs --arms, for example --arms sharenorm,sepnorm")
    else:
        comparison = Comparison(
            base_options=tuple(fit_options),
            arms=arms,
            seeds=seeds or _seeds(SEEDS),
            baseline=arms[0].name,
        )
    if len(comparison.arms) < 2:
        raise ConfigError("--arms names one arm: two or more can be compared")
    return _with_baseline(comparison, options.baseline) if options.baseline else comparison


def _seeds(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if not (word.isascii() and word.isdigit() and int(word) < 2**32):
            raise ConfigError(
                f"--seeds '{text}': '{word}' is no seed; give integers from 0 to {2**32 - 1} with "
                "commas between, as 0,1,2"
            )
    seeds = tuple(map(int, words))
    for seed in seeds:
        if seeds.count(seed) > 1:
            raise ConfigError(f"--seeds '{text}': {seed} is there twice")
    return seeds


def _with_baseline(comparison: Comparison, name: str) -> Comparison:
    names = [arm.name for arm in comparison.arms]
    if name not in names:
        raise ConfigError(
            f"--baseline {name} is no arm{did_you_mean(name, names)}: use {', '.join(names)}"
        )
    return dataclasses.replace(comparison, baseline=name)


def _train(
    comparison: Comparison,
    kept: Comparison | None,
    directory: Path,
    options: argparse.Namespace,
) -> int:
    """Check everything, train what is not finished, report; return the exit status."""
    from graphormer_sepnorm.compare.runner import places, together

    checked = check_all(comparison, kept, directory, options.allow_code)
    seeds_together = options.seeds_together
    if seeds_together > 1 and checked.configuration["engine"] == "eager":
        raise ConfigError(
            f"--seeds-together {seeds_together} needs --engine captured: steps that are not "
            "captured cannot be taken together"
        )
    processes = together(comparison.runs(directory), seeds_together)
    placed = places(options.jobs, checked.devices, len(processes))
    if kept is None:
        comparison = dataclasses.replace(
            comparison,
            configuration=checked.configuration,
            dataset_fingerprint=checked.fingerprint,
            threads=threads_of_runs(placed[1]),
        )
    else:
        differences = comparison.differences(checked.configuration)
        other = "other data than those that are there now (or with another split of them): put"
        refuse_changes(kept, checked, differences, directory, f"{other} them back")
    return train_all(
        *(_VERB, comparison, kept, checked, placed, directory, options.allow_code),
        lambda: _report(directory),
        seeds_together,
    )


def _report(directory: Path, baseline: str | None = None) -> None:
    make_report(directory, baseline)
    print(f"report  {directory / 'report.html'}", flush=True)
