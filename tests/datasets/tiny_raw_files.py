"""Made-up molecules in the layouts of ZINC's and OGB's raw files."""

import gzip
from pathlib import Path

import pytest
import torch

from graphormer_sepnorm.datasets.catalog import load_dataset
from graphormer_sepnorm.errors import DataError

ZINC_SIZES = {"train": 8, "val": 4, "test": 3}
ZINC_INDICES = {"train": [0, 2, 5, 7], "val": [1, 3], "test": [2, 0]}


def zinc_molecule(number: int) -> dict:
    """A chain of 3 + number atoms with bond codes 1, 2, 1, 2, ..."""
    n = 3 + number
    adjacency = torch.zeros(n, n, dtype=torch.uint8)
    for i in range(n - 1):
        adjacency[i, i + 1] = adjacency[i + 1, i] = 1 + i % 2
    return {
        "num_atom": n,
        "atom_type": torch.arange(n, dtype=torch.uint8) % 5,
        "bond_type": adjacency,
        "logP_SA_cycle_normalized": torch.tensor([number / 2]),
    }


def write_gz(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress((text + "\n").encode()))


def failure(name: str, root: Path) -> str:
    """The one line that loading a data set, or reading its graphs, fails with."""
    with pytest.raises(DataError) as caught:
        _ = load_dataset(name, root).train[0]
    message = str(caught.value)
    assert "\n" not in message
    return message
