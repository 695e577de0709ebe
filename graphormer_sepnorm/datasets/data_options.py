"""What the options of a data module may be, before anything is read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from graphormer_sepnorm.datasets.catalogue import PRETRAINING, TABLE
from graphormer_sepnorm.datasets.user_table.options import TableOptions
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.values import is_whole


def check_numbers(**numbers: tuple[Any, int]) -> None:
    """Refuse, with a ConfigError, what is no whole number, or below the least of its option."""
    for name, (value, least) in numbers.items():
        if not is_whole(value, least):
            raise ConfigError(
                f"--data.{name} is {value!r}: it must be a whole number, {least} or more"
            )


def check_files(**files: Any) -> None:
    """Refuse, with a ConfigError, what is no name of a file, as a DataFrame; None is fine."""
    for name, file in files.items():
        if file is not None and not isinstance(file, str | os.PathLike):
            raise ConfigError(
                f"--data.{name} is of the type {type(file).__name__}: give the name of a file, "
                "to which a DataFrame is written by .to_csv()"
            )


def names_of(option: str, columns: Any) -> list[str] | str | None:
    """Return several names of an option as a list, also of an index of pandas."""
    if columns is None or isinstance(columns, str):
        return columns
    if not isinstance(columns, Iterable):
        raise ConfigError(f"--data.{option} is {columns!r}: give names of columns")
    return [*columns]


def table_options(dataset: str, options: Mapping[str, Any]) -> TableOptions | None:
    """Return the options of a table; None for another data set.

    Args:
        dataset: Its canonical name.
        options: All that are for tables, by their names, given or not.

    Raises:
        ConfigError: One is for another kind of data, or contradicts another one.
    """
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
