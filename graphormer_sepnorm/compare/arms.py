"""The arms of a comparison: norms by name, or a YAML file in which each arm overrides options."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import yaml

from graphormer_sepnorm.config import flat
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.model.config import norm_name
from graphormer_sepnorm.resources import arms_names, arms_path
from graphormer_sepnorm.runs.plan import Arm

NORM = "model.norm"
SIGNIFICANT = 0.05


class _Loader(yaml.SafeLoader):
    """A number may be written as 1e-3, and a name stands there once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value]
        if twice := [name for name in names if names.count(name) > 1]:
            raise yaml.MarkedYAMLError(
                problem=f"{twice[0]} is there twice", problem_mark=node.start_mark
            )
        return super().construct_mapping(node, deep)


_NUMBER = re.compile(r"[-+]?\d[\d.]*[eE][-+]?\d+$")
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER, [*"-+0123456789"])


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
        bundled = arms_path(text)
        if bundled is None:
            return tuple(_norm_arm(name.strip()) for name in text.split(","))
        path = bundled
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{path}: the arms cannot be read ({error})") from error
    if not isinstance(content, dict) or not content:
        raise ConfigError(f"{path}: expected arms, as {{arm: {{option: value}}}}")
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
        raise ConfigError(f"{error}, a YAML file, or {' or '.join(arms_names())}") from None
    return Arm(name, {NORM: name})


def least_seeds(others: int) -> int:
    """Return the least number of seeds with which exchanged signs too can be significant.

    That is, the smallest p-value of so many, by Holm's correction for all arms but the baseline.
    """
    return 2 + math.floor(math.log2(others / SIGNIFICANT))
