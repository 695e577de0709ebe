"""Where a training run is kept. A run never writes into the directory of another one."""

from __future__ import annotations

from pathlib import Path

from graphormer_sepnorm.errors import ConfigError


def new_run_directory(wanted: Path) -> Path:
    """Make a directory for a run: `wanted`, or with -2, -3, ... after it if that is taken.

    An empty directory counts as free.

    Raises:
        ConfigError: It cannot be made.
    """
    number = 1
    while True:
        path = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        try:
            if path.is_dir() and not any(path.iterdir()):
                return path
            path.mkdir(parents=True)
        except FileExistsError:
            number += 1
        except OSError as error:
            raise ConfigError(
                f"cannot make the run directory {path} ({error.strerror}): choose another place "
                "with --output"
            ) from error
        else:
            return path
