"""Argument parsers whose mistakes become one line."""

from __future__ import annotations

import argparse
from typing import NoReturn

from graphormer_sepnorm.errors import ConfigError


class OneLineParser(argparse.ArgumentParser):
    """A parser that raises instead of printing its usage; `cli.main.run` makes one line of it."""

    def error(self, message: str) -> NoReturn:
        """Refuse the arguments.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError(f"{message}; see {self.prog} --help")
