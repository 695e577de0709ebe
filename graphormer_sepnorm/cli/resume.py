"""Continuing a run in its own directory: ``train.py fit --resume RUN``."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from graphormer_sepnorm.errors import CheckpointError, ConfigError
from graphormer_sepnorm.inference.checkpoint import read_checkpoint
from graphormer_sepnorm.process import is_first_process
from graphormer_sepnorm.runs.directory import RunDirectory
from graphormer_sepnorm.runs.place import RunPlace

log = logging.getLogger(__name__)

# Options of what follows the training, of an ensemble once for all members; and of where data lie.
_NOT_OF_TRAINING = ("--baselines", "--blend", "--keep", "--data.root")


@dataclass(frozen=True)
class ResumedRun:
    """A run that is continued.

    Attributes:
        directory: Where it is.
        arguments: Verb and options that continue it.
        changed: Whether other options were given, which count from now on.
        step: Optimiser steps already taken.
        message: What is said about it.
    """

    directory: Path
    arguments: list[str]
    changed: bool
    step: int
    message: str


def find_resumed(arguments: list[str], place: RunPlace) -> ResumedRun | None:
    """Take the directory of the run that ``--resume`` names; None without this option.

    The newest checkpoint that is whole is taken. A run that was stopped before its first one begins
    again.

    Args:
        arguments: Verb and options.
        place: Takes the directory, before its checkpoints are read.

    Raises:
        ConfigError: There is no such run, another process is at work in it, or other options
            contradict it.
    """
    named = _named(arguments)
    if named is None:
        return None
    rest, directory = named
    run = RunDirectory(directory)
    config = run.configuration_file
    if not config.is_file():
        raise ConfigError(
            f"{directory} is no run directory: there is no {config.name} in it; --resume takes a "
            "directory that train.py fit has made"
        )
    for option in ("-c", "--config", "--ckpt_path", "--output", "--metric", "--ensemble"):
        if any(word.partition("=")[0] == option for word in rest):
            raise ConfigError(f"--resume and {option}: leave {option} out, the run has its own")
    of_training = [
        word
        for word in rest[1:]
        if word.startswith("--") and word.partition("=")[0] not in _NOT_OF_TRAINING
    ]
    if run.members.is_dir() and of_training:
        raise ConfigError(
            f"--resume and {of_training[0]}: an ensemble goes on with the options that its members "
            "have been begun with, leave others out"
        )
    if run.finished and of_training and not any("--trainer.max_" in word for word in of_training):
        log.warning(
            "%s is finished: %s acts only on steps that are added, as by --trainer.max_epochs",
            directory,
            of_training[0],
        )
    place.go_on_in(directory)
    checkpoint, step, message = _newest_checkpoint(run)
    found = [] if checkpoint is None else ["--ckpt_path", str(checkpoint)]
    words = [rest[0], "-c", str(config), *found, *rest[1:]]
    return ResumedRun(directory, words, len(rest) > 1, step, message)


def _named(arguments: list[str]) -> tuple[list[str], Path] | None:
    """Return the other arguments and the directory that ``--resume`` names."""
    for place, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name != "--resume":
            continue
        rest = arguments[:place] + arguments[place + (1 if equals else 2) :]
        directory = value if equals else "".join(arguments[place + 1 : place + 2])
        if not directory or directory.startswith("-"):
            raise ConfigError("--resume needs the directory of a run")
        if arguments[0] != "fit":
            raise ConfigError(f"--resume is for fit, not for {arguments[0]}")
        if any(word.partition("=")[0] == "--resume" for word in rest):
            raise ConfigError("--resume stands twice: one run is continued at a time")
        return rest, Path(directory).expanduser()
    return None


def _newest_checkpoint(run: RunDirectory) -> tuple[Path | None, int, str]:
    """Return the newest checkpoint that is whole, its step, and what to say."""
    damaged = []
    for path in (run.last, run.previous):
        if not path.is_file():
            continue
        try:
            step = int(read_checkpoint(path)["global_step"])
        except (CheckpointError, KeyError) as error:
            damaged.append(str(error))
            continue
        if damaged:
            log.warning("%s; going on from %s, the one before it", damaged[0], path)
            if is_first_process():  # or the next one saved would make it the one before
                run.last.replace(run.last.with_name(f"damaged-{run.last.name}"))
        return path, step, f"run    {run.path}, continued from step {step:,}"
    if run.members.is_dir():
        return None, 0, f"run    {run.path}, continued with its members"
    if damaged:
        raise CheckpointError(
            f"{damaged[0]}, and there is no whole one before it: begin the run again"
        )
    return None, 0, f"run    {run.path}, from the beginning: there is no checkpoint in it"
