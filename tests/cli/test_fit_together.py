"""Several runs of fit in one process: each is the run that it would be in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest
import torch
from tiny_run import TINY, sample_table

from graphormer_sepnorm.cli import fit_together, lightning_cli
from graphormer_sepnorm.cli.train import main
from graphormer_sepnorm.inference.checkpoint import read_checkpoint
from graphormer_sepnorm.training.callbacks.stopping import STOP_ALL
from graphormer_sepnorm.training.captured.engine import CapturedTraining


@pytest.fixture(autouse=True)
def launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train in launches on a CPU too."""

    def captured(engine: str) -> list[CapturedTraining]:
        return [CapturedTraining(steps_per_launch=3, on_cpu=True)] if engine == "captured" else []

    monkeypatch.setattr(lightning_cli, "_captured", captured)


@pytest.fixture(autouse=True)
def table(tmp_path: Path) -> Path:
    return sample_table(tmp_path / "mine.csv", 100)


def options(place: Path, seed: int, *more: str) -> list[str]:
    return [
        "-c",
        "table_regression",
        *TINY,
        "--engine",
        "captured",
        "--data.batch_size",
        "16",
        "--data.table",
        str(place.parent / "mine.csv"),
        "--data.split",
        "random",
        "--data.root",
        str(place.parent / "root"),
        "--output",
        str(place),
        "--seed_everything",
        str(seed),
        "--trainer.max_steps",
        "9",
        *more,
    ]


def together(*runs: tuple[Path, list[str]]) -> int:
    words = [(f"{place}.log", json.dumps(own)) for place, own in runs]
    return fit_together.main([word for pair in words for word in pair])


def assert_same_run(one: Path, other: Path) -> None:
    for name in ("metrics.csv", "test_predictions.csv"):
        assert (one / name).read_text() == (other / name).read_text()
    for name in ("best", "last"):
        kept = [read_checkpoint(place / "checkpoints" / f"{name}.ckpt") for place in (one, other)]
        assert kept[0]["global_step"] == kept[1]["global_step"]
        for key, value in kept[0]["state_dict"].items():
            assert torch.equal(value, kept[1]["state_dict"][key]), key
    assert {path.name for path in one.iterdir()} == {path.name for path in other.iterdir()}


def test_each_is_the_run_that_it_would_be_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    for seed in (0, 1):
        assert main(["fit", *options(tmp_path / f"alone{seed}", seed)]) == 0
    capsys.readouterr()
    before = sys.argv, sys.stdout, sys.stderr
    places = [tmp_path / f"seed{seed}" for seed in (0, 1)]
    failing = options(tmp_path / "failing", 2, "--trainer.precision", "64-true")
    status = together(
        *((place, options(place, seed)) for seed, place in enumerate(places)),
        (tmp_path / "failing", failing),
    )
    assert status == 2
    assert (sys.argv, sys.stdout, sys.stderr) == before
    for seed, place in enumerate(places):
        assert_same_run(place, tmp_path / f"alone{seed}")
        (session,) = json.loads((place / "run.json").read_text())["sessions"]
        assert session["command"] == ["train.py", "fit", *options(place, seed)]
        assert session["to_step"] == 9
        log = Path(f"{place}.log").read_text()
        assert f"seed{seed}/checkpoints/best.ckpt" in log
        assert f"seed{1 - seed}/" not in log
    last = (tmp_path / "failing.log").read_text().splitlines()[-1]
    assert last.startswith("train.py: --trainer.precision 64-true is not supported")
    assert not (tmp_path / "failing").exists()
    assert capsys.readouterr() == ("", "")


def test_a_signal_stops_all_between_two_steps_and_each_can_be_continued_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in (0, 1):
        assert main(["fit", *options(tmp_path / f"whole{seed}", seed)]) == 0
    take = CapturedTraining._train
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def interrupted(self: CapturedTraining, launch: object, batch_idx: int) -> torch.Tensor:
        if batch_idx >= 4 and not STOP_ALL.is_set():
            os.kill(os.getpid(), signal.SIGTERM)
            end = time.monotonic() + 60
            while not STOP_ALL.wait(0.01):
                assert time.monotonic() < end
        return take(self, launch, batch_idx)  # type: ignore[arg-type]

    monkeypatch.setattr(CapturedTraining, "_train", interrupted)
    places = [tmp_path / f"seed{seed}" for seed in (0, 1)]
    assert together(*((place, options(place, seed)) for seed, place in enumerate(places))) == 130
    monkeypatch.setattr(CapturedTraining, "_train", take)
    assert {number: signal.getsignal(number) for number in kept} == kept
    assert not STOP_ALL.is_set()
    for place in places:
        said = Path(f"{place}.log").read_text().splitlines()[-1]
        assert "interrupted at step " in said
        assert f"fit --resume {place}" in said
        sessions = json.loads((place / "run.json").read_text())["sessions"]
        assert [session["end"] for session in sessions] == ["interrupted"]
    for seed, place in enumerate(places):
        assert main(["fit", "--resume", str(place)]) == 0
        assert_same_run(place, tmp_path / f"whole{seed}")


def test_what_is_stopped_before_it_begins_does_not_begin(tmp_path: Path) -> None:
    STOP_ALL.set()
    assert together((tmp_path / "run", options(tmp_path / "run", 0))) == 130
    assert not (tmp_path / "run").exists()
