"""Columns of a table beside the graph: from a table to what predict.py says."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from reference.checkpoints import make_checkpoint
from tiny_run import TINY, Fitted, fit, fitted, read_csv, refused, sample_rows, summary, write_csv

from graphormer_sepnorm.baselines import blend as weighing
from graphormer_sepnorm.baselines import fit as baselines
from graphormer_sepnorm.cli.predict import main as predict
from graphormer_sepnorm.cli.train import main as train
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.inference import predict_table
from graphormer_sepnorm.inference.checkpoint import KEY, read_checkpoint
from graphormer_sepnorm.inference.predictor import Predictor
from graphormer_sepnorm.training.backbone import Backbone

HEADER = ["smiles", "T", "y", "pH", "set"]
PARTS = ["train"] * 40 + ["validation"] * 10 + ["test"] * 10
OPTIONS = ["--data.split_column=set", "--data.descriptor_columns=T,pH"]


def table_rows() -> list[list[str]]:
    """Two temperatures are missing in training, one pH in the test split."""
    rows = []
    for number, ((smiles, value), part) in enumerate(zip(sample_rows(60), PARTS, strict=True)):
        temperature = "" if number in (3, 7) else f"{280 + 7 * number % 50}"
        acidity = "inf" if number == 55 else f"{4 + number % 6}"
        rows.append([smiles, temperature, value, acidity, part])
    return rows


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    folder = tmp_path_factory.mktemp("extra")
    table = write_csv(folder / "t.csv", [HEADER, *table_rows()])
    return fitted(folder, table, *OPTIONS, "--data.target_columns=y")


def test_scaling_is_that_of_the_training_molecules(trained: Fitted) -> None:
    checkpoint = read_checkpoint(trained.run)
    inputs = checkpoint[KEY]["extra_inputs"]
    assert inputs == {"columns": ["T", "pH"]}
    weights = checkpoint["state_dict"]
    mean, factor = (
        weights[f"model.extra_readout.training_{name}"].tolist() for name in ("mean", "factor")
    )
    rows = table_rows()[:40]
    for name, column in (("T", 1), ("pH", 3)):
        known = [float(row[column]) for row in rows if row[column]]
        place = inputs["columns"].index(name)
        assert mean[place] == pytest.approx(np.mean(known), rel=1e-5)
        assert 1 / factor[place] == pytest.approx(np.std(known), rel=1e-5)


def test_what_is_missing_is_said_before_training(trained: Fitted) -> None:
    said = " ".join(trained.out.split())
    assert "missing, the training mean stands for it: T of 2, pH of 1 molecules" in said
    warnings = json.loads((trained.run / "data_report.json").read_text())["warnings"]
    assert any("T of 2, pH of 1" in warning for warning in warnings)
    assert f"{trained.run} -i TABLE   (with T, pH)" in trained.out


def test_predictions_are_those_of_the_test(trained: Fitted, tmp_path: Path, monkeypatch) -> None:
    """Also with the rows and columns in another order, and in several processes."""
    monkeypatch.setattr(predict_table, "CHUNK_ROWS", 25)
    tested = {int(row["row"]): row for row in trained.predictions}
    order = np.random.default_rng(0).permutation(60)
    rows = [[row[3], row[0], row[1]] for row in (table_rows()[place] for place in order)]
    given = write_csv(tmp_path / "given.csv", [["PH", "smiles", "T"], *rows])
    made = tmp_path / "made.csv"
    assert predict([str(trained.run), "-i", str(given), "-o", str(made), "--jobs", "2"]) == 0
    for place, row in zip(order.tolist(), read_csv(made), strict=True):
        if place >= 50:
            wanted = float(tested[place + 1]["pred_y"])
            assert float(row["pred_y"]) == pytest.approx(wanted, rel=1e-4, abs=1e-5)
        remark = {3: "T", 7: "T", 55: "pH"}.get(place)
        said = row["warning"].rpartition("; ")[2]  # behind other remarks
        if remark:
            assert said == f"training means instead of {remark}"
        else:
            assert "training means" not in said


def test_numbers_matter_and_missing_ones_are_the_mean(trained: Fitted) -> None:
    predictor = Predictor.load(trained.run, "cpu")
    mean = predictor.model.state_dict()["extra_readout.training_mean"][-2:].tolist()
    columns = {"T": [mean[0], math.nan, math.inf, 1e39, 330.0], "pH": [mean[1]] * 5}
    made = predictor.predict(["CCO"] * 5, columns=columns)
    assert made.errors == ("",) * 5
    assert np.ptp(made.values[:4]) <= 1e-6
    assert abs(made.values[4, 0] - made.values[0, 0]) > 1e-4
    assert [bool(warning) for warning in made.warnings] == [False, True, True, True, False]
    alone = predictor.predict("CCO", columns={"T": [330.0], "pH": [mean[1]]})
    assert alone.values[0] == pytest.approx(made.values[4], rel=1e-5)
    for wrong, said in (({"T": [1.0]}, "T, pH"), ({"T": [], "pH": []}, "give T as one number")):
        with pytest.raises(DataError, match=said):
            predictor.predict("CCO", columns=wrong)


def test_mistakes_are_one_line(trained: Fitted, tmp_path: Path, capsys) -> None:
    assert "reads T, pH in addition to the molecule" in refused(capsys, predict, trained.run, "CCO")
    without = write_csv(tmp_path / "a.csv", [["smiles", "pH"], ["CCO", "7"]])
    assert "no column 'T'" in refused(capsys, predict, trained.run, "-i", without)
    fit = (capsys, train, "fit", "-c")
    assert "--data.descriptor_columns" in refused(*fit, "quickstart", *OPTIONS[1:])
    rows = [[*row[:1], "" if row[4] == "train" else "1", *row[2:]] for row in table_rows()]
    bare = write_csv(tmp_path / "b.csv", [HEADER, *rows])
    words = (*fit, "table_regression", *TINY, "--data.root", tmp_path, "--data.target_columns=y")
    assert "T has no value" in refused(*words, "--data.table", bare, *OPTIONS)
    twice = ["--data.table", trained.folder / "t.csv", "--data.descriptor_columns", "y"]
    assert "'y' is named for two purposes" in refused(*words, *twice)


def test_evaluation_takes_up_the_inputs(trained: Fitted, capsys) -> None:
    words = ["test", str(trained.run), "--data.root", str(trained.folder / "root")]
    assert train(words) == 0
    assert f"{trained.summary['test_mae']:.6g}" in capsys.readouterr().out
    said = refused(capsys, train, *words, "--data.descriptor_columns", "T")
    assert "was trained with the descriptor columns T, pH" in said
    assert "has T:" in said


def test_backbones_with_and_without(trained: Fitted, tmp_path: Path) -> None:
    """A backbone's own numbers are not its molecules': fine-tuning begins without them, or anew."""
    plain = make_checkpoint()
    torch.save(plain, tmp_path / "plain.ckpt")
    tuned = tmp_path / "tuned"
    places = [f"--data.table={trained.folder / 't.csv'}", f"--data.root={trained.folder / 'root'}"]
    words = ["fit", "-c", "table_regression", *places, "--data.target_columns=y"]
    words += ["--trainer.max_steps=2", "--trainer.max_epochs=-1", "--trainer.accelerator=cpu"]
    words += ["--baselines=false", "--data.split_column=set"]
    begun = ["--model.from_pretrained", str(tmp_path / "plain.ckpt"), *OPTIONS[1:]]
    assert train([*words, *begun, "--output", str(tuned)]) == 0
    network = read_checkpoint(tuned)
    assert network[KEY]["model"]["extra_inputs"] == 2
    found = Predictor(network, "cpu").predict("CCO", columns={"T": [1.0], "pH": [2.0]})
    assert found.errors == ("",)
    without = tmp_path / "without"
    begun = ["--model.from_pretrained", str(trained.run)]
    assert train([*words, *begun, "--output", str(without)]) == 0
    network = read_checkpoint(without)
    assert network[KEY]["model"]["extra_inputs"] == 0
    assert not any("extra_readout" in name for name in network["state_dict"])
    assert "extra_readout.numbers.weight" in Backbone.read(trained.run).weights


def test_trees_take_the_columns_too(tmp_path: Path, monkeypatch, capsys) -> None:
    """As baselines and in a blend, which learn what only the temperature decides."""
    monkeypatch.setitem(baselines.BOOSTED, "regression", 100)
    monkeypatch.setattr(weighing, "WEIGHTS", (0.3,))
    hot = np.random.default_rng(0).permutation(60) % 2
    molecules = zip(sample_rows(60), hot.tolist(), PARTS, strict=True)
    rows = [
        [smiles, str(300 + 9 * one), str(5 * one), part] for (smiles, _), one, part in molecules
    ]
    table = write_csv(tmp_path / "t.csv", [["smiles", "T", "y", "set"], *rows])
    words = ["--members=networks,trees,kernel", "--baselines=true", "--data.split_column=set"]
    assert fit(tmp_path, table, *words, "--data.descriptor_columns=T") == 0
    run, result = tmp_path / "run", summary(tmp_path / "run")
    reached = {one["name"].partition(" on ")[0]: one["test"]["mae"] for one in result["baselines"]}
    assert reached["gradient boosting"] < reached["mean of the training labels"]
    boosting = "gradient boosting on Morgan fingerprints and descriptors, with T"
    assert boosting in capsys.readouterr().out
    tested = read_csv(run / "test_predictions.csv")
    columns = {"T": [float(rows[int(row["row"]) - 1][1]) for row in tested]}
    made = Predictor.load(run, "cpu").predict([row["smiles"] for row in tested], columns=columns)
    written = [float(row["pred_y"]) for row in tested]
    assert made.values[:, 0] == pytest.approx(written, rel=1e-4, abs=1e-5)
    capsys.readouterr()
    assert train(["test", str(run), "--data.root", str(tmp_path / "root")]) == 0
    assert f"{result['test_mae']:.6g}  (network alone" in capsys.readouterr().out
    assert predict(["info", str(run)]) == 0
    assert "with T of a table" in capsys.readouterr().out
    checkpoint = torch.load(run / "checkpoints" / "best.ckpt", weights_only=True)
    trees = checkpoint["blend"]["trees"]
    last = len(trees["columns"]["environments"]) + len(trees["columns"]["descriptors"])
    assert (trees["feature"] == last).any()
