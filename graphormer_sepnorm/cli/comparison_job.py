"""One comparison as a command has it: what was asked for, checked, trained, reported."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from graphormer_sepnorm.cli.many_runs import (
    check_all,
    check_words_of_fit,
    going_on,
    keep,
    refuse_changes,
    show,
    threads_of_runs,
    train_all,
    words_of_all_runs,
)
from graphormer_sepnorm.errors import ConfigError, DataError, did_you_mean

if TYPE_CHECKING:
    from graphormer_sepnorm.cli.fit_check import CheckedFit
    from graphormer_sepnorm.compare.comparison import Comparison

VERB = "compare"
SEEDS = "0,1,2,3"
_OWN_NAMES = ("arms", "seeds", "jobs", "baseline", "report-only", "allow-code")


@dataclass(frozen=True)
class Job:
    """A comparison that can be trained.

    Attributes:
        directory: Where it is kept.
        comparison: All of it.
        kept: What was in the directory before.
        checked: What the options say of the runs.
        placed: GPUs for the processes, and how many there may be side by side.
        options: Of the command.
    """

    directory: Path
    comparison: Comparison
    kept: Comparison | None
    checked: CheckedFit
    placed: tuple[Sequence[str], int]
    options: argparse.Namespace

    def keep(self) -> Job:
        """Write it down before it is its turn, so that its directory alone continues it."""
        keep(VERB, self.comparison, self.kept, self.directory)
        return dataclasses.replace(self, kept=self.comparison)

    def train(self, again: Path | None = None) -> int:
        """Train what is not finished, report; return the exit status.

        Args:
            again: The directory that the command is given that continues; None: its own.

        Raises:
            ConfigError: Another command is or was at work there.
            Interrupted: With what is finished.
        """
        return train_all(
            VERB,
            self.comparison,
            self.directory,
            kept=self.kept,
            checked=self.checked,
            placed=self.placed,
            any_code=self.options.allow_code,
            report=lambda: report(self.directory),
            again=again,
        )


def check(directory: Path, options: argparse.Namespace, fit_options: list[str]) -> Job:
    """Check everything that a command asks of a comparison; nothing is written or started.

    Args:
        directory: Of the comparison.
        options: Of the command.
        fit_options: Its words for ``fit``. For a comparison that was begun they are beside its own,
            unless they name a configuration.

    Raises:
        GraphormerError: Something in it cannot work, or is not what the directory was begun with.
    """
    from graphormer_sepnorm.compare.comparison import Comparison
    from graphormer_sepnorm.compare.runner import places

    kept = Comparison.read(directory)
    comparison = _asked(directory, options, fit_options, kept)
    checked = check_all(comparison, kept, directory, options.allow_code)
    placed = places(options.jobs, checked.devices, len(comparison.runs(directory)))
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
        comparison = going_on(comparison, kept, checked, fit_options)
    return Job(directory, comparison, kept, checked, placed, options)


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
    from graphormer_sepnorm.compare.report.document import summary, write_report
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


def report(directory: Path, baseline: str | None = None) -> None:
    """Make the report and say where it is."""
    make_report(directory, baseline)
    print(f"report  {directory / 'report.html'}", flush=True)


def _asked(
    directory: Path,
    options: argparse.Namespace,
    fit_options: list[str],
    kept: Comparison | None,
) -> Comparison:
    """Return what is to be compared: what was kept and what is added to it."""
    from graphormer_sepnorm.compare.arms import OWN_OPTIONS, parse_arms
    from graphormer_sepnorm.compare.comparison import Comparison

    check_words_of_fit(fit_options, VERB, OWN_OPTIONS, _OWN_NAMES)
    arms = parse_arms(options.arms) if options.arms is not None else ()
    seeds = _seeds(options.seeds) if options.seeds is not None else ()
    if kept is not None:
        base = words_of_all_runs(fit_options, kept, directory)
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
    return with_baseline(comparison, options.baseline) if options.baseline else comparison


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


def with_baseline(comparison: Comparison, name: str) -> Comparison:
    """Return a comparison with another baseline.

    Raises:
        ConfigError: No arm has this name.
    """
    names = [arm.name for arm in comparison.arms]
    if name not in names:
        raise ConfigError(
            f"--baseline {name} is no arm{did_you_mean(name, names)}: use {', '.join(names)}"
        )
    return dataclasses.replace(comparison, baseline=name)
