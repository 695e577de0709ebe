"""What compare and crossvalidate share: their options, and the directory that holds many runs."""

from __future__ import annotations

import dataclasses
import difflib
import os
import shlex
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from graphormer_sepnorm.cli.configs import resolve_config
from graphormer_sepnorm.cli.main import Interrupted, OneLineParser
from graphormer_sepnorm.errors import ConfigError, GraphormerError
from graphormer_sepnorm.files import write_text
from graphormer_sepnorm.formatting import shows_unicode
from graphormer_sepnorm.process import command, cores

if TYPE_CHECKING:
    from graphormer_sepnorm.cli.fit_check import CheckedFit
    from graphormer_sepnorm.compare.comparison import Comparison
    from graphormer_sepnorm.compare.runner import Run

Plan = TypeVar("Plan", bound="Comparison")
EXIT_FAILED = 1


class _Words(NamedTuple):
    """How messages of a verb speak.

    Attributes:
        done: What happens to runs.
        runs: What they are called.
        meanwhile: What may be added to the command that continues, in words.
        report: Option of the command that only reports.
    """

    done: str
    runs: str
    meanwhile: str = ""
    report: str = ""


_WORDS = {
    "compare": _Words(
        "compared", "runs", " (with --report-only: a report on those that are)", " --report-only"
    ),
    "crossvalidate": _Words("trained", "folds"),
}


def parser_of(verb: str, noun: str, usage: str, description: str, epilog: str) -> OneLineParser:
    """Return a parser with the options that both have; `noun` is what the directory is of."""
    parser = OneLineParser(
        prog=f"train.py {verb}", usage=usage, description=description, epilog=epilog
    )
    add = parser.add_argument
    add("-o", "--output", metavar="DIR", help=f"directory of the {noun}, with all its runs")
    add(
        "--jobs",
        metavar="N",
        type=int,
        help="processes side by side; default: one on each GPU, or on each core if there is none. "
        "The cores are shared equally, unless OMP_NUM_THREADS is set",
    )
    add(
        "--allow-code",
        "--allow_code",
        action="store_true",
        help="let what lies in DIR name classes that are neither Lightning's nor of this package: "
        "it is code that is run, and DIR may come from elsewhere",
    )
    return parser


def check_words_of_fit(
    words: Sequence[str], verb: str, elsewhere: Mapping[str, str], own_names: Collection[str]
) -> None:
    """Raise a ConfigError for words that ``fit`` should not be given.

    Args:
        words: Those that the parser did not know.
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


def is_whole(words: Sequence[str]) -> bool:
    """Whether words for ``fit`` say all: they name the configuration that runs start from."""
    return any(word.partition("=")[0] in ("-c", "--config") for word in words)


def words_of_all_runs(words: Sequence[str], kept: Comparison, directory: Path) -> tuple[str, ...]:
    """Return the words for ``fit`` that are asked for in a directory that was begun.

    Other ones that say all may say the same, and a configuration may lie elsewhere now. What does
    not say all is beside what the directory was begun with: else every option of that would differ.
    """
    return tuple(words) if is_whole(words) else (*kept.words_in(directory), *words)


def check_all(
    plan: Comparison,
    kept: Comparison | None,
    directory: Path,
    any_code: bool,
    more: Sequence[str] = (),
    ensembles: bool = False,
) -> CheckedFit:
    """Check what is to be trained, with `more` options of all runs, which may be ensembles or not.

    See `train_all`.

    Raises:
        GraphormerError: Something in it cannot work.
    """
    from graphormer_sepnorm.cli.fit_check import check_fit
    from graphormer_sepnorm.cli.foreign_code import known_classes_only
    from graphormer_sepnorm.cli.known_warnings import silence_known_noise

    silence_known_noise()
    prepare = not all(run.finished for run in plan.runs(directory))
    with known_classes_only(str(directory / plan.file), allowed=any_code or kept is None):
        checked = check_fit((*plan.base_options, *more), plan.arms, prepare, ensembles)
    # What was begun with such arms may be continued.
    known = {arm.name for arm in kept.arms} if kept else set()
    for one, other in checked.same:
        if not {one, other} <= known:
            raise ConfigError(
                f"arms '{one}' and '{other}' are the same, however they are written: leave one of "
                "them out"
            )
    return checked


def refuse_changes(
    kept: Comparison, checked: CheckedFit, differences: Sequence[str], directory: Path, data: str
) -> None:
    """Raise a ConfigError if options or data differ from those that a directory was begun with."""
    if differences:
        raise ConfigError(
            f"{directory} was begun with other options: {'; '.join(differences)}; leave them out "
            "to continue, or begin in another directory"
        )
    if checked.fingerprint not in ("", kept.dataset_fingerprint):
        raise ConfigError(
            f"{directory} was begun with {data} to continue, or begin in another directory"
        )


def going_on(plan: Plan, kept: Plan, checked: CheckedFit, words: Sequence[str]) -> Plan:
    """Return what goes on in a directory that was begun, with data that may lie elsewhere now."""
    if not is_whole(words):  # they have said nothing else that is new
        plan = dataclasses.replace(plan, base_options=kept.base_options)
    root = checked.configuration["data"]["root"]
    return plan if root == kept.configuration["data"]["root"] else plan.moved_to(root)


def train_all(
    verb: str,
    plan: Comparison,
    directory: Path,
    *,
    kept: Comparison | None,
    checked: CheckedFit,
    placed: tuple[Sequence[str], int],
    any_code: bool,
    report: Callable[[], None],
    again: Path | None = None,
) -> int:
    """Train what is not finished, while no other command is at work there, and report.

    Args:
        verb: The verb at work.
        plan: What is to be trained.
        directory: With all runs.
        kept: What was read from the directory before.
        checked: What the options say of the runs.
        placed: GPUs for the processes, and how many processes there may be side by side.
        any_code: Whether configurations may name any class.
        report: Says what has come of those that are finished.
        again: What the command is given that continues, where that is a set of which this is one;
            None: `directory`.

    Returns:
        The exit status.

    Raises:
        ConfigError: The directory cannot be made, another command is or was at work there, or it
            has runs that nothing is known of.
        Interrupted: With what is finished.
    """
    words = _WORDS[verb]
    with _at_work(plan, kept, directory, words.done) as lock:
        runs = plan.runs(directory)
        whole = train(runs, plan, checked, placed, lock, any_code)
        unfinished = [run for run in runs if not run.finished]
        count = len(runs) - len(unfinished)
        # Of one of several it is said which one it is.
        who = f"{directory.name}: " if again else ""
        done = f"{who}interrupted, {count} of {len(runs)} {words.runs} are finished"
        then = f"{command('train')} {verb} -o {shlex.quote(str(again or directory))}"
        if not whole and unfinished:
            raise Interrupted(f"{done}; continue with: {then}{words.meanwhile}")
        if count:
            try:
                report()
            except KeyboardInterrupt:
                raise Interrupted(f"{done}; for the report on them: {then}{words.report}") from None
            except GraphormerError as error:
                if not unfinished:
                    raise
                # Which runs have failed is said all the same.
                print(f"train.py: {who}{error}", file=sys.stderr)
    if not unfinished:
        return 0
    print(
        f"train.py: {who}{len(unfinished)} of {len(runs)} runs have failed: "
        f"{', '.join(run.name for run in unfinished)}; to try them again: {then}",
        file=sys.stderr,
    )
    return EXIT_FAILED


def keep(verb: str, plan: Comparison, kept: Comparison | None, directory: Path) -> None:
    """Write what is to be trained into its directory; see `train_all`.

    Raises:
        ConfigError: The directory cannot be made, or another command is or was at work there.
    """
    with _at_work(plan, kept, directory, _WORDS[verb].done):
        pass


@contextmanager
def _at_work(
    plan: Comparison, kept: Comparison | None, directory: Path, what: str
) -> Iterator[int]:
    """Make a directory, keep other commands out, write the plan there, and yield the lock."""
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
        if kept is None:
            _refuse_runs(plan, directory)
        try:
            _keep_files(plan, kept, directory)
            plan.write(directory)
        except OSError as error:
            raise ConfigError(f"cannot write into {directory} ({error.strerror})") from error
        yield lock


def _refuse_runs(plan: Comparison, directory: Path) -> None:
    """Raise a ConfigError if a directory that nothing was begun in has runs all the same."""
    for run in plan.runs(directory):
        if run.finished or run.begun or run.files.record_file.is_file():
            raise ConfigError(
                f"there is a run in {run.directory}, and no {plan.file} in {directory} says with "
                "which options: put that back, or begin in another directory"
            )


def _keep_files(plan: Comparison, kept: Comparison | None, directory: Path) -> None:
    """Copy the configuration files that are named, unless they were copied before."""
    anew = kept is None or plan.copies(directory) != kept.copies(directory)
    for name, copy in plan.copies(directory):
        if copy.is_file() and not anew:
            continue
        text = Path(resolve_config(name)).read_text(encoding="utf-8")
        if not copy.is_file() or copy.read_text(encoding="utf-8") != text:
            copy.parent.mkdir(parents=True, exist_ok=True)
            write_text(copy, text)


def train(
    runs: Sequence[Run],
    plan: Comparison,
    checked: CheckedFit,
    placed: tuple[Sequence[str], int],
    lock: int,
    any_code: bool,
) -> bool:
    """Train what is not finished, see `train_all`; return False if that was interrupted."""
    from graphormer_sepnorm.cli.foreign_code import OPTION
    from graphormer_sepnorm.compare.progress import choose_display
    from graphormer_sepnorm.compare.runner import FIT, Runner, environments

    unfinished = [run for run in runs if not run.finished]
    if not unfinished:
        return True
    gpus, jobs = placed
    jobs = min(jobs, len(unfinished))
    # The folds of a cross-validation differ a little in size, and so may their steps.
    display = choose_display(runs, checked.metric, checked.steps)
    more = (OPTION,) if any_code else ()
    places = environments(jobs, plan.threads, gpus)
    return Runner(unfinished, places, display, lock, (*FIT, *more)).run()


def threads_of_runs(jobs: int) -> int:
    """Threads of each process: those that the user wants, or an equal share of the cores."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return int(wanted) if wanted.isdigit() and int(wanted) else max(1, cores() // jobs)


def show(text: str) -> None:
    """Print, with nothing but ASCII where the terminal cannot show more."""
    from graphormer_sepnorm.compare.report.numbers import plain

    print(text if shows_unicode() else plain(text), flush=True)
