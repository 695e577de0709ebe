"""Molecules without labels, as a data set to pre-train on: their descriptors are the targets.

After CheMeleon (Burns et al. 2025, arXiv 2506.15792), which regresses Mordred's descriptors: here
RDKit's, and counts of Morgan environments (Rogers and Hahn 2010), logarithmic, those that are in
one molecule of a hundred at least. All are standardised and clipped to six deviations.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from filelock import FileLock
from scipy.sparse import csc_array

from graphormer_sepnorm.chem.descriptors import compute_descriptors, descriptor_names
from graphormer_sepnorm.chem.features import get_featuriser
from graphormer_sepnorm.chem.fingerprints import morgan_fingerprints
from graphormer_sepnorm.chem.molecules import RDKIT_VERSION, parse_smiles
from graphormer_sepnorm.datasets.splits import DatasetSplits
from graphormer_sepnorm.datasets.user_table.graphs import LazyGraphs
from graphormer_sepnorm.datasets.user_table.splits import random_split
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import replacing
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.tables.columns import find_smiles_column
from graphormer_sepnorm.tables.opening import open_table

FEATURISER = "molecule-1"
MAX_ATOMS = 100  # larger ones are few and set the memory of every batch they are in
FRACTIONS = (0.98, 0.01, 0.01)
CLIPPED = 6.0
RAREST = 0.01  # share of the molecules that an environment must be in, and may be missing in
_FEWEST = 100  # to standardise by, and to split
_CHUNK = 500
_CHUNKS_BETWEEN_NOTES = 20


def load_pretraining(path: Path, root: Path, processes: int | None = None) -> DatasetSplits:
    """Load molecules and compute what is to be learned of them.

    Descriptors are computed once and kept under `root`; interrupted, it goes on where it was.

    Args:
        path: SMILES, one on each line, or a table with a column of them.
        root: The data root.
        processes: Which compute descriptors; None: one for each core.

    Returns:
        98 : 1 : 1 of the molecules that can be read and have no more than 100 atoms, by chance.

    Raises:
        DataError: The file cannot be read, or holds fewer than a hundred molecules.
    """
    smiles = _read(path)
    names = descriptor_names()
    digest = hashlib.sha256("\n".join([RDKIT_VERSION, *names, *smiles]).encode()).hexdigest()
    values, usable = _descriptors(smiles, root / "pretraining" / f"{digest[:12]}.npy", processes)
    chosen = np.flatnonzero(usable)
    if len(chosen) < _FEWEST:
        raise DataError(f"{path}: {len(chosen):,} of its {len(smiles):,} molecules can be used")
    kept = [smiles[at] for at in chosen]
    counts = csc_array(morgan_fingerprints(kept, counts=True))
    share = np.diff(counts.indptr) / len(kept)
    environments = np.flatnonzero((share >= RAREST) & (share <= 1 - RAREST))
    environments_of = np.log1p(counts[:, environments].toarray().astype(np.float32))
    targets, varying = _standardised(np.hstack([values[chosen], environments_of]))
    named = [*names, *(f"morgan_{bit}" for bit in environments)]
    positions = random_split(kept, FRACTIONS, seed=0)
    featuriser = get_featuriser(FEATURISER)
    return DatasetSplits(
        "pretraining",
        *(LazyGraphs([kept[i] for i in part], targets[part], featuriser) for part in positions),
        task=Task(
            kind="regression",
            targets=tuple(name for name, keep in zip(named, varying, strict=True) if keep),
            units=("",) * int(varying.sum()),
            metric="mae",
        ),
        fingerprint=digest,
        feature_version=FEATURISER,
        featuriser=FEATURISER,
    )


def _read(path: Path) -> list[str]:
    with open_table(path) as reader:
        column = find_smiles_column(reader.columns, None, reader.name)
        return ["" if row.problem else str(row.cells[column] or "") for row in reader]


def _standardised(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return z-scores, clipped, of the columns that vary, and which columns these are."""
    mean, deviation = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
    varying = np.isfinite(deviation) & (deviation > 1e-6 * np.maximum(1, np.abs(mean)))
    scores = (values[:, varying] - mean[varying]) / deviation[varying]
    # A second time, without the tails: one enormous value makes all others equal.
    scores = np.clip(scores, -CLIPPED, CLIPPED)
    scores = (scores - np.nanmean(scores, axis=0)) / np.nanstd(scores, axis=0)
    return np.clip(scores, -CLIPPED, CLIPPED), varying


def _descriptors(
    smiles: list[str], file: Path, processes: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return descriptors ``[n, K]`` and which molecules can be used, from the file if it is there.

    A molecule that cannot be used is a row of nan.
    """
    shape = len(smiles), len(descriptor_names())
    file.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(file.with_suffix(".lock")):
        if not file.is_file():
            _compute(smiles, shape, file, processes)
    values = np.load(file, mmap_mode="r")
    return values, ~np.isnan(values).all(axis=1)


def _compute(smiles: list[str], shape: tuple[int, int], file: Path, processes: int | None) -> None:
    partial, progress = file.with_suffix(".partial"), file.with_suffix(".json")
    try:
        done = int(json.loads(progress.read_text())["done"]) if partial.is_file() else 0
    except (OSError, ValueError, KeyError):
        done = 0
    values = np.lib.format.open_memmap(
        partial, mode="r+" if done else "w+", dtype=np.float32, shape=shape
    )
    starts = range(done, len(smiles), _CHUNK)
    began = time.monotonic()
    count = processes or len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(count, multiprocessing.get_context("spawn")) as pool:
        chunks = (smiles[start : start + _CHUNK] for start in starts)
        for start, rows in zip(starts, pool.map(_of_chunk, chunks), strict=True):
            values[start : start + len(rows)] = rows
            done = start + len(rows)
            if (
                start - starts.start
            ) // _CHUNK % _CHUNKS_BETWEEN_NOTES == _CHUNKS_BETWEEN_NOTES - 1:
                values.flush()
                with replacing(progress) as new:
                    new.write_text(json.dumps({"done": done}))
                rate = (done - starts.start) / (time.monotonic() - began)
                print(
                    f"descriptors: {done:,} of {len(smiles):,} molecules, {rate:,.0f} a second",
                    file=sys.stderr,
                )
    values.flush()
    os.replace(partial, file)
    progress.unlink(missing_ok=True)


def _of_chunk(smiles: list[str]) -> np.ndarray:
    parsed = (parse_smiles(text).molecule for text in smiles)
    return compute_descriptors(
        [None if one is None or one.GetNumAtoms() > MAX_ATOMS else one for one in parsed]
    )
