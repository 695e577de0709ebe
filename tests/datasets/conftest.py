"""ZINC and ogbg-molhiv: the real ones, and raw files of a few made-up molecules."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from tiny_raw_files import ZINC_INDICES, ZINC_SIZES, write_gz, zinc_molecule

from graphormer_sepnorm.datasets.catalog import load_dataset
from graphormer_sepnorm.datasets.splits import DatasetSplits


@pytest.fixture
def tiny_zinc(tmp_path: Path) -> Path:
    """A data root with raw files of ZINC."""
    raw = tmp_path / "ZINC" / "raw"
    raw.mkdir(parents=True)
    for split, size in ZINC_SIZES.items():
        (raw / f"{split}.pickle").write_bytes(pickle.dumps([zinc_molecule(i) for i in range(size)]))
        (raw / f"{split}.index").write_text(",".join(map(str, ZINC_INDICES[split])) + "\n")
    return tmp_path


@pytest.fixture
def tiny_molhiv(tmp_path: Path) -> Path:
    """A data root with five molecules: three atoms in a row, one atom, two fragments, ..."""
    bonds = [[(0, 1), (1, 2)], [], [(0, 1), (2, 3)], [(0, 1)], [(0, 1), (1, 2), (2, 0)]]
    atoms = [3, 1, 4, 2, 3]
    rng = np.random.default_rng(0)
    folder = tmp_path / "ogbg_molhiv"
    tables = {
        "raw/edge": [pair for graph in bonds for pair in graph],
        "raw/edge-feat": rng.integers(0, 3, (sum(map(len, bonds)), 3)),
        "raw/node-feat": rng.integers(0, 9, (sum(atoms), 9)),
        "raw/graph-label": [[0], [1], [0], [1], [0]],
        "raw/num-node-list": [[n] for n in atoms],
        "raw/num-edge-list": [[len(graph)] for graph in bonds],
        "split/scaffold/train": [[4], [0], [2]],
        "split/scaffold/valid": [[1]],
        "split/scaffold/test": [[3]],
    }
    for name, rows in tables.items():
        write_gz(folder / f"{name}.csv.gz", "\n".join(",".join(map(str, row)) for row in rows))
    smiles = "\n".join(
        ["HIV_active,smiles,mol_id", "0,CCO,", "1,N,", "0,CC.NN,", "1,CF,", "0,C1CC1,"]
    )
    write_gz(folder / "mapping/mol.csv.gz", smiles)
    return tmp_path


@pytest.fixture(scope="session")
def zinc_subset(real_data_root: Path) -> DatasetSplits:
    return load_dataset("zinc-subset", real_data_root)


@pytest.fixture(scope="session")
def molhiv(real_data_root: Path) -> DatasetSplits:
    return load_dataset("ogbg-molhiv", real_data_root)
