"""Several comparisons in one directory, as of a paper's table: one for each of its data sets.

A set is a YAML file in the syntax of arms: for each comparison the configuration that it starts
from, as ``config``, and the options that it overrides. Its directory has a folder for each, which
is a comparison like any other, and ``set.yaml`` with their names in order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import yaml

from graphormer_sepnorm.compare.arms import read_arms
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.files import write_text
from graphormer_sepnorm.runs.plan import Arm, check_names

FILE, TABLE, TABLE_CSV = "set.yaml", "comparisons.md", "comparisons.csv"
CONFIG = "config"
_COMPARISONS = "comparisons"


def read_set(path: Path, refused: Collection[str] = ()) -> tuple[Arm, ...]:
    """Read a set: its comparisons, each with ``config`` among its options.

    Args:
        path: Of the file.
        refused: Options that comparisons may not have.

    Raises:
        ConfigError: It cannot be read or used.
    """
    members = read_arms(path, refused, "comparison")
    # What lies beside the folders, or would make one comparison of the whole.
    taken = (FILE, TABLE, TABLE_CSV, "compare.yaml")
    check_names([one.name for one in members], "comparison", taken)
    for one in members:
        if CONFIG not in one.options:
            raise ConfigError(f"{path}: '{one.name}' needs a {CONFIG}, that it begins with")
    return members


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
    write_text(directory / FILE, yaml.safe_dump({_COMPARISONS: [*names]}))
