"""The bundled sample: 7,000 recombined drugs with their penalised logP, nothing to download."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from pathlib import Path

import numpy as np

from graphormer_sepnorm.chem.features import get_featuriser
from graphormer_sepnorm.chem.molecules import RDKIT_VERSION, parse_smiles
from graphormer_sepnorm.chem.scaffolds import murcko_scaffold, split_by_scaffold
from graphormer_sepnorm.datasets.splits import DatasetSplits
from graphormer_sepnorm.datasets.user_table.graphs import LazyGraphs
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.resources import sample_path

FEATURISER = "molecule-1"
TARGET = "penalised_logp"
FRACTIONS = (0.8, 0.1, 0.1)


def load_sample(root: Path | None = None) -> DatasetSplits:
    """Load the sample, split by scaffold 80 : 10 : 10.

    Args:
        root: The data root, which is not needed: the sample comes with the package.

    Raises:
        DataError: The file is missing or damaged.
    """
    del root
    path = sample_path()
    content = path.read_bytes()
    smiles, targets = _parse(content, path)
    scaffolds: list[str] = []
    for row, text in enumerate(smiles, start=2):  # row 1 is the header
        parsed = parse_smiles(text)
        if parsed.molecule is None:
            raise DataError(f"{path}, row {row}: {parsed.reason}")
        scaffolds.append(murcko_scaffold(parsed.molecule))

    positions = dict(
        zip(("train", "validation", "test"), split_by_scaffold(scaffolds, FRACTIONS), strict=True)
    )
    members = {name: [smiles[at] for at in chosen] for name, chosen in positions.items()}
    featuriser = get_featuriser(FEATURISER)
    # The graphs are made from the text here, so they depend on RDKit's release as well.
    fingerprint = hashlib.sha256(content + RDKIT_VERSION.encode()).hexdigest()
    return DatasetSplits(
        "sample",
        *(LazyGraphs(members[name], targets[at], featuriser) for name, at in positions.items()),
        task=Task(kind="regression", targets=(TARGET,), units=("",), metric="mae"),
        fingerprint=fingerprint,
        feature_version=FEATURISER,
        featuriser=FEATURISER,
        smiles=members,
    )


def _parse(content: bytes, path: Path) -> tuple[list[str], np.ndarray]:
    """Return SMILES and targets, float64 ``[n]``, of the gzipped CSV file."""
    try:
        header, *lines = gzip.decompress(content).decode("ascii").splitlines()
        rows = [line.split(",") for line in lines]
        if header != f"smiles,{TARGET}" or any(len(row) != 2 for row in rows):
            raise ValueError(f"its rows are not smiles,{TARGET}")
        return [row[0] for row in rows], np.array([float(row[1]) for row in rows])
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataError(
            f"the bundled sample {path} is damaged ({error}); install the package again"
        ) from error
