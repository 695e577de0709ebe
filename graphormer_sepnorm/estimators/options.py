"""From the parameters of an estimator to the options of a training."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphormer_sepnorm.config import DataConfig, FitConfig
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.model.config import REGULARISATION, GraphormerConfig
from graphormer_sepnorm.values import is_number

# Parameter -> the option that it is.
_OPTIONS = {
    "from_pretrained": "model.from_pretrained",
    "max_epochs": "trainer.max_epochs",
    "batch_size": "data.batch_size",
    "seed": "seed_everything",
    "verbose": "trainer.enable_progress_bar",
    **{
        name: f"model.{name}"
        for name in ("learning_rate", "weight_decay", "loss", "norm", "dropout")
    },
    **{name: f"model.{name}" for name in ("layers", "width", "heads", "ffn_width")},
}
# Of a recipe's data: how batches are made, and what is done to molecules. The rest is of files.
_OF_DATA = ("batch_size", "eval_batch_size", "attention_blocks", "num_workers")


def options_of(parameters: Mapping[str, Any], recipe: str) -> FitConfig:
    """Return the options of a training: the recipe's and one's own.

    Args:
        parameters: Those of the estimator, by name; None leaves an option to the recipe.
        recipe: Taken if none is named.

    Raises:
        ConfigError: An option does not exist, is given twice, or has a value that cannot be.
    """
    given = {name: value for name, value in parameters.items() if value is not None}
    for name in ("seed", "validation_fraction"):
        if name not in given:
            raise ConfigError(f"{name} is None: it must be a number")
    fraction = given["validation_fraction"]
    if not is_number(fraction) or not 0 <= fraction < 1:
        raise ConfigError(f"validation_fraction is {fraction!r}: it must be from 0 to below 1")
    config = _read(str(given.get("recipe", recipe)))
    own = {option: given[name] for name, option in _OPTIONS.items() if name in given}
    others = given.get("options", {})
    if not isinstance(others, Mapping):
        raise ConfigError(f"options is {others!r}: it must be a dictionary")
    # If one of them won in silence, a grid over the other would compare equal networks.
    if twice := own.keys() & others.keys():
        raise ConfigError(f"{min(twice)} is given twice, also in options: leave one out")
    own |= others
    if "trainer.max_epochs" in own:
        own["trainer.max_steps"] = -1
    shape = {f"model.{name}" for name in {*GraphormerConfig.names()} - {*REGULARISATION}}
    config = config.with_options(own)
    if config.model.from_pretrained and (decided := sorted(own.keys() & shape)):
        raise ConfigError(f"the trained network decides on {', '.join(decided)}: leave it out")
    trainer = config.trainer
    if trainer.max_epochs is None and trainer.max_steps == -1 and not config.model.from_pretrained:
        raise ConfigError("nothing says how long to train: give max_epochs")
    return _on(config, given.get("device"))


def in_memory(config: FitConfig, folder: Path) -> FitConfig:
    """Return the options for data in memory, with all files in a folder."""
    data = {name: getattr(config.data, name) for name in _OF_DATA}
    data = DataConfig(dataset="sample", root=str(folder), **data)
    return dataclasses.replace(config, data=data, output=str(folder / "run"))


def _read(name: str) -> FitConfig:
    config = FitConfig.read(name)
    for option in ("descriptors", "descriptor_columns"):
        if getattr(config.data, option):
            raise ConfigError(
                f"{name} has data.{option}, which is for train.py and tables: leave it out, or "
                "prepare the molecules before"
            )
    return config


def _on(config: FitConfig, device: Any) -> FitConfig:
    """Return the options for a device: cpu, cuda or cuda:1 ...; None: a GPU if there is one."""
    if device is None:
        return config.with_options({"trainer.accelerator": "auto", "trainer.devices": 1})
    kind, _, number = str(device).partition(":")
    if str(device) != "cpu" and (kind != "cuda" or (number and not number.isdecimal())):
        raise ConfigError(f"device is {device!r}: it must be cpu, cuda or cuda:1 ...")
    if kind == "cuda":
        import torch

        if int(number or 0) >= torch.cuda.device_count():
            raise ConfigError(
                f"device is {device!r}, and torch finds {torch.cuda.device_count() or 'no'} GPU "
                "here: give cpu, or None for a GPU if there is one"
            )
    devices: Any = [int(number)] if number else 1
    return config.with_options({"trainer.accelerator": kind, "trainer.devices": devices})
