"""What graphormer-small was pre-trained on, as the script in data/ lists it."""

from __future__ import annotations

import gzip
import importlib.util
from pathlib import Path

import pytest
from reference.processes import REPOSITORY


@pytest.fixture(scope="module")
def script():
    path = REPOSITORY / "data" / "make_pretraining_molecules.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def zinc(tmp_path: Path) -> list[str]:
    """One list of SMILES, one table: as others give them."""
    (tmp_path / "train.txt").write_text("CCN\nCCO\n")
    with gzip.open(tmp_path / "valid.csv.gz", "wt") as file:
        file.write("y,smiles\n1,CCCl\n2,\n")
    return [str(tmp_path / "train.txt"), str(tmp_path / "valid.csv.gz")]


def test_all_but_test_molecules_are_listed(script, zinc, tiny_molhiv, tmp_path, capsys) -> None:
    from graphormer_sepnorm.datasets.catalog import load_dataset

    smiles = load_dataset("ogbg-molhiv", tiny_molhiv).smiles
    output = tmp_path / "molecules.smi"
    script.main([str(output), "--zinc", *zinc, "--root", str(tiny_molhiv)])
    listed = output.read_text().splitlines()
    assert listed == ["CCN", "CCO", "CCCl", *smiles["train"], *smiles["validation"]]
    assert not set(listed) & set(smiles["test"])
    assert f"{len(listed)} molecules" in capsys.readouterr().out
    script.main([str(output), "--zinc", *zinc, "--root", str(tiny_molhiv), "--draw", "3"])
    drawn = output.read_text().splitlines()
    assert len(drawn) == 3
    assert set(drawn) <= set(listed)
