"""What a run says of the code that made it, and how fast it trains, by a clock that is known."""

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from graphormer_sepnorm.runs.directory import RunDirectory
from graphormer_sepnorm.training import callbacks as run_record
from graphormer_sepnorm.training.callbacks import Throughput


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    done = subprocess.run(
        ["git", "-C", folder, *who, *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_changes_anywhere_in_the_package_are_said(tmp_path: Path, monkeypatch) -> None:
    here = tmp_path / "graphormer_sepnorm" / "training" / "callbacks" / "run_record.py"
    model = tmp_path / "graphormer_sepnorm" / "model" / "graphormer.py"
    for file in (here, model):
        file.parent.mkdir(parents=True)
        file.write_text("as it was")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "Begin")
    monkeypatch.setattr(run_record, "__file__", str(here))
    commit = git(tmp_path, "rev-parse", "HEAD")
    (tmp_path / "notes.txt").write_text("beside it")
    assert run_record._commit() == commit
    model.write_text("changed")
    assert run_record._commit() == f"{commit}+changes"


def test_a_finished_run_that_takes_no_step_keeps_its_summary(tmp_path: Path) -> None:
    """It may be interrupted while there is nothing left to train, and is saved then too."""
    run = RunDirectory(tmp_path)
    run.summary_file.write_text("{}")
    trainer: Any = SimpleNamespace(state=SimpleNamespace(fn="fit"), is_global_zero=True)
    run_record.RunRecord(run, []).on_save_checkpoint(trainer, None, {})
    assert run.finished


def test_loading_counts_and_validation_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter((10.0, 12.0, 15.0, 100.0, 101.0))
    monkeypatch.setattr(run_record, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    given: Any = (None, None)
    batch, measured = SimpleNamespace(num_graphs=32), Throughput()
    for number in range(2):
        # The second batch was loaded after the first had ended.
        measured.on_train_batch_start(*given, batch, number)
        measured.on_train_batch_end(*given, None, batch, number)
    measured.on_validation_start(*given)
    measured.on_train_batch_start(*given, batch, 2)
    measured.on_train_batch_end(*given, None, batch, 2)
    assert measured.state_dict() == {"graphs": 96, "seconds": 6.0}
    again = Throughput()
    again.load_state_dict(measured.state_dict())
    assert again.graphs_per_second == 16
