"""ogbg-molhiv from OGB's raw files, with its official scaffold split (Hu et al. 2020).

OGB's own loader does not open its files under torch 2.6 or later, so the raw layout is read here:
``x`` int64 ``[n, 9]``, ``edge_index`` int64 ``[2, E]`` with the two directions of a bond side by
side, ``edge_attr`` int64 ``[E, 3]``, in OGB's order; ``y`` float32 ``[1]``, 1 = inhibits HIV
replication.
"""

from __future__ import annotations

import csv
import gzip
from functools import cache, partial
from pathlib import Path

import numpy as np
from torch_geometric.data import download_url, extract_zip

from graphormer_sepnorm.datasets.lazy_graphs import RawGraphs
from graphormer_sepnorm.datasets.sources import readable, require_files
from graphormer_sepnorm.datasets.splits import DatasetSplits
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.graphs.packed_graphs import PackedGraphs
from graphormer_sepnorm.graphs.task import Task

URL = "https://snap.stanford.edu/ogb/data/graphproppred/csv_mol_download/hiv.zip"
TASK = Task("binary", ("HIV_active",), ("",), "auroc")

EDGES, BONDS, ATOMS = "raw/edge.csv.gz", "raw/edge-feat.csv.gz", "raw/node-feat.csv.gz"
LABELS = "raw/graph-label.csv.gz"
ATOM_COUNTS, BOND_COUNTS = "raw/num-node-list.csv.gz", "raw/num-edge-list.csv.gz"
SMILES = "mapping/mol.csv.gz"
SPLIT_FILES = {
    "train": "split/scaffold/train.csv.gz",
    "validation": "split/scaffold/valid.csv.gz",
    "test": "split/scaffold/test.csv.gz",
}
RAW_FILES = (EDGES, BONDS, ATOMS, LABELS, ATOM_COUNTS, BOND_COUNTS, SMILES, *SPLIT_FILES.values())
# SHA-256 of OGB's own files as far as they are known, by which a download is told from other files.
PUBLISHED = {
    EDGES: "d279b2d408f553cdc6e8ff9712e8eb52ee8831e6f63d29431812e27bca119389",
    LABELS: "88f950d08c606556cca1c1ffef05229f46d64043ad7fa617e8938a3ae9779993",
    ATOM_COUNTS: "e26f7e29de4a3985c7f47482838c62f870c90c4d01871c57bfeae1b8d993a24b",
    BOND_COUNTS: "fa058f23514328fd69bc9c4c31fd8f5938c4ce18726855489d0c0e2dfeaddd37",
    SPLIT_FILES["train"]: "9f1e46e77897b3de3d19452cbd47c312e2844a0ec664c1c9dc897c10d12e42f0",
    SPLIT_FILES["validation"]: "eaf4d6b4630f9e689d2b203669674d0dc309673319e8ac32daa9e9ca90e2e1fa",
    SPLIT_FILES["test"]: "27485729d83edd6f47eb3b8daff69fdb32c9df6b36b17204ef87f8dc1a30eab1",
}
# Of the others only their sizes are known.
_MOLECULES, _FEATURE_BYTES = 41_127, {ATOMS: 616_919, BONDS: 268_628}
_AGAIN = "remove the file and put it there again, or remove the whole folder to download it"


def load_molhiv(root: Path) -> DatasetSplits:
    """Load ogbg-molhiv in the official scaffold split.

    Args:
        root: The data root; OGB's folder is ``ogbg_molhiv`` under it.

    Raises:
        DataError: Raw files are missing and cannot be downloaded, or are damaged; those of the
            graphs are read when these are asked for.
    """
    folder = root / "ogbg_molhiv"
    instead = f"put {', '.join(RAW_FILES)} (from {URL}) into {folder}"
    digest = require_files("ogbg-molhiv", folder, RAW_FILES, _download, instead, PUBLISHED)
    path = folder / SMILES
    with (
        readable("ogbg-molhiv", path, _AGAIN),
        gzip.open(path, "rt", encoding="utf-8", newline="") as lines,
    ):
        smiles = [row["smiles"] for row in csv.DictReader(lines)]
    indices = {name: _integers(folder / file, 1)[:, 0] for name, file in SPLIT_FILES.items()}
    everything = np.sort(np.concatenate(list(indices.values())))
    if not np.array_equal(everything, np.arange(len(smiles))):
        raise DataError(
            f"ogbg-molhiv: the files in {folder / 'split/scaffold'} do not hold each of the "
            f"{len(smiles):,} molecules of {SMILES} once; {_AGAIN}"
        )
    own = all((folder / file).stat().st_size == size for file, size in _FEATURE_BYTES.items())
    note = "The features of atoms and bonds are not those of OGB's own files, and some differ."
    read = cache(partial(read_graphs, folder, len(smiles)))
    return DatasetSplits(
        "ogbg-molhiv",
        *(RawGraphs(read, of) for of in indices.values()),
        task=TASK,
        fingerprint=digest,
        feature_version="ogb-1.3.6",
        featurizer="molecule-1",
        smiles={name: [smiles[at] for at in of] for name, of in indices.items()},
        note="" if own or len(smiles) != _MOLECULES else note,
    )


def _download(folder: Path) -> Path:
    extract_zip(download_url(URL, str(folder), log=False), str(folder / "extracted"), log=False)
    return folder / "extracted" / "hiv"


def read_graphs(folder: Path, molecules: int) -> PackedGraphs:
    """Read OGB's raw files of so many molecules."""
    edges, bonds, atoms = (
        _integers(folder / name, columns) for name, columns in ((EDGES, 2), (BONDS, 3), (ATOMS, 9))
    )
    labels, num_atoms, num_bonds = (
        _integers(folder / name, 1)[:, 0] for name in (LABELS, ATOM_COUNTS, BOND_COUNTS)
    )
    fit = (
        len(labels) == len(num_atoms) == len(num_bonds) == molecules
        and len(atoms) == num_atoms.sum()
        and len(bonds) == len(edges) == num_bonds.sum()
        and (edges >= 0).all()
        and (edges < num_atoms.repeat(num_bonds)[:, None]).all()
    )
    if not fit:
        raise DataError(
            f"ogbg-molhiv: the files in {folder / 'raw'} do not fit together; remove the folder to "
            "download it again"
        )
    # Each bond gives two directed edges, one after the other, with the same codes.
    both = np.stack([edges, edges[:, ::-1]], axis=1).reshape(-1, 2)
    return PackedGraphs(
        num_atoms=num_atoms,
        num_bonds=2 * num_bonds,
        atom_codes=atoms,
        edge_index=np.ascontiguousarray(both.T),
        bond_codes=bonds.repeat(2, axis=0),
        targets=labels.astype(np.float32)[:, None],
    )


def _integers(path: Path, columns: int) -> np.ndarray:
    with readable("ogbg-molhiv", path, _AGAIN):
        table = np.loadtxt(path, np.int64, delimiter=",", ndmin=2)
        if table.shape[1] != columns:
            raise ValueError(f"{table.shape[1]} columns instead of {columns}")
    return table
