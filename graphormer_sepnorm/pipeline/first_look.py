"""What is wrong with a name, a file, a column or a device, said before anything heavy is imported.

The commands find all of this later too, by the same functions, but that takes ten seconds.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from graphormer_sepnorm.datasets.catalog import PRETRAINING, TABLE, dataset_of
from graphormer_sepnorm.datasets.user_table.find_columns import find_columns, looks_like_smiles
from graphormer_sepnorm.errors import ConfigError, DataError
from graphormer_sepnorm.process import has_gpu_driver
from graphormer_sepnorm.runs.directory import find_checkpoint
from graphormer_sepnorm.tables.columns import (
    find_column,
    find_smiles_column,
    parse_number,
    readable,
)
from graphormer_sepnorm.tables.opening import open_table
from graphormer_sepnorm.tables.reader import Layout, TableReader

if TYPE_CHECKING:
    from graphormer_sepnorm.config import FitConfig  # loads YAML, which predictions do not need


def look_at_training(config: FitConfig, table: bool = True) -> None:
    """Raise a GraphormerError for what can be seen to be wrong with a training, and its table."""
    data, dataset = config.data, dataset_of(config.data)
    look_at_device("--trainer.accelerator", config.trainer.accelerator)
    if config.model.from_pretrained is not None:
        find_checkpoint(config.model.from_pretrained)
    layout = Layout(data.sheet, data.header_row, data.smiles_column, "--data.")
    files = data.files if dataset == TABLE and table else {}
    if dataset == PRETRAINING:
        files = {PRETRAINING: Path(str(data.molecules)).expanduser()}
    targets = data.target_columns or ()
    for split, file in files.items():
        if os.path.exists(file) and not os.path.isfile(file):
            break  # what a pipe gives can be read once
        with open_table(file, layout=layout) as reader:
            if split == PRETRAINING:
                look_at_columns(reader, layout)
                continue
            found = find_columns(reader, data, split, targets)
            _look_at_smiles(reader, layout, found.smiles, empty=True)
            targets = tuple(found.targets)


def look_at_columns(reader: TableReader, layout: Layout, names: Iterable[str | None] = ()) -> None:
    """Raise a DataError if the column of SMILES (not of SD files) or one of a name is not there."""
    columns, wanted = tuple(map(readable, reader.columns)), layout.smiles_column
    if reader.format != "sdf" or wanted is not None:
        option = f"{layout.options}smiles_column"
        at = find_smiles_column(columns, wanted, reader.name, option, looks_like_smiles)
        _look_at_smiles(reader, layout, at)
    for name in filter(None, names):
        find_column(columns, name, reader.name)


def _look_at_smiles(
    reader: TableReader, layout: Layout, at: int | None, empty: bool = False
) -> None:
    """Raise a DataError if the column of SMILES, if there is one, has numbers, or is `empty`."""
    if at is None:
        return
    row = None
    for row in reader:
        try:
            empty |= not math.isnan(parse_number(row.cells[at]))
        except ValueError:
            return
    if empty and row:
        raise DataError(
            f"{reader.name}: no row has SMILES in column {readable(reader.columns[at])!r}: name "
            f"their column with {layout.options}smiles_column"
        )


def look_at_device(option: str, device: str | None) -> None:
    """Raise a ConfigError if a GPU is asked for, and there is no driver of one."""
    if device and device.startswith(("gpu", "cuda")) and not has_gpu_driver():
        raise ConfigError(f"{option} {device}: there is no GPU here: leave it out")
