"""A run that is killed and continued is the run that was never killed, bit by bit."""

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import yaml
from reference.processes import finish
from tiny_run import (
    TINY,
    on_table,
    read_csv,
    refused,
    sample_rows,
    sample_table,
    start,
    stop,
    summary,
)

from graphormer_sepnorm.cli.predict import main as predict
from graphormer_sepnorm.cli.train import main
from graphormer_sepnorm.inference.checkpoint import read_checkpoint
from graphormer_sepnorm.training import checkpoints as saving

STEPS = 42
# What a checkpoint says about training itself.
PARTS = ("state_dict", "trained_weights", "optimizer_states", "lr_schedulers")
PARTS += ("global_step", "epoch")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sample_table(tmp_path_factory.mktemp("resume") / "mine.csv", 140)


def options(table: Path, norm: str) -> list[str]:
    own = (
        f"--data.split random --data.batch_size 16 --trainer.max_steps {STEPS} "
        f"--model.norm {norm} --model.dropout 0.2 --checkpoint_minutes 0.0001 "
        "--trainer.enable_progress_bar false --early_stopping 20 --ema_decay 0.9"
    )
    return [*on_table(table), *own.split()]


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return one == other


def assert_same_run(straight: Path, killed: Path) -> None:
    for name in ("last.ckpt", "best.ckpt"):
        ours = read_checkpoint(straight / "checkpoints" / name)
        theirs = read_checkpoint(killed / "checkpoints" / name)
        for part in PARTS:
            assert equal(ours[part], theirs[part]), (name, part)
    assert (straight / "metrics.csv").read_text() == (killed / "metrics.csv").read_text()
    assert len(read_csv(killed / "metrics.csv")) > STEPS
    first, second = summary(straight), summary(killed)
    assert first["test_mae"] == second["test_mae"]
    assert first["steps"] == second["steps"] == STEPS


# All arms: RESUME_NORMS=shared-ln,shared-bn,bn+ln,bn+bn,ln+ln,ln+bn; forty seconds each.
@pytest.mark.slow
@pytest.mark.parametrize("norm", os.environ.get("RESUME_NORMS", "bn+ln").split(","))
def test_killed_run_continues_bit_by_bit(norm: str, table: Path, tmp_path: Path) -> None:
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    # A new Python, which imports everything: that is silent too.
    first = start("fit", *options(table, norm), "--output", str(straight), process=subprocess.Popen)
    status, error = finish(first)
    assert (status, error) == (0, ""), error
    process = start("fit", *options(table, norm), "--output", str(killed))
    generator = random.Random(norm)
    at = []
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
        place = (at[-1] if at else 0) + generator.randint(1, 10)
        at.append(stop(process, killed, place, number))
        status, error = finish(process)
        if number == signal.SIGKILL:
            assert status == -signal.SIGKILL
        else:
            assert status == 130
            assert f"continue with: python train.py fit --resume {killed}" in error
        process = start("fit", "--resume", str(killed))
    status, error = finish(process)
    assert (status, error) == (0, ""), error
    print(f"{norm}: stopped at steps {at} of {STEPS}")
    assert at[0] < at[2] < STEPS
    assert_same_run(straight, killed)
    sessions = json.loads((killed / "run.json").read_text())["sessions"]
    assert [session["end"] for session in sessions] == [None, "interrupted", None, "trained"]
    assert sessions[0]["from_step"] == 0
    assert sessions[-1]["to_step"] == STEPS
    for before, after in itertools.pairwise(sessions):
        # The record is written a moment before the checkpoint, and the kill may fall between.
        assert 0 < before["to_step"] <= after["from_step"] + 1 < STEPS


@pytest.fixture(scope="module")
def finished(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("finished") / "run"
    assert main(["fit", *options(table, "bn+ln"), "--output", str(run)]) == 0
    return run


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run, which a test may change."""
    return shutil.copytree(finished, tmp_path / "run")


def no_room(checkpoint: object, file: Any) -> None:
    """What torch.save does on a full disk."""
    file.write(b"half")
    try:
        raise OSError(28, "No space left on device")
    except OSError:
        raise RuntimeError("[enforce fail at inline_container.cc:672] .")  # noqa: B904


def test_damaged_last_checkpoint_falls_back_to_the_one_before(finished, run, capsys, caplog):
    before = read_checkpoint(run / "checkpoints" / "previous.ckpt")["global_step"]
    assert 0 < before < STEPS
    last = run / "checkpoints" / "last.ckpt"
    content = bytearray(last.read_bytes())
    content[len(content) // 2] ^= 1  # torch itself does not notice one bit
    last.write_bytes(content)
    kept = (run / "checkpoints" / "previous.ckpt").read_bytes()
    full = pytest.MonkeyPatch()
    full.setattr(saving.torch, "save", no_room)
    assert main(["fit", "--resume", str(run)]) == 2
    full.undo()
    # The only whole one is still there, and the next one saved will not put the other in its place.
    assert (run / "checkpoints" / "previous.ckpt").read_bytes() == kept
    assert not last.exists()
    assert (run / "checkpoints" / "damaged-last.ckpt").read_bytes() == content
    caplog.clear()
    last.write_bytes(content)
    assert main(["fit", "--resume", str(run)]) == 0
    assert "last.ckpt" in caplog.text
    assert "going on from" in caplog.text
    assert f"continued from step {before:,}" in capsys.readouterr().out
    assert_same_run(finished, run)


def test_a_run_that_has_not_ended_predicts_and_says_so(run: Path, capsys) -> None:
    assert predict([str(run), "CCO"]) == 0
    assert "has not ended" not in capsys.readouterr().err
    (run / "summary.json").unlink()
    assert predict([str(run), "CCO"]) == 0
    said = capsys.readouterr().err
    assert f"{run} has not ended: intervals and the trees of a blend come last" in said
    assert f"fit --resume {run} continues it" in said


def test_run_is_extended_from_another_folder(table: Path, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(table.parent)
    words = options(table, "bn+ln")
    words[words.index(str(table))] = table.name
    words[words.index("--trainer.max_steps") + 1] = "6"
    words += ["--data.target_columns", "all"]  # not in the brackets of a list
    assert main(["fit", *words, "--output", str(tmp_path / "run")]) == 0
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "--resume", "run", "--trainer.max_steps", "9"]) == 0
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config["trainer"]["max_steps"] == 9
    assert config["data"]["table"] == str(table)
    (tmp_path / "run" / "summary.json").unlink()
    moved = shutil.move(table, tmp_path / "moved.csv")
    try:
        assert "mine.csv" in refused(capsys, main, "fit", "--resume", "run")
        longer = ["fit", "--resume", "run", "--trainer.max_steps", "10", "--data.table"]
        other = sample_table(tmp_path / "other.csv", 139)
        assert "other data" in refused(capsys, main, *longer, other)
        assert main([*longer, str(moved)]) == 0
    finally:
        shutil.move(moved, table)
    assert summary(tmp_path / "run")["steps"] == 10


def test_run_without_a_whole_checkpoint(finished: Path, run: Path, capsys) -> None:
    for name in ("last.ckpt", "previous.ckpt"):
        (run / "checkpoints" / name).write_bytes(b"damaged")
    error = refused(capsys, main, "fit", "--resume", run)
    assert "there is no whole one before it" in error
    shutil.rmtree(run / "checkpoints")
    # What the earlier attempt logged has columns that come later, and is not counted twice.
    assert "validation_mae" in (run / "metrics.csv").read_text()
    for name in ("splits.csv", "invalid_rows.csv"):  # of a table that was mended since
        (run / name).write_text("row\n")
    assert main(["fit", "--resume", str(run)]) == 0
    assert "from the beginning" in capsys.readouterr().out
    assert (run / "splits.csv").read_text() == (finished / "splits.csv").read_text()
    assert not (run / "invalid_rows.csv").exists()
    assert_same_run(finished, run)


def test_learning_rate_can_be_lowered_from_here_on(run: Path) -> None:
    for name in ("summary.json", "checkpoints/last.ckpt"):
        (run / name).unlink()
    before = read_checkpoint(run / "checkpoints" / "previous.ckpt")["global_step"]
    lower = ["--model.learning_rate", "1e-9", "--model.final_learning_rate", "1e-9"]
    assert main(["fit", "--resume", str(run), *lower]) == 0
    assert yaml.safe_load((run / "config.yaml").read_text())["model"]["learning_rate"] == 1e-9
    rows = read_csv(run / "metrics.csv")
    rates = {int(row["step"]): float(row["learning_rate"]) for row in rows if row["learning_rate"]}
    assert all(rate > 1e-6 for step, rate in rates.items() if 0 < step < before)
    assert all(rate < 1.1e-9 for step, rate in rates.items() if step >= before)
    assert max(rates) == STEPS - 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("fit --resume nowhere", "nowhere"),
        ("test --resume {run}", "--resume"),
        ("fit --resume {run} -c quickstart", "-c"),
        ("fit --resume {run} --metric rmse", "--metric"),
        ("fit --resume {run} --ensemble=2", "--ensemble"),
        ("fit --resume {run} -o x", "-o"),
        ("fit --resume={run} --model.layers=5", "--model.layers"),
        ("fit --resume={run} --data.batch_size=8", "--data.batch_size"),
        ("fit --resume={run} --model.eps=0.1", "is finished, and --model.eps acts only on steps"),
        ("fit --resume={run} --trainer.max_epochs=1", "max_epochs"),
        # Lightning's own words.
        ("fit --resume={run} --trainer.strategy=foo", "invalid strategy name"),
        ("fit --resume={run} --trainer.val_check_interval=99999", "must be less than or equal to"),
    ],
)
def test_mistakes_are_one_line(arguments: str, said: str, finished: Path, capsys) -> None:
    config = (finished / "config.yaml").read_text()
    assert said in refused(capsys, main, *arguments.format(run=finished).split(" "))
    assert (finished / "config.yaml").read_text() == config


SAVING = ("training.checkpoints.torch.save", "training.callbacks.MetricsFile.log_metrics")


@pytest.mark.parametrize("what", [*SAVING, "runs.directory.write_json"])
def test_full_disk_is_one_line_and_keeps_the_old_checkpoint(
    what, finished, tmp_path, monkeypatch, capsys
):
    run = shutil.copytree(finished, tmp_path / "my run")
    (run / "checkpoints" / "last.ckpt").unlink()
    kept = (run / "checkpoints" / "previous.ckpt").read_bytes()
    full = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr(f"graphormer_sepnorm.{what}", no_room if "save" in what else full)
    assert refused(capsys, main, "fit", "--resume", run) == (
        f"train.py: there is no room on the disk of {run}: make room and continue with: "
        f"python train.py fit --resume '{run}'\n"
    )
    assert not list((run / "checkpoints").glob(".*partial"))
    if "write_json" not in what:  # which ends a training
        assert (run / "checkpoints" / "previous.ckpt").read_bytes() == kept


def test_signal_after_all_is_done_is_answered_with_the_result(run, monkeypatch, capsys):
    def stop(*_: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("graphormer_sepnorm.pipeline.report.aligned", stop)
    assert main(["fit", "--resume", str(run)]) == 130
    error = capsys.readouterr().err
    assert f"the result is in {run}/summary.json\n" in error
    assert error.count("\n") == 1


def test_a_start_that_fails_late_leaves_nothing(table: Path, tmp_path: Path, capsys) -> None:
    late = ["--trainer.strategy", "foo", "--output", str(tmp_path / "runs" / "a")]
    assert main(["fit", *options(table, "bn+ln"), *late]) == 2
    captured = capsys.readouterr()
    assert f"run    {tmp_path / 'runs' / 'a'}" in captured.out  # it was there
    assert captured.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_pretraining_goes_on_from_another_folder(tmp_path: Path, monkeypatch) -> None:
    smiles = [row[0] for row in sample_rows(120)]
    (tmp_path / "some.smi").write_text("\n".join(smiles) + "\n")
    monkeypatch.chdir(tmp_path)
    tiny = [word for word in TINY if not word.startswith("--baselines")]
    words = ["pretrain", "-c", "pretrain", *tiny, "--data.molecules=some.smi", "--data.root=root"]
    assert main([*words, "--model.walk_steps=4", "--output=run"]) == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert main(["fit", "--resume", str(tmp_path / "run"), "--trainer.max_steps=6"]) == 0
    assert summary(tmp_path / "run")["steps"] == 6
