"""Several processes that torchrun starts, which have to agree on places and files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from reference.processes import REPOSITORY
from tiny_run import TINY, read_csv, sample_table

TWO = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
DDP = ["--trainer.devices=2", "--trainer.strategy=ddp"]


def fit(folder: Path, *options: str) -> str:
    own = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, *TWO, str(REPOSITORY / "train.py"), "fit", *options]
    caught = {"capture_output": True, "text": True, "timeout": 300}
    done = subprocess.run(command, cwd=folder, env=own, check=False, **caught)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def steps(directory: Path) -> list[int]:
    rows = read_csv(directory / "metrics.csv")
    return [int(row["step"]) + 1 for row in rows if row["train_loss_step"]]


@pytest.mark.slow
def test_each_run_has_its_directory_and_is_continued_in_it(tmp_path: Path) -> None:
    sample_table(tmp_path / "mine.csv", 99)
    command = ["-c", "table_regression", "--data.table=mine.csv", *TINY, *DDP]
    fit(tmp_path, *command)
    first = tmp_path / "runs" / "mine" / "bn+ln-seed0"
    assert steps(first) == [1, 2, 3, 4]
    kept = (first / "metrics.csv").read_bytes()

    # The same place again, another model: nothing of the first run is read or written.
    said = fit(tmp_path, *command, "--model.layers=1")
    second = first.with_name("bn+ln-seed0-2")
    assert f"checkpoint  {second.relative_to(tmp_path)}" in said
    assert (second / "summary.json").is_file()
    assert (first / "metrics.csv").read_bytes() == kept

    fit(tmp_path, "--resume", str(first), "--trainer.max_steps=6")
    assert steps(first) == [1, 2, 3, 4, 5, 6]
