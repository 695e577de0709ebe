"""What compare and crossvalidate share: their options, and the directory that holds many runs."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from graphormer_sepnorm.cli.known_warnings import silence_known_noise
from graphormer_sepnorm.cli.main import OneLineParser
from graphormer_sepnorm.errors import ConfigError, GraphormerError, Interrupted
from graphormer_sepnorm.formatting import shows_unicode
from graphormer_sepnorm.process import command

if TYPE_CHECKING:
    from graphormer_sepnorm.cli.options import Request
    from graphormer_sepnorm.runs.plan import Plan

EXIT_FAILED = 1
OWN = ("output", "resume")  # options of `fit` that both verbs decide themselves


def parser_of(verb: str, usage: str, description: str, epilog: str) -> OneLineParser:
    """Return a parser with the options that both have."""
    parser = OneLineParser(
        prog=f"train.py {verb}", usage=usage, description=description, epilog=epilog
    )
    add = parser.add_argument
    add("-c", "--config", metavar="FILE", action="append", default=[], help="see train.py fit")
    add(
        "-o",
        "--output",
        metavar="DIR",
        type=lambda text: Path(text).expanduser(),
        required=True,
        help="directory of all runs, and of what they come to",
    )
    add(
        "--jobs",
        metavar="N",
        type=int,
        help="processes side by side; default: one on each GPU, or on each core if there is none. "
        "The cores are shared equally, unless OMP_NUM_THREADS is set",
    )
    return parser


def parse_base(
    files: Sequence[str], words: Sequence[str], refused: Collection[str], stored: Plan | None
) -> Request:
    """Parse the options of ``fit`` that all runs share.

    Without a configuration file they are beside those that a plan was begun with.

    Args:
        files: Configuration files.
        words: The others.
        refused: Options that must not be among them.
        stored: What was begun.

    Raises:
        ConfigError: There is a mistake in them.
    """
    from graphormer_sepnorm.cli.options import parse, require_data
    from graphormer_sepnorm.config import flat, refuse_shape

    for word in words:
        name = word.partition("=")[0].removeprefix("--").replace("-", "_")
        if word.startswith("--") and name in refused:
            raise ConfigError(f"--{name} is decided by this verb: leave it out, see its --help")
    before = flat(stored.base.to_plain()) if stored and not files else None
    request = parse("fit", [*(f"--config={file}" for file in files), *words], before)
    if stored is None:
        require_data(request)
    refuse_shape(request.config, request.typed)
    return request


class Job:
    """Many runs that are checked, so that they can be trained; nothing is written yet.

    Args:
        verb: Of the command.
        directory: Of all runs.
        plan: What they are.
        stored: What was in the directory before.
        jobs: Processes side by side, as the user says.
        report: Says what has come of those that are finished.

    Raises:
        GraphormerError: Something in it cannot work, or the data are not those of before.
    """

    def __init__(
        self,
        verb: str,
        directory: Path,
        plan: Plan,
        stored: Plan | None,
        jobs: int | None,
        report: Callable[[], object],
    ) -> None:
        silence_known_noise()
        from graphormer_sepnorm.compare.checks import check
        from graphormer_sepnorm.runs.scheduler import places, threads_of_runs

        runs = plan.runs(directory)
        self._checked = check(plan, runs, prepare=not all(run.finished for run in runs))
        if stored is None:
            threads = threads_of_runs(places(jobs, plan.base.trainer, len(runs))[1])
            plan = replace(plan, dataset_fingerprint=self._checked.fingerprint, threads=threads)
        elif self._checked.fingerprint not in ("", stored.dataset_fingerprint):
            raise ConfigError(
                f"{directory} was begun with other data than those that are there now (or with "
                "another split of them): put them back, or begin in another directory"
            )
        self.directory = directory
        self._verb, self._plan, self._stored = verb, plan, stored
        self._jobs, self._report = jobs, report

    def write(self) -> None:
        """Write it down before it is its turn, so that its directory alone continues it."""
        with self._at_work():
            self._stored = self._plan

    def train(self, again: Path | None = None) -> int:
        """Train what is not finished, while no other command is at work there, and report.

        Args:
            again: The directory that continues, where that is a set of which this is one.

        Returns:
            The exit status.

        Raises:
            ConfigError: Another command is or was at work there.
            Interrupted: With what is finished.
        """
        from graphormer_sepnorm.runs import scheduler

        then = f"{command('train')} {self._verb} -o {shlex.quote(str(again or self.directory))}"
        who = f"{self.directory.name}: " if again else ""
        with self._at_work() as lock:
            runs = self._plan.runs(self.directory)
            whole = scheduler.train(
                runs,
                metric=self._checked.metric,
                steps=self._checked.steps,
                lock=lock,
                jobs=self._jobs,
                threads=self._plan.threads,
            )
            unfinished = [run for run in runs if not run.finished]
            count = len(runs) - len(unfinished)
            done = f"{who}interrupted, {count} of {len(runs)} runs are finished; continue with: "
            if not whole and unfinished:
                raise Interrupted(done + then)
            if count:
                try:
                    self._report()
                except KeyboardInterrupt:
                    raise Interrupted(done + then) from None
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

    @contextmanager
    def _at_work(self) -> Iterator[int]:
        """Make the directory, keep other commands out, write the plan there, yield the lock."""
        from graphormer_sepnorm.runs.lifetime import locked

        directory, plan, stored = self.directory, self._plan, self._stored
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot make {directory} ({error.strerror})") from error
        with locked(directory) as lock:
            if plan.read(directory) != stored:
                raise ConfigError(
                    f"another command has changed what is trained in {directory} meanwhile: start "
                    "this one again"
                )
            for run in plan.runs(directory) if stored is None else ():
                if run.finished or run.begun or run.files.record_file.is_file():
                    raise ConfigError(
                        f"there is a run in {run.directory}, and no {plan.file} in {directory} "
                        "says with which options: put that back, or begin in another directory"
                    )
            plan.write(directory)
            yield lock


def show(text: str) -> None:
    """Print, with nothing but ASCII where the terminal cannot show more."""
    from graphormer_sepnorm.compare.report.numbers import plain

    print(text if shows_unicode() else plain(text), flush=True)
