"""What compare and crossvalidate share: their options, and the directory that holds many runs."""

from __future__ import annotations

import argparse
import difflib
import os
import shlex
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from graphormer_sepnorm.cli.main import OneLineParser
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.process import command, cores

if TYPE_CHECKING:
    from graphormer_sepnorm.cli.fit_check import CheckedFit
    from graphormer_sepnorm.compare.comparison import Comparison
    from graphormer_sepnorm.compare.runner import Run

EXIT_FAILED = 1


def parser_of(verb: str, noun: str, usage: str, description: str, epilog: str) -> OneLineParser:
    """Return a parser with the options that both have; `noun` is what the directory is of."""
    parser = OneLineParser(
        prog=f"train.py {verb}",
        usage=usage,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "-o", "--output", metavar="DIR", help=f"directory of the {noun}, with all its runs"
    )
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=int,
        help="processes side by side; default: one on each GPU, or on each core if there is none. "
        "The cores are shared equally, unless OMP_NUM_THREADS is set",
    )
    parser.add_argument(
        "--allow-code",
        "--allow_code",
        action="store_true",
        help="let what lies in DIR name classes that are neither Lightning's nor of this package: "
        "it is code that is run, and DIR may come from elsewhere",
    )
    return parser


def check_least(options: argparse.Namespace, least: Mapping[str, int]) -> None:
    """Raise a ConfigError if a number that was given is smaller than it may be."""
    for name, bound in least.items():
        value = getattr(options, name.replace("-", "_"))
        if value is not None and value < bound:
            raise ConfigError(f"--{name} is {value}: it must be {bound} or more")


def check_words_of_fit(
    words: Sequence[str], verb: str, elsewhere: Mapping[str, str], own_names: Collection[str]
) -> None:
    """Raise a ConfigError for words that ``fit`` should not be given.

    Args:
        words: Of the command line, those that the parser did not know.
        verb: The verb at work.
        elsewhere: Options of ``fit`` that it decides itself, and what to use in their place.
        own_names: Its own options, which may be misspelt.
    """
    for word in words:
        if not word.startswith("--"):
            continue
        name = word.partition("=")[0].removeprefix("--")
        if name in elsewhere:
            raise ConfigError(f"--{name} is not for {verb}: {elsewhere[name]}")
        close = difflib.get_close_matches(name, own_names, n=1, cutoff=0.8)
        if close and name != "baselines":  # which is an option of fit
            raise ConfigError(f"unknown option --{name} (did you mean '--{close[0]}'?)")


def check_same_options(differences: Sequence[str], directory: Path) -> None:
    """Raise a ConfigError if options differ from those that were kept in a directory."""
    if differences:
        raise ConfigError(
            f"{directory} was begun with other options: {'; '.join(differences)}; leave them out "
            "to continue, or begin in another directory"
        )


@contextmanager
def at_work(plan: Comparison, kept: Comparison | None, directory: Path, what: str) -> Iterator[int]:
    """Make a directory, keep other commands out of it, and write there what is to be trained.

    Args:
        plan: What that is.
        kept: What was read from the directory before.
        directory: With all runs.
        what: What happens there: ``trained`` or ``compared``.

    Yields:
        The file descriptor of the lock.

    Raises:
        ConfigError: It cannot be made, or another command is or was at work there.
    """
    from graphormer_sepnorm.compare.process_lifetime import locked

    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make {directory} ({error.strerror})") from error
    with locked(directory) as lock:
        if plan.read(directory) != kept:
            raise ConfigError(
                f"another command has changed what is {what} in {directory} meanwhile: start this "
                "one again"
            )
        plan.write(directory)
        yield lock


def train(
    runs: Sequence[Run],
    plan: Comparison,
    checked: CheckedFit,
    placed: tuple[Sequence[str], int],
    lock: int,
    any_code: bool,
    seeds_together: int = 1,
) -> bool:
    """Train what is not finished; return False if that was interrupted.

    Args:
        runs: All runs of the plan.
        plan: Has their number of threads.
        checked: What the options say of them.
        placed: GPUs for the processes, and how many processes there may be side by side.
        lock: File descriptor of the lock.
        any_code: Whether configurations may name any class.
        seeds_together: Most runs of a process.
    """
    from graphormer_sepnorm.cli.foreign_code import OPTION
    from graphormer_sepnorm.compare.progress import choose_display
    from graphormer_sepnorm.compare.runner import (
        FIT,
        FIT_TOGETHER,
        Runner,
        environments,
        together,
    )

    unfinished = [run for run in runs if not run.finished]
    if not unfinished:
        return True
    gpus, jobs = placed
    jobs = min(jobs, len(together(unfinished, seeds_together)))
    # The folds of a cross-validation differ a little in size, and so may their steps.
    display = choose_display(runs, checked.metric, checked.steps)
    more = (OPTION,) if any_code else ()
    programs = ((*FIT, *more), seeds_together, (*FIT_TOGETHER, *more))
    places = environments(jobs, plan.threads, gpus)
    return Runner(unfinished, places, display, lock, *programs).run()


def threads_of_runs(jobs: int) -> int:
    """Threads of each process: those that the user wants, or an equal share of the cores."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return int(wanted) if wanted.isdigit() and int(wanted) else max(1, cores() // jobs)


def continuing(verb: str, directory: Path) -> str:
    """Return the command that goes on in a directory."""
    return f"{command('train')} {verb} -o {shlex.quote(str(directory))}"


def show(text: str) -> None:
    """Print, with nothing but ASCII where the terminal cannot show more."""
    from graphormer_sepnorm.compare.report.numbers import plain

    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    print(text if unicode else plain(text), flush=True)


def say_failed(failed: Sequence[Run], runs: int, verb: str, directory: Path) -> int:
    """Say which runs have failed and how to go on; return the exit status."""
    if not failed:
        return 0
    print(
        f"train.py: {len(failed)} of {runs} runs have failed: "
        f"{', '.join(run.name for run in failed)}; to try them again: "
        f"{continuing(verb, directory)}",
        file=sys.stderr,
    )
    return EXIT_FAILED
