"""Labels that are learned as logarithms: what is chosen, and that all results are in units."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from tiny_run import BLENDED, Fitted, fit, fitted, predicted_as_written, read_csv, write_csv

from graphormer_sepnorm.cli.predict import main as predict
from graphormer_sepnorm.cli.train import main as train
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.inference.predictor import Predictor

TASK = Task("regression", ("a", "b", "c"), ("h", "", "nM"), "mae", shifts=(0.0, None, 0.5))
CHAINS = [f"{'C' * length}{end}" for length in range(1, 31) for end in ("O", "N", "F", "S", "Cl")]


def skewed(folder: Path) -> Path:
    """A table: `half_life` grows exponentially with the molecule, `size` in proportion."""
    rows = [(smiles, round(np.exp(0.25 * len(smiles)), 3), len(smiles)) for smiles in CHAINS]
    return write_csv(folder / "t.csv", [("smiles", "half_life", "size"), *rows])


def test_there_and_back_by_the_formulas() -> None:
    labels = np.array([[2.0, -3.0, 0.0], [np.nan, 0.0, 7.5]])
    learned = TASK.as_learned(labels)
    np.testing.assert_allclose(learned[0], [np.log(2), -3, np.log(0.5)])
    np.testing.assert_allclose(TASK.in_units(learned), labels)
    assert TASK.in_units(np.full((1, 3), -9.0)).tolist() == [[np.exp(-9.0), -9.0, 0.0]]
    widths = TASK.widths_in_units(learned[:1], np.full((1, 3), 0.1))
    np.testing.assert_allclose(widths[0, :2], [2 * np.sinh(0.1), 0.1])
    assert Task.from_plain(TASK.to_plain()) == TASK
    assert TASK.logarithmic == ("a", "c")
    plain = Task("regression", ("a",), ("",), "mae")
    assert plain.in_units(labels[:, :1]).tolist()[0] == [2.0]
    assert plain.logarithmic == ()
    assert "shifts" not in plain.to_plain()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    """One run of two targets, of which the skewed one is learned as a logarithm."""
    folder = tmp_path_factory.mktemp("logarithms")
    options = ["--data.split=random", "--data.target_columns=all", "--data.units=[h,'']", BLENDED]
    options += ["--data.split_fractions=[0.5,0.25,0.25]", "--data.label_transform=auto"]
    options += ["--keep=labels"]
    return fitted(folder, skewed(folder), *options)


def test_the_skewed_target_is_chosen(run: Fitted) -> None:
    assert "learned as logarithms: half_life (MAE of a kernel out of fold" in run.out
    config = yaml.safe_load((run.run / "config.yaml").read_text())
    assert config["data"]["label_transform"] == ["half_life"]
    model = Predictor.load(run.run, "cpu")
    assert model.task.logarithmic == ("half_life",)
    assert model.task.shifts == (0.0, None)
    # The scaling is of logarithms, the summary of the labels.
    assert 0 < model.facts["target_mean"][0] < 8
    known = model.facts["training_summary"]["targets"][0]
    assert known["max"] > 1000


def test_results_are_in_the_unit_of_the_labels(run: Fitted) -> None:
    rows = run.predictions
    table = {smiles: np.exp(0.25 * len(smiles)) for smiles in CHAINS}
    labels, values, low, high = (
        np.array([float(row[f"{what}_half_life"]) for row in rows])
        for what in ("label", "pred", "low", "high")
    )
    np.testing.assert_allclose(labels, [table[row["smiles"]] for row in rows], rtol=1e-3)
    assert run.summary["test_mae_half_life"] == pytest.approx(np.abs(values - labels).mean())
    assert (low >= 0).all()
    assert (values > 0).all()
    inside = json.loads((run.run / "uncertainty.json").read_text())["test"]["half_life"]
    at = inside["levels"].index(0.9)
    assert inside["inside"][at] == pytest.approx(((low <= labels) & (labels <= high)).mean())
    assert inside["widths"][at] == pytest.approx((high - low).mean())


def test_predicting_gives_the_same(run: Fitted) -> None:
    smiles = predicted_as_written(run.run).smiles
    found = Predictor.load(run.run, "cpu").configure(0.9, 1).predict(smiles)
    nearest = [float(cell) for cell in found.cells["nearest_half_life_1"]]
    known = [np.exp(0.25 * len(smiles)) for smiles in found.cells["nearest_1"]]
    np.testing.assert_allclose(nearest, known, rtol=1e-3)


def test_the_checkpoint_is_tested_in_units(run: Fitted, capsys, tmp_path: Path) -> None:
    root = f"--data.root={run.folder / 'root'}"
    assert train(["test", str(run.run), root, "--trainer.accelerator=cpu"]) == 0
    tested = dict(line.split()[:2] for line in capsys.readouterr().out.splitlines() if " " in line)
    own = run.summary["test_mae_half_life"]
    assert float(tested["test_mae_half_life"]) == pytest.approx(own, rel=5e-4)
    # So do labels of another table: they are not transformed a second time.
    out = tmp_path / "o.csv"
    table = run.folder / "t.csv"
    words = ["--evaluate", "half_life", "--evaluate", "size", "-o", str(out)]
    assert predict([str(run.run), "-i", str(table), *words]) == 0
    said = capsys.readouterr()
    pairs = [(float(row["half_life"]), float(row["pred_half_life"])) for row in read_csv(out)]
    error = np.mean([abs(label - value) for label, value in pairs])
    assert f"{error:#.4g}"[:5] in said.out + said.err


def test_an_explanation_is_of_the_logarithm(run: Fitted) -> None:
    model = Predictor.load(run.run, "cpu")
    explained = model.explain(["CCCO"], "half_life")
    assert explained.unit == "of ln h"
    [one] = explained.molecules
    whole = one.baseline + one.contributions.sum() + one.rest
    assert whole == pytest.approx(one.value)
    assert one.prediction == pytest.approx(float(model.predict("CCCO").values[0, 0]))


def test_zeros_get_a_shift_and_negatives_are_refused(tmp_path: Path, capsys) -> None:
    rows = [(smiles, max(0, len(smiles) - 4)) for smiles in CHAINS]
    table = write_csv(tmp_path / "t.csv", [("smiles", "y"), *rows])
    options = {"table": str(table), "root": str(tmp_path), "split": "random"}
    data = MoleculeDataModule(label_transform="log", **options)
    assert data.splits.task.shifts == (0.5,)
    graphs = np.arange(len(CHAINS))
    labels = data.splits.task.in_units(data.labels(graphs))
    assert sorted(labels[:, 0].round(4)) == sorted(row[1] for row in rows)
    bad = write_csv(tmp_path / "n.csv", [("smiles", "y"), *rows, ("CCCCI", -2)])
    for word, expected in (("log", "y is -2 somewhere"), ("[z]", "there is no target 'z'")):
        assert fit(tmp_path, bad, "--data.split=random", f"--data.label_transform={word}") == 2
        assert expected in capsys.readouterr().err


def test_the_shift_is_not_of_a_test_label(tmp_path: Path) -> None:
    kinds = ((0.01, "test"), (3, "train"), (0, "train"))
    rows = [(one, *kinds[number % 3]) for number, one in enumerate(CHAINS)]
    table = write_csv(tmp_path / "t.csv", [("smiles", "y", "part"), *rows])
    options = {"table": str(table), "root": str(tmp_path), "split_column": "part"}
    data = MoleculeDataModule(label_transform="log", target_columns="y", **options)
    assert data.splits.task.shifts == (1.5,)
