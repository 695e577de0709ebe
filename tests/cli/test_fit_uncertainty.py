"""What ``fit`` keeps of a model's errors, and what `predict.py` says by it."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_run import TINY, Fitted, fit, fitted, predicted_as_written, read_csv, refused, write_csv

from graphormer_sepnorm.cli.predict import main as predict
from graphormer_sepnorm.cli.train import main as train
from graphormer_sepnorm.inference.checkpoint import CONFIDENCE, KEY, read_checkpoint
from graphormer_sepnorm.inference.predictor import Predictor
from graphormer_sepnorm.uncertainty import calibration

LOGP = "logP_SA_cycle_normalized"
PARTS = ["train"] * 80 + ["validation"] * 40 + ["test"] * 30


def table(folder: Path, config: str, parts: Sequence[str] = PARTS) -> Path:
    """Chains with and without oxygen, and how long they are."""
    rows, binary = [], config == "table_classification"
    for number, part in enumerate(parts):
        length = 3 + number * 7 % 20
        label = int(length + 3 * (number % 3) > 14) if binary else length + 0.2 * (number % 5)
        rows.append(("C" * length + "O" * (number % 2), label, part))
    return write_csv(folder / "a.csv", [("smiles", "a", "set"), *rows])


SPLIT = ("--data.split_column=set", "--data.target_columns=[a]")


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Fitted]:
    """Trains in a folder of its own."""

    def train_with(*more: str, config: str = "table_regression") -> Fitted:
        folder = tmp_path_factory.mktemp("sure")
        return fitted(folder, table(folder, config), *SPLIT, *more, config=config)

    return train_with


@pytest.fixture(scope="module")
def blend(run_of: Callable[..., Fitted]) -> Fitted:
    return run_of("--members=networks,trees,kernel", "--keep=labels")


@pytest.fixture(scope="module")
def classes(run_of: Callable[..., Fitted]) -> Fitted:
    with pytest.MonkeyPatch.context() as patch:
        # Otherwise so little a model is right to say one probability of all.
        made, fit_it = calibration.Calibration, calibration.Calibration.fit
        patch.setattr(made, "fit", lambda *a: replace(fit_it(*a), map=calibration._beta(*a[:2])))
        return run_of(config="table_classification")


@pytest.fixture(scope="module")
def folds(run_of: Callable[..., Fitted]) -> Fitted:
    return run_of("--ensemble=2", "--ensemble_by=folds", "--members=networks,trees,kernel")


@pytest.fixture(scope="module")
def seeds(run_of: Callable[..., Fitted]) -> Fitted:
    return run_of("--ensemble=2", "--members=networks,trees,kernel")


def kept(run: Fitted) -> dict[str, Any]:
    """What is kept of its errors."""
    return json.loads((run.run / "uncertainty.json").read_text())


@pytest.mark.parametrize("which", ["blend", "folds", "seeds"])
def test_what_is_kept_is_what_the_model_says(which: str, request: Any) -> None:
    run: Fitted = request.getfixturevalue(which)
    found, rows = predicted_as_written(run.run), run.predictions
    assert found.low is not None
    assert found.high is not None
    assert {"low_a", "high_a", "expected_error_a", "similarity", "distance"} <= rows[0].keys()
    labels = np.array([float(row["label_a"]) for row in rows])
    confidence = run.summary["uncertainty"]
    # Some molecules stand in two splits: one may lie on the very end of its interval.
    out = np.fmax(found.low[:, 0] - labels, labels - found.high[:, 0])
    assert (out < -1e-5).mean() - 1e-9 <= confidence["inside_90"] <= (out < 1e-5).mean() + 1e-9
    assert confidence["width_90"] == pytest.approx((found.high - found.low).mean(), rel=1e-4)
    quality = kept(run)["test"]["a"]
    assert quality["inside"][2] == confidence["inside_90"]
    assert f"{100 * quality['inside'][3]:.0f} % of the test labels" in run.out


@pytest.mark.slow
@pytest.mark.parametrize("config", ["zinc_subset", "molhiv"])
def test_a_published_data_set_is_known_by_its_smiles_too(config, real_data_root, tmp_path, capsys):
    """ZINC's are written from its graphs; of ogbg-molhiv's RDKit does not take all."""
    run = tmp_path / "run"
    options = [f"--data.root={real_data_root}", f"--output={run}", "--data.batch_size=64"]
    assert train(["fit", "-c", config, *TINY, *options]) == 0
    assert "domain      " in capsys.readouterr().out
    found = Predictor.load(run, "cpu").predict(["CC(=O)Oc1ccccc1C(=O)O", "xx"])
    assert found.similarity is not None
    assert 0 < found.similarity[0] <= 1
    rows = read_csv(run / "test_predictions.csv")
    told = json.loads((run / "summary.json").read_text())
    if config == "zinc_subset":
        ends = [(float(row[f"low_{LOGP}"]), float(row[f"high_{LOGP}"])) for row in rows]
        labels = [float(row[f"label_{LOGP}"]) for row in rows]
        inside = np.mean([low <= at <= high for (low, high), at in zip(ends, labels, strict=True)])
        assert told["uncertainty"]["inside_90"] == pytest.approx(inside, abs=0.0011)
        assert abs(inside - 0.9) < 0.04
    else:
        # Calibrated, and in the order of the network, which OGB's evaluator is asked of.
        assert train(["test", str(run), f"--data.root={real_data_root}"]) == 0
        line = r"test_auroc +([\d.]+) +\(network alone ([\d.]+)\)"
        of_network = re.search(line, capsys.readouterr().out)
        assert of_network is not None
        assert float(of_network[1]) == pytest.approx(float(of_network[2]), rel=1e-5)
        assert told["test_auroc"] == pytest.approx(float(of_network[1]), rel=1e-5)
        assert told["test_brier"] < 0.05


def test_with_folds_it_is_measured_on_all_but_the_test_split(blend, folds, seeds):
    assert kept(blend)["molecules_held_out"] == 40
    assert kept(folds)["molecules_held_out"] == 120
    parts = [read_checkpoint(run.run)[CONFIDENCE] for run in (blend, folds)]
    assert [part["targets"][0]["labels"] for part in parts] == [40, 120]
    # Errors of neighbors are known where each molecule was held out once.
    assert ["errors" in part for part in parts] == [False, True]
    assert [[*part["uses"]] for part in parts] == [["apart"], ["apart"]]
    assert [*read_checkpoint(seeds.run)[CONFIDENCE]["uses"]] == ["spread", "apart"]
    assert [len(part["neighbors"]["sizes"]) for part in parts] == [80, 120]
    members = [folds.run / "members" / f"seed{seed}" for seed in (0, 1)]
    assert not any(CONFIDENCE in read_checkpoint(one) for one in members)


def test_rows_and_labels_of_neighbors_are_those_of_the_table(blend: Fitted) -> None:
    sketch = read_checkpoint(blend.run)[CONFIDENCE]["neighbors"]
    table = read_csv(blend.folder / "a.csv")
    numbers, labels = sketch["numbers"].tolist(), sketch["labels"][:, 0].tolist()
    for row, smiles, label in zip(numbers, sketch["smiles"], labels, strict=True):
        assert (smiles, "train") == (table[row - 1]["smiles"], table[row - 1]["set"])
        assert label == pytest.approx(float(table[row - 1]["a"]))


def test_probabilities_are_calibrated_in_all_that_is_said(classes: Fitted, capsys: Any) -> None:
    confidence = read_checkpoint(classes.run)[CONFIDENCE]
    table = read_csv(classes.folder / "a.csv")
    assert list(confidence["targets"][0]["counts"]) == [
        sum((row["a"], row["set"]) == (label, "validation") for row in table) for label in "01"
    ]
    rows = classes.predictions
    values = np.array([float(row["pred_a"]) for row in rows])
    labels = np.array([float(row["label_a"]) for row in rows])
    predicted_as_written(classes.run)
    summary = classes.summary
    assert summary["test_brier"] == pytest.approx(np.mean((values - labels) ** 2))
    assert "expected calibration error of the test probabilities" in classes.out
    capsys.readouterr()
    assert train(["test", str(classes.run)]) == 0
    assert f"test_brier              {summary['test_brier']:.6g}" in capsys.readouterr().out


def test_a_table_has_the_same_columns_and_is_evaluated(blend: Fitted, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    options = ["--interval", "0.8", "--neighbors", "1", "--evaluate", "a", "--jobs", "1"]
    source = str(blend.folder / "a.csv")
    assert predict([str(blend.run), "-i", source, "-o", str(out), *options]) == 0
    rows = read_csv(out)
    expected = Predictor.load(blend.run, "cpu").configure(interval=0.8, neighbors=1)
    found = expected.predict([row["smiles"] for row in rows])
    written = [[float(row[name]) for name in ("pred_a", "low_a", "high_a")] for row in rows]
    numbers = [found.table[name] for name in found.columns[:3]]
    np.testing.assert_allclose(written, np.stack(numbers, axis=1), rtol=1e-4)
    assert [row["nearest_1"] for row in rows] == found.cells["nearest_1"]
    assert {row["in_domain"] for row in rows[:80]} == {"yes"}


@pytest.mark.parametrize("keep", ["none", "fingerprints"])
def test_what_leaves_the_house_is_what_was_asked_for(keep: str, tmp_path: Path, capsys) -> None:
    assert fit(tmp_path, table(tmp_path, ""), *SPLIT, f"--keep={keep}") == 0
    checkpoint = read_checkpoint(tmp_path / "run")
    if keep == "none":
        assert CONFIDENCE not in checkpoint
        assert not (tmp_path / "run" / "uncertainty.json").exists()
        assert "intervals " not in capsys.readouterr().out
    else:
        assert set(checkpoint[CONFIDENCE]["neighbors"]) == {"environments", "sizes", "numbers"}
    assert checkpoint[KEY]["dataset"]


@pytest.mark.parametrize("configuration", ["table_regression", "table_classification"])
def test_two_molecules_to_measure_by_say_little_and_spoil_nothing(configuration, tmp_path, capsys):
    parts = ["train"] * 8 + ["validation"] * 2 + ["test"] * 3
    source = table(tmp_path, configuration, parts)
    assert fit(tmp_path, source, *SPLIT, config=configuration) == 0
    said, model = capsys.readouterr().out, str(tmp_path / "run")
    assert predict([model, "CCCO", "--device", "cpu"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header == "smiles,pred_a,similarity,distance,in_domain,warning,error"
    # Of so few molecules there is no border, and nobody knows what is inside.
    assert row.endswith(",,,")
    assert "so in_domain is left empty" in said
    if configuration == "table_regression":
        assert "intervals none: for 90 % 9 labels" in " ".join(said.split())
    # Of two classes there is one molecule each.
    highest = "0.666" if configuration == "table_regression" else "0.5"
    assert f"the highest is {highest}" in refused(capsys, predict, model, "CCO", "--interval=0.9")
