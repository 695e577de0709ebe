"""Two and three processes train what one process trains on the joint batch, in float64."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from graphormer_sepnorm.model.norm_arms import NORMS

SCRIPT = Path(__file__).with_name("distributed_run.py")
WAYS = ("plain", "accumulated")


def run(folder: Path, *launcher: str) -> list[dict[str, Any]]:
    """Return what each process wrote."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, *launcher, str(SCRIPT), str(folder)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(path.read_text()) for path in sorted(folder.glob("rank*.json"))]


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run(tmp_path_factory.mktemp("single"))[0]


@pytest.fixture(scope="module", params=[2, 3])
def several(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    launcher = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={request.param}")
    results = run(tmp_path_factory.mktemp("several"), *launcher)
    assert len(results) == request.param
    return results


@pytest.mark.parametrize(
    "name", [*(f"{norm} {way}" for norm in NORMS for way in WAYS), "extensions", "fixed"]
)
def test_numbers_do_not_depend_on_the_processes(
    name: str, single: dict[str, Any], several: list[dict[str, Any]]
) -> None:
    expected = single[name]
    assert len(expected["losses"]) == (6 if name.endswith(("accumulated", "fixed")) else 10)
    for result in several:
        assert result[name]["losses"] == pytest.approx(expected["losses"], rel=1e-8)
        assert result[name]["metrics"] == pytest.approx(expected["metrics"], rel=1e-7)
        assert result[name]["parameters"] == pytest.approx(expected["parameters"], abs=1e-8)
        assert result[name]["weights"] == pytest.approx(expected["weights"], rel=1e-8)
        assert result[name]["batches"] == expected["batches"] == 10


def test_metrics_of_odd_splits_are_the_same_in_all_processes(
    single: dict[str, Any], several: list[dict[str, Any]]
) -> None:
    assert 0 < single["binary"]["metrics"]["test_auroc"] < 1
    for result in several:
        # An AUROC counts pairs: it is the same to the last digit.
        for name in ("validation_auroc", "test_auroc"):
            assert result["binary"]["metrics"][name] == single["binary"]["metrics"][name]
        assert result["binary"]["metrics"] == several[0]["binary"]["metrics"]


def test_no_graph_is_evaluated_twice(several: list[dict[str, Any]]) -> None:
    for name in several[0]:
        counts = Counter(number for result in several for number in result[name]["evaluated"])
        assert counts == dict.fromkeys(range(50, 61), 1)
