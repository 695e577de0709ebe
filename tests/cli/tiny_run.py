"""What a run that takes a moment is asked for and leaves, and what is said of a mistake."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from graphormer_sepnorm.resources import sample_path

TINY = [
    "--model.layers=2",
    "--model.width=16",
    "--model.heads=2",
    "--model.ffn_width=16",
    "--trainer.accelerator=cpu",
    "--trainer.max_steps=4",
    "--trainer.max_epochs=-1",
    "--trainer.log_every_n_steps=1",
    "--baselines=false",
]


@dataclass(frozen=True)
class Run:
    """A finished run: where it is and what was printed."""

    root: Path
    directory: Path
    out: str
    err: str
    warnings: list[str]


def sample_rows(count: int) -> list[list[str]]:
    """SMILES and labels of the first molecules of the sample."""
    lines = gzip.decompress(sample_path().read_bytes()).decode().splitlines()
    return [line.split(",") for line in lines[1 : 1 + count]]


def sample_table(path: Path, count: int) -> Path:
    """Write a table of the first molecules of the sample."""
    lines = gzip.decompress(sample_path().read_bytes()).splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: 1 + count]))
    return path


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
