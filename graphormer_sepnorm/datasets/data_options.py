"""What the options of a data module may be, before anything is read."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from graphormer_sepnorm.config import DataConfig
from graphormer_sepnorm.datasets.catalogue import PRETRAINING, TABLE
from graphormer_sepnorm.datasets.user_table.options import TableOptions
from graphormer_sepnorm.errors import ConfigError

_FILES = ("table", "validation_table", "test_table", "molecules")
_COLUMNS = ("target_columns", "descriptor_columns")


def check_files(options: dict[str, Any]) -> None:
    """Refuse, with a ConfigError, what is no name of a file, as a DataFrame; None is fine.

    Names of columns may be any sequence, an index of pandas too: they become a list in `options`.
    """
    for name in _FILES:
        file = options.get(name)
        if file is not None and not isinstance(file, str | os.PathLike):
            raise ConfigError(
                f"--data.{name} is of the type {type(file).__name__}: give the name of a file, "
                "to which a DataFrame is written by .to_csv()"
            )
    for name in _COLUMNS:
        columns = options.get(name)
        if columns is not None and not isinstance(columns, str):
            if not isinstance(columns, Iterable):
                raise ConfigError(f"--data.{name} is {columns!r}: give names of columns")
            options[name] = [*columns]


def table_options(dataset: str, config: DataConfig) -> TableOptions | None:
    """Return the options of a table; None for another data set.

    Args:
        dataset: Its canonical name.
        config: All options of the data.

    Raises:
        ConfigError: One is for another kind of data, or contradicts another one.
    """
    options = {field.name: getattr(config, field.name) for field in fields(TableOptions)}
    if dataset != TABLE:
        if options["table"]:
            raise ConfigError(
                f"--data.table {options['table']} and --data.dataset {dataset}: give one of them"
            )
        if options["folds"] is not None:
            raise ConfigError(
                f"--data.folds {options['folds']} is for a table of your own, and "
                f"{dataset} has its own splits: give --data.table FILE"
            )
        defaults = {field.name: field.default for field in fields(TableOptions)}
        if dataset == PRETRAINING:
            del defaults["smiles_column"]
        for name, default in defaults.items():
            value = options[name]
            value = tuple(value) if isinstance(value, list) else value
            if (value or value == 0) and value != default:
                raise ConfigError(
                    f"--data.{name} is for a table of your own, and this is {dataset}: "
                    "give --data.table FILE, or leave it out"
                )
        return None
    if not options["table"]:
        raise ConfigError("which table? Give your file: --data.table FILE")
    return TableOptions.from_data_options(options)
