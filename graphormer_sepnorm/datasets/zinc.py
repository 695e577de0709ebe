"""ZINC and ZINC-subset through `torch_geometric.datasets.ZINC`.

Atoms carry one of 28 codes (``x`` int64 ``[n, 1]``), bonds are 1 single, 2 double, 3 triple
(``edge_attr`` int64 ``[E]``), the target ``y`` float32 ``[1]`` is the penalised logP of Jin et al.
(2018, arXiv:1802.04364); the subset is that of Dwivedi et al. (2020, arXiv:2003.00982).

The raw files are pickles, as upstream publishes them: whoever writes into a data root can run code.
"""

from __future__ import annotations

import contextlib
import gc
import io
import sys
from collections.abc import Iterator
from pathlib import Path

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
TASK = Task("regression", ("logP_SA_cycle_normalized",), ("",), "mae")


class ZincSplit(QuickGraphs, ZINC):
    """PyG's ZINC with quick access to its graphs."""


class _ZincDownload(ZINC):
    """PyG's way of downloading alone: construction does nothing."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)


class _ZincBuild(ZINC):
    """PyG's way of processing, into a folder of our choice and without its notices."""

    log = property(lambda self: False, lambda self, value: None)  # type: ignore[assignment]

    def __init__(self, root: Path, subset: bool, into: Path) -> None:
        self._into = str(into)
        super().__init__(str(root), subset=subset, split="test")

    @property
    def processed_dir(self) -> str:
        return self._into


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
    # The subset takes two seconds; the whole set nearly a minute, so somebody who sits at a
    # terminal gets PyG's progress bars. In a log file they would be hundreds of lines.
    quiet = subset or not sys.stderr.isatty()
    try:
        silence = contextlib.redirect_stderr(io.StringIO()) if quiet else contextlib.nullcontext()
        with silence, _no_garbage_collection():
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
    # PyG drops the last character of an index file before it splits it. Without a newline there,
    # that is a digit of the last position: another molecule, and no error.
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
