"""The benchmark of the GPU, tried on a CPU: every part runs and leaves what it measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks.gpu import Traffic, main
from graphormer_sepnorm.cli.quiet import silence_known_noise

QUICK = ("--device", "cpu", "--quick", "--seconds", "0.01", "--batch_sizes", "4")


@pytest.mark.slow
def test_parts_are_measured_written_and_not_measured_again(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    silence_known_noise()
    output = tmp_path / "gpu.json"
    words = [*QUICK, "--output", str(output), "--root", str(tmp_path)]
    engines = ["--engines", "eager", "captured"]
    assert main([*words, *engines, "--parts", "ceilings", "trainer", "step"]) == 0
    results = json.loads(output.read_text())["results"]
    assert set(results) == {
        *("ceilings/matmul float32", "ceilings/matmul bfloat16", "ceilings/copy"),
        *("trainer/eager batch 4", "trainer/captured batch 4"),
        *("step/eager batch 4", "step/captured batch 4"),
    }
    assert all(value > 0 for name in results for key, value in results[name].items() if "_s" in key)
    assert results["step/eager batch 4"]["flop"] > 1e6
    assert results["step/eager batch 4"]["bytes"] > 1e6
    assert results["step/captured batch 4"]["kernels"] > 100
    assert capsys.readouterr().out.count("\n") >= len(results)
    assert main([*words, *engines, "--parts", "ceilings", "trainer", "step"]) == 0
    assert capsys.readouterr().out == ""
    assert json.loads(output.read_text())["results"] == results


def test_traffic_counts_what_is_read_and_written() -> None:
    with Traffic() as traffic:
        (torch.ones(10) + torch.ones(10)).reshape(2, 5)
    assert traffic.bytes == 4 * 10 * (1 + 1 + 3)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_refuses_in_one_line(capsys: pytest.CaptureFixture) -> None:
    assert main([]) == 2
    assert capsys.readouterr().out.count("\n") == 1
