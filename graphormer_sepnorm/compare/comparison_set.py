"""Several comparisons under one directory, as of a paper's table: one for each of its data sets.

A set is a YAML file in the syntax of arms: for each comparison the configuration that it starts
from, as ``config``, and the options that it overrides. Its directory has a folder for each, which
is a comparison like any other; nothing more is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from graphormer_sepnorm.compare.arms import check_arms, read_arms
from graphormer_sepnorm.compare.comparison import FILE
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.resources import set_path

CONFIG = "config"


def names_in(directory: Path) -> list[str]:
    """Return the names of the comparisons in folders of a directory; none if it is no set's."""
    return sorted(path.parent.name for path in directory.glob(f"*/{FILE}"))


def without_set(words: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Take the ``-c`` that names a set out of words of a command line.

    Args:
        words: Behind the verb. A file is a set if every entry of it has a ``config``.

    Returns:
        The other words; and the words that each comparison of the set begins with, by name: none
        if no ``-c`` names a set.

    Raises:
        ConfigError: Two sets are named, or the set cannot be used.
    """
    others: list[str] = []
    found: list[Path] = []
    rest = iter(words)
    for word in rest:
        flag, equals, name = word.partition("=")
        if flag not in ("-c", "--config"):
            others.append(word)
            continue
        value = name if equals else next(rest, "")
        path = _set_file(value)
        if path is None:
            others += [word] if equals else [word, value]
        else:
            found.append(path)
    if len(found) > 1:
        raise ConfigError("-c names two sets of comparisons: name one")
    members = [one for path in found for one in read_arms(path)]
    check_arms(members)  # names of folders, no two the same
    return others, {one.name: one.arguments for one in members}


def _set_file(name: str) -> Path | None:
    path = Path(name).expanduser()
    if path.is_file():
        return path if _is_set(path) else None
    if path.parent in (Path(), Path("configs/sets")):
        return set_path(path.name.removesuffix(".yaml"))
    return None


def _is_set(path: Path) -> bool:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, OSError):
        return False  # whoever reads it as a configuration says what is wrong
    members = content.values() if isinstance(content, dict) else ()
    return bool(members) and all(isinstance(one, dict) and CONFIG in one for one in members)
