"""A run that 0.1.0 left, with its checkpoints, is read by everything that reads runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphormer_sepnorm.cli.known_warnings import silence_known_noise
from graphormer_sepnorm.cli.predict import main as predict
from graphormer_sepnorm.cli.train import main as train
from graphormer_sepnorm.compare import analysis
from graphormer_sepnorm.compare.progress import reached
from graphormer_sepnorm.compare.results import learning_curve
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.errors import CheckpointError
from graphormer_sepnorm.old_names import OPTIONS
from graphormer_sepnorm.runs.directory import RunDirectory

KEPT = Path(__file__).parent / "a_run_of_0.1.0"


def placed(value: Any, root: Path) -> Any:
    """A checkpoint's content, with the place where the run was made replaced."""
    if isinstance(value, str):
        return value.replace("/old", str(root))
    if isinstance(value, dict):
        return type(value)((placed(k, root), placed(v, root)) for k, v in value.items())
    if isinstance(value, list | tuple):
        return type(value)(placed(one, root) for one in value)
    return value


@pytest.fixture
def old(tmp_path: Path) -> RunDirectory:
    """The run, as if it had been made in this folder."""
    silence_known_noise()
    run = RunDirectory(tmp_path / "run")
    shutil.copytree(KEPT, run.path)
    shutil.copyfile(KEPT / "table.csv", tmp_path / "table.csv")
    text = run.configuration_file.read_text().replace("/old", str(tmp_path))
    run.configuration_file.write_text(text)
    for file in (run.best, run.last):
        torch.save(placed(torch.load(file, weights_only=True), tmp_path), file)
    return run


def test_its_files_are_read(old: RunDirectory) -> None:
    assert (old.finished, old.resumable, old.tested) == (True, True, old.best)
    record, summary = old.record(), old.summary()
    assert record is not None
    assert summary is not None
    assert (record.metric, record.selected_on, record.planned_steps) == ("mae", "validation_mae", 6)
    assert [(one.from_step, one.to_step, one.end) for one in record.sessions] == [(0, 6, "trained")]
    assert record.sessions[0].packages["lightning"] == "2.6.6"
    assert (summary.validation("mae"), summary.test("mae")) == (
        1.5495855808258057,
        0.9085940718650818,
    )
    assert summary.test("rmse") is None
    assert old.configuration()["model"]["width"] == 8
    assert [row["validation_mae"] for row in old.metrics() if "validation_mae" in row] == [
        1.5523725748062134,
        1.5504024028778076,
        1.5495855808258057,
    ]
    rows = old.test_predictions(["logp"])
    assert rows is not None
    assert rows[0] == [0.584457177]
    assert old.test_predictions(["other"]) is None


def test_its_record_and_summary_are_written_back_the_same(old: RunDirectory) -> None:
    record, summary = old.record_file.read_text(), old.summary_file.read_text()
    read, found = old.record(), old.summary()
    assert read is not None
    assert found is not None
    old.write_record(read)
    old.write_summary(found)
    assert old.record_file.read_text() == record
    assert old.summary_file.read_text() == summary


def test_it_becomes_a_row_of_results(
    old: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(["results", str(old.path), "-o", str(tmp_path / "results")]) == 0
    table = (tmp_path / "results.md").read_text()
    assert "| 1.5496 | 0.9086 |" in table
    assert "selected on validation MAE; weights as trained" in table
    assert "Metric: MAE (lower is better). 32 / 4 / 4 molecules" in table


def test_it_is_tested_resumed_and_a_model(
    old: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--data.root", str(tmp_path / "root")]
    assert train(["test", "--ckpt_path", str(old.path), *options]) == 0
    assert "test_mae       0.908594\n" in capsys.readouterr().out
    assert predict([str(old.path), "CCO"]) == 0
    assert "pred_logp" in capsys.readouterr().out
    resume = ["fit", "--resume", str(old.path), *options]
    assert train([*resume, "--model.local=gine"]) == 2  # by the name that it had then
    said = "--model.local_mpnn is gine here and none in the checkpoint"
    assert said in capsys.readouterr().err
    names = {name.removeprefix("model.") for name in OPTIONS}
    assert names <= old.configuration()["model"].keys()
    assert train([*resume, "--trainer.max_epochs=4"]) == 0
    assert "continued from step 6" in capsys.readouterr().out
    assert not names & old.configuration()["model"].keys()
    record, summary = old.record(), old.summary()
    assert record is not None
    assert summary is not None
    assert [one.to_step for one in record.sessions] == [6, 8]
    assert summary["steps"] == 8
    assert summary.test("spearman") is not None
    assert len(json.loads(json.dumps(old.metrics()))) > 12


def data_of(run: RunDirectory, folder: Path) -> MoleculeDataModule:
    config = run.configuration()
    options = config["data"] | {"max_path_length": config["model"]["max_path_length"]}
    return MoleculeDataModule(**options | {"root": str(folder / "root")})


def test_a_comparison_takes_its_predictions_and_computes_those_of_an_older_run(
    old: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert learning_curve(old, "mae")[-1].validation == 1.5495855808258057
    progress = reached(old.path, "mae")
    assert progress.step >= 6
    assert progress.best == 1.5495855808258057
    data = data_of(old, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(analysis, "_predict", None)  # is not asked
        taken = analysis.analyse(old, data, histograms=False)
    assert taken.predictions.tolist() == old.test_predictions(["logp"])
    assert not old.computed_predictions_file.exists()
    old.test_predictions_file.unlink()
    computed = analysis.analyse(old, data, histograms=False)
    assert computed.predictions == pytest.approx(taken.predictions, rel=1e-5)
    assert np.load(old.computed_predictions_file).shape == (4, 1)
    assert repr(computed.geometry) == repr(taken.geometry)  # nan is not equal to itself


@pytest.mark.parametrize("gone", ["best.ckpt", "best.ckpt last.ckpt"])
@pytest.mark.parametrize("own", [True, False])
def test_what_a_comparison_kept_outlives_the_checkpoints(
    gone: str, own: bool, old: RunDirectory, tmp_path: Path
) -> None:
    """With the predictions that the run has, or with those that the comparison computed."""
    data = data_of(old, tmp_path)
    if not own:
        old.test_predictions_file.unlink()
    found = analysis.analyse(old, data, histograms=False)
    kept = old.geometry_file.read_bytes()
    for name in gone.split():
        (old.checkpoints / name).unlink()
    for histograms in (False, True):  # none were counted
        again = analysis.analyse(old, data, histograms=histograms)
        assert repr(again.geometry) == repr(found.geometry)
        assert again.predictions.tolist() == found.predictions.tolist()
    assert old.geometry_file.read_bytes() == kept


def test_no_other_checkpoint_is_measured_in_place_of_one_that_is_gone(
    old: RunDirectory, tmp_path: Path
) -> None:
    data = data_of(old, tmp_path)
    analysis.analyse(old, data, histograms=False)
    kept = json.loads(old.geometry_file.read_text())
    old.best.unlink()
    said = r"best\.ckpt is gone, and what the report needs of it was not kept: put it back, or"
    for other in ({"checkpoint": "last.ckpt 7"}, {"dataset_fingerprint": "x"}, {"version": 1}):
        content = json.dumps({**kept, **other})
        old.geometry_file.write_text(content)
        with pytest.raises(CheckpointError, match=said):
            analysis.analyse(old, data, histograms=False)
        assert old.geometry_file.read_text() == content


def test_a_run_that_is_made_longer_loses_what_a_comparison_kept_of_its_earlier_end(
    old: RunDirectory, tmp_path: Path
) -> None:
    old.test_predictions_file.unlink()
    analysis.analyse(old, data_of(old, tmp_path), histograms=False)
    resume = ["fit", "--resume", str(old.path), "--data.root", str(tmp_path / "root")]
    assert train([*resume, "--trainer.max_epochs=4"]) == 0
    assert not old.geometry_file.exists()
    assert not old.computed_predictions_file.exists()
