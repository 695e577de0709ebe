"""Loggers and callbacks of the user's own; and classes that come with somebody else's run."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
import yaml
from tiny_run import TINY, read_csv, refused, sample_table

from graphormer_sepnorm.cli.foreign_code import known_classes_only
from graphormer_sepnorm.cli.train import main
from graphormer_sepnorm.compare.arms import Arm
from graphormer_sepnorm.compare.comparison import Comparison
from graphormer_sepnorm.errors import ConfigError

HERE = Path(__file__).parent
LAMBDA = "lightning.pytorch.callbacks.LambdaCallback"


def options(folder: Path) -> list[str]:
    table = folder / "mine.csv"
    if not table.is_file():
        sample_table(table, 80)
    return [
        "-c",
        "table_regression",
        *TINY,
        "--data.table",
        str(table),
        "--data.split",
        "random",
        "--data.root",
        str(folder / "root"),
        "--data.batch_size",
        "16",
        "--trainer.enable_progress_bar",
        "false",
    ]


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a logger of the user's own."""
    folder = tmp_path_factory.mktemp("own")
    logger = ["--trainer.logger", "own_code.OwnLogger", "--trainer.logger.path"]
    own = [*logger, str(folder / "own.jsonl"), "--output", str(folder / "run")]
    assert main(["fit", *options(folder), *own]) == 0
    return folder


@pytest.fixture
def run(logged: Path, tmp_path: Path) -> Path:
    """A copy of it, as it comes from somebody else."""
    return shutil.copytree(logged / "run", tmp_path / "run")


@pytest.fixture
def own_code_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has not imported it."""
    monkeypatch.delitem(sys.modules, "own_code", raising=False)


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_beside_a_logger_of_the_users_own_ours_stay(logged: Path) -> None:
    metrics = read_csv(logged / "run" / "metrics.csv")
    ours = [float(row["train_loss_step"]) for row in metrics if row["train_loss_step"]]
    theirs = [
        row["train_loss_step"] for row in rows(logged / "own.jsonl") if "train_loss_step" in row
    ]
    assert len(ours) == 4
    assert ours == pytest.approx(theirs)
    assert list((logged / "run" / "tensorboard").glob("events.*"))
    assert not list((logged / "run").rglob("hparams.yaml"))


def test_loggers_are_given_the_options(logged: Path) -> None:
    given = next(row["options"] for row in rows(logged / "own.jsonl") if "options" in row)
    assert given["model"]["layers"] == 2
    assert given["data"]["batch_size"] == 16
    assert given["trainer"]["max_steps"] == 4
    assert "logger" not in given["trainer"]  # it can hold a password


def test_a_run_with_a_logger_of_its_own_is_resumed(
    logged: Path, run: Path, own_code_unknown: None, capsys
) -> None:
    words = ["fit", "--resume", str(run), "--trainer.max_steps", "6"]
    error = refused(capsys, main, *words)
    assert f"{run}/config.yaml names own_code.OwnLogger (trainer.logger)" in error
    assert "--allow-code" in error
    assert "own_code" not in sys.modules
    before = len(rows(logged / "own.jsonl"))
    assert main([*words, "--allow-code"]) == 0
    assert any(row.get("step") == 5 for row in rows(logged / "own.jsonl")[before:])
    steps = [int(row["step"]) for row in read_csv(run / "metrics.csv") if row["train_loss_step"]]
    assert steps == [0, 1, 2, 3, 4, 5]
    assert "allow" not in (run / "config.yaml").read_text()  # or it would allow itself


def test_a_package_that_a_logger_needs_is_named(tmp_path: Path, monkeypatch, capsys) -> None:
    from lightning.pytorch.loggers import wandb

    class Lacking:
        """As it is where wandb is not installed."""

        def __bool__(self) -> bool:
            return False

        def __str__(self) -> str:
            hint = "HINT: Try running `pip install -U 'wandb>=0.12.10'`"
            return f"Requirement 'wandb>=0.12.10' not met. {hint}"

    monkeypatch.setattr(wandb, "_WANDB_AVAILABLE", Lacking())
    words = ["fit", *options(tmp_path), "--trainer.logger", "WandbLogger"]
    assert refused(capsys, main, *words, "--output", tmp_path / "run") == (
        "train.py: WandbLogger needs the package wandb, which is not installed: "
        "pip install 'wandb>=0.12.10'\n"
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("callbacks", [{"class_path": "own_code.OwnCallback"}]),
        ("callbacks", {"class_path": "own_code.OwnCallback"}),
        ("callbacks", ["own_code.OwnCallback"]),
        ("callbacks", "callbacks.yaml"),
        ("callbacks", ["callback.yaml"]),
        (
            "callbacks",
            [{"class_path": LAMBDA, "init_args": {"on_fit_start": "own_code.own_function"}}],
        ),
        (
            "callbacks",
            [
                {
                    "class_path": LAMBDA,
                    "init_args": {"on_fit_start": "lightning.pytorch.cli.os.system"},
                }
            ],
        ),
        ("logger", {"class_path": "own_code.OwnLogger", "init_args": {"path": "x"}}),
        ("logger", [{"class_path": "own_code.OwnLogger", "init_args": {"path": "x"}}]),
        ("plugins", [{"class_path": "own_code.OwnCallback"}]),
        ("profiler", {"class_path": "own_code.OwnCallback"}),
        ("accelerator", {"class_path": "own_code.OwnCallback"}),
        (
            "strategy",
            {
                "class_path": "lightning.pytorch.strategies.DDPStrategy",
                "init_args": {"checkpoint_io": {"class_path": "own_code.OwnCallback"}},
            },
        ),
    ],
)
def test_classes_that_come_with_a_run_are_not_imported(
    option: str, value: object, run: Path, own_code_unknown: None, capsys
) -> None:
    (run / "callback.yaml").write_text("class_path: own_code.OwnCallback\n")
    (run / "callbacks.yaml").write_text("- class_path: own_code.OwnCallback\n")
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["trainer"] |= {"logger": None, option: value}
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    error = refused(capsys, main, "fit", "--resume", run)
    named = "own_code.Own" if "os.system" not in str(value) else "posix.system"
    assert f"{run}/config.yaml names {named}"[:-8] in error
    assert f"(trainer.{option})" in error
    assert "--allow-code" in error
    assert "own_code" not in sys.modules


def test_classes_of_lightning_pass() -> None:
    from graphormer_sepnorm.cli.fit_check import FitOptions

    early = {
        "class_path": "lightning.pytorch.callbacks.LearningRateMonitor",
        "init_args": {"logging_interval": "step"},
    }
    word = f"--trainer.callbacks={json.dumps([early])}"
    with known_classes_only("here"):
        (made,) = FitOptions([word]).configuration()["trainer"]["callbacks"]
    assert made["class_path"] == early["class_path"]
    # Afterwards options mean what they meant.
    FitOptions(["--trainer.callbacks+=own_code.OwnCallback"])
    with known_classes_only("here", allowed=True):
        FitOptions(["--trainer.callbacks+=own_code.OwnCallback"])
    with pytest.raises(ConfigError, match="--allow-code"), known_classes_only("here"):
        FitOptions(["--trainer.callbacks+=own_code.OwnCallback"])


def test_one_callback_and_one_plugin_need_no_list(tmp_path: Path) -> None:
    words = ["--trainer.callbacks=LearningRateMonitor", "--trainer.plugins=LightningEnvironment"]
    assert main(["fit", *options(tmp_path), *words, "--output", str(tmp_path / "run")]) == 0
    assert any("lr-" in column for column in read_csv(tmp_path / "run" / "metrics.csv")[0])


def test_test_reads_no_configuration(logged: Path, run: Path, own_code_unknown: None) -> None:
    assert "own_code" in (run / "config.yaml").read_text()
    assert main(["test", "--ckpt_path", str(run), "--data.root", str(logged / "root")]) == 0
    assert "own_code" not in sys.modules


@pytest.mark.parametrize("where", ["base", "arm", "file"])
def test_classes_that_come_with_a_comparison(
    where: str, tmp_path: Path, own_code_unknown: None, capsys
) -> None:
    own = "--trainer.callbacks=[{class_path: own_code.OwnCallback}]"
    file = tmp_path / "theirs.yaml"
    file.write_text("trainer:\n  callbacks:\n  - class_path: own_code.OwnCallback\n")
    words = {"base": [own], "arm": [], "file": ["-c", str(file)]}[where]
    arm = {own.partition("=")[0][2:]: own.partition("=")[2]} if where == "arm" else {}
    Comparison(
        base_options=tuple([*options(tmp_path), *words]),
        arms=(Arm("one", {"model.norm": "sepnorm", **arm}), Arm("two", {"model.norm": "bn+bn"})),
        seeds=(0,),
        baseline="one",
    ).write(tmp_path)
    error = refused(capsys, main, "compare", "-o", tmp_path)
    assert "compare.yaml names own_code.OwnCallback (trainer.callbacks)" in error
    assert "--allow-code" in error
    assert "own_code" not in sys.modules
    assert not (tmp_path / "one").exists()
