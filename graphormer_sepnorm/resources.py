"""Where the files are that come with the package: configurations, the bundled sample, models.

In a checkout (and so in an editable install) they lie in ``configs/`` and ``data/`` next to
the package; in an installed wheel inside it.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from graphormer_sepnorm.errors import ConfigError, did_you_mean

_PACKAGE = Path(__file__).resolve().parent
_CONFIGS = "configs", "*.yaml"


def config_path(name: str) -> Path:
    """Return the path of a bundled configuration, by its name with or without ``.yaml``.

    A ConfigError says which there are.
    """
    stem = name.removesuffix(".yaml")
    found = _found(*_CONFIGS)
    if stem not in found:
        raise ConfigError(
            f"no configuration {name!r} comes with the package{did_you_mean(stem, [*found])}; "
            f"there are: {', '.join(found)}"
        )
    return found[stem]


def sample_path() -> Path:
    """Return the path of the bundled sample, a gzipped CSV file."""
    return _found("data", "sample.csv.gz")["sample.csv"]


def _found(folder: str, pattern: str) -> dict[str, Path]:
    """Return the files of a folder by name, in the order of their names; the installed one wins.

    Next to the package only counts where it is a checkout: in an installation that would be some
    folder of site-packages.
    """
    parent = _PACKAGE.parent
    folders = [parent / folder] if (parent / "pyproject.toml").is_file() else []
    paths = [path for one in (*folders, _PACKAGE / folder) for path in one.glob(pattern)]
    return {path.stem: path for path in sorted(paths, key=lambda path: path.stem)}


def _names(folder: str, pattern: str) -> list[str]:
    return [*_found(folder, pattern)]


def _path(folder: str, pattern: str, name: str) -> Path | None:
    return _found(folder, pattern).get(name)


# Names, without their endings, of what comes with the package: configurations, files of arms,
# trained models. And the path of one of them; None if there is none of that name.
config_names = partial(_names, *_CONFIGS)
arms_names = partial(_names, "configs", "arms/*.yaml")
arms_path = partial(_path, "configs", "arms/*.yaml")
model_names = partial(_names, "data", "models/*.ckpt")
model_path = partial(_path, "data", "models/*.ckpt")
