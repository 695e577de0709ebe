"""Two and three processes train what one process trains on the joint batch, in float64.

They are started as torchrun starts them; torchrun itself starts those of cli/test_processes.py.
"""

import json
import os
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from distributed_run import TRAININGS
from reference.processes import Forked

SCRIPT = Path(__file__).with_name("distributed_run.py")


def run(folder: Path, processes: int) -> list[dict[str, Any]]:
    """Return what each of so many processes wrote, which find each other as torchrun's do."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    common = {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)}
    common |= {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    common |= {"GROUP_RANK": "0", "TORCHELASTIC_RUN_ID": "none"}
    path = os.pathsep.join(sys.path)
    ranks = [
        Forked(
            [sys.executable, str(SCRIPT), str(folder)],
            env={**os.environ, **common, "PYTHONPATH": path, "RANK": str(n), "LOCAL_RANK": str(n)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(processes)
    ]
    try:
        errors = [process.communicate(timeout=300)[1] for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    assert [process.returncode for process in ranks] == [0] * processes, errors[0][-3000:]
    return [json.loads(path.read_text()) for path in sorted(folder.glob("rank*.json"))]


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run(tmp_path_factory.mktemp("single"), 1)[0]


@pytest.fixture(scope="module", params=[pytest.param(2, marks=pytest.mark.slow), 3])
def several(request, tmp_path_factory) -> list[dict[str, Any]]:
    results = run(tmp_path_factory.mktemp("several"), request.param)
    assert len(results) == request.param
    return results


@pytest.mark.parametrize("name", [name for name in TRAININGS if name != "binary"])
def test_numbers_do_not_depend_on_the_processes(name, single, several):
    expected = single[name]
    assert len(expected["losses"]) == (6 if name.endswith(("accumulated", "fixed")) else 10)
    for result in several:
        assert result[name]["losses"] == pytest.approx(expected["losses"], rel=1e-8)
        assert result[name]["metrics"] == pytest.approx(expected["metrics"], rel=1e-7)
        assert result[name]["parameters"] == pytest.approx(expected["parameters"], abs=1e-8)
        assert result[name]["weights"] == pytest.approx(expected["weights"], rel=1e-8)
        assert result[name]["batches"] == expected["batches"] == 10


def test_metrics_of_odd_splits_are_the_same_in_all_processes(single, several):
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
