"""ZINC and ZINC-subset through `torch_geometric.datasets.ZINC`.

Atoms carry one of 28 codes (``x`` int64 ``[n, 1]``), bonds are 1 single, 2 double, 3 triple
(``edge_attr`` int64 ``[E]``), the target ``y`` float32 ``[1]`` is the penalised logP of Jin et al.
(2018, arXiv:1802.04364); the subset is that of Dwivedi et al. (2020, arXiv:2003.00982).

The raw files are pickles, as upstream publishes them. They run no code: only tensors and plain
values are read.
"""

from __future__ import annotations

import contextlib
import gc
import io
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data
from torch_geometric.datasets import ZINC

from graphormer_sepnorm.datasets.inmemory import QuickGraphs
from graphormer_sepnorm.datasets.smiles_of_graphs import SmilesOfGraphs
from graphormer_sepnorm.datasets.sources import one_line, prepare, require_files
from graphormer_sepnorm.datasets.splits import DatasetSplits, Graphs
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.graphs.task import Task

SPLITS = ("train", "val", "test")
RAW_FILES = tuple(f"{split}.{kind}" for kind in ("pickle", "index") for split in SPLITS)
# Of the published files: atoms of the subset's first training molecule, and the size of the set.
_FIRST_ATOMS = 29
_TRAINING_MOLECULES = 220_011
_FEATURISER = "zinc-1"
# Of the positions of the subset, by which a download is told from another file.
PUBLISHED = {
    "train.index": "575d6acd72ac207a95947e2bdd16411ef6fc3faa88c2f55a2c496ea43022a6d8",
    "val.index": "fe48c38157f0d38e7fc441903a143392eda080511a79e8fb8f60f5c1b0a9c164",
    "test.index": "6aa50d98976044fb36089afef5b4c991b429ca1c8e009d33a0319e42a2d9b525",
}
TASK = Task("regression", ("logP_SA_cycle_normalized",), ("",), "mae")


class ZincSplit(QuickGraphs, ZINC):
    """PyG's ZINC with quick access to its graphs."""


class _ZincDownload(ZINC):
    """PyG's way of downloading alone: construction does nothing."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)


class _ZincBuild(ZINC):
    """PyG's way of processing, into a folder of our choice and from pickles that run no code."""

    log = property(lambda self: False, lambda self, value: None)  # type: ignore[assignment]

    def __init__(self, root: Path, subset: bool, into: Path) -> None:
        self._into = str(into)
        super().__init__(str(root), subset=subset, split="test")

    @property
    def processed_dir(self) -> str:
        return self._into

    def process(self) -> None:
        for split in SPLITS:
            with open(Path(self.raw_dir) / f"{split}.pickle", "rb") as file:
                molecules = _Tensors(file).load()
            positions = range(len(molecules))
            if self.subset:
                text = (Path(self.raw_dir) / f"{split}.index").read_text()
                positions = map(int, text.strip().split(","))
            graphs = [_graph(molecules[position]) for position in positions]
            self.save(graphs, str(Path(self._into) / f"{split}.pt"))


def _graph(molecule: dict[str, torch.Tensor]) -> Data:
    atoms, bonds = molecule["atom_type"], molecule["bond_type"]
    edges = bonds.nonzero().t().contiguous()
    return Data(
        x=atoms.long().view(-1, 1),
        edge_index=edges,
        edge_attr=bonds[edges[0], edges[1]].long(),
        y=molecule["logP_SA_cycle_normalized"].float(),
    )


class _Tensors(pickle.Unpickler):
    """Reads a pickle of tensors and plain values, and makes nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch.storage", "_load_from_bytes"):
            return _stored
        # How some releases of Python write torch.from_numpy: getattr(_VariableFunctionsClass, ...).
        if (module, name) == ("torch._C", "_VariableFunctionsClass"):
            return _FUNCTIONS
        if (module, name) == ("builtins", "getattr"):
            return _from_numpy
        if (module.replace("numpy._core", "numpy.core"), name) not in _OF_TENSORS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return super().find_class(module, name)


def _stored(numbers: bytes) -> Any:
    """Read the file that torch makes of the numbers of a tensor inside a pickle."""
    try:
        return torch.load(io.BytesIO(numbers), weights_only=True)
    except pickle.UnpicklingError:  # a long text about how to run the code
        raise pickle.UnpicklingError("a tensor in it is more than numbers") from None


_FUNCTIONS = object()


def _from_numpy(owner: object, name: str) -> Any:
    if owner is not _FUNCTIONS or name != "from_numpy":
        raise pickle.UnpicklingError(f"it asks for the attribute {name}")
    return torch.from_numpy


# What torch and numpy write of a tensor, without what runs code.
_OF_TENSORS = {
    ("collections", "OrderedDict"),
    ("torch._utils", "_rebuild_tensor_v2"),
    ("torch", "from_numpy"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy.core.numeric", "_frombuffer"),
    ("_codecs", "encode"),
}


def load_zinc(root: Path, subset: bool) -> DatasetSplits:
    """Load ZINC or ZINC-subset.

    Args:
        root: The data root; the raw files are in ``ZINC/raw`` under it.
        subset: The 12,000 molecules of the benchmark instead of the whole set.

    Raises:
        DataError: Raw files are missing and cannot be downloaded, are damaged, or hold only the
            subset where the whole set is asked for.
    """
    name, home = ("zinc-subset" if subset else "zinc"), root / "ZINC"
    raw = home / "raw"
    require_files(
        name,
        raw,
        RAW_FILES,
        _download,
        f"put train.pickle, val.pickle and test.pickle (folder molecules of {ZINC.url}) and "
        "train.index, val.index and test.index (data/molecules of "
        f"https://github.com/graphdeeplearning/benchmarking-gnns) into {raw}",
        PUBLISHED,
    )
    processed = home / ("subset" if subset else "full") / "processed"
    fingerprint = prepare(
        name,
        raw,
        RAW_FILES,
        processed,
        lambda into: _build(name, home, subset, into),
        effort="" if subset else "about a minute and 2.6 GB of memory",
    )
    train, validation, test = (_open(name, home, subset, split) for split in SPLITS)
    parts = {"train": train, "validation": validation, "test": test}
    return DatasetSplits(
        name,
        train,
        validation,
        test,
        task=TASK,
        fingerprint=fingerprint,
        feature_version="zinc-28",
        featuriser=_FEATURISER,
        smiles={split: SmilesOfGraphs(graphs, _FEATURISER) for split, graphs in parts.items()},
        note=_note(train, subset),
    )


def _note(train: Graphs, subset: bool) -> str:
    """Say where the training set cannot be the published one."""
    if subset and len(train) == 10_000 and (atoms := train[0].num_nodes) != _FIRST_ATOMS:
        return (
            "The 10,000 training molecules are another draw from ZINC's training set than the "
            f"published subset's, whose first molecule has {_FIRST_ATOMS} atoms (here {atoms})."
        )
    if not subset and 0 < (missing := _TRAINING_MOLECULES - len(train)) < 10:
        return (
            f"Of the {_TRAINING_MOLECULES:,} published training molecules {missing} "
            f"{'is' if missing == 1 else 'are'} missing."
        )
    return ""


def _download(folder: Path) -> Path:
    (folder / "raw").mkdir()
    _ZincDownload(folder).download()
    return folder / "raw"


def _build(name: str, home: Path, subset: bool, into: Path) -> None:
    raw = home / "raw"
    if subset:
        _check_indices(raw)
    try:
        with _no_garbage_collection():
            _ZincBuild(home, subset, into)
    except Exception as error:  # a damaged pickle can raise nearly anything
        split = next((s for s in SPLITS if not (into / f"{s}.pt").exists()), SPLITS[-1])
        if not subset and isinstance(error, KeyError) and isinstance(error.args[0], int):
            raise DataError(
                f"zinc: {raw / split}.pickle holds the molecules of zinc-subset only; put the "
                "pickles of the whole set there, or ask for zinc-subset"
            ) from error
        culprit = f"{raw / split}.pickle" + (f" or {split}.index" if subset else "")
        raise DataError(
            f"{name}: {culprit} cannot be read ({one_line(error)}); put it there again, or remove "
            f"{raw} to download everything"
        ) from error


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    # Processing makes millions of objects and no cycles. Looking for cycles among them again and
    # again is a quarter of the time (53 s against 39 s for the whole set, same memory).
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _check_indices(raw: Path) -> None:
    # Of a file that was cut short the last position may lack digits: another molecule, no error.
    for split in SPLITS:
        path = raw / f"{split}.index"
        with open(path, "rb") as handle:
            if not handle.read().endswith(b"\n"):
                raise DataError(
                    f"zinc-subset: {path} is cut short, it has to end with a newline; put it "
                    "there again"
                )


def _open(name: str, home: Path, subset: bool, split: str) -> ZincSplit:
    try:
        return ZincSplit(str(home), subset=subset, split=split)
    except Exception as error:
        folder = home / ("subset" if subset else "full") / "processed"
        raise DataError(
            f"{name}: {folder / split}.pt cannot be read ({one_line(error)}); remove {folder} so "
            "that it is made again"
        ) from error
