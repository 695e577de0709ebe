"""From the parameters of an estimator to a trained model, quietly and with nothing left behind."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from graphormer_sepnorm.config import DataConfig, FitConfig
from graphormer_sepnorm.datasets.splits import DatasetSplits
from graphormer_sepnorm.errors import ConfigError, Interrupted
from graphormer_sepnorm.inference.checkpoint import read_checkpoint
from graphormer_sepnorm.model.config import REGULARISATION, GraphormerConfig
from graphormer_sepnorm.pipeline.fit import fit
from graphormer_sepnorm.values import is_number

# Parameter -> the option that it is.
_OPTIONS = {
    "max_epochs": "trainer.max_epochs",
    "batch_size": "data.batch_size",
    "seed": "seed_everything",
    "verbose": "trainer.enable_progress_bar",
}
_OF_MODEL = ("from_pretrained", "learning_rate", "weight_decay", "loss", "norm", "dropout")
_OPTIONS |= {name: f"model.{name}" for name in (*_OF_MODEL, "layers", "width", "heads")}
_OPTIONS |= {"ffn_width": "model.ffn_width"}
# Of a recipe's data, of which the others are of files: how batches are made.
_OF_DATA = ("batch_size", "eval_batch_size", "attention_blocks", "num_workers")
# torch's random numbers and the filters of warnings are of the whole process: of two trainings in
# threads of one, each would draw from the other's.
_one_at_a_time = threading.Lock()


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
    name = str(given.get("recipe", recipe))
    config = FitConfig.read(name)
    for option in ("descriptors", "descriptor_columns"):
        if getattr(config.data, option):
            raise ConfigError(f"{name} has data.{option}, which is for tables: leave it out")
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
    config = config.with_options(own | _on(given.get("device")))
    if config.model.from_pretrained and (decided := sorted(own.keys() & shape)):
        raise ConfigError(f"the trained network decides on {', '.join(decided)}: leave it out")
    trainer = config.trainer
    if trainer.max_epochs is None and trainer.max_steps == -1 and not config.model.from_pretrained:
        raise ConfigError("nothing limits the training: give max_epochs")
    return config


def _on(device: Any) -> dict[str, Any]:
    """The options for a device: cpu, cuda or cuda:1 ...; None: a GPU if there is one."""
    kind, _, index = str(device or "auto").partition(":")
    if kind not in ("auto", "cpu", "cuda") or (index and (kind != "cuda" or not index.isdecimal())):
        raise ConfigError(f"device is {device!r}: it must be cpu, cuda or cuda:1 ...")
    if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"device is {device!r}, and torch finds {torch.cuda.device_count() or 'no'} GPU here: "
            "give cpu, or None for a GPU if there is one"
        )
    return {"trainer.accelerator": kind, "trainer.devices": [int(index)] if index else 1}


def trained(config: FitConfig, splits: DatasetSplits) -> dict[str, Any]:
    """Train a model on data in memory; return the contents of its checkpoint.

    Nothing is written but to a temporary folder, which is gone afterwards; nothing is printed, and
    torch's random numbers go on as if nothing had been trained. Threads of a process train one
    after the other.

    Raises:
        GraphormerError: Training is impossible with these options or data.
        KeyboardInterrupt: It was interrupted.
    """
    gpus = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    threads = torch.get_num_threads()
    with (
        _one_at_a_time,
        tempfile.TemporaryDirectory(prefix="graphormer-") as folder,
        torch.random.fork_rng(devices=gpus),
        _quiet(),
    ):
        batches = {name: getattr(config.data, name) for name in _OF_DATA}
        data = DataConfig(dataset="sample", root=folder, **batches)
        config = dataclasses.replace(config, data=data, output=str(Path(folder) / "run"))
        if config.ensemble > 1:  # as members that train side by side, each with a thread
            torch.set_num_threads(1)
        try:
            outcome = fit(config, show=lambda _: None, splits=splits)
        except Interrupted:
            raise KeyboardInterrupt from None
        finally:
            torch.set_num_threads(threads)
        assert outcome is not None
        return read_checkpoint(outcome.network.checkpoint)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide what Lightning prints; warnings of this package stay, they are of its own loggers."""
    loggers = [logging.getLogger(f"lightning.{part}") for part in ("pytorch", "fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    with warnings.catch_warnings():
        for category in (UserWarning, FutureWarning, DeprecationWarning):
            warnings.filterwarnings("ignore", category=category, module=r"(lightning|torch)\b")
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
