"""The benchmark of the GPU, tried on a CPU: every part runs and leaves what it measured."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from benchmarks import gpu
from benchmarks.gpu import AGREEMENT, main
from graphormer_sepnorm.cli.known_warnings import silence_known_noise

QUICK = ("--device", "cpu", "--quick", "--seconds", "0.01")


@pytest.mark.slow
def test_parts_are_measured_written_and_not_measured_again(tmp_path: Path, capsys) -> None:
    silence_known_noise()
    output = tmp_path / "gpu.json"
    words = [*QUICK, "--output", str(output), "--root", str(tmp_path), "--epochs", "1"]
    words += ["--batch_sizes", "64", "--engines", "captured", "eager", "--parts", "steps", "fit"]
    words += ["--config", "quickstart"]
    assert main(words) == 0
    results = json.loads(output.read_text())["results"]
    steps = {f"steps/{engine} batch 64" for engine in ("eager", "captured")}
    assert set(results) == {*steps, "fit/captured batch 64"}
    assert all(results[name]["steps_per_s"] > 0 for name in steps)
    assert results["fit/captured batch 64"]["status"] == 0
    assert results["fit/captured batch 64"]["test_mae"] > 0
    assert capsys.readouterr().out.count("\n") == len(results)
    assert main(words) == 0
    assert capsys.readouterr().out == ""
    assert json.loads(output.read_text())["results"] == results


def test_a_part_that_fails_does_not_keep_the_others_from_being_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    works = [False]

    def measurements(options: object) -> Iterator[tuple[str, Callable[[], dict]]]:
        yield "first", lambda: {"steps_per_s": 1.0} if works[0] else 1 / 0
        yield "second", lambda: {"steps_per_s": 2.0}

    monkeypatch.setattr(gpu, "measurements", measurements)
    words = [*QUICK, "--output", str(tmp_path / "gpu.json")]
    assert main(words) == 1
    assert "ZeroDivisionError" in capsys.readouterr().out
    works[0] = True  # fixed: it is measured anew, and alone
    assert main(words) == 0
    assert capsys.readouterr().out.count("steps_per_s") == 1


@pytest.mark.parametrize("words", [["--config", "zink"], [], ["--check"]])
def test_what_cannot_be_measured_is_one_line(words: list[str], monkeypatch, capsys) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(words) == 2
    assert capsys.readouterr().out.count("\n") == 1


def test_the_tests_of_agreement_are_there() -> None:
    assert [file for file in AGREEMENT if not (Path(__file__).parents[1] / file).is_file()] == []
