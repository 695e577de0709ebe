"""What options were called once: an old name is understood wherever options are read.

On the command line, in configurations and files of arms, in checkpoints, run directories and
records of results. What is written has the current names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from graphormer_sepnorm.errors import ConfigError

if TYPE_CHECKING:
    import yaml

# Old name -> current name, in the same section.
OPTIONS = {
    "model.optimiser": "model.optimizer",
    "model.batch_norm_graphs": "model.precise_bn_graphs",
    "model.batch_norm_fixed": "model.frozen_bn_fraction",
    "model.local": "model.local_mpnn",
}
# The same of files of arms that come with the package.
ARMS = {"ingredients": "extensions"}


def current_option(name: str) -> str:
    """Return what an option, with its section before it, is called today."""
    return OPTIONS.get(name, name)


def current_options(options: Mapping[str, Any], section: str = "") -> dict[str, Any]:
    """Return options by their current names.

    Args:
        options: By name: in sections, or with the name of their section before their own.
        section: The section that all of them are of.
    """
    before = f"{section}." if section else ""
    current = {}
    for name, value in options.items():
        if isinstance(value, Mapping):
            value = current_options(value, f"{before}{name}")
        if isinstance(name, str):
            name = current_option(before + name).removeprefix(before)
        current[name] = value
    return current


def current_yaml(text: str, section: str = "") -> str:
    """Return a configuration with current names, and every other character as it was.

    Args:
        text: A YAML document.
        section: The section that its options are of.

    Raises:
        ConfigError: An option stands in it by both names.
        yaml.YAMLError: It is none.
    """
    import yaml

    places: dict[tuple[int, int], str] = {}
    _find_old(yaml.compose(text, Loader=yaml.SafeLoader), f"{section}." if section else "", places)
    for (start, end), name in sorted(places.items(), reverse=True):
        text = text[:start] + name + text[end:]
    return text


def _find_old(node: yaml.Node | None, before: str, places: dict[tuple[int, int], str]) -> None:
    """Note where old names stand, and what stands there today."""
    from yaml import MappingNode

    if not isinstance(node, MappingNode):
        return
    names = {str(key.value) for key, _ in node.value}
    for key, value in node.value:
        old = str(key.value)
        name = current_option(before + old).removeprefix(before)
        if name != old:
            if name in names:
                raise ConfigError(f"{before}{old} is {before}{name} today: give one of the two")
            places[key.start_mark.index, key.end_mark.index] = name
        _find_old(value, f"{before}{old}.", places)


def current_text(text: str) -> str:
    """Return a text in which options stand as ``name=value`` with their current names."""
    for old, name in OPTIONS.items():
        text = re.sub(rf"(?<![\w.]){re.escape(old)}(?==)", name, text)
    return text
