"""Molecules of ZINC, and Triton, for the model's tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from reference.compiled import DEVICE
from reference.molecules import zinc_validation
from torch_geometric.data import Data

from graphormer_sepnorm.cli.known_warnings import silence_known_noise
from graphormer_sepnorm.model.fused import gpu, gpu_attention, gpu_messages, gpu_norm


@pytest.fixture(autouse=True)
def _known_noise() -> None:
    """Warnings that the command line silences do not fail a test either, as those of Triton."""
    silence_known_noise()


@pytest.fixture(scope="session")
def zinc_graphs(real_data_root: Path) -> list[Data]:
    return zinc_validation(real_data_root, 40)


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton, or a skip; without a GPU its functions are interpreted."""
    if DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        if "triton" in sys.modules:  # by torch, where it comes with it
            pytest.skip("Triton was loaded to compile: start the tests with TRITON_INTERPRET=1")
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    pytest.importorskip("triton")
    monkeypatch.setattr(gpu, "_runs", {})
    gpu_attention.agrees.cache_clear()
    gpu_messages.agrees.cache_clear()
    gpu_norm.agrees.cache_clear()
