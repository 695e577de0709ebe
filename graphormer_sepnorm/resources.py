"""Where the files are that come with the package: configurations, the bundled sample, models.

In a checkout (and so in an editable install) they lie in ``configs/`` and ``data/`` beside the
package; in an installed wheel inside it.
"""

from __future__ import annotations

from pathlib import Path

from graphormer_sepnorm.errors import ConfigError, DataError, did_you_mean

_PACKAGE = Path(__file__).resolve().parent
_SAMPLE = "sample.csv.gz"


def config_path(name: str) -> Path:
    """Return the path of a configuration that comes with the package.

    Args:
        name: ``quickstart`` or ``quickstart.yaml``.

    Raises:
        ConfigError: There is none of this name.
    """
    stem = name.removesuffix(".yaml")
    for folder in _folders("configs"):
        path = folder / f"{stem}.yaml"
        if path.is_file():
            return path
    there_are = config_names()
    raise ConfigError(
        f"no configuration {name!r} comes with the package{did_you_mean(stem, there_are)}; "
        f"there are: {', '.join(there_are)}"
    )


def config_names() -> list[str]:
    """Return the names, without ``.yaml``, of the configurations that come with the package."""
    return sorted({path.stem for folder in _folders("configs") for path in folder.glob("*.yaml")})


def arms_names() -> list[str]:
    """Return the names, without ``.yaml``, of the files of arms that come with the package."""
    return sorted(path.stem for folder in _folders("configs") for path in _arms(folder))


def arms_path(name: str) -> Path | None:
    """Return the bundled file of arms called `name`, or None if there is none."""
    found = [path for folder in _folders("configs") for path in _arms(folder) if path.stem == name]
    return found[0] if found else None


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
    return sorted({path.stem for folder in _folders("data") for path in _models(folder)})


def model_path(name: str) -> Path | None:
    """Return the checkpoint of the bundled model called `name`, or None if there is none."""
    found = [path for folder in _folders("data") for path in _models(folder) if path.stem == name]
    return found[0] if found else None


def _models(data: Path) -> list[Path]:
    return list((data / "models").glob("*.ckpt"))


def _arms(configs: Path) -> list[Path]:
    return list((configs / "arms").glob("*.yaml"))


def _folders(name: str) -> list[Path]:
    """Return the places where a folder of the repository can be, the installed one first.

    Beside the package only counts where it is a checkout: in an installation that would be some
    folder of site-packages.
    """
    beside = _PACKAGE.parent
    checkout = [beside / name] if (beside / "pyproject.toml").is_file() else []
    return [_PACKAGE / name, *checkout]
