"""The verbs of train.py that train or evaluate one model: fit, pretrain, validate and test."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from graphormer_sepnorm.cli.known_warnings import silence_known_noise
from graphormer_sepnorm.cli.main import OneLineParser
from graphormer_sepnorm.cli.options import parse, require_data
from graphormer_sepnorm.config import FitConfig, flat, refuse_shape
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.pipeline.first_look import look_at_device, look_at_training
from graphormer_sepnorm.runs.directory import RunDirectory, find_checkpoint

_show = partial(print, flush=True)


def fit(words: list[str], verb: str = "fit") -> None:
    """Run ``train.py fit`` or ``pretrain`` with the words after the verb."""
    parser = OneLineParser(prog="train.py fit", add_help=False)
    parser.add_argument("--resume", type=Path)
    found, words = parser.parse_known_args(words)
    if found.resume is not None:
        _continue(found.resume.expanduser(), words)
        return
    defaults = {"data.dataset": "pretraining"} if verb == "pretrain" else None
    request = parse(verb, words, defaults)
    refuse_shape(request.config, request.typed)
    require_data(request)
    look_at_training(request.config)
    silence_known_noise("networks" in request.config.members)
    from graphormer_sepnorm.pipeline.fit import fit as train

    train(request.config, name=request.name, show=_show)
    _end_processes()


def _continue(directory: Path, words: list[str]) -> None:
    for word in words:
        if word.partition("=")[0] in ("-c", "--config", "-o", "--output"):
            raise ConfigError(f"--resume and {word}: leave {word} out, the run has its own")
    config = RunDirectory(directory).configuration_file
    if not config.is_file():
        raise ConfigError(
            f"{directory} is no run directory: there is no {config.name} in it; --resume takes a "
            "directory that train.py fit has made"
        )
    request = parse("fit", words, flat(FitConfig.read(config).to_plain()))
    silence_known_noise("networks" in request.config.members)
    from graphormer_sepnorm.pipeline.fit import fit as train
    from graphormer_sepnorm.pipeline.resume import resume
    from graphormer_sepnorm.runs.locks import RunLock

    with RunLock() as place:
        resumed = resume(directory, request.config, request.typed, place)
        train(request.config, resumed=resumed, place=place, show=_show)
    _end_processes()


def evaluate(verb: str, words: list[str]) -> None:
    """Run ``train.py validate`` or ``test`` with the words after the verb."""
    if not words or words[0].startswith("-"):
        parse(verb, words)  # for help, and what is wrong with the options
        raise ConfigError(f"{verb} needs a run directory or a checkpoint: train.py {verb} RUN")
    model, *words = words
    asked = parse(verb, words)
    for name in sorted(asked.typed):
        if name.startswith("model."):
            raise ConfigError(f"--{name} is decided by the checkpoint: leave it out")
    find_checkpoint(model)
    look_at_device("--trainer.accelerator", asked.config.trainer.accelerator)
    silence_known_noise()
    from graphormer_sepnorm.pipeline.evaluation import data_options, evaluate_checkpoint

    named = any(name.startswith("data.") for name in asked.typed) or asked.name is not None
    defaults = data_options(model, named)
    request = parse(verb, words, defaults)
    split = "validation" if verb == "validate" else "test"
    print(evaluate_checkpoint(request.config, model, split, request.predictions), flush=True)
    _end_processes()


def _end_processes() -> None:
    """Gloo's threads, still there when Python ends, can abort a run that has succeeded."""
    import torch

    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
