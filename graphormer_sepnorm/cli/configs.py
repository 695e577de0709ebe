"""Finding configuration files: the user's own, or one of those that are shipped."""

from __future__ import annotations

from pathlib import Path

import yaml

from graphormer_sepnorm.errors import ConfigError, did_you_mean
from graphormer_sepnorm.resources import config_names, config_path


def resolve_config(name: str) -> str:
    """Return the path of a configuration file.

    A path that exists is taken as it is. Otherwise ``zinc_subset.yaml``, ``zinc_subset`` and
    ``configs/zinc_subset.yaml`` mean the shipped one of this name.

    Raises:
        ConfigError: There is no such file.
    """
    path = Path(name).expanduser()
    if path.is_file():
        _check_yaml(path)
        return str(path)
    if path.parent in (Path(), Path("configs")):
        stem = path.name.removesuffix(".yaml")
        if stem in config_names():
            return str(config_path(stem))
    what = "is a directory" if path.is_dir() else "does not exist"
    raise ConfigError(
        f"configuration file {name} {what}{did_you_mean(path.stem, config_names())}; "
        f"with the package come {', '.join(config_names())}"
    )


def _check_yaml(path: Path) -> None:
    """Say which file cannot be read and where; the parser's own message names no file."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise ConfigError(f"{path}{line}: not a YAML file ({problem})") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected sections such as data:, model: and trainer:")


def resolve_in_arguments(arguments: list[str]) -> tuple[list[str], str | None]:
    """Put ``-c`` and ``--config`` first, with paths that exist.

    The parser lets what comes later win: an option must not lose to a file named after it.

    Returns:
        The arguments, and the stem of the last configuration file (None without one), by which
        runs are named.

    Raises:
        ConfigError: A configuration file does not exist, or none is named after ``-c``.
    """
    files: list[str] = []
    others: list[str] = []
    words = iter(arguments)
    for word in words:
        flag, equals, value = word.partition("=")
        if flag not in ("-c", "--config"):
            others.append(word)
            continue
        named = value if equals else next(words, None)
        if not named:
            raise ConfigError("-c needs the name of a configuration file")
        files.append(resolve_config(named))
    options = [f"--config={file}" for file in files]
    stem = Path(files[-1]).stem if files else None
    return [*others[:1], *options, *others[1:]], stem
