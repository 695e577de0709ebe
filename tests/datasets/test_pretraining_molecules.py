"""What graphormer-small was pre-trained on, as the script in data/ lists it."""

from __future__ import annotations

import gzip
import importlib.util
from pathlib import Path

import pytest
from reference.processes import REPOSITORY

from graphormer_sepnorm.datasets.catalog import load_dataset


def test_all_but_test_molecules_are_listed(
    tiny_molhiv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = REPOSITORY / "data" / "make_pretraining_molecules.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    (tmp_path / "train.txt").write_text("CCN\nCCO\n")
    (tmp_path / "valid.csv.gz").write_bytes(gzip.compress(b"y,smiles\n1,CCCl\n2,\n"))
    smiles = load_dataset("ogbg-molhiv", tiny_molhiv).smiles
    output = tmp_path / "molecules.smi"
    files = [str(tmp_path / "train.txt"), str(tmp_path / "valid.csv.gz")]
    words = [str(output), "--zinc", *files, "--root", str(tiny_molhiv)]
    script.main(words)
    listed = output.read_text().splitlines()
    assert listed == ["CCN", "CCO", "CCCl", *smiles["train"], *smiles["validation"]]
    assert not set(listed) & set(smiles["test"])
    assert f"{len(listed)} molecules" in capsys.readouterr().out
    script.main([*words, "--draw", "3"])
    drawn = output.read_text().splitlines()
    assert len(drawn) == 3
    assert set(drawn) <= set(listed)
