"""predict.py geometry: the embeddings of a saved model for the molecules of a table."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from reference.checkpoints import make_checkpoint
from tiny_run import refused

from graphormer_sepnorm.chem.molecules import parse_smiles
from graphormer_sepnorm.cli.predict import main
from graphormer_sepnorm.compare import geometry
from graphormer_sepnorm.graphs.batch import Collator
from graphormer_sepnorm.graphs.store import GraphStore
from graphormer_sepnorm.inference.predictor import Predictor

SMILES = [
    "CCO",
    "c1ccccc1",
    "CC(=O)O",
    "CCCCCC",
    "C1CCCCC1",
    "c1ccc2ccccc2c1",
    "CCN",
    "CO",
    "CC(C)C",
    "OCCO",
    "Clc1ccccc1",
    "CCOCC",
    "C1CC1",
    "CC=C",
    "Oc1ccccc1",
]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "molecules.csv"
    path.write_text("\n".join(["name,smiles", "bad,C1CC", *(f"m,{text}" for text in SMILES)]))
    return path


def test_numbers_are_those_of_the_model(table, tmp_path, capsys):
    output = tmp_path / "geometry.json"
    assert main(["geometry", "esol", "-i", str(table), "-o", str(output), "--device", "cpu"]) == 0
    captured = capsys.readouterr()
    assert captured.err.startswith("15 molecules; 1 rows left out")
    found = json.loads(output.read_text())
    assert found["molecules"] == len(SMILES)
    predictor = Predictor.load("esol", "cpu")
    graphs, _, _, _ = predictor.featurise([parse_smiles(text) for text in SMILES])
    store = GraphStore.from_graphs([graphs], predictor.model.config.max_path_length)
    batch = Collator(store, predictor.vocabulary)(list(range(len(SMILES))))
    token, atoms = (rows.detach().numpy() for rows in predictor.model.encode(batch))
    output_token, output_atoms = found["clouds"][-2:]
    assert output_token["layer"] == "output"
    assert output_token["uniformity"] == pytest.approx(geometry.uniformity(token), abs=1e-4)
    assert output_atoms["uniformity"] == pytest.approx(geometry.uniformity(atoms), abs=1e-4)
    lines = captured.out.splitlines()
    assert [line.split()[0] for line in lines[2:-1]] == [*["layer"] * 4, "output"]
    assert lines[-2].split()[1:3] == [
        f"{one['uniformity']:.2f}" for one in (output_token, output_atoms)
    ]
    assert lines[-1].endswith(f"{geometry.uniformity_floor(token.shape[1]):.2f}")
    assert np.isfinite(output_token["probes"]["rings"])


def test_first_molecules_of_a_table(table, capsys):
    assert main(["geometry", "esol", "-i", str(table), "--molecules", "9"]) == 0
    assert capsys.readouterr().err.startswith("8 molecules; 1 rows left out")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("esol", "the following arguments are required: -i/--input"),
        ("esol -i nowhere.csv", "nowhere.csv"),
        ("nomodel -i {table}", "nomodel"),
        ("esol -i {table} --molecules 1", "--molecules is 1"),
        ("esol -i {table} --molecules 2", "1 of its molecules can be used, 2 are needed"),
        ("esol -i {table} --smiles_column smile", "did you mean 'smiles'?"),
        ("esol -i {table} -o {table}", "is there already"),
        (
            "esol -i {table} -o nowhere/out.json",
            "nowhere/out.json cannot be written: there is no folder",
        ),
    ],
)
def test_mistakes_are_one_line(arguments, said, table, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert said in refused(capsys, main, "geometry", *arguments.format(table=table).split())


def test_a_model_that_reads_atoms_says_so(table, tmp_path, capsys):
    path = tmp_path / "model.ckpt"
    torch.save(make_checkpoint(readout="mean"), path)
    assert main(["geometry", str(path), "-i", str(table)]) == 0
    said = "note: this model reads its predictions from the atoms, not from [CLS]\n"
    assert capsys.readouterr().err.endswith(said)
