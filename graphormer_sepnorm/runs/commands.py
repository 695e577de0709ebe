"""What an experiment is called, and how it is made again."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphormer_sepnorm.model.norm_arms import norm_name
from graphormer_sepnorm.old_names import current_option
from graphormer_sepnorm.runs.directory import Record

# The name of an arm of a comparison, and the options of ``fit`` that it overrides.
ArmOf = tuple[str, Collection[str]]

# Options that make no other experiment: seed, places, what is shown and kept. Which data a run had
# says the fingerprint of the data.
NO_DIFFERENCE = {
    *("seed_everything", "model.seed", "data.seed", "output", "resume"),
    *("checkpoint_minutes", "baselines", "data.num_workers"),
    *("data.dataset", "data.root", "data.table", "data.validation_table", "data.test_table"),
    *("trainer.accelerator", "trainer.default_root_dir", "trainer.logger"),
    *("trainer.log_every_n_steps", "trainer.profiler", "trainer.enable_progress_bar"),
    *("trainer.enable_model_summary", "trainer.enable_checkpointing", "trainer.barebones"),
}
_FILES = {
    *("-c", "--config", "--ckpt_path"),
    *("--data.table", "--data.validation_table", "--data.test_table"),
}


def name_and_commands(
    record: Record, options: Mapping[str, Any], arm: ArmOf | None = None
) -> tuple[str, tuple[str, ...]]:
    """Return the name of an experiment, and what was typed, without places of that machine.

    Args:
        record: What the run was made with.
        options: Those that differ from the defaults.
        arm: Of the comparison that the run belongs to.

    Returns:
        The configuration file's name with what was given beside it, the norm first, an arm of
        several options by its name; and the command of the training, then those that continued it
        with other options.
    """
    first, *later = (_words(session.command) for session in record.sessions)
    if not first or "--resume" in dict(first):
        # Stopped before its first step, or not started by the command: as the options say.
        first = [("--data.dataset", record.dataset)]
        first += [(f"--{name}", str(value)) for name, value in options.items()]
    # Other options than before count from there on.
    later = [words for words in later if "--resume" in dict(words) and len(_counting(words)) > 0]
    commands = [_command([*first, ("--seed_everything", "SEED")])]
    commands += [_command(words) for words in later]
    given = dict(word for words in (first, *later) for word in _counting(words))
    arm_name, own = arm or ("", ())
    if len(own) > 1:
        given = {name: value for name, value in given.items() if name not in own}
    if "model.norm" in given:  # comes first, by its one name
        given = {"model.norm": norm_name(given["model.norm"])} | {
            name: value for name, value in given.items() if name != "model.norm"
        }
    files = [value for name, value in first if name in ("-c", "--config")]
    title = Path(files[-1]).stem if files else record.dataset
    parts = [title, arm_name if len(own) > 1 else ""]
    parts += [", ".join(f"{name}={value}" for name, value in given.items())]
    return " · ".join(part for part in parts if part), tuple(dict.fromkeys(commands))


def _words(command: Sequence[str]) -> list[tuple[str, str]]:
    """Names and values of the options of ``fit``; none of another command."""
    words = list(command[command.index("fit") + 1 :]) if "fit" in command else []
    found = []
    while words:
        name, equals, value = words.pop(0).partition("=")
        if not equals and words and not words[0].startswith("--"):
            value = words.pop(0)
        if name != "--debug":
            found.append((name, value))
    return found


def _counting(words: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Options that make an experiment what it is."""
    return [
        (current_option(name.removeprefix("--")), Path(value).name if name in _FILES else value)
        for name, value in words
        if name.startswith("--") and name.removeprefix("--") not in NO_DIFFERENCE | {"config"}
    ]


def _command(words: Iterable[tuple[str, str]]) -> str:
    shown = ["python", "train.py", "fit"]
    seed = "--seed_everything"
    for name, value in words:
        if name == "--output" or (name == seed and value != "SEED"):
            continue
        if name == "--data.root":
            value = "DIR"
        elif name == "--resume":
            value = "RUN"
        elif name in _FILES and not value.startswith("configs/"):
            value = Path(value).name
        shown += [name, value]
    return shlex.join(shown)
