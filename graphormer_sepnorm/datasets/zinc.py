"""ZINC and ZINC-subset through `torch_geometric.datasets.ZINC`.

Atoms carry one of 28 codes (``x`` int64 ``[n, 1]``), bonds are 1 single, 2 double, 3 triple
(``edge_attr`` int64 ``[E, 1]``), the target ``y`` float32 ``[1]`` is the penalized logP of Jin et
al. (2018, arXiv:1802.04364); the subset is that of Dwivedi et al. (2020, arXiv:2003.00982).

The raw files are pickles, as upstream publishes them. They run no code: only tensors and plain
values are read.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import sys
from collections.abc import Iterable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch._utils import _rebuild_tensor_v2 as rebuild_tensor
from torch_geometric.datasets import ZINC

from graphormer_sepnorm.datasets.lazy_graphs import RawGraphs, SmilesOfGraphs
from graphormer_sepnorm.datasets.sources import readable, require_files
from graphormer_sepnorm.datasets.splits import SPLITS as SPLIT_NAMES
from graphormer_sepnorm.datasets.splits import DatasetSplits
from graphormer_sepnorm.files import read_json, write_json
from graphormer_sepnorm.graphs.packed_graphs import PackedGraphs
from graphormer_sepnorm.graphs.task import Task

SPLITS = ("train", "val", "test")
RAW_FILES = tuple(f"{split}.{kind}" for kind in ("pickle", "index") for split in SPLITS)
# Of the published files: atoms of the subset's first training molecule, and the size of the set.
_FIRST_ATOMS = 29
_TRAINING_MOLECULES = 220_011
_FEATURIZER = "zinc-1"
# Of the positions of the subset, by which a download is told from another file.
PUBLISHED = {
    "train.index": "575d6acd72ac207a95947e2bdd16411ef6fc3faa88c2f55a2c496ea43022a6d8",
    "val.index": "fe48c38157f0d38e7fc441903a143392eda080511a79e8fb8f60f5c1b0a9c164",
    "test.index": "6aa50d98976044fb36089afef5b4c991b429ca1c8e009d33a0319e42a2d9b525",
}
TASK = Task("regression", ("logP_SA_cycle_normalized",), ("",), "mae")


class _Parts:
    """What a tensor is put together from: the file that torch made of its numbers, and a layout.

    This is done later, as far as they are asked for.
    """

    def __init__(self, numbers: bytes, *layout: Any) -> None:
        self.numbers, self.layout = numbers, layout

    def __array__(self, *arguments: Any, **options: Any) -> np.ndarray:
        try:
            storage = torch.load(io.BytesIO(self.numbers), weights_only=True)
        except pickle.UnpicklingError:  # a long text about how to run the code
            raise pickle.UnpicklingError("a tensor in it is more than numbers") from None
        return np.asarray(rebuild_tensor(storage, *self.layout))


# What torch and numpy write of a tensor, without what runs code; None: as pickle finds it.
_OF_TENSORS = {
    ("torch.storage", "_load_from_bytes"): lambda numbers: numbers,
    ("torch._utils", "_rebuild_tensor_v2"): _Parts,
    # How some releases of Python write torch.from_numpy: getattr(_VariableFunctionsClass, ...).
    ("torch._C", "_VariableFunctionsClass"): None,
    ("builtins", "getattr"): lambda owner, name: {"from_numpy": torch.from_numpy}[name],
    ("collections", "OrderedDict"): None,
    ("torch", "from_numpy"): None,
    ("numpy", "ndarray"): None,
    ("numpy", "dtype"): None,
    ("numpy.core.multiarray", "_reconstruct"): None,
    ("numpy.core.numeric", "_frombuffer"): None,
    ("_codecs", "encode"): None,
}


class _Tensors(pickle.Unpickler):
    """Reads a pickle of tensors and plain values, and makes nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        wanted = (module.replace("numpy._core", "numpy.core"), name)
        if wanted not in _OF_TENSORS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return _OF_TENSORS[wanted] or super().find_class(module, name)


def load_zinc(root: Path, subset: bool) -> DatasetSplits:
    """Load ZINC or ZINC-subset.

    Args:
        root: The data root; the raw files are in ``ZINC/raw`` under it.
        subset: The 12,000 molecules of the benchmark instead of the whole set.

    Raises:
        DataError: Raw files are missing and cannot be downloaded, or are damaged.
    """
    name, home = ("zinc-subset" if subset else "zinc"), root / "ZINC"
    raw = home / "raw"
    instead = (
        f"put train.pickle, val.pickle and test.pickle (folder molecules of {ZINC.url}) and "
        "train.index, val.index and test.index (data/molecules of "
        f"https://github.com/graphdeeplearning/benchmarking-gnns) into {raw}"
    )
    digest = require_files(name, raw, RAW_FILES, _download, instead, PUBLISHED)
    reads = [cache(partial(_read, name, raw, subset, split)) for split in SPLITS]
    known = read_json(home / f"{name}.json") or {}
    if known.get("fingerprint") != digest:
        sizes = [len(read()) for read in reads]
        known = {"fingerprint": digest, "sizes": sizes, "first_atoms": int(reads[0]().num_atoms[0])}
        with contextlib.suppress(OSError):  # it is read again
            write_json(home / f"{name}.json", known)
    parts = {
        split: RawGraphs(read, range(size))
        for split, read, size in zip(SPLIT_NAMES, reads, known["sizes"], strict=True)
    }
    return DatasetSplits(
        name,
        *parts.values(),
        task=TASK,
        fingerprint=digest,
        feature_version="zinc-28",
        featurizer=_FEATURIZER,
        smiles={split: SmilesOfGraphs(graphs, _FEATURIZER) for split, graphs in parts.items()},
        note=_note(known["sizes"][0], known["first_atoms"], subset),
    )


def _note(molecules: int, first_atoms: int, subset: bool) -> str:
    """Say where the training set cannot be the published one."""
    if subset and molecules == 10_000 and first_atoms != _FIRST_ATOMS:
        return (
            "The 10,000 training molecules are another draw from ZINC's training set than the "
            f"published subset's, whose first molecule has {_FIRST_ATOMS} atoms (here "
            f"{first_atoms})."
        )
    if not subset and 0 < (missing := _TRAINING_MOLECULES - molecules) < 10:
        return f"{missing} of the {_TRAINING_MOLECULES:,} published training molecules missing."
    return ""


def _download(folder: Path) -> Path:
    (folder / "raw").mkdir()
    own = ZINC.__new__(ZINC)  # whose way of downloading is wanted alone
    own.root = str(folder)
    own.download()
    return folder / "raw"


def _read(name: str, raw: Path, subset: bool, split: str) -> PackedGraphs:
    """Read a split."""
    path, index = raw / f"{split}.pickle", raw / f"{split}.index"
    if not subset:
        print(f"Reading {path}: half a minute, 2 GB of memory", file=sys.stderr, flush=True)
    again = f"put it there again, or remove {raw} to download everything"
    with readable(name, f"{path} or {index.name}" if subset else path, again):
        with path.open("rb") as file:
            molecules = _Tensors(file).load()
        chosen: Iterable[int] = range(len(molecules))
        if subset:
            text = index.read_text()
            # Cut short, the last position may lack digits: another molecule, no error.
            if not text.endswith("\n"):
                raise ValueError(f"{index.name} is cut short, it has to end with a newline")
            chosen = map(int, text.strip().split(","))
        return _packed([molecules[at] for at in chosen])


def _packed(molecules: Sequence[dict[str, Any]]) -> PackedGraphs:
    atoms = [np.asarray(molecule["atom_type"]).reshape(-1, 1) for molecule in molecules]
    bonds = [np.asarray(molecule["bond_type"]) for molecule in molecules]
    ends = [np.stack(matrix.nonzero()) for matrix in bonds]
    labels = [np.asarray(molecule["logP_SA_cycle_normalized"]) for molecule in molecules]
    codes = [matrix[*pairs][:, None] for matrix, pairs in zip(bonds, ends, strict=True)]
    return PackedGraphs(
        num_atoms=np.array([len(codes) for codes in atoms]),
        num_bonds=np.array([pairs.shape[1] for pairs in ends]),
        atom_codes=np.concatenate(atoms).astype(np.int64),
        edge_index=np.concatenate(ends, axis=1),
        bond_codes=np.concatenate(codes).astype(np.int64),
        targets=np.stack(labels).astype(np.float32).reshape(len(molecules), 1),
    )
