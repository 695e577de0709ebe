"""Molecules without labels, as a data set to pre-train on: their descriptors are the targets.

After CheMeleon (Burns et al. 2025, arXiv 2506.15792), which regresses Mordred's descriptors: here
RDKit's, and counts of Morgan environments (Rogers and Hahn 2010), logarithmic, those that are in
one molecule of a hundred at least. All are standardized and clipped to six deviations.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
from filelock import FileLock

from graphormer_sepnorm.chem.descriptors import compute_descriptors, descriptor_names
from graphormer_sepnorm.chem.features import OF_SMILES, get_featurizer
from graphormer_sepnorm.chem.fingerprints import ENVIRONMENTS, SUBSTRUCTURES
from graphormer_sepnorm.chem.molecules import RDKIT_VERSION, is_smiles, parse_smiles
from graphormer_sepnorm.datasets.lazy_graphs import LazyGraphs
from graphormer_sepnorm.datasets.splits import DatasetSplits
from graphormer_sepnorm.datasets.splitting import random_split
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import cannot_be_written, replacing
from graphormer_sepnorm.graphs.extra_inputs import CLIPPED, standardization
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.process import in_chunks
from graphormer_sepnorm.tables.columns import find_smiles_column
from graphormer_sepnorm.tables.opening import open_table
from graphormer_sepnorm.tables.reader import Layout

MAX_ATOMS = 100  # larger ones are few and set the memory of every batch they are in
FRACTIONS = (0.98, 0.01, 0.01)
RAREST = 0.01  # share of the molecules that an environment must be in, and may be missing in
_LABELS = b"2"  # other ones from the same molecules, since outliers are clipped until none is left
_FEWEST = 100  # to standardize by, and to split
# Molecules of a stored part, and those that a process computes at once.
_PART, _CHUNK = 20_000, 500


def load_pretraining(path: Path, root: Path, layout: Layout | None = None) -> DatasetSplits:
    """Load molecules and compute what is to be learned of them, once, stored under `root`.

    Args:
        path: SMILES, one on each line, or a table with a column of them.
        root: The data root.
        layout: Which part of the file it is, and its column of SMILES; None finds them.

    Returns:
        98 : 1 : 1 of the molecules that can be read and have no more than 100 atoms, at random.

    Raises:
        DataError: The file cannot be read, or holds fewer than a hundred molecules.
    """
    layout = layout or Layout(options="--data.")
    with open_table(path, layout=layout) as reader:
        own = reader.columns, layout.smiles_column, reader.name
        column = find_smiles_column(*own, is_molecule=is_smiles)
        smiles = ["" if row.problem else str(row.cells[column] or "") for row in reader]
    names = descriptor_names()
    given = "\n".join([RDKIT_VERSION, *names, *smiles])
    # A byte that is not text stays what it is: its molecule alone cannot be used.
    given_bytes = given.encode("utf-8", "surrogateescape")
    digest = hashlib.sha256(given_bytes).hexdigest()
    descriptors, counts = _features(smiles, root / "pretraining" / digest[:12])
    chosen = np.flatnonzero(~np.isnan(descriptors).all(axis=1))
    if len(chosen) < _FEWEST:
        usable = f"{len(chosen):,} of its {len(smiles):,} molecules can be used"
        raise DataError(f"{path}: {usable}: give {_FEWEST} or more")
    kept = [smiles[at] for at in chosen]
    counts = counts[chosen]
    share = (counts > 0).mean(axis=0)
    environments = np.flatnonzero((share >= RAREST) & (share <= 1 - RAREST))
    logarithms = np.log1p(counts[:, environments], dtype=np.float32)
    targets, varying = _standardized(np.hstack([descriptors[chosen], logarithms]))
    named = [*names, *(f"morgan_{bit}" for bit in environments)]
    learned = tuple(name for name, keep in zip(named, varying, strict=True) if keep)
    positions = random_split(kept, FRACTIONS, seed=0)
    featurizer = get_featurizer(OF_SMILES)
    return DatasetSplits(
        "pretraining",
        *(LazyGraphs([kept[i] for i in part], targets[part], featurizer) for part in positions),
        task=Task("regression", learned, ("",) * len(learned), "mae"),
        fingerprint=hashlib.sha256(_LABELS + given_bytes).hexdigest(),
        feature_version=OF_SMILES,
        featurizer=OF_SMILES,
    )


def _standardized(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return z-scores, clipped, of the columns that vary, and which columns these are.

    Column by column: sums of so many rows need float64, and a copy of all in it much memory.
    """
    scaling = [standardization(column[:, None]) for column in values.T]
    mean, factor = (np.concatenate(of).astype(np.float32) for of in zip(*scaling, strict=True))
    varying = factor > 0
    scores = (values[:, varying] - mean[varying]) * factor[varying]
    return np.clip(scores, -CLIPPED, CLIPPED, out=scores), varying


def _features(smiles: list[str], folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return descriptors ``[n, K]`` and Morgan counts ``[n, 2048]``, stored in parts in the folder.

    Descriptors of a molecule that cannot be used are nan. Parts of an earlier call are not made
    again, unless they are damaged.
    """
    descriptors = np.empty((len(smiles), len(descriptor_names())), np.float32)
    counts = np.empty((len(smiles), ENVIRONMENTS), np.uint8)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_suffix(".lock")):
            for start in range(0, len(smiles), _PART):
                part, file = slice(start, start + _PART), folder / f"{start}.npz"
                found = _stored(file)
                if found is None:
                    progress = start, len(smiles)
                    with closing(in_chunks(_of_chunk, smiles[part], _CHUNK, *progress)) as computed:
                        found = tuple(map(np.concatenate, zip(*computed, strict=True)))
                    with replacing(file) as partial, partial.open("wb") as stream:
                        np.savez_compressed(stream, descriptors=found[0], counts=found[1])
                descriptors[part], counts[part] = found
    except OSError as error:
        what = f"the folder of descriptors {folder}"
        raise DataError(cannot_be_written(what, error, "give another --data.root")) from error
    return descriptors, counts


def _stored(file: Path) -> tuple[np.ndarray, ...] | None:
    # Not there, or cut short, which fails in many ways.
    with suppress(Exception), file.open("rb") as stream:
        stored = np.load(stream)
        return stored["descriptors"], stored["counts"]
    return None


def _of_chunk(smiles: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Descriptors, nan for what cannot be used, and counts, up to 255, of some molecules."""
    parsed = [parse_smiles(text).molecule for text in smiles]
    used = [one if one is not None and one.GetNumAtoms() <= MAX_ATOMS else None for one in parsed]
    counts = np.zeros((len(smiles), ENVIRONMENTS), np.uint8)
    for row, one in zip(counts, used, strict=True):
        if one is not None:
            row[:] = SUBSTRUCTURES["morgan"].GetCountFingerprintAsNumPy(one).clip(max=255)
    return compute_descriptors(used), counts
