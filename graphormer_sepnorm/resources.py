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
    found = bundled_configs()
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


# What comes with the package, paths by names without their endings: configurations, files of arms,
# trained models.
bundled_configs = partial(_found, *_CONFIGS)
bundled_arms = partial(_found, "configs", "arms/*.yaml")
bundled_models = partial(_found, "data", "models/*.ckpt")
