"""From the parameters of an estimator to the options of network, data and trainer."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import yaml

from graphormer_sepnorm.errors import ConfigError, did_you_mean
from graphormer_sepnorm.files import plain
from graphormer_sepnorm.model.config import FROM_DATA, REGULARISATION, GraphormerConfig
from graphormer_sepnorm.resources import config_path
from graphormer_sepnorm.training.module import GraphormerModule
from graphormer_sepnorm.values import is_number

# What of a configuration's sections is taken; the rest is about files, logs and runs.
_OF_DATA = ("batch_size", "attention_blocks", "num_workers")
# But for this, without which molecules would be read in another way than the configuration says.
_ONLY_OF_TABLES = ("descriptors", "descriptor_columns")
_OF_TRAINER = (
    "max_epochs",
    "max_steps",
    "gradient_clip_val",
    "gradient_clip_algorithm",
    "accumulate_grad_batches",
    "precision",
)
# Parameters that are options of the module.
_OF_MODULE = (
    "norm",
    "layers",
    "width",
    "heads",
    "ffn_width",
    "dropout",
    "learning_rate",
    "weight_decay",
    "loss",
)
_WHOLE = ("max_epochs", "batch_size", "layers", "width", "heads", "ffn_width", "seed")
_REAL = ("learning_rate", "weight_decay", "dropout", "validation_fraction")
_PATHS = ("config", "from_pretrained")
_KINDS: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(_WHOLE, (Integral, "a whole number")),
    **dict.fromkeys(_REAL, (Real, "a number")),
    **dict.fromkeys(_PATHS, ((str, Path), "a name or a path")),
    **dict.fromkeys(("norm", "loss", "device", "on_invalid"), (str, "a name")),
    "model_options": (Mapping, "a dictionary"),
}
_SMALLEST = {"max_epochs": 1, "batch_size": 2, "seed": 0, "validation_fraction": 0}
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?e[-+]?\d+", re.IGNORECASE)


def options_of(parameters: Mapping[str, Any], config: str) -> dict[str, Any]:
    """Return the options of network, data and trainer: the configuration's and one's own.

    Args:
        parameters: Those of the estimator, by name; None leaves an option to the configuration.
        config: The configuration if none is named.

    Returns:
        Options of ``model`` (`GraphormerModule`), ``data`` (`MoleculeDataModule`) and ``trainer``
        (Lightning's), ``ema_decay`` and ``standardise`` (steps of `standardised`).

    Raises:
        ConfigError: One does not exist or cannot be.
    """
    given = {name: plain(value) for name, value in parameters.items() if value is not None}
    _check(given)
    config = str(given.get("config", config))
    sections = _read(config)
    others = given.get("model_options", {})
    # If one of them won in silence, a grid over the other would compare equal networks.
    if twice := [name for name in _OF_MODULE if name in given and name in others]:
        raise ConfigError(f"{twice[0]} is given twice, also in model_options: leave one out")
    own = {
        **others,
        **{name: value for name, value in given.items() if name in _OF_MODULE},
    }
    of_network = {field.name for field in dataclasses.fields(GraphormerConfig)} - {*FROM_DATA}
    known = of_network | {*inspect.signature(GraphormerModule).parameters}
    known -= {"seed", "from_pretrained", "architecture"}
    for name in own.keys() - known:
        raise ConfigError(f"model_options: there is no {name!r}{did_you_mean(name, known)}")
    if "from_pretrained" in given:
        sections["model"]["from_pretrained"] = given["from_pretrained"]
    decided = sorted(own.keys() & of_network - {*REGULARISATION})
    if sections["model"].get("from_pretrained") and decided:
        raise ConfigError(
            f"from_pretrained and {', '.join(decided)}: the trained network decides that, leave it "
            "out"
        )
    sections["model"] |= own | {"seed": given["seed"]}
    if "batch_size" in given:
        sections["data"]["batch_size"] = given["batch_size"]
    if "max_epochs" in given:
        sections["trainer"] |= {"max_epochs": given["max_epochs"], "max_steps": -1}
    if not {"max_epochs", "max_steps"} & sections["trainer"].keys():
        raise ConfigError(f"{config} does not say how long to train: give max_epochs")
    return sections


def _check(given: Mapping[str, Any]) -> None:
    for name, (kind, words) in _KINDS.items():
        value = given.get(name)
        if name in given and (isinstance(value, bool) or not isinstance(value, kind)):
            raise ConfigError(f"{name} is {value!r}: it must be {words}")
        if value is not None and name in _SMALLEST and not value >= _SMALLEST[name]:
            raise ConfigError(f"{name} is {value}: it must be {_SMALLEST[name]} or more")
    for name in ("seed", "validation_fraction"):
        if name not in given:
            raise ConfigError(f"{name} is None: it must be {_KINDS[name][1]}")
    if given["validation_fraction"] >= 1:
        raise ConfigError(
            f"validation_fraction is {given['validation_fraction']}: it must be below 1"
        )


def _read(name: str) -> dict[str, Any]:
    """Return what is taken of a configuration."""
    path = Path(name).expanduser()
    path = path if path.is_file() else config_path(name)
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not a YAML file ({' '.join(str(error).split())})") from error
    sections = "data", "model", "trainer"
    if not isinstance(content, dict) or not all(
        isinstance(content.get(section) or {}, dict) for section in sections
    ):
        raise ConfigError(f"{path}: expected sections such as data:, model: and trainer:")
    average = _as_meant(content.get("ema_decay") or 0)
    if not is_number(average):
        raise ConfigError(f"{path}: ema_decay is {average!r}: it must be a number")
    data, model, trainer = (
        {option: _as_meant(value) for option, value in (content.get(section) or {}).items()}
        for section in sections
    )
    if refused := [option for option in _ONLY_OF_TABLES if data.get(option)]:
        raise ConfigError(
            f"{path} has data.{refused[0]}, which is for train.py and tables: leave it out, or "
            "prepare the molecules before"
        )
    return {
        "data": {option: data[option] for option in _OF_DATA if option in data},
        "model": model,
        "trainer": {option: trainer[option] for option in _OF_TRAINER if option in trainer},
        "ema_decay": float(average),
        "standardise": tuple(data.get("standardise") or ()),
    }


def _as_meant(value: Any) -> Any:
    """Return the number in a text such as 1e-3, which YAML takes for text."""
    return float(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value
