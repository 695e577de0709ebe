"""What is wrong with a name, a file, a column or a device, said before anything heavy is imported.

The commands find all of this later too, by the same functions, but that takes ten seconds.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from graphormer_sepnorm.config import FitConfig
from graphormer_sepnorm.data_config import ALL
from graphormer_sepnorm.datasets.catalog import PRETRAINING, TABLE, dataset_of
from graphormer_sepnorm.errors import ConfigError, DataError
from graphormer_sepnorm.process import has_gpu_driver
from graphormer_sepnorm.runs.directory import find_checkpoint
from graphormer_sepnorm.tables.columns import find_column, find_smiles_column, is_empty, readable
from graphormer_sepnorm.tables.opening import open_table
from graphormer_sepnorm.tables.reader import Layout, TableReader


def look_at_training(config: FitConfig) -> None:
    """Raise a GraphormerError for what can be seen to be wrong with a training."""
    data, dataset = config.data, dataset_of(config.data)
    look_at_device("--trainer.accelerator", config.trainer.accelerator)
    if config.model.from_pretrained is not None:
        find_checkpoint(config.model.from_pretrained)
    files = data.files if dataset == TABLE else {}
    if dataset == PRETRAINING:
        files = {"train": Path(str(data.molecules)).expanduser()}
    targets = () if data.target_columns in (None, (ALL,)) else data.target_columns
    of_all = (data.column_of_split, data.id_column, *(data.descriptor_columns or ()), *targets)
    layout = Layout(data.sheet, data.header_row, data.smiles_column, "--data.")
    for split, file in files.items():
        if os.path.exists(file) and not os.path.isfile(file):
            continue  # what a pipe gives can be read once
        with open_table(file, layout=layout) as reader:
            if reader.format == "smi":
                continue
            names = (*of_all, data.weight_column if split == "train" else None)
            smiles = look_at_columns(reader, layout, names)
            if smiles is not None:
                _look_at_rows(reader, smiles)


def look_at_columns(
    reader: TableReader, layout: Layout, names: Iterable[str | None] = ()
) -> int | None:
    """Return the column of SMILES, None in SD files; raise a DataError if one is not there."""
    columns, option = tuple(map(readable, reader.columns)), f"{layout.options}smiles_column"
    smiles = None
    if reader.format != "sdf" or layout.smiles_column is not None:
        wanted = layout.smiles_column
        smiles = find_smiles_column(columns, wanted, reader.name, option, _is_smiles)
    for name in filter(None, names):
        find_column(columns, name, reader.name)
    return smiles


def _look_at_rows(reader: TableReader, smiles: int) -> None:
    """Raise a DataError if no row has a molecule; the first row mostly has one."""
    for row in reader:
        if row.problem or not is_empty(row.cells[smiles]):
            return
    column = readable(reader.columns[smiles])
    raise DataError(f"{reader.name}: no row has a {column}: nothing can be learned from it")


def look_at_device(option: str, device: str | None) -> None:
    """Raise a ConfigError if a GPU is asked for, and there is no driver of one."""
    if device and device.startswith(("gpu", "cuda")) and not has_gpu_driver():
        raise ConfigError(f"{option} {device}: there is no GPU here: leave it out")


def _is_smiles(name: str) -> bool:
    from graphormer_sepnorm.chem.molecules import is_smiles  # only where a header may be missing

    return is_smiles(name)
