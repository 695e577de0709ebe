"""Several comparisons in one directory, as of a paper's table: one for each of its data sets.

A set is a YAML file in the syntax of arms: for each comparison the configuration that it starts
from, as ``config``, and the options that it overrides. Its directory has a folder for each, which
is a comparison like any other, and ``set.yaml`` with their names in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from graphormer_sepnorm.compare.arms import OWN_OPTIONS, check_arms, in_common, read_arms
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.files import replacing

FILE, TABLE, TABLE_CSV = "set.yaml", "comparisons.md", "comparisons.csv"
_COMPARISONS, _CONFIG = "comparisons", "config"
# What lies beside the folders, or would make one comparison of the whole.
_TAKEN = (FILE, TABLE, TABLE_CSV, "compare.yaml")


def read_set(path: Path) -> dict[str, list[str]]:
    """Read a set; return the words of a command line that each comparison begins with, by name.

    Raises:
        ConfigError: It cannot be read or used.
    """
    members = read_arms(path, OWN_OPTIONS, "comparison")
    check_arms(members, "comparison", _TAKEN)
    for one in members:
        if _CONFIG not in one.options:
            if common := in_common(one.name, "comparison"):
                raise ConfigError(f"{path}: {common}")
            raise ConfigError(
                f"{path}: comparison '{one.name}' does not say which configuration it starts from: "
                f"give it {_CONFIG}: NAME"
            )
    return {one.name: one.arguments for one in members}


def names_in(directory: Path) -> list[str]:
    """Return the names of the comparisons of the set in a directory; none if there is no set.

    Raises:
        ConfigError: What says so is damaged.
    """
    path = directory / FILE
    if not path.is_file():
        return []
    try:
        return [str(name) for name in yaml.safe_load(path.read_text("utf-8"))[_COMPARISONS]]
    except (OSError, yaml.YAMLError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} is damaged: delete it and give the command that began the set again"
        ) from error


def write_names(directory: Path, names: Sequence[str]) -> None:
    """Write down which comparisons the set in a directory has."""
    with replacing(directory / FILE) as partial:
        partial.write_text(yaml.safe_dump({_COMPARISONS: list(names)}), encoding="utf-8")
