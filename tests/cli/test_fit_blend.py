"""``fit --members`` and ``--baselines true``: what a run says, keeps and predicts."""

import dataclasses
import re
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from tiny_run import BLENDED, Fitted, fit, fitted, predicted_as_written, summary, write_csv

from graphormer_sepnorm.baselines import blend as weighing
from graphormer_sepnorm.baselines.blend import Stacking
from graphormer_sepnorm.baselines.evaluation import NAMES
from graphormer_sepnorm.cli.train import main as train
from graphormer_sepnorm.datasets.user_table.load import load_table
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.inference.checkpoint import BLEND, CONFIDENCE, read_checkpoint
from graphormer_sepnorm.inference.predictor import Predictor
from graphormer_sepnorm.runs.directory import RunDirectory

BOOSTING = "gradient boosting on Morgan fingerprints and descriptors"
PARTS = ["train"] * 40 + ["validation"] * 15 + ["test"] * 15
SPLIT = ("--data.split_column=set", "--data.target_columns=[a,b]")


def table(path: Path, binary: bool = False) -> Path:
    """Chains with and without oxygen; how long they are, and a second target that is nearly it."""
    rows = []
    for number, part in enumerate(PARTS):
        length = 3 + number * 7 % 20
        smiles = "C" * length + "O" * (number % 2)
        values = (int(length > 12), number % 2) if binary else (length, 2 * length - number % 3)
        rows.append((smiles, values[0], values[1] if number % 5 else "", part))
    return write_csv(path, [("smiles", "a", "b", "set"), *rows])


def weigh_by(weight: float, patch: pytest.MonkeyPatch) -> None:
    """Let no label choose it."""
    of_classes = weight, Stacking(1.2, np.array([0.1, -0.2]))
    patch.setattr(weighing, "EVEN_LABELS", 0)
    patch.setattr(weighing, "WEIGHTS", (weight,))
    patch.setattr(weighing, "fit_stacking", lambda *arguments: of_classes)


def fit_here(folder: Path, *more: str) -> int:
    """Train on that table."""
    return fit(folder, table(folder / "a.csv"), *SPLIT, *more)


@pytest.fixture(scope="module", params=["table_regression", "table_classification"])
def blended(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    folder, config = tmp_path_factory.mktemp("blended"), request.param
    with pytest.MonkeyPatch.context() as patch:
        weigh_by(0.3, patch)
        source = table(folder / "a.csv", "class" in config)
        return fitted(folder, source, *SPLIT, BLENDED, config=config)


def main_metric(run: Fitted) -> str:
    return "test_mae" if "test_mae" in run.summary else "test_auroc"


def test_network_trees_and_blend_stand_side_by_side(blended: Fitted) -> None:
    metric, result = main_metric(blended), blended.summary
    trees, kernel = result["baselines"]
    assert (trees["name"], kernel["name"]) == (BOOSTING, NAMES["kernel"])
    name = metric.removeprefix("test_")
    for label, value in (
        (BOOSTING, trees["test"][name]),
        (r"Graphormer, bn\+ln", result["network"][metric]),
        (NAMES["kernel"], kernel["test"][name]),
        (r"blend, 0\.3 Graphormer \+ 0\.49 gradient boosting \+ 0\.21 kernel", result[metric]),
    ):
        assert re.search(rf"^  {label} +{value:#.4g}$", blended.out, re.MULTILINE)
    value = f"{result[f'best_validation_{name}']:#.4g}\n"
    assert f" of the blend on 15 validation molecules: {value}" in blended.out
    assert "random forest" not in blended.out  # which is a baseline and was not asked for
    of_targets = [trees["test"][f"{name}_{target}"] for target in "ab"]
    assert np.mean(of_targets) == pytest.approx(trees["test"][name])
    more = {"network_weights": {"a": 0.3, "b": 0.3}} if metric == "test_mae" else {"slope": 1.2}
    assert result["blend"] == {"network_weight": 0.3, "kernel_share": 0.3, **more}


def test_what_is_kept_is_what_the_checkpoint_predicts(blended: Fitted) -> None:
    found, rows = predicted_as_written(blended.run), blended.predictions
    labels = np.array([[float(row[f"label_{name}"] or "nan") for name in "ab"] for row in rows])
    checkpoint = read_checkpoint(blended.run)
    task = Predictor(checkpoint, "cpu").task
    for name, value in task.evaluate(labels, found.values).items():
        assert blended.summary[f"test_{name}"] == pytest.approx(value, rel=1e-4)
    alone = {name: part for name, part in checkpoint.items() if name not in (BLEND, CONFIDENCE)}
    of_network = Predictor(alone, "cpu").predict([row["smiles"] for row in rows]).values
    assert np.abs(of_network - found.values).max() > 0.01


def test_evaluating_the_checkpoint_gives_the_same(blended: Fitted, capsys) -> None:
    metric, result = main_metric(blended), blended.summary
    arguments = [str(blended.run), "--trainer.accelerator=cpu"]
    for verb, split, name in (
        ("test", "test", metric),
        ("validate", "validation", metric.replace("test_", "best_validation_")),
    ):
        assert train([verb, *arguments]) == 0
        out, shown = capsys.readouterr().out, metric.removeprefix("test_")
        line = rf"^{split}_{shown} +(\S+)  \(network alone (\S+)\)$"
        found = re.search(line, out, re.MULTILINE)
        assert found is not None
        assert float(found[1]) == pytest.approx(result[name], rel=1e-5)
        assert float(found[2]) == pytest.approx(result["network"][name], rel=1e-5)
        assert re.search(rf"^{split}_loss +[\d.]+$", out, re.MULTILINE)


@pytest.mark.parametrize("blended", ["table_regression"], indirect=True)
def test_no_test_label_is_looked_at(blended: Fitted, tmp_path: Path, monkeypatch) -> None:
    """Other labels there, the same checkpoint."""
    weigh_by(0.3, monkeypatch)
    text = table(tmp_path / "a.csv").read_text()
    changed = re.sub(r"^(\w+),\d+,\d*,test$", r"\1,50,60,test", text, flags=re.MULTILINE)
    assert changed != text
    monkeypatch.setitem(globals(), "table", lambda path: path)
    (tmp_path / "a.csv").write_text(changed)
    assert fit_here(tmp_path, BLENDED) == 0
    ours, theirs = (read_checkpoint(folder / "run")[BLEND] for folder in (tmp_path, blended.folder))
    assert ours["validation"] == theirs["validation"]
    for name in ("value", "threshold"):
        assert ours["trees"][name].equal(theirs["trees"][name])
    assert summary(tmp_path / "run")["test_mae"] > 2 * blended.summary["test_mae"]


def test_baselines_are_all_of_them_and_kept_with_every_metric(tmp_path: Path, capsys) -> None:
    assert fit_here(tmp_path, "--baselines=true") == 0
    out, result = capsys.readouterr().out, summary(tmp_path / "run")
    mean, *names = [one["name"].split(" on ")[0] for one in result["baselines"]]
    assert mean == "mean of the training labels"
    assert names == ["random forest", "gradient boosting", "kernel ridge regression"]
    for one in result["baselines"]:
        assert list(one["test"]) == list(one["validation"])
        assert {"mae", "rmse", "r2", "spearman", "mae_a", "spearman_b"} <= {*one["test"]}
        assert re.search(rf"^  {one['name']} +{one['test']['mae']:#.4g}$", out, re.MULTILINE)
    assert "network" not in result
    assert BLEND not in read_checkpoint(tmp_path / "run")


def test_what_fails_costs_nothing_else(tmp_path: Path, capsys, caplog, monkeypatch) -> None:
    fail = Mock(side_effect=DataError("'X' has no fingerprint"))
    monkeypatch.setattr("graphormer_sepnorm.baselines.fit.fit_baselines", fail)
    assert fit_here(tmp_path, BLENDED) == 0
    captured = capsys.readouterr()
    assert "Graphormer, bn+ln" in captured.out
    assert "boosting" not in captured.out
    assert "test_mae" in summary(tmp_path / "run")
    assert "no blend: 'X' has no fingerprint" in caplog.text


MADE = {"baselines": "pipeline.blend._blend", "calibration": "pipeline.calibrate._test"}


@pytest.mark.parametrize("what", MADE)
def test_a_run_is_not_finished_before_all_is_made(what, blended, tmp_path, capsys, monkeypatch):
    """What a run was interrupted in is made by resuming it, and is what it would have been."""
    weigh_by(0.3, monkeypatch)
    run = RunDirectory(shutil.copytree(blended.run, tmp_path / "run"))
    complete = run.summary()
    with monkeypatch.context() as patched:
        patched.setattr(f"graphormer_sepnorm.{MADE[what]}", Mock(side_effect=KeyboardInterrupt))
        assert train(["fit", "--resume", str(run.path)]) == 130
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"train.py: trained, but not all that follows is done: {run.path}; "
        f"continue with: python train.py fit --resume {run.path}"
    )
    assert not run.finished
    assert not run.test_predictions()  # nothing of half a calibration
    assert train(["fit", "--resume", str(run.path)]) == 0
    ours = dict.fromkeys(("checkpoint", "seconds", "training_seconds", "graphs_per_second"))
    assert run.summary() | ours == complete | ours
    assert BLEND in read_checkpoint(run.path)


def test_graphs_without_smiles_cannot_be_blended(tmp_path, capsys, monkeypatch, blended):
    """Nor can a checkpoint with a blend be evaluated on them, but for its network."""

    def load_graphs(*arguments: Any) -> Any:
        return dataclasses.replace(load_table(*arguments), smiles=None)

    monkeypatch.setattr("graphormer_sepnorm.datasets.user_table.load.load_table", load_graphs)
    assert fit_here(tmp_path, BLENDED) == 2
    said = "--members: a is made of graphs, and trees and kernel take SMILES"
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    assert train(["test", str(blended.run)]) == 0
    out = capsys.readouterr().out
    assert "these are of the network alone: a blend takes SMILES" in out
    metric = main_metric(blended)
    value = re.search(rf"^{metric} +(\S+)$", out, re.MULTILINE)
    assert value is not None
    assert float(value[1]) == pytest.approx(blended.summary["network"][metric], rel=1e-5)


@pytest.mark.slow
def test_trees_that_a_fold_leaves_without_labels_are_not_blended(tmp_path: Path, capsys) -> None:
    """A target with eleven labels: without one fold they are fewer than trees need."""
    lines = table(tmp_path / "a.csv").read_text().splitlines()
    few = [",".join([*line.split(",")[:2], "", *line.split(",")[3:]]) for line in lines]
    test = PARTS.index("test") + 1
    kept = [*lines[: 1 + 13], *few[1 + 13 : test], *lines[test:]]  # of 13 rows 10 have a label of b
    (tmp_path / "b.csv").write_text("\n".join(kept))
    options = ("--ensemble=2", "--ensemble_by=folds", BLENDED)
    assert fit(tmp_path, tmp_path / "b.csv", *SPLIT, *options) == 0
    assert "undefined" not in capsys.readouterr().out
    weights = read_checkpoint(tmp_path / "run")[BLEND]["weights"]
    assert weights[0] < 1 == weights[1]
    assert np.isfinite(summary(tmp_path / "run")["best_validation_mae"])


def test_a_new_end_forgets_the_blend_of_the_earlier_one(tmp_path: Path, capsys) -> None:
    options = (BLENDED, "--keep=smiles", "--baselines=true")
    assert fit_here(tmp_path, *options) == 0
    run = tmp_path / "run"
    assert {BLEND, CONFIDENCE} <= read_checkpoint(run).keys()
    again = ("--members=networks", "--keep=none", "--baselines=false")
    (run / "geometry.json").touch()
    assert train(["fit", "--resume", str(run), *again]) == 0
    assert not (run / "geometry.json").exists()
    assert not {BLEND, CONFIDENCE} & read_checkpoint(run).keys()
    assert not list(run.glob("confidence.*"))
    out = capsys.readouterr().out
    predicted_as_written(run)
    assert "blend" not in summary(run)
    assert f"{summary(run)['test_mae']:#.4g}" in out
