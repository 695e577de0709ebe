"""The command train.py results, on runs that were trained a moment ago."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import pytest
from tiny_run import TINY, Run, refused, summary

from graphormer_sepnorm.cli.train import main
from graphormer_sepnorm.training.callbacks.stopping import StopBetweenSteps


def fit(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    words = ["fit", *arguments]
    monkeypatch.setattr(sys, "argv", ["/somewhere/train.py", *words])  # run.json keeps it
    return main(words)


def interrupt(self: object, trainer, *arguments: object) -> None:
    if trainer.global_step >= 2:
        raise KeyboardInterrupt


def test_runs_become_a_table(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, folder = tmp_path / "runs", tmp_path / "docs" / "results"
    common = ["-c", "quickstart", *TINY, "--data.root", str(run.root)]
    for seed in ("0", "1"):
        place = ["--seed_everything", seed, "--output", str(runs / seed)]
        assert fit(monkeypatch, *common, *place) == 0
    with monkeypatch.context() as patch:
        patch.setattr(StopBetweenSteps, "on_train_batch_end", interrupt)
        options = ["--seed_everything=2", f"--output={runs / '2'}"]
        assert fit(monkeypatch, *common, *options) == 130
    capsys.readouterr()

    table = folder.with_name("results.md")
    assert main(["results", str(runs), "-o", str(folder)]) == 0
    out = capsys.readouterr().out
    assert out == f"results  {table}: 1 experiment, 3 runs; read now: 1 experiment, 3 runs\n"
    tests = [summary(runs / seed)["test_mae"] for seed in ("0", "1")]
    text = table.read_text()
    assert "| 0, 1, 2‡ |" in text
    assert "| 4, 2 of 4‡ |" in text
    assert f"{statistics.mean(tests):.4f} ± {statistics.stdev(tests):.4f} |" in text
    assert "5,600 / 700 / 700 molecules" in text
    assert "`python train.py fit -c quickstart --model.layers 2" in text
    assert str(run.root) not in text + "".join(path.read_text() for path in folder.iterdir())

    # The run directories may go; what is kept is enough.
    table.unlink()
    assert main(["results", "-o", str(folder)]) == 0
    assert table.read_text() == text

    assert fit(monkeypatch, "--resume", str(runs / "2")) == 0
    assert main(["results", str(runs / "2"), "-o", str(folder)]) == 0
    assert "| 0, 1, 2 |" in table.read_text()
    assert "1 interruption |" in table.read_text()
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "there is no directory nowhere"),
        (["."], "no run has begun in ."),
        ([], "there are no records in"),
        (["--jobs", "2"], "unrecognized arguments"),
    ],
)
def test_mistakes_of_results_are_one_line(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in refused(capsys, main, "results", *arguments)
    assert not list(tmp_path.iterdir())
