"""An estimator of scikit-learn and the command train the same model."""

import numpy as np
import pytest
from sklearn.base import clone
from tiny_run import sample_rows, write_csv

from graphormer_sepnorm import GraphormerRegressor, Predictor
from graphormer_sepnorm.cli.train import main as train


def test_the_recipe_for_tables_gives_the_model_of_the_command(tmp_path, monkeypatch, capfd):
    """Networks by folds, blended, with intervals; its backbone decides the shape."""
    monkeypatch.setattr("graphormer_sepnorm.formatting.LOG_SECONDS", 0)  # all progress there is
    smiles = [row[0] for row in sample_rows(60)]
    labels = np.array([float(row[1]) for row in sample_rows(60)])
    rows = [["smiles", "y", "part"], *([text, y, "train"] for text, y in sample_rows(60))]
    table = write_csv(tmp_path / "t.csv", rows)
    words = ["fit", "-c", "table", "--data.table", str(table), "--data.split_column", "part"]
    words += ["--data.target_columns", "y", "--data.root", str(tmp_path / "root")]
    words += ["--ensemble", "2", "--trainer.max_epochs", "1", "--trainer.accelerator", "cpu"]
    assert train([*words, "--members", "networks,trees,kernel", "-o", str(tmp_path / "run")]) == 0
    own = {"ensemble": 2, "members": ["networks", "trees", "kernel"]}
    model = GraphormerRegressor("table", max_epochs=1, device="cpu", options=own)
    assert "baselines: " in capfd.readouterr().err
    values, low, high = model.fit(smiles, labels).predict(smiles, return_interval=0.8)
    assert capfd.readouterr() == ("", "")
    command = Predictor.load(tmp_path / "run", "cpu").configure(0.8).predict(smiles)
    np.testing.assert_allclose(values, command.values[:, 0], rtol=1e-5)
    np.testing.assert_allclose(low, command.low[:, 0], rtol=1e-4)
    assert (low < high).all()
    assert model._predictor().facts["from_pretrained"] == "graphormer-small"
    assert len(model._predictor().networks) == 2
    np.testing.assert_array_equal(clone(model).fit(smiles, labels).predict(smiles), values)
    with pytest.raises(ValueError, match="layers is decided"):
        GraphormerRegressor("table", layers=3).fit(smiles, labels)
