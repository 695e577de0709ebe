"""ogbg-molhiv from OGB's raw files, with its official scaffold split (Hu et al. 2020).

OGB's own loader does not open its files under torch 2.6 or later, so the raw layout is read here:
``x`` int64 ``[n, 9]``, ``edge_index`` int64 ``[2, E]`` with the two directions of a bond side by
side, ``edge_attr`` int64 ``[E, 3]``, in OGB's order; ``y`` float32 ``[1]``, 1 = inhibits HIV
replication. ogb itself is imported for its `Evaluator` only (`ogb_rocauc`), here and nowhere else.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data, InMemoryDataset, download_url, extract_zip
from torch_geometric.io import fs

from graphormer_sepnorm.datasets.inmemory import QuickGraphs
from graphormer_sepnorm.datasets.sources import one_line, prepare, require_files
from graphormer_sepnorm.datasets.splits import DatasetSplits
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.graphs.task import Task

URL = "https://snap.stanford.edu/ogb/data/graphproppred/csv_mol_download/hiv.zip"
TASK = Task("binary", ("HIV_active",), ("",), "auroc")

EDGES, BONDS, ATOMS = "raw/edge.csv.gz", "raw/edge-feat.csv.gz", "raw/node-feat.csv.gz"
LABELS = "raw/graph-label.csv.gz"
ATOM_COUNTS, BOND_COUNTS = "raw/num-node-list.csv.gz", "raw/num-edge-list.csv.gz"
GRAPH_FILES = (EDGES, BONDS, ATOMS, LABELS, ATOM_COUNTS, BOND_COUNTS)
SMILES = "mapping/mol.csv.gz"
SPLIT_FILES = {
    "train": "split/scaffold/train.csv.gz",
    "validation": "split/scaffold/valid.csv.gz",
    "test": "split/scaffold/test.csv.gz",
}
RAW_FILES = (*GRAPH_FILES, SMILES, *SPLIT_FILES.values())
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


class MolHIV(QuickGraphs, InMemoryDataset):
    """The 41,127 molecules in OGB's order.

    Args:
        folder: OGB's folder ``ogbg_molhiv`` with ``raw`` and the rest.
        processed: Where the processed file is or is to be written; ``folder/processed`` if None.
    """

    def __init__(self, folder: Path, processed: Path | None = None) -> None:
        self._processed = str(processed or folder / "processed")
        super().__init__(str(folder), log=False)
        self.load(self.processed_paths[0])

    @property
    def raw_dir(self) -> str:
        """The folder that `raw_file_names` are relative to."""
        return str(self.root)

    @property
    def raw_file_names(self) -> list[str]:
        """The raw files that the graphs are made from."""
        return list(GRAPH_FILES)

    @property
    def processed_dir(self) -> str:
        """The folder of the processed file."""
        return self._processed

    @property
    def processed_file_names(self) -> list[str]:
        """The processed file; not the name that ogb uses in the same folder."""
        return ["molhiv.pt"]

    def process(self) -> None:
        """Read the raw files and write the processed one, as PyG's `InMemoryDataset.save` does.

        The arrays are put together whole; going through 41,127 `Data` objects takes ten times as
        long and gives the same file.
        """
        data, slices = read_graphs(Path(self.raw_dir))
        fs.torch_save((data.to_dict(), slices, Data), self.processed_paths[0])


def load_molhiv(root: Path) -> DatasetSplits:
    """Load ogbg-molhiv in the official scaffold split.

    Args:
        root: The data root; OGB's folder is ``ogbg_molhiv`` under it.

    Raises:
        DataError: Raw files are missing and cannot be downloaded, or are damaged.
    """
    folder = root / "ogbg_molhiv"
    require_files(
        "ogbg-molhiv",
        folder,
        RAW_FILES,
        _download,
        f"put {', '.join(RAW_FILES)} (from {URL}) into {folder}",
        PUBLISHED,
    )
    processed = folder / "processed"
    fingerprint = prepare(
        "ogbg-molhiv", folder, RAW_FILES, processed, lambda into: _build(folder, into)
    )
    try:
        graphs = MolHIV(folder)
    except Exception as error:
        raise DataError(
            f"ogbg-molhiv: {processed / 'molhiv.pt'} cannot be read ({one_line(error)}); remove "
            f"{processed} so that it is made again"
        ) from error
    positions = {name: _integers(folder / file, 1)[:, 0] for name, file in SPLIT_FILES.items()}
    everything = np.sort(np.concatenate(list(positions.values())))
    if not np.array_equal(everything, np.arange(len(graphs))):
        raise DataError(
            f"ogbg-molhiv: the files in {folder / 'split/scaffold'} do not hold each of the "
            f"{len(graphs):,} molecules once; {_AGAIN}"
        )
    smiles = _read_smiles(folder / SMILES, len(graphs))
    return DatasetSplits(
        "ogbg-molhiv",
        *(graphs.index_select(torch.from_numpy(index)) for index in positions.values()),
        task=TASK,
        fingerprint=fingerprint,
        feature_version="ogb-1.3.6",
        featuriser="molecule-1",
        smiles={name: [smiles[i] for i in index] for name, index in positions.items()},
        evaluators={TASK.metric: ogb_rocauc},
        note=_note(folder, len(graphs)),
    )


def _note(folder: Path, molecules: int) -> str:
    """Say where the features cannot be OGB's own."""
    own = all((folder / file).stat().st_size == size for file, size in _FEATURE_BYTES.items())
    if own or molecules != _MOLECULES:
        return ""
    return (
        "The features of atoms and bonds are not those of OGB's own files: they were computed "
        "anew, and some differ."
    )


_AGAIN = "remove the file and put it there again, or remove the whole folder to download it"


def _download(folder: Path) -> Path:
    archive = download_url(URL, str(folder), log=False)
    extract_zip(archive, str(folder / "extracted"), log=False)
    return folder / "extracted" / "hiv"


def _build(folder: Path, into: Path) -> None:
    MolHIV(folder, into)


def read_graphs(folder: Path) -> tuple[Data, dict[str, torch.Tensor]]:
    """Read OGB's raw files into one `Data` of all graphs and the slices of each, as PyG keeps them.

    Raises:
        DataError: A file is damaged or they do not fit together.
    """
    edges, bonds, atoms = (
        _integers(folder / name, columns) for name, columns in ((EDGES, 2), (BONDS, 3), (ATOMS, 9))
    )
    labels, num_atoms, num_bonds = (
        _integers(folder / name, 1)[:, 0] for name in (LABELS, ATOM_COUNTS, BOND_COUNTS)
    )
    fit = (
        len(labels) == len(num_atoms) == len(num_bonds)
        and len(atoms) == num_atoms.sum()
        and len(bonds) == len(edges) == num_bonds.sum()
    )
    if not fit:
        raise DataError(
            f"ogbg-molhiv: the files in {folder / 'raw'} do not fit together ({len(labels):,} "
            f"labels, {num_atoms.sum():,} atoms counted and {len(atoms):,} there, "
            f"{num_bonds.sum():,} bonds counted and {len(edges):,} there); remove the folder to "
            "download it again"
        )
    if len(edges) and (edges.min() < 0 or (edges >= num_atoms.repeat(num_bonds)[:, None]).any()):
        raise DataError(
            f"ogbg-molhiv: {folder / EDGES} names an atom that its molecule does not have; {_AGAIN}"
        )
    # Each bond gives two directed edges, one after the other, with the same codes.
    both = np.stack([edges, edges[:, ::-1]], axis=1).reshape(-1, 2)
    data = Data(
        x=torch.from_numpy(atoms),
        edge_index=torch.from_numpy(np.ascontiguousarray(both.T)),
        edge_attr=torch.from_numpy(bonds.repeat(2, axis=0)),
        y=torch.from_numpy(labels.astype(np.float32)),
    )
    edge_slices = _slices(2 * num_bonds)
    slices = {
        "x": _slices(num_atoms),
        "edge_index": edge_slices,
        "edge_attr": edge_slices,
        "y": torch.arange(len(labels) + 1),
    }
    return data, slices


def _slices(counts: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))


def _integers(path: Path, columns: int) -> np.ndarray:
    with _damage_is_named(path):
        table = np.loadtxt(path, np.int64, delimiter=",", ndmin=2)
    if table.shape[1] != columns:
        raise DataError(
            f"ogbg-molhiv: {path} has {table.shape[1]} columns instead of {columns}; {_AGAIN}"
        )
    return table


def _read_smiles(path: Path, count: int) -> list[str]:
    with _damage_is_named(path), gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
        smiles = [row.get("smiles", "") for row in csv.DictReader(lines)]
    if len(smiles) != count or not any(smiles):
        raise DataError(
            f"ogbg-molhiv: {path} does not have a column 'smiles' with {count:,} rows; {_AGAIN}"
        )
    return smiles


@contextlib.contextmanager
def _damage_is_named(path: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # gzip, zlib, the parser and the conversion each raise their own
        raise DataError(f"ogbg-molhiv: {path} is damaged ({one_line(error)}); {_AGAIN}") from error


def ogb_rocauc(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    """Return the ROC AUC as OGB's `Evaluator` computes it for ogbg-molhiv.

    Args:
        y_true: Labels 0 or 1, ``[n]`` or ``[n, 1]``.
        y_pred: Scores, any increasing function of the probability, same shape.

    Raises:
        RuntimeError: Only one class occurs.
    """
    with _quiet_ogb_import():
        from ogb.graphproppred import Evaluator

    columns = {"y_true": y_true, "y_pred": y_pred}
    result = Evaluator("ogbg-molhiv").eval(
        {name: np.asarray(value).reshape(-1, 1) for name, value in columns.items()}
    )
    return float(result["rocauc"])


@contextlib.contextmanager
def _quiet_ogb_import() -> Iterator[None]:
    # On import, ogb starts a thread that asks the package index for a newer version of itself, and
    # the package it uses for that starts another. None in sys.modules makes that import fail, which
    # ogb takes as "not installed". It also sets an environment variable.
    absent = object()
    module = sys.modules.get("outdated", absent)
    variable = os.environ.get("OUTDATED_IGNORE")
    sys.modules["outdated"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if module is absent:
            del sys.modules["outdated"]
        else:
            sys.modules["outdated"] = module  # type: ignore[assignment]
        if variable is None:
            os.environ.pop("OUTDATED_IGNORE", None)
        else:
            os.environ["OUTDATED_IGNORE"] = variable
