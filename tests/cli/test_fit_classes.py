"""A model of several classes, from its table to what is predicted."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score
from tiny_run import TINY, fitted, predicted_as_written, read_csv, summary, write_csv

from graphormer_sepnorm.cli.predict import main as predict
from graphormer_sepnorm.cli.train import main as train
from graphormer_sepnorm.inference.checkpoint import CONFIDENCE, read_checkpoint
from graphormer_sepnorm.inference.predictor import Predictor

SMILES = [f"{'C' * length}{end}" for length in range(1, 26) for end in ("O", "N", "F", "c1ccccc1")]
CLASSES = ["polar", "polar", "halogen", "arene"] * 25
ORDER = ["arene", "halogen", "polar"]


ROWS = [("smiles", "kind"), *zip(SMILES, CLASSES, strict=True)]
OPTIONS = ("--data.target_columns=[kind]", "--data.task=multiclass", "--data.split=random")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two networks by folds, blended with trees."""
    folder = tmp_path_factory.mktemp("classes")
    more = ("--ensemble=2", "--ensemble_by=folds", "--members=networks,trees,kernel")
    table = write_csv(folder / "a.csv", ROWS)
    return fitted(folder, table, *OPTIONS, *more, config="table_classification").run


def test_what_is_tested_is_what_is_predicted(run: Path) -> None:
    rows = read_csv(run / "test_predictions.csv")
    kept = np.array([[float(row[f"pred_kind_{name}"]) for name in ORDER] for row in rows])
    labels = np.array([[float(row[f"label_kind_{name}"]) for name in ORDER] for row in rows])
    np.testing.assert_allclose(kept.sum(axis=1), 1, rtol=1e-5)
    assert set(labels.sum(axis=1)) == {1}
    found = predicted_as_written(run)
    assert [*found.cells] == ["class_kind", "in_domain"]
    np.testing.assert_allclose(found.values.sum(axis=1), 1, rtol=1e-6)
    assert found.cells["class_kind"] == [ORDER[n] for n in kept.argmax(axis=1)]
    result = summary(run)
    truth = labels.argmax(axis=1)
    assert result["test_accuracy"] == accuracy_score(truth, kept.argmax(axis=1))
    assert result["test_log_loss"] == pytest.approx(log_loss(truth, kept), rel=1e-4)
    judged = json.loads((run / "uncertainty.json").read_text())["test"]["kind_arene"]
    temperature = read_checkpoint(run)[CONFIDENCE].get("temperature", 1)
    assert judged["map"] == ("none" if temperature == 1 else "temperature")
    macro = roc_auc_score(truth, kept, multi_class="ovr")
    assert result["test_auroc"] == pytest.approx(macro, rel=1e-6)


def test_a_table_is_predicted_and_evaluated(run: Path, tmp_path: Path, capsys) -> None:
    rows = [*ROWS[:31], ("CCO", ""), ("CCO", "metal"), ("C1CC", "polar")]
    source, output = write_csv(tmp_path / "a.csv", rows), tmp_path / "b.csv"
    arguments = [str(run), "-i", str(source), "-o", str(output), "--evaluate", "kind", "--quiet"]
    assert predict(arguments) == 0
    written = read_csv(output)
    assert written[-1]["class_kind"] == ""
    values = np.array([[float(row[f"pred_kind_{name}"]) for name in ORDER] for row in written[:30]])
    called = [ORDER[place] for place in values.argmax(axis=1)]
    assert [row["class_kind"] for row in written[:30]] == called
    said = capsys.readouterr().out.splitlines()
    accuracy = accuracy_score(CLASSES[:30], called)
    assert said[0].startswith("kind  AUROC ")
    assert said[0].endswith(f"accuracy {accuracy:#.4g}")
    assert "1 with a label but no prediction" in said[1]
    assert "1 with a label that cannot be used" in said[1]
    assert "30 rows" in said[1]


@pytest.mark.parametrize("apart", [False, True])
def test_train_py_test_says_the_same(apart: bool, run: Path, tmp_path: Path, capsys) -> None:
    """Also of members that are so far apart that the mean of their logits is not that of both."""
    rows, result, checkpoint = read_csv(run / "test_predictions.csv"), summary(run), run
    if apart:
        contents, checkpoint = read_checkpoint(run), tmp_path / "a.ckpt"
        (other,) = contents["members"]
        other["readout.bias"] += torch.tensor([8.0, -8, 0])
        torch.save(contents, checkpoint)
        values = Predictor.load(checkpoint, "cpu").predict([row["smiles"] for row in rows]).values
        labels = np.array([[float(row[f"label_kind_{name}"]) for name in ORDER] for row in rows])
        result = {"test_log_loss": log_loss(labels.argmax(axis=1), values)}
    assert train(["test", str(checkpoint)]) == 0
    said = dict(line.split()[:2] for line in capsys.readouterr().out.splitlines())
    for name in {"test_auroc", "test_accuracy", "test_log_loss"} & result.keys():
        assert float(said[name]) == pytest.approx(result[name], rel=5e-4)


@pytest.mark.slow
def test_folds_know_the_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = write_csv(tmp_path / "a.csv", ROWS)
    options = [f"--data.table={table}", f"--data.root={tmp_path / 'root'}", *OPTIONS]
    arguments = ["-c", "table_classification", *TINY, *options, "--folds=2", "--jobs=1"]
    assert train(["crossvalidate", *arguments, f"-o={tmp_path / 'cv'}"]) == 0
    assert "accuracy" in capsys.readouterr().out
    (network,) = summary(tmp_path / "cv")["networks"]
    assert not math.isnan(network["metrics"]["accuracy"]["mean"])
