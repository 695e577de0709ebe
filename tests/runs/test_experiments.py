"""From run directories to experiments."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from experiments import DEFAULTS, FINISHED, session, write_run

from graphormer_sepnorm.cli.results import arm_of
from graphormer_sepnorm.compare.arms import Arm
from graphormer_sepnorm.compare.comparison import Comparison
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.runs.experiments import read_experiments
from graphormer_sepnorm.runs.records import Experiment, merge


def read(*directories: Path) -> list[Experiment]:
    return list(merge(read_experiments(directories, DEFAULTS, arm_of)).values())


def test_finished_run(tmp_path: Path) -> None:
    (one,) = read(write_run(tmp_path / "a", summary=FINISHED))
    assert one.name == "mine · model.norm=shared-ln, model.width=64"
    assert one.options == {
        "model.norm": "shared-ln",
        "model.width": 64,
        "trainer.max_steps": 1000,
    }
    assert one.commands == (
        "python train.py fit -c configs/mine.yaml --model.width 64 --data.root DIR "
        "--model.norm sharenorm --seed_everything SEED",
    )
    (run,) = one.runs
    assert (run.finished, run.steps, run.interruptions) == (True, 1000, 0)
    assert (run.validation, run.test) == (0.31, 0.42)
    assert (run.device, run.torch) == ("CPU, 2 threads", "2.13.0")
    assert one.molecules == (100, 10, 10)


def test_words_that_are_no_difference_are_in_no_command(tmp_path: Path) -> None:
    command = ["train.py", "fit", "--debug", "-c", "configs/mine.yaml", "--allow-code"]
    command += ["--trainer.logger.init_args.password=x", "--trainer.logger+=Y", "--allow_code"]
    command += ["--model.width", "64", "-o", "/home/me/runs/a"]
    (one,) = read(write_run(tmp_path / "a", session(command=command), summary=FINISHED))
    assert one.name.startswith("mine · ")
    assert one.commands == (
        "python train.py fit -c configs/mine.yaml --model.width 64 --seed_everything SEED",
    )


def test_loggers_of_their_own_are_no_difference(tmp_path: Path) -> None:
    for seed in (0, 1):
        logger = {"class_path": "CSVLogger", "init_args": {"name": f"seed{seed}"}}
        write_run(tmp_path / f"{seed}", seed=seed, trainer={"logger": logger}, summary=FINISHED)
    (one,) = read(tmp_path)
    assert [run.seed for run in one.runs] == [0, 1]


def test_options_that_change_no_result_are_no_difference(tmp_path: Path) -> None:
    """As of the members of an ensemble that have folds, in other places, on other machines."""
    for seed in (0, 1):
        file = write_run(tmp_path / f"{seed}", seed=seed, summary=FINISHED) / "config.yaml"
        options = yaml.safe_load(file.read_text())
        options |= {"checkpoint_minutes": 5 + seed, "baselines": seed == 0, "ensemble": 2 + seed}
        options |= {"ckpt_path": f"/home/{seed}/best.ckpt", "resume": f"/home/{seed}"}
        options["data"] |= {"member_fold": seed, "num_workers": seed, "table": f"/home/{seed}.csv"}
        options["trainer"] |= {"log_every_n_steps": 1 + seed, "accelerator": ["cpu", "gpu"][seed]}
        file.write_text(yaml.safe_dump(options))
    (one,) = read(tmp_path)
    assert [run.seed for run in one.runs] == [0, 1]
    assert one.options["ckpt_path"] == "best.ckpt"


@pytest.mark.parametrize(("processes", "said"), [(1, "H100"), (4, "4 x H100")])
def test_gpus_are_counted(processes: int, said: str, tmp_path: Path) -> None:
    machine = {"processor": "CPU", "device": "H100", "threads": 2, "processes": processes}
    (one,) = read(write_run(tmp_path / "a", session(machine=machine), summary=FINISHED))
    assert one.runs[0].device == said


def test_runs_of_a_comparison_are_merged_by_configuration(tmp_path: Path) -> None:
    for arm in ("bn+ln", "bn+bn"):
        for seed in (0, 1):
            place = tmp_path / "compare" / arm / f"seed{seed}"
            write_run(place, seed=seed, model={"norm": arm}, summary=FINISHED)
    experiments = read(tmp_path)
    assert [[run.seed for run in one.runs] for one in experiments] == [[0, 1], [0, 1]]
    assert {one.options.get("model.norm") for one in experiments} == {"bn+bn", None}


def test_an_arm_of_several_options_has_its_name(tmp_path: Path) -> None:
    """One of a single option is named by it: the name says no more."""
    several = Arm("narrow", {"model.width": "64", "model.norm": "sharenorm"})
    arms = (several, Arm("short", {"model.width": "64"}))
    Comparison(("-c", "configs/mine.yaml"), arms, (0,), "narrow").write(tmp_path)
    for arm in arms:
        write_run(tmp_path / arm.name / "seed0", summary=FINISHED, model={"norm": "bn+bn"})
    names = [read(tmp_path / arm.name)[0].name for arm in arms]
    assert names == ["mine · narrow", "mine · model.norm=shared-ln, model.width=64"]
    (tmp_path / "compare.yaml").write_text("of: another version")
    assert [read(tmp_path / arm.name)[0].name for arm in arms] == [names[1]] * 2


def test_names_of_a_norm_and_options_that_change_nothing_are_one_experiment(
    tmp_path: Path,
) -> None:
    write_run(tmp_path / "a", summary=FINISHED, model={"norm": "sepnorm"})
    write_run(tmp_path / "b", summary=FINISHED, seed=1, model={"norm": "bn+ln", "seed": 1})
    # A run that is older than an option was made with its default.
    write_run(tmp_path / "c", summary=FINISHED, seed=2, model={"norm": "bn+ln", "new": None})
    (one,) = read(tmp_path)
    assert [run.seed for run in one.runs] == [0, 1, 2]


def test_interrupted_run(tmp_path: Path) -> None:
    rest = {"command": ["train.py", "fit", "--resume", "/home/me/runs/a"], "from_step": 300}
    sessions = [
        session(end=None, to_step=300, seconds=100.0),
        session(end="interrupted", to_step=700, seconds=50.0, **rest),
    ]
    directory = write_run(tmp_path / "a", *sessions)
    (directory / "metrics.csv").write_text(
        "step,train_loss,validation_mae\n99,0.5,\n99,,0.6\n199,,0.4\n299,,0.5\n399,,1e"
    )  # the last row is being written
    (one,) = read(directory)
    (run,) = one.runs
    assert (run.finished, run.steps, run.planned_steps) == (False, 700, 1000)
    assert (run.validation, run.test) == (0.4, None)
    assert (run.seconds, run.interruptions) == (150.0, 2)
    assert len(one.commands) == 1


def test_run_that_was_resumed_with_other_options_says_so(tmp_path: Path) -> None:
    lower = ["train.py", "fit", "--resume", "/home/me/runs/a", "--model.learning_rate", "1e-5"]
    sessions = [session(end="interrupted", to_step=500), session(command=lower, from_step=500)]
    (one,) = read(write_run(tmp_path / "a", *sessions, summary=FINISHED))
    assert one.name.endswith("model.learning_rate=1e-5")
    assert one.commands[1] == "python train.py fit --resume RUN --model.learning_rate 1e-5"


def test_finished_run_that_is_made_longer_is_unfinished(tmp_path: Path) -> None:
    sessions = [session(), session(end=None, from_step=1000, to_step=1500)]
    (one,) = read(write_run(tmp_path / "a", *sessions, summary=FINISHED))
    (run,) = one.runs
    assert (run.finished, run.steps, run.validation, run.test) == (False, 1500, None, None)


def test_selection_on_the_loss(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "a", session(end=None), selected_on="validation_loss")
    (directory / "metrics.csv").write_text(
        "validation_loss,validation_mae\n0.3,0.5\n0.2,0.6\n0.4,0.4\n"
    )
    assert read(directory)[0].runs[0].validation == 0.6


def test_end_of_training_in_place_of_a_selection(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "a", session(end=None), selected_on="step")
    (directory / "metrics.csv").write_text(
        "step,validation_mae,train_loss_step\n9,0.3,\n19,0.5,\n24,,0.1\n"
    )
    (one,) = read(directory)
    assert one.runs[0].validation == 0.5


def test_aurocs_best_is_the_highest(tmp_path: Path) -> None:
    directory = write_run(
        tmp_path / "a", session(end=None), metric="auroc", selected_on="validation_auroc"
    )
    (directory / "metrics.csv").write_text("validation_auroc\nnan\n0.3\n0.7\n0.5\n")
    assert read(directory)[0].runs[0].validation == 0.7


def test_a_metric_that_the_validation_does_not_define_is_not_known(tmp_path: Path) -> None:
    """Its validation split lacks a class, so that the loss decides."""
    directory = write_run(
        tmp_path / "a", session(end=None), metric="auroc", selected_on="validation_loss"
    )
    (directory / "metrics.csv").write_text(
        "validation_auroc,validation_loss\nnan,0.3\nnan,0.2\nnan,0.4\n"
    )
    assert read(directory)[0].runs[0].validation is None


def test_run_without_a_command_is_described_by_its_options(tmp_path: Path) -> None:
    (one,) = read(write_run(tmp_path / "a", session(command=["pytest", "-q"])))
    assert one.name.startswith("zinc-subset · model.norm=shared-ln")
    assert "fit --data.dataset zinc-subset --model.norm shared-ln" in one.commands[0]


def test_record_of_an_older_version_has_gaps(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "a", session(packages={}, machine=None), summary=FINISHED)
    text = (directory / "run.json").read_text()
    for name in ("format_version", "metric", "planned_steps", "parameters", "data_note"):
        text = text.replace(f'"{name}"', '"_"')
    (directory / "run.json").write_text(text)
    (one,) = read(directory)
    (run,) = one.runs
    assert (one.metric, one.selected_on, one.data_note) == ("mae", "validation_mae", None)
    assert (run.parameters, run.planned_steps, run.device, run.torch) == (7, None, None, None)


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("run.json", "{", "run.json is damaged"),
        ("run.json", '{"format_version": 2}', "another version of this program"),
        ("run.json", '{"metric": "mae"}', "another version of this program"),
        ("summary.json", "{", "summary.json is damaged"),
        ("config.yaml", "a: [", "config.yaml cannot be read"),
        ("config.yaml", "a", "config.yaml is damaged"),
        ("config.yaml", None, "config.yaml cannot be read"),
    ],
)
def test_damaged_runs_are_named_in_one_line(
    tmp_path: Path, file: str, text: str | None, said: str
) -> None:
    directory = write_run(tmp_path / "a", summary=FINISHED)
    if text is None:
        (directory / file).unlink()
    else:
        (directory / file).write_text(text)
    with pytest.raises(DataError, match=said) as caught:
        read(tmp_path)
    assert str(directory) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "said"), [("", "no run has begun"), ("no", "no directory")])
def test_directory_without_a_run(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        read(tmp_path / name)
