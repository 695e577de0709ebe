"""Predictions: rows stay where they are, spelling and company of a molecule do not matter."""

import random

import numpy as np
import pytest
import torch
from rdkit import Chem

from graphormer_sepnorm.cli.predict import main
from graphormer_sepnorm.errors import CheckpointError
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.inference.checkpoint import FORMAT_VERSION, KEY
from graphormer_sepnorm.inference.predictor import Predictor
from graphormer_sepnorm.model.graphormer import Graphormer, GraphormerConfig

CAFFEINE = "CN1C=NC2=C1C(=O)N(C(=O)N2C)C"
IBUPROFEN = "CC(C)Cc1ccc(cc1)C(C)C(=O)O"


def make_checkpoint(featuriser="molecule-1", kind="regression"):
    """An untrained model with the vocabulary of organic molecules."""
    atoms = [[5, 6, 7], [0, 1, 2], [*range(6)], [4, 5, 6], [*range(5)], [0], [0, 1, 2], [0, 1]]
    vocabulary = {"atoms": [*atoms, [0, 1]], "bonds": [[0, 1, 2, 3], [0], [0, 1]]}
    config = GraphormerConfig(
        layers=2, width=16, heads=2, ffn_width=16, atom_rows=40, bond_rows=10, max_path_length=5
    )
    model = Graphormer(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    task = Task(kind, ("property",), ("mol/L",), "mae" if kind == "regression" else "auroc")
    facts = {
        "format_version": FORMAT_VERSION,
        "model": {name: getattr(config, name) for name in config.__dataclass_fields__},
        "task": task.to_plain(),
        "target_mean": [3.0],
        "target_std": [2.0],
        "vocabulary": vocabulary,
        "featuriser": featuriser,
        "feature_version": "molecule-1",
        "dataset": "a test",
        "dataset_fingerprint": "none",
    }
    weights = {f"model.{name}": value for name, value in model.state_dict().items()}
    return {KEY: facts, "state_dict": weights}


@pytest.fixture
def predictor():
    return Predictor(make_checkpoint(), device="cpu")


def test_rows_keep_their_places_and_bad_ones_say_why(predictor):
    predictions = predictor.predict(["CCO", "not a molecule", "", CAFFEINE, "C1CC", "[Na+].[Cl-]"])
    assert predictions.smiles[3] == CAFFEINE
    assert [bool(error) for error in predictions.errors] == [False, True, True, False, True, False]
    assert np.isnan(predictions.values[:, 0]).tolist() == [False, True, True, False, True, False]
    assert "unclosed ring" in predictions.errors[4]


def test_values_depend_on_neither_company_nor_batch_size(predictor):
    smiles = ["CCO", CAFFEINE, IBUPROFEN, "C", "C" * 60, "O=C=O"]
    together = predictor.predict(smiles).values
    alone = np.concatenate([predictor.predict(text).values for text in smiles])
    np.testing.assert_allclose(alone, together, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(predictor.predict(smiles, batch_size=2).values, together, rtol=1e-5)
    assert np.std(together) > 1e-3


@pytest.mark.parametrize("smiles", [CAFFEINE, IBUPROFEN, "C1CC2CCC1CC2", "c1ccc2ccccc2c1"])
def test_spellings_of_one_molecule_agree(predictor, smiles):
    molecule = Chem.MolFromSmiles(smiles)
    random.seed(0)
    order = list(range(molecule.GetNumAtoms()))
    spellings = []
    for _ in range(8):
        random.shuffle(order)
        spellings.append(Chem.MolToSmiles(Chem.RenumberAtoms(molecule, order), canonical=False))
    assert len(set(spellings)) > 1
    values = predictor.predict(spellings).values
    np.testing.assert_allclose(values, values[0].repeat(8)[:, None], rtol=1e-4, atol=1e-5)


def test_values_are_in_real_units_and_probabilities():
    checkpoint = make_checkpoint()
    standardised = make_checkpoint()
    standardised["state_dict"] = checkpoint["state_dict"]
    standardised[KEY].update(target_mean=[0.0], target_std=[1.0])
    real = Predictor(checkpoint, "cpu").predict(CAFFEINE).values
    plain = Predictor(standardised, "cpu").predict(CAFFEINE).values
    np.testing.assert_allclose(real, plain * 2 + 3, rtol=1e-9)

    binary = make_checkpoint(kind="binary")
    binary["state_dict"] = checkpoint["state_dict"]
    probability = Predictor(binary, "cpu").predict(CAFFEINE).values
    np.testing.assert_allclose(probability, 1 / (1 + np.exp(-plain)), rtol=1e-9)


def test_a_model_of_graphs_without_smiles_says_so():
    with pytest.raises(CheckpointError, match="no way from SMILES"):
        Predictor(make_checkpoint(featuriser=None))


def test_command_prints_one_row_per_smiles(tmp_path, capsys):
    torch.save(make_checkpoint(), tmp_path / "model.ckpt")
    assert main([str(tmp_path / "model.ckpt"), "CCO", "xyz", CAFFEINE]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[0] == "smiles,property (mol/L),error"
    assert [row.split(",")[0] for row in rows[1:]] == ["CCO", "xyz", CAFFEINE]
    assert float(rows[1].split(",")[1]) == pytest.approx(
        Predictor.load(tmp_path / "model.ckpt", "cpu").predict("CCO").values[0, 0], abs=1e-4
    )
    assert rows[2].startswith("xyz,,")
    assert "Parse Error" not in rows[2]


def test_mistakes_are_one_line_and_status_2(tmp_path, capsys):
    assert main([str(tmp_path / "absent.ckpt"), "CCO"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "absent.ckpt" in error
    (tmp_path / "text.ckpt").write_text("no checkpoint")
    assert main([str(tmp_path / "text.ckpt"), "CCO"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
