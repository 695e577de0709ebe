"""The benchmark of the GPU, tried on a CPU: every part runs and leaves what it measured."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from benchmarks import gpu
from benchmarks.gpu import AGREEMENT, main, parsed
from benchmarks.gpu_measures import Traffic
from benchmarks.gpu_steps import fitted, optimizer_for
from graphormer_sepnorm.cli.known_warnings import silence_known_noise
from graphormer_sepnorm.training.captured.engine import CapturedTraining
from graphormer_sepnorm.training.muon import MuonAdamW

QUICK = ("--device", "cpu", "--quick", "--seconds", "0.01", "--batch_sizes", "4")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A data root for all: the graph store of the sample is made once."""
    return str(tmp_path_factory.mktemp("root"))


@pytest.mark.slow
def test_parts_are_measured_written_and_not_measured_again(
    root: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    silence_known_noise()
    output = tmp_path / "gpu.json"
    words = [*QUICK, "--output", str(output), "--root", root]
    engines = ["--engines", "eager", "captured"]
    parts = ["--parts", "ceilings", "trainer", "step"]
    assert main([*words, *engines, *parts]) == 0
    results = json.loads(output.read_text())["results"]
    assert set(results) == {
        "ceilings/matmul float32",
        "ceilings/matmul bfloat16",
        "ceilings/copy",
        "trainer/eager batch 4",
        "trainer/captured batch 4",
        "step/eager batch 4",
        "step/captured batch 4",
    }
    assert all(value > 0 for name in results for key, value in results[name].items() if "_s" in key)
    assert results["step/eager batch 4"]["flop"] > 1e6
    assert results["step/eager batch 4"]["bytes"] > 1e6
    assert results["step/captured batch 4"]["kernels"] > 100
    assert capsys.readouterr().out.count("\n") >= len(results)
    assert main([*words, *engines, *parts]) == 0
    assert capsys.readouterr().out == ""
    assert json.loads(output.read_text())["results"] == results


@pytest.mark.slow
def test_check_is_rehearsed_without_a_gpu(
    root: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    output = tmp_path / "check.json"
    words = ["--check", *QUICK[:-1], "64", "--config", "quickstart", "--epochs", "1"]
    words += ["--engines", "captured"]
    assert main([*words, "--parts", "step", "fit", "--root", root, "--output", str(output)]) == 0
    results = json.loads(output.read_text())["results"]
    assert set(results) == {"step/captured batch 64", "fit/captured batch 64"}
    assert results["fit/captured batch 64"]["status"] == 0
    dearest = results["step/captured batch 64"]["dearest_us"]
    assert len(dearest) == 12
    assert list(dearest.values()) == sorted(dearest.values(), reverse=True)
    said = capsys.readouterr().out
    assert all(kernel in said for kernel in dearest)


@pytest.mark.parametrize("config", ["zinc_subset_best", "zinc_best"])
def test_optimiser_of_a_gpu_can_be_captured(config: str, root: str) -> None:
    """Also after the training that set everything up has ended."""
    silence_known_noise()
    options = parsed([*QUICK, "--root", root, "--config", config, "--dataset", "sample"])
    options.device = torch.device("cpu")
    module, _, _ = fitted(options, 4, CapturedTraining(on_cpu=True), max_steps=1)
    for kind in ("cuda", "cpu"):
        optimizer = optimizer_for(module, torch.device(kind))
        assert isinstance(optimizer, MuonAdamW)  # it is the configuration's
        assert {group["capturable"] for group in optimizer.param_groups} == {kind == "cuda"}


def test_a_part_that_fails_does_not_keep_the_others_from_being_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    works = [False]

    def parts(options: object) -> Iterator[tuple[str, Callable[[], dict]]]:
        yield "first", lambda: {"steps_per_s": 1.0} if works[0] else 1 / 0
        yield "second", lambda: {"steps_per_s": 2.0}

    monkeypatch.setitem(gpu.PARTS, "ceilings", parts)
    words = [*QUICK, "--parts", "ceilings", "--output", str(tmp_path / "gpu.json")]
    assert main(words) == 1
    assert "ZeroDivisionError" in capsys.readouterr().out
    works[0] = True  # mended: it is measured anew, and alone
    assert main(words) == 0
    assert capsys.readouterr().out.count("steps_per_s") == 1


def test_an_unknown_configuration_is_one_line(capsys: pytest.CaptureFixture) -> None:
    assert main(["--config", "zink"]) == 2
    assert capsys.readouterr().out.count("\n") == 1


def test_traffic_counts_what_is_read_and_written() -> None:
    with Traffic() as traffic:
        (torch.ones(10) + torch.ones(10)).reshape(2, 5)
    assert traffic.bytes == 4 * 10 * (1 + 1 + 3)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("words", [[], ["--check"]])
def test_without_a_gpu_it_refuses_in_one_line(
    words: list[str], capsys: pytest.CaptureFixture
) -> None:
    assert main(words) == 2
    assert capsys.readouterr().out.count("\n") == 1


def test_agreement_is_that_of_tests_that_are_there() -> None:
    assert [file for file in AGREEMENT if not (Path(__file__).parents[1] / file).is_file()] == []


def test_the_page_names_the_same_tests() -> None:
    folder = Path(__file__).parents[2] / "docs" / "experiments"
    page = (folder / "gpu.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^    python -m pytest (.*)$", page, re.MULTILINE)
    assert command.split() == [f"tests/{file}" for file in AGREEMENT]
