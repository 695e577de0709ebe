"""Training as a whole: same seed same numbers, whole-split metrics, checkpoints, resuming."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import EarlyStopping
from tiny_graphs import path_graphs

from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.datasets.splits import DatasetSplits
from graphormer_sepnorm.errors import CheckpointError, ConfigError, DataError
from graphormer_sepnorm.graphs.loading import make_loader
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.inference.checkpoint import KEY, model_weights, read_checkpoint
from graphormer_sepnorm.training.batch_statistics import batch_norms
from graphormer_sepnorm.training.callbacks.checkpoints import ValidateAtTheEnd, checkpoint_callbacks
from graphormer_sepnorm.training.callbacks.learning_curve import LearningCurve
from graphormer_sepnorm.training.module import GraphormerModule

MakeModule = Callable[..., GraphormerModule]
MakeData = Callable[..., MoleculeDataModule]
MakeTrainer = Callable[..., Trainer]


def parameters(module: GraphormerModule) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in module.model.state_dict().items()}


@pytest.mark.parametrize("norm", ["sepnorm", "shared-ln"])
def test_same_seed_same_numbers(
    norm: str,
    make_module: MakeModule,
    make_data: MakeData,
    make_trainer: MakeTrainer,
    losses: Callable,
) -> None:
    runs = []
    for noise in (1, 2):
        torch.manual_seed(noise)  # the state that training starts from must not matter
        recorder = losses()
        module = make_module(norm=norm, dropout=0.2)
        trainer = make_trainer(callbacks=[recorder])
        trainer.fit(module, make_data())
        runs.append((recorder.values, parameters(module), dict(trainer.callback_metrics)))
    (first_losses, first, first_metrics), (second_losses, second, second_metrics) = runs
    assert len(first_losses) == 10
    assert first_losses == second_losses
    assert first_metrics == second_metrics
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_other_seed_other_numbers(
    make_module: MakeModule, make_data: MakeData, make_trainer: MakeTrainer, losses: Callable
) -> None:
    recorders = []
    for seed in (0, 1):
        recorders.append(losses())
        trainer = make_trainer(callbacks=[recorders[-1]], max_epochs=1)
        trainer.fit(make_module(seed=seed), make_data())
    assert recorders[0].values != recorders[1].values


def test_every_batch_of_every_epoch_seed_and_process_has_its_own_dropout(
    make_module: MakeModule, make_data: MakeData, make_trainer: MakeTrainer
) -> None:
    class Seeds(Callback):
        def __init__(self) -> None:
            self.values: list[int] = []

        def on_train_batch_end(self, *_: Any) -> None:
            self.values.append(torch.initial_seed())

    class SecondProcess(GraphormerModule):
        global_rank = 1

    seeds = Seeds()
    for seed, kind in ((0, GraphormerModule), (1, GraphormerModule), (0, SecondProcess)):
        module = make_module(seed=seed)
        module.__class__ = kind
        make_trainer(callbacks=[seeds], limit_train_batches=2).fit(module, make_data())
    assert len({*seeds.values}) == len(seeds.values) == 3 * 2 * 2


def test_every_epoch_has_its_own_order(
    make_module: MakeModule, make_data: MakeData, make_trainer: MakeTrainer
) -> None:
    orders: list[list[int]] = []

    class Orders(Callback):
        def on_train_epoch_start(self, *_: Any) -> None:
            orders.append([])

        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, *_: Any) -> None:
            orders[-1].extend(batch.graph_ids.tolist())

    make_trainer(callbacks=[Orders()], max_epochs=3).fit(make_module(), make_data())
    assert [sorted(order) for order in orders] == [list(range(37))] * 3
    assert orders[0] != orders[1] != orders[2] != orders[0]


def test_learning_lowers_the_error(
    make_module: MakeModule, make_data: MakeData, make_trainer: MakeTrainer
) -> None:
    module, data = make_module(dropout=0.0), make_data()
    trainer = make_trainer(max_epochs=40)
    trainer.fit(module, data)
    error = trainer.test(module, data, verbose=False)[0]["test_mae"]
    labels = torch.cat([graph.y for graph in data.splits.test])
    assert error < 0.5 * (labels - labels.mean()).abs().mean()


@pytest.mark.parametrize("size", [1, 4, 11])
def test_reported_error_is_that_of_all_test_graphs(
    size: int, make_module: MakeModule, make_data: MakeData, make_trainer: MakeTrainer
) -> None:
    module, data = make_module(), make_data(eval_batch_size=size)
    trainer = make_trainer(max_epochs=1)
    trainer.fit(module, data)
    reported = trainer.test(module, data, verbose=False)[0]["test_mae"]
    module.eval()
    with torch.no_grad():
        errors = torch.cat(
            [(module(batch) - batch.targets).abs() for batch in data.test_dataloader()]
        )
    assert len(errors) == 11
    assert reported == pytest.approx(errors.double().mean().item(), rel=1e-5)


def test_weights_do_not_enter_the_losses_of_validation_and_test(
    make_module: MakeModule, make_data: MakeData, make_trainer: MakeTrainer, splits: DatasetSplits
) -> None:
    """Those stay the mean absolute error, in units of the deviation of the training labels."""
    for part in splits.parts.values():
        for number, graph in enumerate(part):
            graph.weight = float(number % 3)
    module, data, trainer = make_module(), make_data(), make_trainer(max_epochs=1)
    trainer.fit(module, data)
    values = {**trainer.callback_metrics, **trainer.test(module, data, verbose=False)[0]}
    (deviation,) = data.target_scaling()[1]
    for split in ("validation", "test"):
        error = float(values[f"{split}_mae"]) / deviation
        assert float(values[f"{split}_loss"]) == pytest.approx(error, rel=1e-5)


def test_targets_are_scaled_by_the_training_labels_that_are_there(
    make_data: MakeData, splits: DatasetSplits
) -> None:
    splits.train[0].y[:] = torch.nan
    mean, deviation = make_data().target_scaling()
    labels = torch.cat([graph.y for graph in splits.train[1:]]).double()
    assert mean == pytest.approx([labels.mean().item()])
    assert deviation == pytest.approx([labels.std(unbiased=False).item()])


def test_target_without_a_training_label_is_an_error(
    make_data: MakeData, splits: DatasetSplits
) -> None:
    for graph in splits.train:
        graph.y[:] = torch.nan
    with pytest.raises(DataError, match="no training label for size"):
        make_data().target_scaling()


def test_several_targets_with_missing_labels_train(
    make_module: MakeModule, make_data: MakeData, make_trainer: MakeTrainer, splits: DatasetSplits
) -> None:
    own = dataclasses.replace(
        splits,
        train=path_graphs(20, 1, targets=2),
        validation=path_graphs(9, 2, targets=2),
        test=path_graphs(9, 3, targets=2),
        task=Task("regression", ("a", "b"), ("", ""), "mae"),
        fingerprint="two",
    )
    for graph in own.train[::2]:
        graph.y[1] = torch.nan
    module, trainer = make_module(), make_trainer(max_epochs=1)
    trainer.fit(module, make_data(own))
    metrics = trainer.callback_metrics
    mean = (metrics["validation_mae_a"] + metrics["validation_mae_b"]) / 2
    assert metrics["validation_mae"] == pytest.approx(mean.item(), rel=1e-6)


def test_binary_targets_train_and_are_not_scaled(
    make_module: MakeModule, make_data: MakeData, make_trainer: MakeTrainer, splits: DatasetSplits
) -> None:
    for graph in [*splits.train, *splits.validation, *splits.test]:
        graph.y = (graph.y > 4).float()
    own = dataclasses.replace(splits, task=Task("binary", ("long",), ("",), "auroc"))
    data, module, trainer = make_data(own), make_module(), make_trainer(max_epochs=30)
    assert data.target_scaling() == ([0.0], [1.0])
    trainer.fit(module, data)
    assert module.loss_name == "bce"
    assert trainer.test(module, data, verbose=False)[0]["test_auroc"] > 0.8
    with torch.no_grad():
        logits = torch.cat([module.eval()(batch) for batch in data.test_dataloader()])
    # What is kept of a test are probabilities.
    assert module.evaluated("test") == pytest.approx(logits.sigmoid().numpy(), rel=1e-5)


def test_official_evaluator_gives_the_reported_value_and_our_own_the_others(
    make_module: MakeModule, make_data: MakeData, make_trainer: MakeTrainer, splits: DatasetSplits
) -> None:
    asked = []

    def official(labels: np.ndarray, predictions: np.ndarray) -> float:
        asked.append((labels, predictions))
        return 0.125 + 1e-12

    own = dataclasses.replace(splits, evaluators={"mae": official})
    data, module, trainer = make_data(own), make_module(), make_trainer(max_epochs=2)
    trainer.fit(module, data)
    assert asked == []  # ours are quicker, and the same number
    found = trainer.test(module, data, verbose=False)[0]
    assert found["test_mae"] == 0.125 + 1e-12  # not rounded to float32
    assert found["test_rmse"] > 0.2
    ((labels, predictions),) = asked
    assert labels.shape == predictions.shape == (len(splits.test), 1)
    assert found["test_rmse"] == pytest.approx(np.sqrt(np.square(labels - predictions).mean()))


def test_only_metrics_that_something_goes_by_are_computed_while_training(
    tmp_path: Path, make_module: MakeModule, make_data: MakeData, make_trainer: MakeTrainer
) -> None:
    trainer = make_trainer(
        max_epochs=2,
        callbacks=checkpoint_callbacks(tmp_path, "r2", 0),
        enable_checkpointing=True,
    )
    trainer.fit(make_module(), make_data())
    names = {"validation_loss", "validation_mae", "validation_r2"}
    assert {name for name in trainer.callback_metrics if name.startswith("val")} == names
    saved = read_checkpoint(tmp_path / "checkpoints" / "best.ckpt")[KEY]["validation"]
    assert saved.keys() == names
    assert trainer.checkpoint_callback.mode == "max"


def test_undefined_metric_is_nan_with_a_message(
    make_module: MakeModule,
    make_data: MakeData,
    make_trainer: MakeTrainer,
    splits: DatasetSplits,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for graph in [*splits.train, *splits.validation, *splits.test]:
        graph.y = (graph.y > 4).float()
    for graph in splits.validation:
        graph.y[:] = 0
    own = dataclasses.replace(splits, task=Task("binary", ("long",), ("",), "auroc"))
    trainer = make_trainer(max_epochs=1)
    trainer.fit(make_module(), make_data(own))
    assert trainer.callback_metrics["validation_auroc"].isnan()
    assert "validation AUROC is undefined: no target has both classes" in caplog.text


def test_checkpoint_knows_its_parts_and_is_plain(
    tmp_path: Path, make_module: MakeModule, make_data: MakeData, make_trainer: MakeTrainer
) -> None:
    module, data, trainer = make_module(norm="bn+bn"), make_data(), make_trainer()
    trainer.fit(module, data)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    checkpoint = read_checkpoint(tmp_path / "a.ckpt")  # with weights_only=True
    facts = checkpoint[KEY]
    assert facts["format_version"] == 2
    assert facts["model"] == dataclasses.asdict(module.model.config)
    assert facts["model"]["norm"] == "bn+bn"
    assert facts["task"] == data.splits.task.to_plain()
    assert (facts["target_mean"], facts["target_std"]) == data.target_scaling()
    assert facts["vocabulary"] == data.fit_vocabulary().to_plain()
    assert (facts["featuriser"], facts["feature_version"]) == (None, "paths")
    assert (facts["dataset"], facts["dataset_fingerprint"]) == ("paths", "paths-1")
    assert facts["training_graphs"] == 37
    assert {"torch", "lightning", "graphormer-sepnorm"} <= facts["packages"].keys()
    own = module.model.state_dict()
    assert all(torch.equal(value, own[name]) for name, value in model_weights(checkpoint).items())
    assert checkpoint["hyper_parameters"]["layers"] == 2


def test_checkpoint_loads_into_a_module_without_data(
    tmp_path: Path, make_module: MakeModule, make_data: MakeData, make_trainer: MakeTrainer
) -> None:
    module, data, trainer = make_module(), make_data(), make_trainer()
    trainer.fit(module, data)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    loaded = GraphormerModule.load_from_checkpoint(tmp_path / "a.ckpt", weights_only=True)
    batch = next(iter(data.test_dataloader()))
    assert torch.equal(loaded.eval()(batch), module.eval()(batch))


def test_checkpoint_is_tested_with_its_own_vocabulary_and_scaling(
    tmp_path: Path,
    make_module: MakeModule,
    make_data: MakeData,
    make_trainer: MakeTrainer,
    splits: DatasetSplits,
) -> None:
    module, trainer = make_module(), make_trainer()
    trainer.fit(module, make_data())
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    expected = trainer.test(module, make_data(), verbose=False)
    # Other training data: fewer codes, other labels. Only the test split is the same.
    few = [graph.clone() for graph in splits.train[:5]]
    for graph in few:
        graph.x[:] = 1
        graph.y += 100
    own = dataclasses.replace(splits, name="other", train=few, fingerprint="few")
    values = make_trainer().test(
        make_module(),
        make_data(own),
        ckpt_path=tmp_path / "a.ckpt",
        weights_only=True,
        verbose=False,
    )
    assert values == expected


def test_features_of_another_kind_are_refused(
    tmp_path: Path,
    make_module: MakeModule,
    make_data: MakeData,
    make_trainer: MakeTrainer,
    splits: DatasetSplits,
) -> None:
    trainer = make_trainer(max_epochs=1)
    trainer.fit(make_module(), make_data())
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    own = dataclasses.replace(splits, name="other", feature_version="v2", fingerprint="x")
    with pytest.raises(CheckpointError, match="features 'paths', other has 'v2'"):
        make_trainer().test(
            make_module(), make_data(own), ckpt_path=tmp_path / "a.ckpt", weights_only=True
        )


def test_training_does_not_go_on_with_other_data(
    tmp_path: Path,
    make_module: MakeModule,
    make_data: MakeData,
    make_trainer: MakeTrainer,
    splits: DatasetSplits,
) -> None:
    trainer = make_trainer(max_epochs=1)
    trainer.fit(make_module(), make_data())
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    own = dataclasses.replace(splits, fingerprint="changed")
    with pytest.raises(CheckpointError, match="cannot go on with other data"):
        make_trainer().fit(
            make_module(), make_data(own), ckpt_path=tmp_path / "a.ckpt", weights_only=True
        )


def test_a_module_is_not_trained_again_on_other_data(
    make_module: MakeModule, make_data: MakeData, make_trainer: MakeTrainer, splits: DatasetSplits
) -> None:
    """Its vocabulary and the scale of its targets are those of the first."""
    module = make_module()
    make_trainer(max_epochs=1).fit(module, make_data())
    make_trainer(max_epochs=1).fit(module, make_data())
    own = dataclasses.replace(splits, fingerprint="changed")
    with pytest.raises(CheckpointError, match="cannot go on with other data"):
        make_trainer(max_epochs=1).fit(module, make_data(own))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": 3}, "network has layers 2, this one 3"),
        ({"norm": "sharenorm"}, "network has norm bn\\+ln, this one shared-ln"),
        ({"encodings": "rrwp"}, "network has encodings graphormer, this one rrwp"),
    ],
)
def test_training_does_not_go_on_with_another_network(
    options: dict,
    message: str,
    tmp_path: Path,
    make_module: MakeModule,
    make_data: MakeData,
    make_trainer: MakeTrainer,
) -> None:
    trainer = make_trainer(max_epochs=1)
    trainer.fit(make_module(), make_data())
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    with pytest.raises(CheckpointError, match=message):
        make_trainer().fit(
            make_module(**options), make_data(), ckpt_path=tmp_path / "a.ckpt", weights_only=True
        )


class StopAfter(Callback):
    """Interrupts training after some steps, as Ctrl-C does."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_step == self.steps and not trainer.is_last_batch:
            raise KeyboardInterrupt

    def on_train_epoch_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_step == self.steps:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("steps", "checkpoint", "num_workers", "options"),
    [
        (10, "last", 0, {}),  # 5 steps are one epoch
        (10, "best", 0, {}),
        (12, "last", 0, {}),
        (3, "last", 0, {}),
        (12, "last", 1, {}),
        (10, "last", 1, {}),
        (12, "last", 0, {"optimizer": "muon"}),
        (10, "last", 0, {"frozen_bn_fraction": 0.5}),  # fixed from this step on
        (10, "best", 0, {"frozen_bn_fraction": 0.5}),
        (12, "last", 0, {"frozen_bn_fraction": 0.5}),
        (3, "last", 0, {"frozen_bn_fraction": 0.5}),
    ],
)
def test_resumed_run_equals_the_uninterrupted_one(
    steps: int,
    checkpoint: str,
    num_workers: int,
    options: dict,
    tmp_path: Path,
    make_module: MakeModule,
    make_data: MakeData,
    make_trainer: MakeTrainer,
    losses: Callable,
) -> None:
    def run(folder: str, resume: Path | None, *more: Callback) -> tuple[dict, list[float]]:
        recorder = losses()
        callbacks = [recorder, *more, *checkpoint_callbacks(tmp_path / folder, "mae", 0)]
        module = make_module(dropout=0.2, **options)
        data = make_data(num_workers=num_workers)
        trainer = make_trainer(max_epochs=4, callbacks=callbacks, enable_checkpointing=True)
        try:
            trainer.fit(module, data, ckpt_path=resume, weights_only=True)
        except SystemExit:
            assert trainer.interrupted
        return parameters(module), recorder.values

    straight, all_losses = run("straight", None)
    _, early = run("first", None, StopAfter(steps))
    resumed, late = run("second", tmp_path / "first" / "checkpoints" / f"{checkpoint}.ckpt")
    assert len(early) == steps
    start = len(all_losses) - len(late)
    assert start == (steps if checkpoint == "last" else pytest.approx(steps, abs=steps))
    assert late == all_losses[start:]
    assert all(torch.equal(straight[name], resumed[name]) for name in straight)


def test_a_longer_training_fixes_statistics_later(
    tmp_path: Path, make_module: MakeModule, make_data: MakeData, make_trainer: MakeTrainer
) -> None:
    """Of 10 steps the last 4 were fixed; of 20 the last 8 are, and the two between are not."""

    class Fixed(Callback):
        def __init__(self) -> None:
            self.steps: list[int] = []

        def on_train_batch_end(self, trainer: Trainer, module: Any, *_: Any) -> None:
            if module.statistics_fixed:
                assert all(norm.fixed for norm in batch_norms(module.model))
                self.steps.append(trainer.global_step)

    first, second = Fixed(), Fixed()
    trainer = make_trainer(max_epochs=2, callbacks=[first])
    trainer.fit(make_module(frozen_bn_fraction=0.4), make_data())
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    trainer = make_trainer(max_epochs=4, callbacks=[second])
    trainer.fit(
        make_module(frozen_bn_fraction=0.4),
        make_data(),
        ckpt_path=tmp_path / "a.ckpt",
        weights_only=True,
    )
    assert first.steps == [7, 8, 9, 10]
    assert second.steps == list(range(13, 21))


def test_a_resumed_run_may_have_other_dropout(
    tmp_path: Path, make_module: MakeModule, make_data: MakeData, make_trainer: MakeTrainer
) -> None:
    trainer = make_trainer(max_epochs=1)
    trainer.fit(make_module(dropout=0.1), make_data())
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    module, trainer = make_module(dropout=0.3, drop_path=0.2), make_trainer(max_epochs=2)
    trainer.fit(module, make_data(), ckpt_path=tmp_path / "a.ckpt", weights_only=True)
    assert (module.model.config.dropout, module.model.config.drop_path) == (0.3, 0.2)
    trainer.save_checkpoint(tmp_path / "b.ckpt")
    assert read_checkpoint(tmp_path / "b.ckpt")[KEY]["model"]["dropout"] == 0.3


def test_a_resumed_run_may_have_other_options_of_the_optimiser(
    tmp_path: Path, make_module: MakeModule, make_data: MakeData, make_trainer: MakeTrainer
) -> None:
    trainer = make_trainer(max_epochs=1)
    trainer.fit(make_module(weight_decay=0.1, betas=(0.9, 0.99), eps=1e-8), make_data())
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    steps = Steps()
    trainer = make_trainer(max_epochs=2, callbacks=[steps])
    module = make_module(weight_decay=0.4, betas=(0.8, 0.9), eps=1e-6, learning_rate=0.01)
    trainer.fit(module, make_data(), ckpt_path=tmp_path / "a.ckpt", weights_only=True)
    decayed, kept = trainer.optimizers[0].param_groups
    assert (decayed["weight_decay"], kept["weight_decay"]) == (0.4, 0.0)
    assert (decayed["betas"], decayed["eps"]) == ((0.8, 0.9), 1e-6)
    # Ten steps in all, two of warm-up, five taken before.
    assert steps.rates == pytest.approx([0.01 * (10 - step) / 8 for step in range(5, 10)], rel=1e-4)


@pytest.mark.parametrize("stop", [5, 7], ids=["between epochs", "inside an epoch"])
def test_learning_curve_of_a_resumed_run_is_whole(
    stop: int,
    tmp_path: Path,
    make_module: MakeModule,
    make_data: MakeData,
    make_trainer: MakeTrainer,
) -> None:
    def run(folder: str, resume: Path | None, *more: Callback) -> list[dict[str, float]]:
        curve = LearningCurve(tmp_path / f"{folder}.png", "mae")
        callbacks = [curve, *more, *checkpoint_callbacks(tmp_path / folder, "mae", 0)]
        trainer = make_trainer(max_epochs=3, callbacks=callbacks, enable_checkpointing=True)
        try:
            trainer.fit(make_module(), make_data(), ckpt_path=resume, weights_only=True)
        except SystemExit:
            assert trainer.interrupted
        return curve.history

    whole = run("straight", None)
    early = run("first", None, StopAfter(stop))
    resumed = run("second", tmp_path / "first" / "checkpoints" / "last.ckpt")
    assert [len(early), len(whole)] == [1, 3]
    assert resumed == whole
    losses = {"train_loss_epoch", "validation_loss"}
    assert whole[0].keys() == {"epoch", "step", "validation_mae"} | losses
    for name in ("straight", "first", "second"):
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000


class Ruin(Callback):
    """Spoils the model, so that nothing after it is better."""

    def on_validation_start(self, trainer: Trainer, module: Any) -> None:
        torch.nn.init.constant_(module.model.readout.bias, 1e3)


def test_best_checkpoint_of_the_earlier_run_stays_to_be_beaten(
    tmp_path: Path, make_module: MakeModule, make_data: MakeData, make_trainer: MakeTrainer
) -> None:
    def run(folder: str, epochs: int, resume: Path | None, *more: Callback) -> tuple[Any, float]:
        best, last = checkpoint_callbacks(tmp_path / folder, "mae", 0)
        callbacks = [*more, best, last]
        trainer = make_trainer(max_epochs=epochs, callbacks=callbacks, enable_checkpointing=True)
        trainer.fit(make_module(), make_data(), ckpt_path=resume, weights_only=True)
        return best, float(trainer.callback_metrics["validation_mae"])

    first, _ = run("first", 3, None)
    second, error = run("second", 4, tmp_path / "first" / "checkpoints" / "last.ckpt", Ruin())
    assert error > 1e2
    assert float(second.best_model_score) == float(first.best_model_score)
    kept, earlier = read_checkpoint(tmp_path / "second"), read_checkpoint(tmp_path / "first")
    assert kept["global_step"] == earlier["global_step"]


@pytest.mark.parametrize("place", ["moved", "copied"])
def test_best_checkpoint_goes_with_its_directory(
    place: str,
    tmp_path: Path,
    make_module: MakeModule,
    make_data: MakeData,
    make_trainer: MakeTrainer,
) -> None:
    def run(folder: Path, epochs: int, *more: Callback) -> Any:
        best, last = checkpoint_callbacks(folder, "mae", 0)
        trainer = make_trainer(
            max_epochs=epochs, callbacks=[*more, best, last], enable_checkpointing=True
        )
        resume = folder / "checkpoints" / "last.ckpt"
        trainer.fit(
            make_module(),
            make_data(),
            ckpt_path=resume if resume.is_file() else None,
            weights_only=True,
        )
        return best

    first = run(tmp_path / "first", 3)
    here = tmp_path / place
    (shutil.move if place == "moved" else shutil.copytree)(tmp_path / "first", here)
    if place == "copied":  # what becomes of the original is another run's business
        (tmp_path / "first" / "checkpoints" / "best.ckpt").write_text("of a later time")
    step = read_checkpoint(here)["global_step"]
    second = run(here, 4, Ruin())
    assert float(second.best_model_score) == float(first.best_model_score)
    assert read_checkpoint(here)["global_step"] == step


def test_a_metric_that_is_undefined_is_no_improvement_and_no_end(tmp_path: Path) -> None:
    stopping = checkpoint_callbacks(tmp_path, "auroc", 2)[-1]
    assert isinstance(stopping, EarlyStopping)
    undefined = torch.tensor(torch.nan)
    stops = [stopping._evaluate_stopping_criteria(undefined)[0] for _ in range(2)]
    assert stops == [False, True]


def test_training_stops_when_validation_no_longer_improves(
    tmp_path: Path, make_module: MakeModule, make_data: MakeData, make_trainer: MakeTrainer
) -> None:
    callbacks = [Ruin(), *checkpoint_callbacks(tmp_path, "mae", patience=2)]
    trainer = make_trainer(max_epochs=20, callbacks=callbacks, enable_checkpointing=True)
    # Without a learning rate to speak of the ruined model stays exactly as bad.
    trainer.fit(make_module(learning_rate=1e-30, final_learning_rate=0.0), make_data())
    assert trainer.current_epoch == 3


@pytest.mark.parametrize(("patience", "more_epochs"), [(2, 0), (4, 2)])
def test_a_stopped_run_that_is_resumed_trains_only_with_more_patience(
    patience: int,
    more_epochs: int,
    tmp_path: Path,
    make_module: MakeModule,
    make_data: MakeData,
    make_trainer: MakeTrainer,
) -> None:
    def run(patience: int, resume: Path | None) -> Trainer:
        callbacks = [Ruin(), *checkpoint_callbacks(tmp_path, "mae", patience)]
        trainer = make_trainer(max_epochs=20, callbacks=callbacks, enable_checkpointing=True)
        module = make_module(learning_rate=1e-30, final_learning_rate=0.0)
        trainer.fit(module, make_data(), ckpt_path=resume, weights_only=True)
        return trainer

    assert run(2, None).current_epoch == 3
    again = run(patience, tmp_path / "checkpoints" / "last.ckpt")
    assert again.current_epoch == 3 + more_epochs
    assert again.global_step == 5 * (3 + more_epochs)


def test_last_checkpoint_knows_the_last_validation(
    tmp_path: Path, make_module: MakeModule, make_data: MakeData, make_trainer: MakeTrainer
) -> None:
    """Also where an epoch is one batch, whose step is the first and the last of the epoch."""
    best, last, stopping = checkpoint_callbacks(tmp_path, "mae", patience=9)
    trainer = make_trainer(
        max_epochs=4, callbacks=[best, last, stopping], enable_checkpointing=True
    )
    trainer.fit(make_module(), make_data(batch_size=64))
    saved = read_checkpoint(tmp_path / "checkpoints" / "last.ckpt")
    assert saved["global_step"] == 4
    error = float(trainer.callback_metrics["validation_mae"])
    assert saved[KEY]["validation"]["validation_mae"] == error
    state = saved["callbacks"]
    assert state[best.state_key]["best_model_score"] == best.best_model_score
    assert state[stopping.state_key]["wait_count"] == stopping.wait_count


def test_run_that_ends_inside_an_epoch_is_validated(
    tmp_path: Path, make_module: MakeModule, make_data: MakeData, make_trainer: MakeTrainer
) -> None:
    callbacks = [ValidateAtTheEnd(), *checkpoint_callbacks(tmp_path, "mae", 0)]
    trainer = make_trainer(
        max_steps=3, max_epochs=-1, callbacks=callbacks, enable_checkpointing=True
    )
    trainer.fit(make_module(), make_data())
    assert trainer.global_step == 3
    assert read_checkpoint(tmp_path)["global_step"] == 3
    assert (tmp_path / "checkpoints" / "last.ckpt").is_file()


def test_gradients_are_accumulated_and_clipped_by_the_trainers_flags(
    make_module: MakeModule, make_data: MakeData, make_trainer: MakeTrainer
) -> None:
    trainer = make_trainer(max_epochs=2, accumulate_grad_batches=2, gradient_clip_val=1.0)
    trainer.fit(make_module(), make_data())
    assert trainer.global_step == 2 * 3  # 5 micro-batches an epoch


class Steps(Callback):
    """Records of each optimiser step its graphs, its loss, its gradients and its learning rate."""

    def __init__(self) -> None:
        self.graphs: list[list[int]] = [[]]
        self.losses: list[float] = []
        self.gradients: list[dict[str, torch.Tensor]] = []
        self.rates: list[float] = []

    def on_train_batch_start(self, trainer: Trainer, module: Any, batch: Any, *_: Any) -> None:
        self.graphs[-1] += batch.graph_ids.tolist()

    def on_before_optimizer_step(self, trainer: Trainer, module: Any, optimizer: Any) -> None:
        self.graphs.append([])
        self.losses.append(float(module.step_loss))
        self.gradients.append({n: p.grad.clone() for n, p in module.named_parameters()})
        self.rates.append(optimizer.param_groups[0]["lr"])


def test_a_step_of_several_batches_is_one_of_all_their_labels(
    make_module: MakeModule, make_data: MakeData, make_trainer: MakeTrainer, splits: DatasetSplits
) -> None:
    """Batches 0 and 1, then 2 alone: epochs end after three of their five batches."""
    for graph in splits.train[::3]:
        graph.y[:] = torch.nan
    dropouts = {"dropout": 0.0, "attention_dropout": 0.0, "input_dropout": 0.0}
    rates = {"learning_rate": 1e-30, "warmup_steps": 0, "final_learning_rate": 0.0}
    module, data, steps = make_module(norm="ln+ln", **dropouts, **rates), make_data(), Steps()
    trainer = make_trainer(accumulate_grad_batches=2, limit_train_batches=3, callbacks=[steps])
    trainer.fit(module, data)  # two epochs, in which such rates leave all parameters as they are
    assert trainer.global_step == len(steps.losses) == 4
    assert [len(graphs) for graphs in steps.graphs] == [16, 7, 16, 7, 0]
    assert steps.rates == pytest.approx([1e-30, 0.75e-30, 0.5e-30, 0.25e-30], rel=1e-6)
    for graphs, loss, gradients in zip(steps.graphs, steps.losses, steps.gradients, strict=False):
        (batch,) = make_loader(data.store, data.fit_vocabulary(), [graphs])
        module.train().zero_grad()
        errors = (module(batch) - batch.targets).abs() / module.target_std
        expected = errors[~errors.isnan()].mean()
        expected.backward()
        assert loss == pytest.approx(expected.item(), rel=1e-5)
        for name, parameter in module.named_parameters():
            torch.testing.assert_close(
                gradients[name], parameter.grad, rtol=1e-4, atol=1e-6, msg=name
            )


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_bfloat16_trains_with_clipped_gradients(
    optimizer: str, make_module: MakeModule, make_data: MakeData, make_trainer: MakeTrainer
) -> None:
    trainer = make_trainer(max_epochs=1, precision="bf16-mixed", gradient_clip_val=1.0)
    trainer.fit(make_module(optimizer=optimizer), make_data())
    assert trainer.callback_metrics["train_loss_epoch"].isfinite()


def test_precision_that_converts_batches_is_refused(
    make_module: MakeModule, make_data: MakeData, make_trainer: MakeTrainer
) -> None:
    with pytest.raises(ConfigError, match="64-true is not supported: use 32-true, bf16-mixed"):
        make_trainer(precision="64-true").fit(make_module(), make_data())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm": "sepnrom"}, "did you mean 'sepnorm'"),
        ({"width": 10, "heads": 4}, "not a multiple"),
        ({"learning_rate": 0.0}, "must be positive"),
        ({"warmup_steps": -1}, "must not be negative"),
        ({"weight_decay": -1.0}, "weight_decay is -1.0: it must not be negative"),
        ({"final_learning_rate": -1.0}, "must not be negative"),
        ({"frozen_bn_fraction": 0.5, "precise_bn_graphs": 0}, "needs --model.precise_bn_graphs"),
        ({"frozen_bn_fraction": 1.0}, "frozen_bn_fraction is 1.0: it must be from 0 to below 1"),
        ({"schedule": "constant"}, "schedule is 'constant': it must be 'linear' or 'cosine'"),
        ({"uniformity_on": "cls"}, "uniformity_on is 'cls': it must be 'graph_token' or"),
        ({"loss": "huber"}, "loss is 'huber': it must be 'auto' or 'l1'"),
        ({"betas": (1.0, 0.9)}, "each must be from 0 to below 1"),
        ({"attention_dropout": 1.0}, "attention_dropout is 1.0: a probability"),
    ],
)
def test_impossible_options_are_refused_before_data_are_touched(
    options: dict, message: str, make_module: MakeModule
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_module(**options)


def test_schedule_needs_an_end(
    make_module: MakeModule, make_data: MakeData, make_trainer: MakeTrainer
) -> None:
    with pytest.raises(ConfigError, match="where training ends"):
        make_trainer(max_epochs=-1).fit(make_module(), make_data())


def test_model_and_data_must_agree_on_paths(
    make_module: MakeModule, make_data: MakeData, make_trainer: MakeTrainer
) -> None:
    with pytest.raises(ConfigError, match="max_path_length 2, the model has 3"):
        make_trainer().fit(make_module(), make_data(max_path_length=2))
