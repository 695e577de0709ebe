"""The options of fit, validate and test, and what is said of a mistake in them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, Literal

import torch
from lightning.pytorch.cli import LightningArgumentParser

from graphormer_sepnorm.cli.foreign_code import OPTION
from graphormer_sepnorm.errors import ConfigError, did_you_mean
from graphormer_sepnorm.metrics import METRICS
from graphormer_sepnorm.model.config import REGULARISATION, GraphormerConfig
from graphormer_sepnorm.resources import config_names

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
# Set by other options (`TrainCLI.add_arguments_to_parser`), so not options of their own.
LINKED = ("model.seed", "data.seed", "data.max_path_length")


# Those that belong to neither trainer nor model nor data: type, default, help.
OPTIONS: dict[str, tuple[Any, Any, str]] = {
    "seed_everything": (
        int,
        0,
        "Decides initial parameters, order of training and dropout: same seed, same run.",
    ),
    "output": (
        str | None,
        None,
        "Directory of the run (fit); -o for short. Default: runs/<config, or name of your table>/"
        "<norm>-seed<seed>. If it is taken, a number is added; nothing is overwritten.",
    ),
    "resume": (
        str | None,
        None,
        "Run directory to continue in, whatever ended the run (fit); no other option is "
        "needed, and the result is that of a run never interrupted. Classes that are neither "
        f"Lightning's nor of this package need {OPTION}: a run may come from elsewhere.",
    ),
    "checkpoint_minutes": (
        float,
        10.0,
        "Time between two checkpoints inside an epoch (fit); an epoch ends with one "
        "unless the last one is less than a minute old, and training always does.",
    ),
    "ema_decay": (
        float,
        0.0,
        "Validate, save and test an exponential moving average of the weights (fit): the "
        "share that is kept at each step, as 0.999; 0 takes the weights as they are.",
    ),
    "engine": (
        Literal["eager", "captured", "compiled"],
        "eager",
        "How steps are taken on one GPU (fit): eager starts kernel after kernel; captured "
        "replays them as a CUDA graph, several steps for one turn of Lightning's loop, from "
        "data that stay on the GPU; compiled compiles them first, which takes minutes. Where "
        "one of these cannot be, a line says why and eager is taken.",
    ),
    "early_stopping": (
        int,
        0,
        "Stop after this many validations without improvement (fit); 0 never stops.",
    ),
    "metric": (
        str | None,
        None,
        "What decides on the validation split which checkpoint is the best, and when to stop early "
        f"(fit): {', '.join(one.name for one in METRICS.values() if one.kind)} or loss. Default: "
        "mae or auroc; with real values of several targets the loss. last: none is chosen, the end "
        "of training is taken.",
    ),
    "ensemble": (
        int,
        1,
        "Train so many networks and predict the mean of their values (fit). Their seeds follow "
        "upon seed_everything; each is trained by a process of its own, in members/ of the run.",
    ),
    "ensemble_by": (
        Literal["seeds", "folds"],
        "seeds",
        "What the members of an ensemble differ in (fit): their seeds, with the same molecules to "
        "train and to validate on; or also in a fold of training and validation split together, "
        "which one of them validates on and the others train on (your own tables). Validation "
        "metrics are out of fold then, and a blend is weighed by them.",
    ),
    "baselines": (
        bool,
        False,
        "Show the test metric of simple models beside the model's (fit): a random forest and "
        "gradient boosting on Morgan fingerprints and descriptors, of real values the mean too; "
        "for data sets with SMILES. Bounded: 40,000 molecules of each split, drawn at random, and "
        "the first targets, at most 50; what is left out is said.",
    ),
    "blend": (
        bool,
        False,
        "Let the best checkpoint predict a weighted mean of network and gradient boosting (fit), "
        "which is fitted after training; the validation split chooses the weight. Descriptors "
        "make prediction slower by 4 to 10 ms a molecule.",
    ),
    "keep": (
        Literal["none", "fingerprints", "smiles", "labels"],
        "smiles",
        "What the checkpoint keeps of the training molecules, if they have SMILES (fit): their "
        "fingerprints, their SMILES too, their labels too; at most 40,000, drawn at random. By the "
        "first predictions get intervals or calibrated probabilities, similarity and domain, by "
        "the others predict.py --neighbours names the most similar ones. A file that leaves the "
        "house tells what it keeps; none keeps nothing, and there are no intervals.",
    ),
}


# Of ``--predictions``, which only validate and test have.
PREDICTIONS = (
    "CSV file for what is predicted of each molecule of the split, beside its label. A folder that "
    "is not there is made."
)

# The least that makes sense; Lightning does not look at its own of these.
_LEAST = {
    "trainer.accumulate_grad_batches": 1,
    "trainer.check_val_every_n_epoch": 1,
    "early_stopping": 0,
    "checkpoint_minutes": 0,
}


def check_numbers(options: Any) -> None:
    """Raise a ConfigError if a number that is given to ``fit`` makes no sense."""
    for name, least in _LEAST.items():
        value = options[name]
        if value is not None and not value >= least:
            raise ConfigError(f"--{name} is {value}: it must be {least} or more")
    if options.trainer.limit_test_batches == 0:
        raise ConfigError(
            "--trainer.limit_test_batches 0: a run ends with the test of its best checkpoint; "
            "give 1 or more"
        )
    check_seed(options.seed_everything)
    _check_devices(options.trainer)


def _check_devices(trainer: Any) -> None:
    """Raise a ConfigError for devices that are not here, and ways to start processes that fail."""
    accelerator, devices, strategy = (
        str(trainer[name]) for name in ("accelerator", "devices", "strategy")
    )
    there = torch.accelerator.is_available()
    if accelerator in ("gpu", "cuda") and not there:
        raise ConfigError(f"--trainer.accelerator {accelerator}: there is none here: leave it out")
    if devices == "-1" and (accelerator == "cpu" or not there):
        raise ConfigError("--trainer.devices -1 means all GPUs: on a CPU give how many processes")
    if any(word in strategy for word in ("spawn", "fork", "notebook")):
        raise ConfigError(
            f"--trainer.strategy {strategy} copies this process, and it holds what cannot be: "
            "give ddp, which starts a command for each device"
        )


def check_seed(seed: int) -> None:
    """Raise a ConfigError if torch would not take a seed."""
    if not 0 <= seed < 2**32:
        raise ConfigError(f"--seed_everything is {seed}: it must be from 0 to {2**32 - 1}")


def refuse_options_of_fit(verb: str, typed: Sequence[str]) -> None:
    """Raise a ConfigError if a word given to another verb would do nothing there."""
    for word in typed:
        name = word.removeprefix("--").split("=")[0]
        if word.startswith("--") and name in OPTIONS and name != "seed_everything":
            raise ConfigError(
                f"--{name} is for fit, and {verb} takes no notice of it: leave it out"
            )


def option_names(parser: LightningArgumentParser) -> list[str]:
    """Return the names of all options of a verb, without the dashes."""
    names = {
        option.removeprefix("--")
        for action in parser._actions
        for option in action.option_strings
        if option.startswith("--")
    }
    return sorted(names - set(LINKED))


def require_data(arguments: Sequence[str]) -> None:
    """Raise a ConfigError if no option of ``fit`` says which data, rather than download some."""
    names = {word.partition("=")[0] for word in arguments}
    enough = {"-c", "--config", "--ckpt_path", "--data"}
    if not any(name in enough or name.startswith("--data.") for name in names):
        raise ConfigError(
            "which data? Give a configuration, for example -c quickstart (there are "
            f"{', '.join(config_names())}), or --data.table FILE"
        )


def refuse_shape(arguments: Sequence[str], backbone: str) -> None:
    """Raise a ConfigError for typed options of a shape that a pre-trained network decides.

    In a configuration they have no effect; who types one means it.
    """
    shape = {f"--model.{field.name}" for field in fields(GraphormerConfig)}
    shape -= {f"--model.{name}" for name in REGULARISATION}
    for name in (word.partition("=")[0] for word in arguments):
        if name in shape:
            raise ConfigError(
                f"{name} is decided by the pre-trained network {backbone}: leave it "
                "out, or --model.from_pretrained null"
            )


def refuse_for_a_member(options: Any) -> None:
    """Raise a ConfigError for what only all members of an ensemble together can be given."""
    if options.data.member_fold is None:
        return
    for name, without in (("baselines", False), ("blend", False), ("keep", "none")):
        if options[name] != without:
            raise ConfigError(
                f"--data.member_fold {options.data.member_fold} is for one network of an ensemble, "
                f"which comes without that: give --{name} {str(without).lower()}, or train all of "
                "them with --ensemble K --ensemble_by folds"
            )


@contextmanager
def explain(parser: LightningArgumentParser) -> Iterator[None]:
    """Turn errors of a verb's parser into a ConfigError of one line that suggests an option."""
    try:
        yield
    except argparse.ArgumentError as error:
        raise ConfigError(_one_line(str(error), option_names(parser))) from error


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
