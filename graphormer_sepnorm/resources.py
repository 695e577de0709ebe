"""Where the files are that come with the package: configurations, the bundled sample, models.

In a checkout (and so in an editable install) they lie in ``configs/`` and ``data/`` beside the
package; in an installed wheel inside it.
"""

from __future__ import annotations

from pathlib import Path

from graphormer_sepnorm.errors import ConfigError, DataError, did_you_mean

_PACKAGE = Path(__file__).resolve().parent
_SAMPLE = "sample.csv.gz"
# Folder and pattern of the files that go by name.
_CONFIGS = "configs", "*.yaml"
_ARMS = "configs", "arms/*.yaml"
_MODELS = "data", "models/*.ckpt"


def config_path(name: str) -> Path:
    """Return the path of a configuration that comes with the package.

    Args:
        name: ``quickstart`` or ``quickstart.yaml``.

    Raises:
        ConfigError: There is none of this name.
    """
    stem = name.removesuffix(".yaml")
    found = _found(*_CONFIGS)
    if stem not in found:
        raise ConfigError(
            f"no configuration {name!r} comes with the package{did_you_mean(stem, [*found])}; "
            f"there are: {', '.join(found)}"
        )
    return found[stem]


def config_names() -> list[str]:
    """Return the names, without ``.yaml``, of the configurations that come with the package."""
    return [*_found(*_CONFIGS)]


def arms_names() -> list[str]:
    """Return the names, without ``.yaml``, of the files of arms that come with the package."""
    return [*_found(*_ARMS)]


def arms_path(name: str) -> Path | None:
    """Return the bundled file of arms called `name`, or None if there is none."""
    return _found(*_ARMS).get(name)


def sample_path() -> Path:
    """Return the path of the bundled sample, a gzipped CSV file.

    Raises:
        DataError: It is missing, that is, the installation is damaged.
    """
    for folder in _folders("data"):
        if (folder / _SAMPLE).is_file():
            return folder / _SAMPLE
    searched = " or ".join(str(folder) for folder in _folders("data"))
    raise DataError(f"the bundled sample {_SAMPLE} is not in {searched}; install the package again")


def model_names() -> list[str]:
    """Return the names of the trained models that come with the package."""
    return [*_found(*_MODELS)]


def model_path(name: str) -> Path | None:
    """Return the checkpoint of the bundled model called `name`, or None if there is none."""
    return _found(*_MODELS).get(name)


def _found(folder: str, pattern: str) -> dict[str, Path]:
    """Return the files of a folder of the repository by name, in the order of their names."""
    paths = [path for place in reversed(_folders(folder)) for path in place.glob(pattern)]
    return {path.stem: path for path in sorted(paths, key=lambda path: path.stem)}


def _folders(name: str) -> list[Path]:
    """Return the places where a folder of the repository can be, the installed one first.

    Beside the package only counts where it is a checkout: in an installation that would be some
    folder of site-packages.
    """
    beside = _PACKAGE.parent
    checkout = [beside / name] if (beside / "pyproject.toml").is_file() else []
    return [_PACKAGE / name, *checkout]
