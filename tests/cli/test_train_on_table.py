"""Training on a user's own table with train.py, and predicting with what comes out."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from tiny_run import (
    Fitted,
    fit,
    fitted,
    predicted_as_written,
    read_csv,
    refused,
    sample_rows,
    summary,
    throughput_of,
    write_csv,
)

from graphormer_sepnorm.cli.predict import main as predict
from graphormer_sepnorm.cli.train import main as train
from graphormer_sepnorm.config import ModelConfig
from graphormer_sepnorm.inference.checkpoint import (
    KEY,
    for_prediction,
    read_checkpoint,
    write_checkpoint,
)
from graphormer_sepnorm.pipeline import fit as steps
from graphormer_sepnorm.resources import config_path
from graphormer_sepnorm.runs.directory import RunDirectory
from graphormer_sepnorm.training.module import GraphormerModule


@pytest.fixture(scope="module")
def table_run(tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    folder = tmp_path_factory.mktemp("table")
    rows = [[smiles, value, "2"] for smiles, value in sample_rows(120)]
    rows[7][0] = "not a molecule"
    rows[9][1] = "~4"
    table = write_csv(folder / "mine.csv", [["SMILES", "logX", "weight"], *rows])
    return fitted(folder, table, "--data.weight_column=weight", "--data.units=furlong")


def test_report_comes_before_training_and_stays(table_run: Fitted) -> None:
    said = table_run.out
    assert "118 of 120 rows can be used" in said
    assert said.index("118 of 120") < said.index("model  ")
    assert "invalid_rows.csv" in said
    invalid = read_csv(table_run.run / "invalid_rows.csv")
    assert [row["row"] for row in invalid] == ["8", "10"]
    assert "~4" in invalid[1]["reason"]
    report = json.loads((table_run.run / "data_report.json").read_text())
    assert report["rows"] == 120
    splits = [row["split"] for row in read_csv(table_run.run / "splits.csv")]
    assert len(splits) == 118
    assert set(splits) == {"train", "validation", "test"}
    assert "furlong" in said


@pytest.mark.parametrize("split", ["test", "validation"])
def test_predictions_of_unseen_molecules_are_kept(table_run: Fitted, split: str) -> None:
    rows = read_csv(table_run.run / f"{split}_predictions.csv")
    assert list(rows[0])[:5] == ["number", "row", "smiles", "label_logX", "pred_logX"]
    splits = [row for row in read_csv(table_run.run / "splits.csv") if row["split"] == split]
    assert sorted((row["row"], row["smiles"]) for row in rows) == sorted(
        (row["row"], row["smiles"]) for row in splits
    )
    assert [row["number"] for row in rows] == [str(number) for number in range(len(rows))]
    labels, predicted = (
        np.array([float(row[name]) for row in rows]) for name in ("label_logX", "pred_logX")
    )
    error = table_run.summary[{"test": "test_mae", "validation": "best_validation_mae"}[split]]
    assert np.abs(labels - predicted).mean() == pytest.approx(error, rel=1e-6)
    # Row 1 is the first of the table, behind its header.
    table = [row["logX"] for row in read_csv(table_run.folder / "mine.csv")]
    assert [float(table[int(row["row"]) - 1]) for row in rows] == pytest.approx(labels.tolist())
    predicted_as_written(table_run.run)


def test_checkpoint_knows_what_it_was_trained_on(table_run: Fitted) -> None:
    facts = read_checkpoint(table_run.run)[KEY]
    assert facts["dataset"] == "mine"
    assert facts["data_options"]["table"] == str(table_run.folder / "mine.csv")
    assert facts["weight_scale"] == pytest.approx(0.5)
    seen = facts["training_summary"]
    assert seen["targets"][0]["labels"] == facts["training_graphs"]
    assert seen["atoms"]["max"] >= seen["atoms"]["min"] > 0
    assert seen["connected"] is True
    assert facts["validation"]["validation_mae"] > 0


def test_logs_and_times_go_beyond_the_best_checkpoint(tmp_path: Path) -> None:
    """The test of an early checkpoint does not set back what was logged and measured after it."""
    table = write_csv(tmp_path / "mine.csv", [["SMILES", "logX"], *sample_rows(60)])
    options = ["--ema_decay", "0.5"]
    # So small a rate changes nothing, so the first epoch stays the best.
    options += ["--model.learning_rate", "1e-30", "--model.norm", "sharenorm"]
    limits = ["--trainer.max_steps", "-1", "--trainer.max_epochs", "4"]
    assert fit(tmp_path, table, *options, *limits) == 0
    directory = tmp_path / "run"
    result = summary(directory)
    batches = result["steps"] // 4
    best = read_checkpoint(directory / "checkpoints" / "best.ckpt")
    assert best["global_step"] == batches < result["steps"]
    rows = read_csv(directory / "metrics.csv")
    for column in ("train_loss_epoch", "validation_mae"):
        found = [int(row["step"]) + 1 for row in rows if row[column]]
        assert found == [batches * epoch for epoch in (1, 2, 3, 4)]
    assert [row["epoch"] for row in rows if row["test_mae"]] == ["4"]
    assert throughput_of(directory)["graphs"] == 4 * 48
    assert result["test_mae"] > 0


def test_test_needs_no_options_and_on_another_table_says_what_it_evaluates(
    table_run: Fitted, tmp_path: Path, capsys
) -> None:
    assert train(["test", str(table_run.run)]) == 0
    said = capsys.readouterr().out
    assert f"{table_run.summary['test_mae']:.6g}" in said
    assert "12 molecules of mine\n" in said
    assert "learned from" not in said
    rows = (table_run.folder / "mine.csv").read_text().splitlines()
    (tmp_path / "part.csv").write_text("\n".join(rows[:41]))
    table = ["--data.table", str(tmp_path / "part.csv"), "--data.root", str(tmp_path / "root")]
    assert train(["test", str(table_run.run), *table]) == 0
    said = capsys.readouterr().out
    assert "4 molecules of part\n" in said
    assert "molecules that the model has learned from may be among these" in said


def test_bundled_kind_of_file_is_tested_on_a_table_that_is_named(table_run, tmp_path, capsys):
    write_checkpoint(for_prediction(read_checkpoint(table_run.run)), tmp_path / "slim.ckpt")
    error = refused(capsys, train, "test", tmp_path / "slim.ckpt")
    assert "--data.table FILE" in error
    folder = table_run.folder
    options = [f"--data.table={folder / 'mine.csv'}", f"--data.root={folder / 'root'}"]
    options += ["--data.target_columns", "logX", "--data.weight_column", "weight"]
    assert train(["test", str(tmp_path / "slim.ckpt"), *options]) == 0
    assert f"{table_run.summary['test_mae']:.6g}" in capsys.readouterr().out


def test_classification_with_several_targets_and_gaps(tmp_path, capsys) -> None:
    rows = [
        [smiles, str(int(float(value) > 0)), "" if n % 3 else str(int(len(smiles) > 40))]
        for n, (smiles, value) in enumerate(sample_rows(90))
    ]
    table = write_csv(tmp_path / "two.csv", [["smiles", "active", "long"], *rows])
    options = ["--data.target_columns=[active,long]", "--data.split=random", "--metric=brier"]
    options += ["--early_stopping=3"]
    assert fit(tmp_path, table, *options, config="table_classification") == 0
    said, run, result = capsys.readouterr().out, tmp_path / "run", summary(tmp_path / "run")
    assert f"best validation Brier {result['best_validation_brier']:#.4g}, with it AUROC" in said
    names = ("auroc", "average_precision", "brier", "log_loss")
    assert {f"test_{name}" for name in names} <= result.keys()
    stored = read_checkpoint(run)["callbacks"]
    (best,) = (value for key, value in stored.items() if "BestCheckpoint" in key)
    assert best["monitor"] == "validation_brier"
    assert best["best_model_score"] == result["best_validation_brier"]
    stopping = next(key for key in stored if "StopEarly" in key)
    assert "'monitor': 'validation_brier', 'mode': 'min'" in stopping
    record = json.loads((run / "run.json").read_text())
    assert (record["metric"], record["selected_on"]) == ("auroc", "validation_brier")
    turned = "--data.target_columns=[long,active]"
    assert "has long, active" in refused(capsys, train, "test", run, turned)
    rows = read_csv(run / "test_predictions.csv")
    assert {row["label_active"] for row in rows} <= {"0", "1", ""}
    predicted_as_written(run)


def test_end_of_training_is_taken_where_nothing_is_to_decide(tmp_path, capsys, monkeypatch) -> None:
    """Also where it is not the best epoch."""

    def destroy(self: GraphormerModule) -> None:
        if self.current_epoch == 1:
            self.model.readout.bias.data.fill_(1e3)

    monkeypatch.setattr(GraphormerModule, "on_train_epoch_end", destroy, raising=False)
    table = write_csv(tmp_path / "table.csv", [["smiles", "y"], *sample_rows(60)])
    options = ["--data.split=random", "--metric=last", "--ema_decay=0"]
    options += ["--trainer.max_epochs=3", "--trainer.max_steps=-1"]
    assert fit(tmp_path, table, *options, "--early_stopping=2") == 2
    assert "nothing can say when to stop early" in capsys.readouterr().err
    assert fit(tmp_path, table, *options, "--metric=mae", "--trainer.limit_val_batches=0") == 2
    assert "--trainer.limit_val_batches 0 leaves none" in capsys.readouterr().err
    assert fit(tmp_path, table, *options) == 0
    run = tmp_path / "run"
    errors = [row["validation_mae"] for row in read_csv(run / "metrics.csv")]
    last = float([value for value in errors if value][-1])
    assert last > 100
    result = summary(run)
    assert result["best_validation_mae"] == pytest.approx(last)
    assert read_checkpoint(run)["global_step"] == result["steps"]
    assert f"validation MAE {last:.0f} at the end; 3 epochs" in capsys.readouterr().out
    assert json.loads((run / "run.json").read_text())["selected_on"] == "step"


def test_loss_decides_where_the_validation_labels_define_no_auroc(tmp_path, capsys, caplog) -> None:
    rows = sample_rows(90)
    parts = ["train"] * 50 + ["validation"] * 20 + ["test"] * 20
    labels = [n % 2 if part != "validation" else 0 for n, part in enumerate(parts)]
    cells = [
        [row[0], str(label), part] for row, label, part in zip(rows, labels, parts, strict=True)
    ]
    table = write_csv(tmp_path / "hits.csv", [["smiles", "active", "set"], *cells])
    options = ["--data.split_column=set", "--model.learning_rate=0.01", "--baselines=true"]
    options += ["--trainer.max_epochs=6", "--trainer.max_steps=-1"]
    assert fit(tmp_path, table, *options, config="table_classification") == 0
    assert caplog.text.count("no target has both classes among its labels") == 1  # of six epochs
    out = capsys.readouterr().out
    assert re.search(r"best validation loss 0\.\d+, with it AUROC undefined", out)
    # Trees choose nothing on the validation split.
    assert re.search(r"gradient boosting on Morgan fingerprints and descriptors +[01]\.\d{4}", out)
    assert not re.search(r"\bnan\b", out)
    losses = [
        (float(row["validation_loss"]), int(row["step"]) + 1)
        for row in read_csv(tmp_path / "run" / "metrics.csv")
        if row["validation_loss"]
    ]
    assert len(losses) == 6
    assert read_checkpoint(tmp_path / "run")["global_step"] == min(losses)[1]


def test_several_targets_of_different_scale(tmp_path, capsys) -> None:
    rows = [[smiles, value, str(1000 * len(smiles))] for smiles, value in sample_rows(60)]
    rows[3][2] = "5 furlong"  # costs this label, and not the other one
    # YAML takes these names for numbers.
    table = write_csv(tmp_path / "assays.csv", [["smiles", "720", "721"], *rows])
    options = ["--data.target_columns=[720,721]", "--data.split=random", "--data.units=[eV,'']"]
    assert fit(tmp_path, table, *options) == 0
    said = capsys.readouterr().out
    assert "all 60 rows can be used" in said
    (cell,) = read_csv(tmp_path / "run" / "invalid_rows.csv")
    assert cell["row"] == "4"
    assert cell["reason"].startswith("721 is '5 furlong'")
    result = summary(tmp_path / "run")
    errors = [result[f"test_mae_{name}"] for name in ("720", "721")]
    assert result["test_mae"] == pytest.approx(sum(errors) / 2)
    assert "test_rmse" not in result  # of errors in two units
    relative = np.mean([result[f"test_rae_{name}"] for name in ("720", "721")])
    assert re.search(rf"^test RAE\n.*{relative:#.4g}$", said, re.MULTILINE)
    assert re.search(rf"^720 \[eV\] +{errors[0]:#.4g}  +[\d.]+  ", said, re.MULTILINE)
    assert re.search(rf"^721 +{errors[1]:#.4g}  +[\d.]+  ", said, re.MULTILINE)
    best = read_checkpoint(tmp_path / "run")
    kept = next(value for key, value in best["callbacks"].items() if "BestCheckpoint" in key)
    # The small target would have no say in a mean of raw errors.
    assert kept["monitor"] == "validation_loss"


def test_molecules_with_new_elements_are_in_the_metric_and_refused(tmp_path, capsys):
    parts = ["train"] * 40 + ["validation"] * 10 + ["test"] * 10
    rows = [[*row, part] for row, part in zip(sample_rows(60), parts, strict=True)]
    rows[52][0], rows[57][0] = "C[Se]C", "CB(O)O"
    table = write_csv(tmp_path / "new.csv", [["smiles", "y", "set"], *rows])
    more = ["--data.split_column=set", "--data.target_columns=y"]
    assert fit(tmp_path, table, *more) == 0
    kept = read_csv(tmp_path / "run" / "test_predictions.csv")
    errors = [abs(float(row["label_y"]) - float(row["pred_y"])) for row in kept]
    assert summary(tmp_path / "run")["test_mae"] == pytest.approx(np.mean(errors))
    capsys.readouterr()
    assert predict([str(tmp_path / "run"), *(row["smiles"] for row in kept)]) == 0
    predicted = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [row["smiles"] for row in predicted if row["error"]] == ["C[Se]C", "CB(O)O"]


def test_recipe_for_tables_fine_tunes_and_blends(tmp_path, capsys, monkeypatch) -> None:
    """The shape of the network is the backbone's, the number of epochs follows from the table."""
    monkeypatch.setattr(steps, "epochs_of_table", lambda molecules, kind: molecules // 24)
    table = write_csv(tmp_path / "mine.csv", [["smiles", "logX"], *sample_rows(60)])
    recipe = yaml.safe_load(config_path("table").read_text())
    assert (recipe["ensemble"], recipe["ensemble_by"]) == (5, "folds")
    more = ["--ensemble=1", "--trainer.accelerator=cpu", "--trainer.limit_train_batches=1"]
    options = [f"--data.table={table}", f"--data.root={tmp_path / 'root'}", *more]
    assert train(["fit", "-c", "table", *options, f"--output={tmp_path / 'run'}"]) == 0
    said = capsys.readouterr().out
    assert "begun" not in said
    assert re.search(r"blend, 0\.\d+ Graphormer \+ 0\.\d+ gradient boosting", said)
    facts = read_checkpoint(tmp_path / "run")[KEY]
    assert facts["from_pretrained"] == "graphormer-small"
    assert [facts["model"][name] for name in ("layers", "width", "dropout")] == [6, 96, 0.0]
    assert summary(tmp_path / "run")["epochs"] == 48 // 24
    capsys.readouterr()
    # The backbone knows silicon, and no molecule of the table has any.
    assert predict([str(tmp_path / "run"), "CCO", "C[Si](C)(C)C", "--device", "cpu"]) == 0
    plain, silane = csv.DictReader(capsys.readouterr().out.splitlines())
    assert plain["warning"] == plain["error"] == silane["error"] == ""
    assert "not in its own training data: Si" in silane["warning"]
    assert silane["pred_logX"]
    assert silane["in_domain"] == "no"


def test_a_fine_tuning_that_was_interrupted_goes_on(tmp_path, capsys, monkeypatch) -> None:
    """Its configuration names the backbone beside a shape that is not that of the network."""
    table = write_csv(tmp_path / "mine.csv", [["smiles", "logX"], *sample_rows(60)])

    def options(name: str) -> list[str]:
        given = [f"--data.table={table}", f"--data.root={tmp_path / 'root'}", "--ensemble=1"]
        given += [f"--output={tmp_path / name}", "--trainer.accelerator=cpu", "--members=networks"]
        given += ["--trainer.max_epochs=2", "--trainer.check_val_every_n_epoch=1"]
        return ["fit", "-c", "table", "-c", str(shape), *given, "--baselines=false"]

    shape = tmp_path / "shape.yaml"
    shape.write_text("model: {max_path_length: 3}\n")
    assert train(options("whole")) == 0

    def interrupt(self: GraphormerModule, batch: Any, batch_idx: int) -> None:
        if self.current_epoch == 1:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(GraphormerModule, "on_train_batch_start", interrupt)
        assert train(options("run")) == 130
    capsys.readouterr()
    assert train(["fit", "--resume", str(tmp_path / "run"), "--keep=fingerprints"]) == 0
    assert "continued from step" in capsys.readouterr().out
    for name in ("whole", "run"):  # what records and reports of comparisons are made from
        kept = yaml.safe_load((tmp_path / name / "config.yaml").read_text())["model"]
        assert (kept["from_pretrained"], kept["max_path_length"]) == ("graphormer-small", 5)
    one, other = (
        torch.load(RunDirectory(tmp_path / name).last, weights_only=True)
        for name in ("whole", "run")
    )
    assert one["global_step"] == other["global_step"]
    for name, value in one["state_dict"].items():
        assert torch.equal(value, other["state_dict"][name]), name
    assert other[KEY]["from_pretrained"] == "graphormer-small"
    monkeypatch.chdir(tmp_path)
    again = ["fit", "--resume", str(tmp_path / "run"), "--model.from_pretrained=esol"]
    assert train(again) == 2
    assert "--model.from_pretrained" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("molecules", "of_numbers", "of_classes"),
    [(2, 20, 40), (600, 20, 40), (1000, 20, 24), (7500, 16, 12), (10**6, 12, 12)],
)
def test_epochs_follow_from_the_number_of_molecules(molecules, of_numbers, of_classes):
    assert steps.epochs_of_table(molecules, "regression") == of_numbers
    assert steps.epochs_of_table(molecules, "binary") == of_classes
    assert ModelConfig(dropout=None).network.dropout == 0.1  # of classes
