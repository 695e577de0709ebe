"""Tables for predict.py in tests, and what is said about them."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from tiny_run import write_csv

from graphormer_sepnorm.inference import stream
from graphormer_sepnorm.inference.predictor import Predictor

REPOSITORY = Path(__file__).resolve().parents[2]
SMILES = ["CCO", "c1ccccc1", "CN", "xx", "", "CC(=O)N", "[Si]", "C#N", "c1ccncc1", "C1CC", "OCC"]


def rows_of(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8", errors="surrogateescape") as handle:
        return list(csv.reader(handle))


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    error = capsys.readouterr().err
    assert error.startswith("predict.py: ")
    assert error.count("\n") == 1, error
    return error


def table(folder: Path, smiles: list[str] | None = None) -> Path:
    rows = [[str(n), text] for n, text in enumerate(SMILES if smiles is None else smiles)]
    return write_csv(folder / "in.csv", [["id", "SMILES"], *rows])


def interrupt(patch: pytest.MonkeyPatch, after: int) -> None:
    """Let the predictor be interrupted by Ctrl-C after so many chunks."""
    predict, left = Predictor.predict_molecules, [after]

    def interrupted(self: Predictor, *arguments: object) -> object:
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        return predict(self, *arguments)  # type: ignore[arg-type]

    patch.setattr(Predictor, "predict_molecules", interrupted)
    patch.setattr(stream, "number_of_jobs", lambda *wanted: 1)  # it is this process that counts
