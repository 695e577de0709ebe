"""Molecules to look at: those of the sample, and rows of ZINC with its stored graphs."""

import csv
import gzip
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
def zinc(data_source: Path) -> list[dict[str, str]]:
    """ZINC's test split: SMILES, value, and the stored graph as a SMILES with all bonds written."""
    return _rows(data_source / "zinc" / "test.csv.gz")
