"""The arms of a comparison: norms by name, or a YAML file in which each arm overrides options."""

from __future__ import annotations

import math
from collections.abc import Collection
from pathlib import Path

from graphormer_sepnorm.config import flat, read_yaml
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.model.config import norm_name
from graphormer_sepnorm.resources import bundled_arms
from graphormer_sepnorm.runs.plan import Arm

NORM = "model.norm"
SIGNIFICANT = 0.05


def parse_arms(text: str, refused: Collection[str] = ()) -> tuple[Arm, ...]:
    """Read the arms that ``--arms`` names.

    Args:
        text: Names of norms with commas between, or a YAML file: ``{arm: {option: value}}``, or the
            name of one that comes with the package. An option may also be written in sections, as
            in a configuration.
        refused: Options that arms may not have.

    Raises:
        ConfigError: There is no such norm or file, it is of another form, or has options that are
            not for arms.
    """
    path = Path(text).expanduser()
    if not path.is_file() and path.suffix not in (".yaml", ".yml"):
        bundled = bundled_arms().get(text)
        if bundled is None:
            return tuple(_norm_arm(name.strip()) for name in text.split(","))
        path = bundled
    if not path.is_file():
        raise ConfigError(f"there is no file of arms {path}")
    path, content = read_yaml(path, "arms, as {arm: {option: value}}")
    arms = []
    for name, own in content.items():
        if not isinstance(own, dict | None):
            raise ConfigError(f"{path}, arm '{name}': expected options, as {{model.norm: sepnorm}}")
        options = flat(own or {})
        for option in options.keys() & {*refused}:
            raise ConfigError(
                f"{path}, arm '{name}': --{option} is the same for all of them: remove it"
            )
        arms.append(Arm(str(name), options))
    return tuple(arms)


def _norm_arm(name: str) -> Arm:
    try:
        norm_name(name)
    except ConfigError as error:
        raise ConfigError(f"{error}, a YAML file, or {' or '.join(bundled_arms())}") from None
    return Arm(name, {NORM: name})


def least_seeds(others: int) -> int:
    """Return the least number of seeds with which exchanged signs too can be significant.

    That is, the smallest p-value of so many, by Holm's correction for all arms but the baseline.
    """
    return 2 + math.floor(math.log2(others / SIGNIFICANT))
