"""The command train.py as a user meets it."""

import json
import signal
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Trainer
from reference.checkpoints import make_checkpoint
from tiny_run import TINY, Run, read_csv, refused, summary, throughput_of

from graphormer_sepnorm.cli.train import main
from graphormer_sepnorm.datasets.catalog import DATASETS
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.inference.checkpoint import KEY, read_checkpoint
from graphormer_sepnorm.kernels.library import library
from graphormer_sepnorm.training.callbacks import TrainingProgress


def test_fit_leaves_a_complete_run_directory(run: Run) -> None:
    names = {path.name for path in run.directory.iterdir()}
    assert names == {
        *(".lock", "checkpoints", "uncertainty.json", "config.yaml", "learning_curve.png"),
        *("metrics.csv", "run.json", "summary.json", "test_predictions.csv"),
        *("test_predictions.png", "validation_predictions.csv"),
    }
    kept = {path.name for path in (run.directory / "checkpoints").iterdir()}
    assert kept == {"best.ckpt", "last.ckpt"}
    assert (run.directory / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    header = (run.directory / "metrics.csv").read_text().splitlines()[0].split(",")
    assert {"step", "train_loss_step", "validation_mae", "test_mae"} <= set(header)


def test_result_and_final_table(run: Run) -> None:
    result = summary(run.directory)
    assert result["dataset"] == "sample"
    assert result["norm"] == "bn+ln"
    assert result["steps"] == 4
    assert result["graphs_per_second"] > 0
    assert result["checkpoint"] == str(run.directory / "checkpoints" / "best.ckpt")
    assert f"Graphormer, bn+ln  {result['test_mae']:#.4g}" in run.out
    assert f"{' ' * 21}RMSE {result['test_rmse']:#.4g}, R2 {result['test_r2']:#.4g}" in run.out
    assert f"{result['parameters']:,} parameters" in run.out
    assert f"checkpoint  {result['checkpoint']}" in run.out
    assert f'python predict.py {run.directory} "CCO"' in run.out


def test_run_can_be_accounted_for_without_this_code(run: Run) -> None:
    assert (run.directory / "summary.json").read_text().count("\n") == 1
    result = summary(run.directory)
    record = json.loads((run.directory / "run.json").read_text())
    assert record["dataset_fingerprint"] == result["dataset_fingerprint"]
    assert record["seed"] == result["seed"] == 0
    assert record["molecules"] == {"train": 800, "validation": 100, "test": 100}
    assert record["parameters"] == result["parameters"]
    assert (record["metric"], record["selected_on"]) == ("mae", "validation_mae")
    assert (record["planned_steps"], record["unit"], record["data_note"]) == (4, "", "")
    (session,) = record["sessions"]
    assert (session["from_step"], session["to_step"], session["end"]) == (0, 4, "trained")
    assert session["started"] <= session["ended"]
    assert session["packages"]["torch"] == version("torch")
    assert session["machine"]["compiled_kernels"] is (library() is not None)
    # The summary has tenths of a second, which so short a training may not take.
    measured = throughput_of(run.directory)
    assert measured["graphs"] == pytest.approx(4 * 62, abs=8)
    assert 0 < measured["seconds"] < result["seconds"] + 0.1
    assert result["training_seconds"] == round(measured["seconds"], 1)
    assert result["graphs_per_second"] == round(measured["graphs"] / measured["seconds"], 1)


def test_nothing_else_is_printed(run: Run) -> None:
    # One line of progress; no advert, no warning.
    assert run.warnings == []
    lines = run.err.strip().splitlines()
    assert len(lines) <= 3, run.err
    assert all("step" in line and "graphs/s" in line for line in lines), run.err
    for word in ("Tip", "litlogger", "GPU available", "Warning", "💡"):
        assert word not in run.out + run.err


def test_saved_configuration_repeats_the_run_elsewhere(run: Run, capsys) -> None:
    # The same --output is in it: the earlier run is kept, the new one is numbered.
    before = summary(run.directory)
    assert main(["fit", "-c", str(run.directory / "config.yaml")]) == 0
    again = run.directory.with_name("run-2")
    assert summary(run.directory) == before
    assert summary(again)["test_mae"] == before["test_mae"]
    said = capsys.readouterr().out
    assert str(again) in said
    assert f"{run.directory} is taken, and stays as it is\n" in said  # nothing is left to continue


@pytest.mark.parametrize(
    ("verb", "where", "options", "name"),
    [
        ("validate", "", "", "best_validation_mae"),
        ("test", "", "", "test_mae"),
        # Batch size and seed may differ.
        ("test", "checkpoints/best.ckpt", "--data.batch_size=50 --seed_everything=5", "test_mae"),
    ],
)
def test_evaluating_reproduces_the_number_of_the_fit(verb, where, options, name, run, capsys):
    arguments = [str(run.directory / where), "--data.root", str(run.root)]
    assert main([verb, *arguments, *options.split()]) == 0
    captured = capsys.readouterr()
    shown = f"{name.removeprefix('best_')}       {summary(run.directory)[name]:.6g}\n"
    assert shown in captured.out
    assert captured.err == ""
    assert "--model.norm" in refused(capsys, main, verb, run.directory, "--model.norm=sharenorm")


def test_predictions_of_an_evaluation_are_kept_by_molecule(run, tmp_path, monkeypatch, capsys):
    arguments = [run.directory, "--data.root", run.root, "--predictions"]
    file = tmp_path / "new" / "test.csv"
    assert main(["test", *map(str, arguments), str(file)]) == 0
    rows, stored = read_csv(file), read_csv(run.directory / "test_predictions.csv")
    assert len(rows) == 100
    assert rows == [{name: row[name] for name in rows[0]} for row in stored]  # it has intervals
    monkeypatch.setattr("graphormer_sepnorm.pipeline.evaluation.make_evaluator", None)
    part = ["--trainer.limit_test_batches=2", "--data.eval_batch_size=10"]
    line = refused(capsys, main, "test", *arguments, tmp_path / "a.csv", *part)
    assert "--trainer.limit_" in line
    assert "--predictions" in refused(capsys, main, "test", *arguments, tmp_path)
    assert "unknown option --predictions" in refused(capsys, main, "fit", "--predictions", file)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"dataset": "mine"}, "was trained on mine, which is not among {names}"),
        ({"data_options": {"color": "red"}}, "unknown option data.color"),
    ],
)
def test_checkpoint_of_unknown_data_is_one_line(facts: dict, said: str, tmp_path, capsys) -> None:
    checkpoint = make_checkpoint()
    checkpoint[KEY] |= facts
    torch.save(checkpoint, tmp_path / "a.ckpt")
    said = said.format(names=", ".join(DATASETS))
    assert said in refused(capsys, main, "test", tmp_path / "a.ckpt")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        *(("fot", "'fit'"), ("--verison", "'--version'")),
        ("fit -c zink_subset.yaml", "'zinc_subset'"),
        ("fit -c", "--config"),
        ("fit --ensemble 2 --seed_everything 4294967295", "it must be 4294967294 or less"),
        ("fit esol", "esol"),
        ("fit --data.molecules a.smi", "--data.molecules"),
        ("fit --model.width 8", "--data.table"),
        ("fit -c table --model.width 8 --data.table x.csv", "--model.width"),
        ("fit -c quickstart --trainer.accelerator mps", "mps is not supported: use cpu"),
        ("fit -c quickstart --trainer.accelerator cpu --trainer.devices -1", "--trainer.devices"),
        ("test", "RUN"),
    ],
)
def test_mistakes_are_one_line_and_status_2(arguments: str, expected: str, capsys) -> None:
    assert expected in refused(capsys, main, *arguments.split())


@pytest.mark.parametrize(("verb", "file"), [("fit", "fit"), ("crossvalidate", "compare")])
@pytest.mark.parametrize(
    ("text", "named"), [("smiles,y\n,1\n,2\n", "column 'smiles'"), ("X\n1\n2\n", "it has X")]
)
def test_a_table_without_smiles_is_refused_at_the_first_look(
    verb: str, file: str, text: str, named: str, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(f"graphormer_sepnorm.cli.{file}.silence_known_noise", None)
    (tmp_path / "a.csv").write_text(text)
    words = [f"--data.table={tmp_path / 'a.csv'}", f"--output={tmp_path / 'out'}"]
    assert named in refused(capsys, main, verb, "-c", "table", *words)


def test_a_header_alone_is_no_table_without_smiles(tmp_path, capsys):
    (tmp_path / "a.csv").write_text("smiles,y\n")
    words = ["-c", "table", "--data.table", tmp_path / "a.csv", "--data.target_columns", "y"]
    assert "has no rows" in refused(capsys, main, "fit", *words, "--output", tmp_path / "out")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("model: [\n", "not a YAML file (while"),
        ("- 3\n", "expected sections such as data:"),
        ("model:\n  layerss: 3\n", "--model.layers"),
    ],
)
def test_damaged_configuration(content: str, expected: str, tmp_path: Path, capsys) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(content)
    assert expected in refused(capsys, main, "fit", "-c", path)


def test_missing_data_is_one_line(tmp_path: Path, capsys, network_attempts: list[str]) -> None:
    line = refused(capsys, main, "fit", "-c", "zinc_subset", "--data.root", tmp_path)
    assert "train.pickle" in line
    assert str(tmp_path) in line
    assert network_attempts  # it asked for a download, and there was none


def test_debug_lets_the_error_through() -> None:
    with pytest.raises(ConfigError, match="unknown norm 'sepnrom'"):
        main(["fit", "--model.norm", "sepnrom", "--debug"])


def test_ctrl_c_leaves_a_loadable_checkpoint_and_says_how_to_go_on(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ctrl_c(self: object, trainer: Trainer, *arguments: object) -> None:
        if trainer.global_step == 4:  # in the second epoch; the step after it is finished
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(TrainingProgress, "on_train_batch_end", ctrl_c)
    options = [option for option in TINY if "max_" not in option]
    options += ["--data.root", str(run.root), "--output", str(tmp_path / "stopped")]
    options += ["--trainer.limit_train_batches=3", "--trainer.limit_val_batches=1"]
    assert main(["fit", "-c", "quickstart", *options]) == 130
    last = tmp_path / "stopped" / "checkpoints" / "last.ckpt"
    message = capsys.readouterr().err.splitlines()[-1]
    assert message.startswith("train.py: interrupted at step 5; the checkpoint of step 5 is in ")
    assert f"{last}; continue with: python train.py fit --resume {tmp_path / 'stopped'}" in message
    assert read_checkpoint(last)["global_step"] == 5
    assert (tmp_path / "stopped" / "learning_curve.png").is_file()
