"""Molecules to look at: those of the sample, and rows of ZINC with its stored graphs."""

import csv
import gzip
from pathlib import Path

import pytest
from reference.molecules import sample_rows


@pytest.fixture(scope="session")
def sample() -> list[str]:
    """The SMILES of the bundled sample."""
    return [smiles for smiles, _ in sample_rows()]


@pytest.fixture(scope="session")
def zinc(data_source: Path) -> list[dict[str, str]]:
    """ZINC's test split: SMILES, value, and the stored graph as a SMILES with all bonds written."""
    with gzip.open(data_source / "zinc" / "test.csv.gz", "rt") as lines:
        return list(csv.DictReader(lines))
