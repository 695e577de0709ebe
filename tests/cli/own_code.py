"""A logger and callbacks as a user writes them, for tests that name them as options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback
from lightning.pytorch.loggers.logger import Logger

# Says that this module was imported, by options that name it.
IMPORTED = True


class OwnLogger(Logger):
    """Writes each row as a line of JSON."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    @property
    def name(self) -> str:
        return "own"

    @property
    def version(self) -> str:
        return "1"

    def _write(self, row: dict[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self._write({"step": step, **metrics})

    def log_hyperparams(self, params: dict[str, Any], *arguments: Any, **options: Any) -> None:
        self._write({"options": params})


class OwnCallback(Callback):
    """Does nothing."""


def own_function(*arguments: Any) -> None:
    """Do nothing."""
