"""Molecules of ZINC for the model's tests."""

from pathlib import Path

import pytest
from reference.molecules import zinc_validation
from torch_geometric.data import Data

from graphormer_sepnorm.cli.known_warnings import silence_known_noise


@pytest.fixture(autouse=True)
def _known_noise() -> None:
    """Warnings that the command line silences do not fail a test either."""
    silence_known_noise()


@pytest.fixture(scope="session")
def zinc_graphs(real_data_root: Path) -> list[Data]:
    return zinc_validation(real_data_root, 40)
