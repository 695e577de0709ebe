"""A model of standardized molecules takes them so at prediction too, in whatever form they come."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from tiny_run import BLENDED, fit, write_csv

from graphormer_sepnorm.cli.predict import main as predict
from graphormer_sepnorm.cli.train import main as train
from graphormer_sepnorm.data_config import DataConfig
from graphormer_sepnorm.datasets.user_table.load import load_table
from graphormer_sepnorm.inference.predictor import Predictor

ACIDS = [f"{'C' * length}C(=O)O" for length in range(1, 25)]
SALTS = [f"{'C' * length}C(=O)[O-].[Na+]" for length in range(1, 25)]
STEPS = "--data.standardize=[fragment,neutralize]"


def table(path: Path, smiles: list[str]) -> Path:
    return write_csv(
        path, [("smiles", "a"), *((one, len(one.partition("(")[0])) for one in smiles)]
    )


def test_salt_and_acid_are_one_molecule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = table(tmp_path / "a.csv", SALTS)
    assert fit(tmp_path, source, "--data.split=random", STEPS, BLENDED) == 0
    predictor = Predictor.load(tmp_path / "run", "cpu")
    salts, acids = predictor.predict(SALTS), predictor.predict(ACIDS)
    np.testing.assert_array_equal(salts.values, acids.values)
    assert not any(salts.errors + salts.warnings)  # two pieces are no reason for one here
    embedded = [predictor.embed(smiles[:3]).values for smiles in (SALTS, ACIDS)]
    np.testing.assert_array_equal(*embedded)
    capsys.readouterr()
    assert predict(["info", str(tmp_path / "run")]) == 0
    assert "standardized  first of all, by fragment, neutralize" in capsys.readouterr().out
    # The test split is predicted as the model predicts it.
    assert train(["test", str(tmp_path / "run")]) == 0


def test_nothing_but_what_is_left_is_known_of_a_molecule(tmp_path: Path) -> None:
    steps, path = ("fragment", "neutralize"), table(tmp_path / "a.csv", SALTS)
    splits = load_table(DataConfig(table=str(path), split="random", standardize=steps))
    assert splits.smiles is not None
    assert sorted(itertools.chain(*splits.smiles.values())) == sorted(ACIDS)
    assert {int(graph.num_nodes) for graph in splits.train} <= set(range(4, 28))
    plain = load_table(DataConfig(table=str(path), split="random"))
    assert plain.fingerprint != splits.fingerprint
