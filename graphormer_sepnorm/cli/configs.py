"""Sets of comparisons, told apart from configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from graphormer_sepnorm.config import read_yaml
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.resources import set_path

_FOLDERS = (Path(), Path("sets"), Path("configs"), Path("configs/sets"))


def find_set(name: str) -> Path | None:
    """Return the file of the set of comparisons that ``-c`` names; None if it names no set.

    A file is a set if an entry of it has a ``config``; that of the package goes by its name.
    """
    path = Path(name).expanduser()
    if not path.is_file():
        return set_path(path.name.removesuffix(".yaml")) if path.parent in _FOLDERS else None
    try:
        _, content = read_yaml(path)
    except ConfigError:
        return None  # whoever reads it as a configuration reports what is wrong
    return (
        path if any(isinstance(one, dict) and "config" in one for one in content.values()) else None
    )


def read_configuration(name: str) -> tuple[Path, dict[str, Any]]:
    """Read a configuration, see `read_yaml`.

    Raises:
        ConfigError: There is none, it cannot be read, or it is a set of comparisons.
    """
    if find_set(name):
        raise ConfigError(
            f"{name} is a set of comparisons: for train.py compare, in which one -c names one"
        )
    return read_yaml(name)
