"""Molecules of ZINC for the model's tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from reference.molecules import zinc_validation
from torch_geometric.data import Data


@pytest.fixture(scope="session")
def zinc_graphs(real_data_root: Path) -> list[Data]:
    return zinc_validation(real_data_root, 40)
