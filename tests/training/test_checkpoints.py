"""What a checkpoint holds, which are kept, and that a run goes on from one as if never stopped."""

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import EarlyStopping
from tiny_graphs import STILL, Noted, StopAfter

from graphormer_sepnorm.datasets.splits import DatasetSplits
from graphormer_sepnorm.errors import CheckpointError
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.inference.checkpoint import KEY, model_weights, read_checkpoint
from graphormer_sepnorm.pages.learning_curve import metrics_by_epoch
from graphormer_sepnorm.runs.directory import RunDirectory
from graphormer_sepnorm.training.averaging import AveragedWeights, batch_norms
from graphormer_sepnorm.training.callbacks import LogTraining, MetricsFile
from graphormer_sepnorm.training.checkpoints import ValidateAtTheEnd, checkpoint_callbacks
from graphormer_sepnorm.training.evaluation import check_same_data
from graphormer_sepnorm.training.module import GraphormerModule


@pytest.fixture
def saved(tmp_path: Path, train: Callable) -> Callable[..., Path]:
    """Train an epoch of five steps, and return its checkpoint."""

    def save(**options: Any) -> Path:
        _, _, trainer = train(**{"max_epochs": 1, **options})
        trainer.save_checkpoint(tmp_path / "a.ckpt")
        return tmp_path / "a.ckpt"

    return save


def test_checkpoint_knows_its_parts_and_is_plain(tmp_path: Path, train: Callable) -> None:
    module, data, trainer = train(model={"norm": "bn+bn"})
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    checkpoint = read_checkpoint(tmp_path / "a.ckpt")  # with weights_only=True
    facts = checkpoint[KEY]
    assert facts["format_version"] == 3
    assert facts["model"] == dataclasses.asdict(module.model.config)
    assert facts["model"]["norm"] == "bn+bn"
    assert facts["task"] == data.splits.task.to_plain()
    assert (facts["target_mean"], facts["target_std"]) == data.target_scaling()
    assert facts["vocabulary"] == data.fit_vocabulary().to_plain()
    assert (facts["featurizer"], facts["feature_version"]) == (None, "paths")
    assert (facts["dataset"], facts["dataset_fingerprint"]) == ("paths", "paths-1")
    assert facts["training_graphs"] == 37
    assert {"torch", "lightning", "graphormer-sepnorm"} <= facts["packages"].keys()
    own = module.model.state_dict()
    assert all(torch.equal(value, own[name]) for name, value in model_weights(checkpoint).items())
    assert checkpoint["hyper_parameters"]["layers"] == 2
    # It loads into a module without data.
    loaded = GraphormerModule.load_from_checkpoint(tmp_path / "a.ckpt", weights_only=True)
    batch = next(iter(data.test_dataloader()))
    assert torch.equal(loaded.eval()(batch), module.eval()(batch))


@pytest.mark.filterwarnings("ignore:.*custom batch sampler `GivenBatches`")  # of a bare loader
def test_a_model_predicts_by_its_own_codes_and_scaling_or_refuses(
    train, make_module, make_data, make_trainer, splits
):
    """The same test graphs beside training graphs of fewer codes and other labels."""
    module, data, trainer = train()
    options = {"weights_only": True, "verbose": False}
    truth, expected = trainer.predict(module, data), trainer.test(module, data, **options)
    trainer.save_checkpoint(path := trainer.default_root_dir + "/a.ckpt")
    few = [graph.clone() for graph in splits.train[:5]]
    for graph in few:
        graph.x[:] = 1
        graph.y += 100
    other = dataclasses.replace(splits, name="other", train=few, fingerprint="few")
    found = make_trainer().test(make_module(), make_data(other), ckpt_path=path, **options)
    assert found == expected
    assert torch.equal(torch.cat(trainer.predict(module, make_data(other))), torch.cat(truth))
    loader = make_data(other).test_dataloader()
    for predict in (
        lambda: module(next(iter(loader))),
        lambda: trainer.test(module, loader, verbose=False),
        lambda: trainer.predict(module, loader),
    ):
        with pytest.raises(CheckpointError, match=r"other training graphs.*trainer\.predict"):
            predict()


def test_a_second_training_trains_whatever_the_mode_was(train: Callable) -> None:
    module, data, trainer = train()
    module.eval()
    before = [norm.running_mean.clone() for norm in batch_norms(module.model)]
    trainer.fit_loop.max_epochs = 3
    trainer.fit(module, data)
    assert module.training
    after = [norm.running_mean for norm in batch_norms(module.model)]
    assert not any(torch.equal(*pair) for pair in zip(before, after, strict=True))


def test_training_does_not_continue_with_other_data(
    tmp_path, train, make_data, make_trainer, splits
):
    """Neither from a checkpoint nor with a module: vocabulary and scale are those of the first."""
    module, data, trainer = train(max_epochs=1)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    make_trainer(max_epochs=1).fit(module, data)
    other = make_data(dataclasses.replace(splits, fingerprint="changed"))
    with pytest.raises(CheckpointError, match="cannot continue with other data"):
        train(data=other, resume=tmp_path / "a.ckpt")
    with pytest.raises(CheckpointError, match="cannot continue with other data"):
        make_trainer(max_epochs=1).fit(module, other)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": 3}, "network has layers 2, this one 3"),
        ({"norm": "sharenorm"}, "network has norm bn\\+ln, this one shared-ln"),
        ({"encodings": "rrwp"}, "network has encodings graphormer, this one rrwp"),
    ],
)
def test_training_does_not_go_on_with_another_network(options, message, saved, train):
    path = saved()
    with pytest.raises(CheckpointError, match=message):
        train(model=options, resume=path)


class Validations(Callback):
    """Records the steps after which there was a validation, and BatchNorm's measurements."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.measured: list[int] = []

    def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        measure = pl_module.measure_batch_norm

        def noted() -> None:
            self.measured.append(trainer.global_step)
            measure()

        pl_module.measure_batch_norm = noted

    def on_validation_end(self, trainer: Trainer, *_: Any) -> None:
        self.steps.append(trainer.global_step)


FIXED = {"frozen_bn_fraction": 0.5}  # from step 10 on
SELDOM = {"norm": "bn+bn"}  # with validations after every second epoch, and an average


@pytest.mark.parametrize(
    ("stops", "num_workers", "options"),
    [
        ("3 last, 10 last, 10 best, 12 last", 0, {}),  # 5 steps are one epoch
        ("12 last", 1, {}),
        ("12 last", 0, {"optimizer": "muon"}),
        ("3 last, 12 last", 0, FIXED),
        ("7 last, 15 last", 0, SELDOM),
    ],
)
def test_resumed_run_equals_the_uninterrupted_one(
    stops: str, num_workers: int, options: dict, tmp_path: Path, train: Callable, losses: Callable
) -> None:
    seldom = options is SELDOM
    every, epochs = (2, 5) if seldom else (1, 4)

    def run(folder: str, resume: Path | None, *more: Callback) -> tuple[Any, ...]:
        recorder, seen = losses(), Validations()
        callbacks = [AveragedWeights(0.9), ValidateAtTheEnd()] if seldom else []
        callbacks += [recorder, seen, *more]
        callbacks += checkpoint_callbacks(tmp_path / folder, "mae", patience=2 if seldom else 0)
        own = {"model": {"dropout": 0.2, **options}, "data": {"num_workers": num_workers}}
        own |= {"max_epochs": epochs, "check_val_every_n_epoch": every}
        module, _, trainer = train(*callbacks, resume=resume, **own)
        waited = trainer.early_stopping_callback.wait_count if seldom else 0
        return module.model.state_dict(), waited, recorder.values, seen.steps

    straight, end, all_losses, validations = run("straight", None)
    assert validations == ([10, 20, 25] if seldom else [5, 10, 15, 20])
    for place in stops.split(", "):
        stop, checkpoint = int(place.split()[0]), place.split()[1]
        _, _, early, seen = run(f"first {place}", None, StopAfter(stop))
        path = tmp_path / f"first {place}" / "checkpoints" / f"{checkpoint}.ckpt"
        resumed, same_end, late, seen_later = run(f"second {place}", path)
        assert len(early) == stop
        start = len(all_losses) - len(late)
        assert start == read_checkpoint(path)["global_step"]
        assert start == stop or checkpoint != "last"
        assert late == all_losses[start:]
        assert all(torch.equal(straight[name], resumed[name]) for name in straight)
        if checkpoint == "last":
            assert seen + seen_later == validations
        assert same_end == end or not seldom


@pytest.mark.parametrize(
    ("every", "averaged", "options", "steps"),
    [
        (2, False, {"max_epochs": 4}, [10, 20]),
        (2, True, {"max_epochs": 3}, [10, 15]),
        (9, True, {"max_epochs": 2}, [10]),
        (1, False, {"max_epochs": -1, "max_steps": 3}, [3]),
        (2, True, {"max_epochs": -1, "max_steps": 13}, [10, 13]),
        (9, False, {"max_epochs": -1, "max_steps": 10}, [10]),
        (1, False, {"max_epochs": 2, "val_check_interval": 0.4}, [2, 4, 7, 9, 10]),
        (None, False, {"max_epochs": 2, "val_check_interval": 4}, [4, 8, 10]),
    ],
)
def test_a_run_validates_its_end_whatever_epochs_it_validates(
    every, averaged, options, steps, tmp_path, train
):
    seen, run, logger = Validations(), RunDirectory(tmp_path), MetricsFile(tmp_path)
    callbacks = [AveragedWeights(0.9)] if averaged else []
    callbacks += [LogTraining(logger), ValidateAtTheEnd(), seen]
    callbacks += checkpoint_callbacks(tmp_path, "mae", 0)
    own = {"logger": logger, "model": {"norm": "bn+bn"}, "check_val_every_n_epoch": every}
    _, _, trainer = train(*callbacks, **own, **options)
    assert seen.steps == seen.measured == steps
    assert trainer.check_val_every_n_epoch == every
    # What the curve shows of an epoch is of that epoch.
    curve = metrics_by_epoch(run)
    assert [point["epoch"] for point in curve] == [*range(1, 1 - (-steps[-1] // 5))]
    known = [point["epoch"] for point in curve if "validation_mae" in point]
    assert known == sorted({-(-step // 5) for step in steps})
    last = read_checkpoint(tmp_path / "checkpoints" / "last.ckpt")
    assert last["global_step"] == steps[-1]
    newest = float(trainer.callback_metrics["validation_mae"])
    assert last[KEY]["validation"]["validation_mae"] == newest
    assert curve[-1]["validation_mae"] == newest
    assert read_checkpoint(tmp_path)["global_step"] in steps


def test_a_longer_training_fixes_statistics_later(saved: Callable, train: Callable) -> None:
    """Of 10 steps the last 4 were fixed; of 30 the last 12 are, and the eight between are not."""

    def fixed(trainer: Trainer, module: Any) -> bool:
        assert module.statistics_fixed == all(norm.fixed for norm in batch_norms(module.model))
        return module.statistics_fixed

    model, seen = {"frozen_bn_fraction": 0.4}, Noted(fixed)
    resume = saved(model=model, max_epochs=2)
    train(seen, AveragedWeights(0.9), model=model, resume=resume, max_epochs=6)
    assert seen.values == [False] * 8 + [True] * 12  # from step 10 on


def test_a_resumed_run_may_have_other_dropout(tmp_path, saved: Callable, train: Callable) -> None:
    path = saved(model={"dropout": 0.1})
    module, _, trainer = train(model={"dropout": 0.3, "drop_path": 0.2}, resume=path)
    assert (module.model.config.dropout, module.model.config.drop_path) == (0.3, 0.2)
    trainer.save_checkpoint(tmp_path / "b.ckpt")
    assert read_checkpoint(tmp_path / "b.ckpt")[KEY]["model"]["dropout"] == 0.3


class Ruin(Callback):
    """Spoils the model, so that nothing after it is better."""

    def on_validation_start(self, trainer: Trainer, module: Any) -> None:
        torch.nn.init.constant_(module.model.readout.bias, 1e3)


def test_best_checkpoint_of_a_run_that_was_copied_stays_to_be_beaten(tmp_path, train):
    def run(folder: Path, epochs: int, resume: Path | None, *more: Callback) -> Any:
        best, last = checkpoint_callbacks(folder, "mae", 0)
        _, _, trainer = train(*more, best, last, resume=resume, max_epochs=epochs)
        return best, float(trainer.callback_metrics["validation_mae"])

    earlier, here = tmp_path / "first", tmp_path / "second"
    first, _ = run(earlier, 3, None)
    step = read_checkpoint(earlier)["global_step"]
    shutil.copytree(earlier, here)  # what becomes of the original is another run's business
    (earlier / "checkpoints" / "best.ckpt").write_text("of a later time")
    second, error = run(here, 4, here / "checkpoints" / "last.ckpt", Ruin())
    assert error > 1e2
    assert float(second.best_model_score) == float(first.best_model_score)
    assert read_checkpoint(here)["global_step"] == step


def test_a_metric_that_is_undefined_is_no_improvement_and_no_end(tmp_path: Path) -> None:
    stopping = checkpoint_callbacks(tmp_path, "auroc", 2)[-1]
    assert isinstance(stopping, EarlyStopping)
    undefined = torch.tensor(torch.nan)
    stops = [stopping._evaluate_stopping_criteria(undefined)[0] for _ in range(2)]
    assert stops == [False, True]


@pytest.mark.parametrize(("patience", "more_epochs"), [(2, 0), (4, 2)])
def test_a_run_stops_without_improvement_and_trains_on_only_with_more_patience(
    patience: int, more_epochs: int, tmp_path: Path, train: Callable, caplog
) -> None:
    def run(patience: int, resume: Path | None) -> Trainer:
        callbacks = [Ruin(), *checkpoint_callbacks(tmp_path, "mae", patience)]
        # Without a learning rate to speak of the ruined model stays exactly as bad.
        return train(*callbacks, model=STILL, resume=resume, max_epochs=20)[-1]

    assert run(2, None).current_epoch == 3
    again = run(patience, tmp_path / "checkpoints" / "last.ckpt")
    assert again.current_epoch == 3 + more_epochs
    assert again.global_step == 5 * (3 + more_epochs)
    said = "stopped early, after 2 validations without improvement: only a larger --early_stopping"
    assert (said in caplog.text) == (more_epochs == 0)


def test_last_checkpoint_knows_the_last_validation(tmp_path: Path, train: Callable) -> None:
    """Also where an epoch is one batch, whose step is the first and the last of the epoch."""
    best, last, stopping = checkpoint_callbacks(tmp_path, "mae", patience=9, minutes=0.0)
    _, _, trainer = train(best, last, stopping, data={"batch_size": 64}, max_epochs=4)
    saved = read_checkpoint(tmp_path / "checkpoints" / "last.ckpt")
    assert saved["global_step"] == 4
    error = float(trainer.callback_metrics["validation_mae"])
    assert saved[KEY]["validation"]["validation_mae"] == error
    state = saved["callbacks"]
    assert state[best.state_key]["best_model_score"] == best.best_model_score
    assert state[stopping.state_key]["wait_count"] == stopping.wait_count


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"task": Task("regression", ("mass",), ("",), "mae")}, "targets size, paths has mass"),
        ({"task": Task("binary", ("size",), ("",), "auroc")}, "label regression, paths has binary"),
        ({"extra_inputs": ("pH",)}, "descriptor columns T, paths has pH"),
    ],
)
def test_other_targets_labels_or_inputs_are_refused(own, message, make_data, splits):
    facts = {"task": splits.task.to_plain(), "extra_inputs": {"columns": ["T"]}}
    trainer: Any = SimpleNamespace(datamodule=make_data(dataclasses.replace(splits, **own)))
    with pytest.raises(CheckpointError, match=message):
        check_same_data(facts, trainer)


def test_another_state_of_the_same_data_is_a_warning_where_it_is_tested(
    train: Callable, make_data: Callable, make_trainer: Callable, splits: DatasetSplits, caplog
) -> None:
    module, data, trainer = train(max_epochs=1)
    trainer.test(module, data, verbose=False)
    assert "splits may differ" not in caplog.text
    make_trainer().test(module, make_data(dataclasses.replace(splits, fingerprint="new")))
    assert (
        "paths here is not the paths that the model was trained on: its splits may" in caplog.text
    )
