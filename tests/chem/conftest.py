"""Molecules to look at: those of the sample, and rows of ZINC with its stored graphs."""

import csv
import gzip
import os
from pathlib import Path

import pytest

from graphormer_sepnorm.resources import sample_path


def _rows(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt") as lines:
        return list(csv.DictReader(lines))


@pytest.fixture(scope="session")
def sample() -> list[str]:
    """The SMILES of the bundled sample."""
    return [row["smiles"] for row in _rows(sample_path())]


@pytest.fixture(scope="session")
def zinc() -> list[dict[str, str]]:
    """ZINC's test split: SMILES, value, and the stored graph as a SMILES with all bonds written."""
    folder = os.environ.get("GRAPHORMER_DATA")
    if not folder:
        pytest.skip("needs the real data: set the environment variable GRAPHORMER_DATA")
    return _rows(Path(folder) / "zinc" / "test.csv.gz")
