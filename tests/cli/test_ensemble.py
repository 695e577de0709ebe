"""``fit --ensemble``: members that single trainings would be, one model, one result."""

import json
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from tiny_run import (
    BLENDED,
    TINY,
    Fitted,
    fit,
    fitted,
    read_csv,
    refused,
    sample_table,
    summary,
    write_csv,
)

from graphormer_sepnorm.cli.train import main as train
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.formatting import decimals_of
from graphormer_sepnorm.inference.checkpoint import read_checkpoint
from graphormer_sepnorm.inference.predictor import Predictor
from graphormer_sepnorm.runs import scheduler

SEEDS = (3, 4)


def member_of(ensemble: Fitted, seed: int) -> Path:
    return ensemble.run / "members" / f"seed{seed}"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sample_table(tmp_path_factory.mktemp("ensemble") / "mine.csv", 80)


QUIET = ("--trainer.enable_progress_bar=false",)
TWO = (*QUIET, f"--seed_everything={SEEDS[0]}", "--ensemble=2")


@pytest.fixture(scope="module")
def seeds(table: Path) -> Fitted:
    """An ensemble of two."""
    return fitted(table.parent / "seeds", table, *TWO)


@pytest.fixture(scope="module")
def by_folds(table: Path) -> Fitted:
    """The same, but each on a fold of its own, and blended with trees."""
    return fitted(table.parent / "folds", table, *TWO, "--ensemble_by=folds", BLENDED)


@pytest.fixture
def copied(seeds: Fitted, tmp_path: Path) -> Path:
    return shutil.copytree(seeds.run, tmp_path / "run")


def predictions_of(run: Path, split: str = "test") -> np.ndarray:
    rows = read_csv(run / f"{split}_predictions.csv")
    return np.array([float(row["pred_penalized_logp"]) for row in rows])


def test_members_by_folds_say_what_they_have_not_seen(by_folds: Fitted, capsys) -> None:
    rows = [row for row in read_csv(by_folds.run / "splits.csv") if row["split"] != "test"]
    configurations = [
        yaml.safe_load((member_of(by_folds, seed) / "config.yaml").read_text()) for seed in SEEDS
    ]
    assert [one["data"]["member_fold"] for one in configurations] == [0, 1]
    records = [json.loads((member_of(by_folds, seed) / "run.json").read_text()) for seed in SEEDS]
    options = configurations[0]["data"]
    data = MoleculeDataModule(**options)
    parts = [*data.splits.smiles["train"], *data.splits.smiles["validation"]]
    assert len(parts) == len(rows)
    labels = np.asarray(data.store.targets[: len(parts)], np.float64)[:, 0]
    error = np.abs(predictions_of(by_folds.run, "validation") - labels).mean()
    assert error == pytest.approx(by_folds.summary["best_validation_mae"], rel=1e-5)
    expected = np.empty(len(parts))
    for fold, (seed, record) in enumerate(zip(SEEDS, records, strict=True)):
        own = np.flatnonzero(data.numbers.assigned == fold)
        assert record["molecules"]["validation"] == len(own)
        assert record["molecules"]["train"] == len(parts) - len(own)
        network = Predictor.load(member_of(by_folds, seed), "cpu")
        expected[own] = network.predict([parts[at] for at in own]).values[:, 0]
        stored = predictions_of(member_of(by_folds, seed), "validation")
        np.testing.assert_allclose(stored, expected[own], rtol=1e-4, atol=1e-5)
    found = by_folds.summary
    error = np.abs(expected - labels).mean()
    assert found["network"]["best_validation_mae"] == pytest.approx(error, rel=1e-4)
    weight = found["blend"]["network_weight"]
    said = " ".join(by_folds.out.split())
    value = f"{found['best_validation_mae']:#.4g}"
    assert f"MAE of the blend on {len(parts)} molecules out of fold: {value}" in said
    assert f"MAE out of fold, each molecule by one network, {error:#.4g};" in said
    mean = np.mean([predictions_of(member_of(by_folds, seed)) for seed in SEEDS], axis=0)
    trees = (predictions_of(by_folds.run) - weight * mean) / (1 - weight)
    assert np.abs(trees - mean).max() > 0.1
    assert train(["validate", str(by_folds.run)]) == 0
    assert "Each network of the ensemble was trained on most of these" in capsys.readouterr().out


def test_folds_are_for_tables_and_the_metric_is_defined_on_each(tmp_path: Path, capsys) -> None:
    rows = [["C" * (k + 1), int(k % 10 == 0)] for k in range(40)]
    table = write_csv(tmp_path / "few.csv", [["smiles", "active"], *rows])
    words = ["-c", "table_classification", "--data.split=random", "--metric=auroc", *TINY]
    words += [f"--data.table={table}", "--ensemble=5", "--ensemble_by=folds"]
    said = refused(capsys, train, "fit", *words, "-o", tmp_path / "run")
    assert re.search(r"member \d.*--metric auroc.*--ensemble_by seeds", said)
    assert not (tmp_path / "run").exists()
    said = refused(capsys, train, "fit", "-c", "quickstart", "--ensemble=2", "--ensemble_by=folds")
    assert "sample has its own validation split: give --ensemble_by seeds" in said


def test_member_is_what_a_single_fit_trains(seeds: Fitted, table: Path, tmp_path: Path) -> None:
    torch.set_num_threads(1)  # as members have
    assert fit(tmp_path, table, *QUIET, "--seed_everything=4") == 0
    one, other = (read_checkpoint(run) for run in (tmp_path / "run", member_of(seeds, 4)))
    for name, value in one["state_dict"].items():
        assert torch.equal(value, other["state_dict"][name]), name
    assert "members" not in one
    # But for the members it says the same as that of an ensemble, in the same order.
    names = [*summary(tmp_path / "run")]
    assert [*names[:-1], "members", names[-1]] == [*seeds.summary]
    assert names[-1] == "uncertainty"


def test_result_is_that_of_the_mean(seeds: Fitted, capsys) -> None:
    found, each = seeds.summary, [summary(member_of(seeds, seed)) for seed in SEEDS]
    mean = np.mean([predictions_of(member_of(seeds, seed)) for seed in SEEDS], axis=0)
    np.testing.assert_allclose(predictions_of(seeds.run), mean, rtol=1e-6)
    labels = [float(row["label_penalized_logp"]) for row in seeds.predictions]
    assert found["test_mae"] == pytest.approx(np.abs(mean - labels).mean(), rel=1e-5)
    assert [one["seed"] for one in found["members"]] == [*SEEDS]
    for member, own in zip(found["members"], each, strict=True):
        assert member["test_rmse"] == own["test_rmse"]
        assert member["best_validation_mae"] == own["best_validation_mae"]
    assert found["steps"] == 8
    assert found["parameters"] == each[0]["parameters"] * 2
    said = " ".join(seeds.out.split())
    values = [own["test_mae"] for own in each]
    mean, sd = statistics.mean(values), statistics.stdev(values)
    spread = f"{mean:#.4g} ± {sd:.{decimals_of(mean)}f}"
    assert f"one network of the 2 {spread} Graphormer, bn+ln, mean of the 2" in said
    assert said.count("rows can be used") == 1
    assert seeds.err.count("finished (2 of 2)") == 1
    for verb, name in (("test", "test_mae"), ("validate", "best_validation_mae")):
        assert train([verb, str(seeds.run)]) == 0
        shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
        assert float(shown[name.removeprefix("best_")]) == pytest.approx(found[name], rel=5e-4)


def test_half_done_ensemble_trains_what_is_missing(seeds: Fitted, copied: Path, capsys) -> None:
    run = copied
    shutil.rmtree(run / "members" / "seed4")
    for name in ("summary.json", "test_predictions.csv", "checkpoints/best.ckpt"):
        (run / name).unlink()
    before = (run / "members" / "seed3" / "run.json").stat().st_mtime_ns
    # What follows the training is of the ensemble, so that it may be asked for later; and data may
    # lie elsewhere by then.
    elsewhere = run.parent / "elsewhere"
    more = ["--baselines", "true", "--data.root", str(elsewhere)]
    assert train(["fit", "--resume", str(run), *more]) == 0
    assert (elsewhere / "store").is_dir()
    out, err = capsys.readouterr()
    assert "gradient boosting on Morgan" in out
    assert yaml.safe_load((run / "config.yaml").read_text())["baselines"] is True
    assert "1 of 2 networks are finished already\nmember seed 4: started\n" in err
    assert (run / "members" / "seed3" / "run.json").stat().st_mtime_ns == before
    assert summary(run)["best_validation_mae"] == seeds.summary["best_validation_mae"]
    np.testing.assert_array_equal(predictions_of(run), predictions_of(seeds.run))


@pytest.fixture
def members_are(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Lets members be some Python code, in a process that this one has started itself."""

    def be(program: str) -> None:
        monkeypatch.setattr(scheduler, "FIT", (sys.executable, "-c", program))
        monkeypatch.setattr(scheduler, "subprocess", subprocess)

    return be


INTERRUPT = "import os, signal, time; os.kill(os.getppid(), signal.SIGINT); time.sleep(60)"


def test_member_that_fails_is_one_line(table: Path, tmp_path: Path, capsys, members_are) -> None:
    members_are("raise SystemExit('no memory left')")
    assert fit(tmp_path, table, "--ensemble=2") == 2
    said = capsys.readouterr().err.splitlines()[-1]
    log = tmp_path / "run" / "members" / "seed0.log"
    assert f"member seed 0 has failed, 0 of 2 members are finished: no memory left ({log}" in said
    assert f"fit --resume {tmp_path / 'run'}" in said
    assert log.is_file()


def test_finished_members_are_kept_however_the_rest_ends(seeds, table, tmp_path, monkeypatch):
    """As where the terminal has gone that it is said to, or there is no room for what is said."""

    def run(self: scheduler.Scheduler) -> bool:
        shutil.copytree(seeds.run / "members", tmp_path / "run" / "members", dirs_exist_ok=True)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(scheduler.Scheduler, "run", run)
    try:
        status = fit(tmp_path, table, *TWO)
    except SystemExit as ended:
        status = ended.code
    assert status in (1, 2)
    assert summary(tmp_path / "run" / "members" / "seed3")


def test_interruption_says_how_to_go_on(copied: Path, capsys, members_are) -> None:
    (copied / "members" / "seed4" / "summary.json").unlink()
    members_are(INTERRUPT)
    assert train(["fit", "--resume", str(copied)]) == 130
    said = capsys.readouterr().err.splitlines()[-1]
    assert "interrupted, 1 of 2 members are finished; continue with: " in said
    assert said.endswith(f"fit --resume {copied}")
    assert summary(copied / "members" / "seed3")


def test_members_are_not_joined_over_other_molecules(copied, table, tmp_path, monkeypatch, capsys):
    """What would be out of fold of the new ones may have been trained on."""
    (copied / "summary.json").unlink()  # as an interruption after the members leaves it
    kept = table.read_bytes()
    table.write_bytes(b"".join(kept.splitlines(keepends=True)[:60]))
    try:
        said = refused(capsys, train, "fit", "--resume", copied)
    finally:
        table.write_bytes(kept)
    assert "that the members were trained on: put that back" in said
    assert not (copied / "summary.json").exists()
