"""Options: explaining a mistake in one line, and reconciling them with a checkpoint."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from lightning.pytorch.cli import ArgsType, LightningArgumentParser

from graphormer_sepnorm.datasets.catalogue import DATASETS, TABLE
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.errors import CheckpointError, ConfigError, did_you_mean
from graphormer_sepnorm.inference.checkpoint import KEY
from graphormer_sepnorm.model.norm_arms import norm_name

# How training goes on, which a resumed run may change; not what is trained.
CHANGEABLE = tuple(
    f"model.{name}"
    for name in (
        *("learning_rate", "final_learning_rate", "warmup_steps", "schedule", "weight_decay"),
        *("betas", "eps", "precise_bn_graphs", "frozen_bn_fraction"),
        *("uniformity_weight", "uniformity_on"),
        *("dropout", "attention_dropout", "input_dropout", "drop_path"),
    )
)
# What options are called elsewhere.
_ELSEWHERE = {
    "lr": "model.learning_rate",
    "wd": "model.weight_decay",
    "hidden_size": "model.width",
    "hidden_dim": "model.width",
    "num_layers": "model.layers",
    "num_heads": "model.heads",
    "epochs": "trainer.max_epochs",
    "gpus": "trainer.devices",
    "seed": "seed_everything",
    "target": "data.target_columns",
    "targets": "data.target_columns",
}
# Set by other options (see TrainCLI.add_arguments_to_parser), so not options of their own.
LINKED = ("model.seed", "data.seed", "data.max_path_length")


def option_names(parser: LightningArgumentParser) -> list[str]:
    """Return the names of all options of a verb, without the dashes."""
    names = {
        option.removeprefix("--")
        for action in parser._actions
        for option in action.option_strings
        if option.startswith("--")
    }
    return sorted(names - set(LINKED))


@contextmanager
def explain(parsers: dict[str, LightningArgumentParser], arguments: ArgsType) -> Iterator[None]:
    """Turn jsonargparse's errors into a ConfigError of one line that suggests a close option."""
    try:
        yield
    except argparse.ArgumentError as error:
        verb = arguments[0] if isinstance(arguments, list) and arguments else "fit"
        names = option_names(parsers[verb]) if verb in parsers else []
        raise ConfigError(_one_line(str(error), names)) from error


@contextmanager
def explain_classes() -> Iterator[None]:
    """Turn the failure to make what an option names, a logger say, into a ConfigError.

    Often it is the lack of a package.
    """
    try:
        yield
    except (ImportError, ValueError) as error:
        said = str(error)
        # As Lightning's loggers propose it, with the version that they need; or as Python says it.
        lacking = re.search(r"pip install -U '?([^`']+)|No module named '(\w+)", said)
        named = re.search(r"Problem with given class_path '([\w.]+)':\s*(.+)", said)
        what = named[1].rpartition(".")[2] if named else "an option"
        if lacking:
            package = lacking[1] or lacking[2]
            raise ConfigError(
                f"{what} needs the package {re.split('[<>=]', package)[0]}, which is not "
                f"installed: pip install '{package}'"
            ) from error
        if named is None:
            raise
        raise ConfigError(f"{what} cannot be made: {named[2]}") from error


def _one_line(message: str, names: list[str]) -> str:
    message = " ".join(message.split())
    unknown = re.search(r"unrecognized arguments: (\S+)", message)
    if unknown:
        word = unknown.group(1)
        if not word.startswith("-"):
            return f"unexpected argument '{word}': options are given as --name value"
        name = word.lstrip("-").partition("=")[0]
        return f"unknown option --{name}{_suggest(name, names)}"
    value = re.fullmatch(r'Parser key "([\w.]+)": (Expected .*)', message)
    if value:
        return f"--{value.group(1)}: {value.group(2)}"
    linked = re.fullmatch(r'Linked "([\w.]+)" must be given via "([\w.]+)"\.', message)
    if linked:
        return f"--{linked.group(1)} is set by --{linked.group(2)}: give that"
    key = re.search(r"does not accept option '([\w.]+)'", message)
    if key:  # in a configuration file
        return f"unknown option {key.group(1)} in a configuration{_suggest(key.group(1), names)}"
    return message


def _suggest(name: str, names: list[str]) -> str:
    """Suggest an option; one whose last part is the same, such as model.norm for norm, first."""
    end = name.rpartition(".")[2]
    same_end = [known for known in names if known.rpartition(".")[2] == end]
    if not same_end and _ELSEWHERE.get(end) in names:
        same_end = [_ELSEWHERE[end]]
    suggestion = f" (did you mean '{same_end[0]}'?)" if same_end else did_you_mean(name, names)
    return suggestion.replace("'", "'--", 1) if suggestion else ""


def adopt_checkpoint(
    parser: LightningArgumentParser,
    verb_parser: LightningArgumentParser,
    verb: str,
    arguments: ArgsType,
    file: Path,
    checkpoint: dict[str, Any],
    changeable: tuple[str, ...] = (),
) -> Namespace:
    """Parse again with the checkpoint's values as defaults.

    So a value that the user did not give is the checkpoint's, and one that differs from it must
    have been given, on the command line or in a configuration file. Those named `changeable` may
    differ. Options of the model that are younger than the checkpoint have their default in it.

    Raises:
        ConfigError: Another value contradicts the checkpoint; it names both.
        CheckpointError: The checkpoint has options that do not exist.
    """
    options = set(option_names(verb_parser))
    hyper_parameters = checkpoint.get("hyper_parameters", {})
    kept = {
        name: hyper_parameters.get(name.removeprefix("model."), verb_parser.get_default(name))
        for name in options
        if name.startswith("model.")
    }
    kept["seed_everything"] = hyper_parameters.get("seed", 0)
    kept |= _data_options(checkpoint[KEY], arguments)
    if verb == "fit":
        kept |= _step_options(checkpoint)
    unknown = sorted(kept.keys() - options - set(LINKED))
    if unknown:
        raise CheckpointError(
            f"{file} was made with --{unknown[0]}, which is no option of this version: use the "
            "version of graphormer_sepnorm that wrote it"
        )
    # Another data set with the same features may be evaluated, and a seed changes nothing.
    known = {
        name: value for name, value in kept.items() if verb == "fit" or name.startswith("model.")
    }
    verb_parser.set_defaults(kept)
    config = parser.parse_args(arguments)  # type: ignore[arg-type]
    contradictions = [
        f"--{name} is {given} here and {value} in the checkpoint"
        for name, value in known.items()
        if name not in changeable and _differ(name, given := config[verb][name], value)
    ]
    if contradictions:
        raise ConfigError(
            f"{'; '.join(contradictions)} ({file}): leave the option out to use the checkpoint's"
        )
    return config


def _step_options(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Return what a step is: otherwise the place in the epoch and the schedule would not fit."""
    state = checkpoint.get(MoleculeDataModule.__qualname__, {})
    names = {
        "data.batch_size": "batch_size",
        "trainer.accumulate_grad_batches": "accumulate_grad_batches",
    }
    return {option: state[name] for option, name in names.items() if name in state}


def _data_options(facts: dict[str, Any], arguments: ArgsType) -> dict[str, Any]:
    """Return the options that load what a checkpoint was trained on.

    Raises:
        ConfigError: It was trained on a table whose place the checkpoint does not know.
    """
    table = facts.get("data_options")
    if table is not None:
        return {f"data.{name}": value for name, value in table.items()} | {"data.dataset": TABLE}
    if facts["dataset"] in DATASETS:
        return {"data.dataset": facts["dataset"]}
    words = arguments if isinstance(arguments, list) else []
    if any(str(word).startswith("--data.") for word in words):
        return {}
    raise ConfigError(
        f"the checkpoint was trained on {facts['dataset']}, which is not among "
        f"{', '.join(DATASETS)}: say what to evaluate it on, with --data.table FILE or "
        "--data.dataset NAME"
    )


def _differ(name: str, given: Any, kept: Any) -> bool:
    if name == "model.norm":
        return norm_name(given) != norm_name(kept)
    if name in ("data.table", "data.validation_table", "data.test_table") and given and kept:
        return Path(given).expanduser().resolve() != Path(kept)
    if name == "data.dataset" and given is None:
        return False  # not said: a table, which is compared itself
    if isinstance(given, list | tuple) and isinstance(kept, list | tuple):
        return list(given) != list(kept)
    return given != kept
