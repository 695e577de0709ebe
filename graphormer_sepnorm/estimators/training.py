"""From the parameters of an estimator to a trained model, quietly and with nothing left behind."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import tempfile
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from graphormer_sepnorm.config import DataConfig, FitConfig, refuse_shape
from graphormer_sepnorm.datasets.splits import DatasetSplits
from graphormer_sepnorm.errors import ConfigError, Interrupted
from graphormer_sepnorm.formatting import StatusLine
from graphormer_sepnorm.inference.batching import usable_device
from graphormer_sepnorm.inference.checkpoint import read_checkpoint
from graphormer_sepnorm.pipeline.fit import fit
from graphormer_sepnorm.process import load_library
from graphormer_sepnorm.values import is_number

# Parameter -> the option that it is.
_OF_MODEL = ("from_pretrained", "learning_rate", "weight_decay", "loss", "norm", "dropout")
_OPTIONS = {
    "max_epochs": "trainer.max_epochs",
    "batch_size": "data.batch_size",
    "seed": "seed_everything",
    "verbose": "trainer.enable_progress_bar",
    **{name: f"model.{name}" for name in (*_OF_MODEL, "layers", "width", "heads", "ffn_width")},
}
# Of a recipe's data, of which the others are of files: what is made of labels, and of batches.
_OF_DATA = ("batch_size", "eval_batch_size", "attention_blocks", "num_workers", "label_transform")
# torch's random numbers and the filters of warnings are of the whole process: of two trainings in
# threads of one, each would draw from the other's.
_one_at_a_time = threading.Lock()


def options_of(parameters: Mapping[str, Any], recipe: str) -> FitConfig:
    """Return the options for the parameters of an estimator: those of None are the recipe's."""
    fraction, others = parameters["validation_fraction"], parameters["options"]
    if not is_number(fraction) or not 0 <= fraction < 1:
        raise ConfigError(f"validation_fraction is {fraction!r}: it must be from 0 to below 1")
    if not isinstance(others, Mapping | None):
        raise ConfigError(f"options is {others!r}: it must be a dictionary")
    name = str(parameters["recipe"] or recipe)
    config = FitConfig.read(name)
    if config.data.descriptor_columns:
        raise ConfigError(f"{name} has data.descriptor_columns, which are of tables: leave it out")
    own = {
        option: parameters[name]
        for name, option in _OPTIONS.items()
        if parameters[name] is not None or name == "seed"
    }
    # If one of them won in silence, a grid over the other would compare equal networks.
    if twice := own.keys() & (others or {}).keys():
        raise ConfigError(f"{min(twice)} is given twice, also in options: leave one out")
    own |= others or {}
    for option in (one for one in own if one.startswith(("data.", "output"))):
        if option.removeprefix("data.") not in (*_OF_DATA, "standardize"):
            raise ConfigError(f"options: {option} is of files: leave it out")
    if "trainer.max_epochs" in own:
        own["trainer.max_steps"] = -1
    kind, _, index = str(parameters["device"] or "auto").partition(":")
    usable_device(None if kind == "auto" else parameters["device"])  # or one line says why not
    own["trainer.accelerator"] = kind
    own["trainer.devices"] = [int(index)] if kind == "cuda" and index else 1
    config = config.with_options(own)
    refuse_shape(config, own)
    trainer = config.trainer
    if trainer.max_epochs is None and trainer.max_steps == -1 and not config.model.from_pretrained:
        raise ConfigError("nothing limits the training: give max_epochs")
    return config


def trained(config: FitConfig, splits: DatasetSplits) -> dict[str, Any]:
    """Train a model on data in memory; return the contents of its checkpoint.

    Nothing is written but to a temporary folder, which is gone afterwards; nothing is printed, and
    torch's random numbers go on as if nothing had been trained. Threads of a process train one
    after the other.
    """
    gpus = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with contextlib.ExitStack() as stack:
        stack.enter_context(_one_at_a_time)
        stack.enter_context(torch.random.fork_rng(devices=gpus))
        stack.enter_context(warnings.catch_warnings())
        # Warnings of this package stay, they are of its own loggers.
        for category in (UserWarning, FutureWarning, DeprecationWarning):
            warnings.filterwarnings("ignore", category=category, module=r"(lightning|torch)\b")
        if "networks" in config.members:
            load_library("lightning.pytorch")  # sets the levels of its loggers when it is imported
        for logger in (logging.getLogger(f"lightning.{part}") for part in ("pytorch", "fabric")):
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.ERROR)
        stack.callback(setattr, StatusLine, "quiet", StatusLine.quiet)
        StatusLine.quiet = not config.trainer.enable_progress_bar
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="graphormer-"))
        batches = {name: getattr(config.data, name) for name in _OF_DATA}
        data = DataConfig(dataset="sample", root=folder, **batches)
        config = dataclasses.replace(config, data=data, output=str(Path(folder) / "run"))
        if config.ensemble > 1:  # as members that train side by side, each with a thread
            stack.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(1)
        try:
            outcome = fit(config, show=lambda _: None, splits=splits)
        except Interrupted:
            raise KeyboardInterrupt from None
        assert outcome is not None
        return read_checkpoint(outcome.network.checkpoint)
