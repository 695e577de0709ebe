"""The tables of what predictions say of their errors, against sums by hand."""

import json
from math import log
from pathlib import Path

import numpy as np
import pytest

from benchmarks.uncertainty import main

ROWS = """\
smiles,label_a,pred_a,low_a,high_a,similarity,distance
C,1,1.5,0.5,2.5,0.9,0.8
CC,2,2,1,3,0.8,1.0
CCC,4,2,1,3,0.2,1.1
CCCC,,2,1,3,0.1,9
CCCCC,6,3,2,6,0.7,2.0
"""
JUDGED = {"inside": [0.5, 0.5, 0.75, 1], "widths": [1, 2, 2.5, 3], "rank_correlation": 0.4}
DOMAIN = {"border": 0.3, "larger": 1.5, "molecules": 20, "furthest": 1.5, "larger_beyond": 1.6}


def written(directory: Path, rows: str, test: dict) -> Path:
    for fold in range(2):
        folder = directory / "repeat0" / f"fold{fold}"
        folder.mkdir(parents=True)
        (folder / "test_predictions.csv").write_text(rows)
        (folder / "uncertainty.json").write_text(json.dumps({"domain": DOMAIN, "test": test}))
    return directory


def cells(out: str, name: str) -> list[list[str]]:
    lines = [line.strip("| ").split(" | ") for line in out.splitlines()]
    return [line[1:] for line in lines if line[0] == name]


def test_of_real_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = written(tmp_path / "solubility", ROWS, {"a": JUDGED})
    main([str(directory)])
    intervals, domain = cells(capsys.readouterr().out, "solubility")
    # Widths 2, 2, 2 and 4; one label is 1 outside, which costs 20 a fourth of the time.
    assert intervals == ["8", "50.0", "50.0", "75.0", "100.0", "2.50", "7.50", "0.40"]
    # The third is unlike training, the fifth far from it: errors 2 and 3, inside 0.5 and 0.
    assert domain == ["4 of 8", "0.250", "2.500", "0.60", "0.80"]


def test_of_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = """\
smiles,label_a,pred_a,label_b,pred_b,similarity,distance
C,1,0.5,0,0.5,0.9,0.8
CC,0,0.5,1,0.5,0.8,1.0
CCC,1,0.75,,0.5,0.2,1.1
"""
    held = [[1, 1], [0, 0.5], [0.5, 1], [1, 1]]
    test = {"a": {"held": held, "classes": [0.5, 1, 1.5, 2]}}
    test["b"] = {"held": [[0, 0]] * 4, "classes": [1, 1, 1, 1]}
    main([str(written(tmp_path / "toxic", rows, test))])
    out = capsys.readouterr().out
    assert "width" not in out
    classes, domain = cells(out, "toxic")
    assert domain[0] == "2 of 6"
    # Of a: 0.5 against 0, 0.5 against 1, 0.75 against 1, twice, in bins of one; of b only 0.5.
    # Of each distance what chance makes is taken off, in squares: a half normal's mean.
    found = np.array([(0.5 + 0.5 + 0.25) / 3, 0.5])
    chance = np.sqrt(2 / np.pi) * np.array([(0.5 + 0.5 + np.sqrt(0.1875)) / 3, 0.5])
    error = np.sqrt(found**2 - chance**2).mean()
    loss = (-(2 * log(0.5) + log(0.75)) / 3 - log(0.5)) / 2
    assert classes[:3] == ["10", f"{error:.3f}", f"{loss:.3f}"]
    # Means of both targets, of which the second holds nothing.
    assert classes[3:] == ["50.0, 50.0", "0.0, 25.0", "25.0, 50.0", "50.0, 50.0", "1.25"]


def test_a_folder_without_folds_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"has no fold with uncertainty\.json: give"):
        main([str(tmp_path)])
