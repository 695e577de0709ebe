"""What runs that take a moment are asked for and leave, and what is said of a mistake."""

import contextlib
import gzip
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference.molecules import sample_rows as sample_rows
from reference.processes import REPOSITORY, Forked, finish
from reference.tables import read_csv as read_csv
from reference.tables import write_csv as write_csv

from graphormer_sepnorm.cli.train import main as train
from graphormer_sepnorm.inference.checkpoint import read_checkpoint
from graphormer_sepnorm.inference.predictions import Predictions
from graphormer_sepnorm.inference.predictor import Predictor
from graphormer_sepnorm.resources import sample_path

TINY = [
    *("--model.layers=2", "--model.width=16", "--model.heads=2", "--model.ffn_width=16"),
    *("--trainer.accelerator=cpu", "--trainer.max_steps=4", "--trainer.max_epochs=-1"),
    *("--trainer.log_every_n_steps=1", "--baselines=false"),
]
BLENDED = "--members=networks,trees,kernel"


@dataclass(frozen=True)
class Run:
    """A finished run: where it is and what was printed."""

    root: Path
    directory: Path
    out: str
    err: str
    warnings: list[str]


def on_table(table: Path) -> list[str]:
    """Options of a small training on a table, for all subcommands."""
    data = ["--data.table", str(table), "--data.root", str(table.parent / "root")]
    return ["-c", "table_regression", *TINY, *data]


def fit(folder: Path, table: Path, *more: str, config: str = "table_regression") -> int:
    """Train on a table; the run is in ``run`` of the folder."""
    options = [f"--data.table={table}", f"--data.root={folder / 'root'}"]
    return train(["fit", "-c", config, *TINY, *options, "-o", str(folder / "run"), *more])


@dataclass(frozen=True)
class Fitted:
    """A folder with a run that `fit` has finished, and what was printed."""

    folder: Path
    out: str
    err: str

    @property
    def run(self) -> Path:
        return self.folder / "run"

    @property
    def summary(self) -> dict[str, Any]:
        return summary(self.run)

    @property
    def predictions(self) -> list[dict[str, str]]:
        return read_csv(self.run / "test_predictions.csv")


def fitted(folder: Path, table: Path, *more: str, config: str = "table_regression") -> Fitted:
    """The same, where it is no test that trains."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = fit(folder, table, *more, config=config)
    assert status == 0, err.getvalue()
    return Fitted(folder, out.getvalue(), err.getvalue())


def sample_table(path: Path, count: int) -> Path:
    """Write a table of the first molecules of the sample."""
    lines = gzip.decompress(sample_path().read_bytes()).splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: 1 + count]))
    return path


def start(*words: str, process: type[subprocess.Popen[str]] = Forked) -> subprocess.Popen[str]:
    """Start train.py in a process of its own."""
    return process(
        [sys.executable, str(REPOSITORY / "train.py"), *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def saved_step(run: Path) -> int:
    """Step of the newest checkpoint; -1 if there is none."""
    try:
        return int(read_checkpoint(run / "checkpoints" / "last.ckpt")["global_step"])
    except Exception:
        return -1  # none yet


def stop(process: subprocess.Popen[str], run: Path, step: int, number: int) -> int:
    """Send a signal once the run is at a step or beyond; return the step it was at."""
    last = run / "checkpoints" / "last.ckpt"
    before = saved_step(run)  # by the process before this one
    while process.poll() is None:
        if last.exists() and (reached := saved_step(run)) >= step and reached > before:
            process.send_signal(number)
            return reached
        time.sleep(0.005)
    raise AssertionError(f"it ended too early: {finish(process)}")


def predicted_as_written(run: Path) -> Predictions:
    """What a run has written of its test molecules is what it predicts, which is returned."""
    rows = read_csv(run / "test_predictions.csv")
    found = Predictor.load(run, "cpu").predict([row["smiles"] for row in rows])
    for name in found.columns:
        if name in rows[0] or name.startswith("pred_"):
            written = [float(row[name] or "nan") for row in rows]
            np.testing.assert_allclose(found.table[name], written, rtol=2e-4, atol=1e-5)
    return found


def throughput_of(run: Path) -> dict[str, float]:
    """Graphs that were trained on and the seconds that took, as the last checkpoint knows them."""
    return read_checkpoint(run / "checkpoints" / "last.ckpt")["callbacks"]["Throughput"]


def summary(run: Path) -> dict[str, Any]:
    """What a run came to."""
    return json.loads((run / "summary.json").read_text())


def refused(
    capsys: pytest.CaptureFixture[str], main: Callable[[list[str]], int], *words: str | Path
) -> str:
    """Run a command that must fail as a user's mistake; return its one line."""
    capsys.readouterr()
    assert main([str(word) for word in words]) == 2
    out, error = capsys.readouterr()
    assert not out or out.startswith("run    ")
    assert error.startswith(("train.py: ", "predict.py: "))
    assert error.count("\n") == 1, error
    return error
