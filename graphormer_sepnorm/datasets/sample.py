"""The bundled sample: 7,000 recombined drugs with their penalised logP, nothing to download."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data, InMemoryDataset

from graphormer_sepnorm.chem.features import get_featuriser
from graphormer_sepnorm.chem.molecules import RDKIT_VERSION, parse_smiles
from graphormer_sepnorm.chem.scaffolds import murcko_scaffold, split_by_scaffold
from graphormer_sepnorm.datasets.inmemory import QuickGraphs
from graphormer_sepnorm.datasets.splits import DatasetSplits
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.graphs.molecular_graph import MolecularGraph
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.resources import sample_path

FEATURISER = "molecule-1"
TARGET = "penalised_logp"
FRACTIONS = (0.8, 0.1, 0.1)


class SampleDataset(QuickGraphs, InMemoryDataset):
    """One split of the sample, in memory."""

    def __init__(self, graphs: list[MolecularGraph], targets: np.ndarray) -> None:
        super().__init__()
        self.data, self.slices = self.collate(
            [
                Data(
                    x=torch.from_numpy(graph.atom_codes),
                    edge_index=torch.from_numpy(graph.edge_index),
                    edge_attr=torch.from_numpy(graph.bond_codes),
                    y=torch.tensor([target], dtype=torch.float32),
                )
                for graph, target in zip(graphs, targets, strict=True)
            ]
        )


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
    featurise = get_featuriser(FEATURISER).featurise
    graphs: list[MolecularGraph] = []
    scaffolds: list[str] = []
    for row, text in enumerate(smiles, start=2):  # row 1 is the header
        parsed = parse_smiles(text)
        if parsed.molecule is None:
            raise DataError(f"{path}, row {row}: {parsed.reason}")
        graphs.append(featurise(parsed.molecule))
        scaffolds.append(murcko_scaffold(parsed.molecule))

    positions = dict(
        zip(("train", "validation", "test"), split_by_scaffold(scaffolds, FRACTIONS), strict=True)
    )
    parts = {
        name: SampleDataset([graphs[at] for at in chosen], targets[chosen])
        for name, chosen in positions.items()
    }
    # The graphs are made from the text here, so they depend on RDKit's release as well.
    fingerprint = hashlib.sha256(content + RDKIT_VERSION.encode()).hexdigest()
    return DatasetSplits(
        name="sample",
        **parts,
        task=Task(kind="regression", targets=(TARGET,), units=("",), metric="mae"),
        fingerprint=fingerprint,
        feature_version=FEATURISER,
        featuriser=FEATURISER,
        smiles={name: [smiles[at] for at in chosen] for name, chosen in positions.items()},
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
