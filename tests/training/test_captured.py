"""Steps taken in launches: the same training, counted the same, whatever the size of a launch.

Without a GPU nothing is captured here; the launches and all accounting are those of a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.graphs.resident import BatchShape
from graphormer_sepnorm.inference.checkpoint import read_checkpoint
from graphormer_sepnorm.training import cuda_graphs as engine
from graphormer_sepnorm.training.averaging import AveragedWeights
from graphormer_sepnorm.training.callbacks import LogTraining, MetricsFile, Throughput
from graphormer_sepnorm.training.checkpoints import StopWhenDiverged, checkpoint_callbacks
from graphormer_sepnorm.training.cuda_graphs import CapturedTraining, Launch
from graphormer_sepnorm.training.module import GraphormerModule

Fit = Callable[..., tuple[GraphormerModule, Trainer]]


class Turns(Callback):
    """Notes after which steps Lightning's loop had a turn, and stops after one of them."""

    def __init__(self, stop: int | None = None) -> None:
        self.steps: list[int] = []
        self.stop = stop

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        self.steps.append(trainer.global_step)
        if self.stop is not None and trainer.global_step >= self.stop:
            raise KeyboardInterrupt


@pytest.fixture
def fit(tmp_path: Path, make_module: Callable, make_data: Callable, make_trainer: Callable) -> Fit:
    """Train as the command line does, in launches of `size`, or in the ordinary way (None)."""

    def run(
        folder: str,
        size: int | None,
        *more: Callback,
        resume: Path | None = None,
        ema: float = 0.0,
        trainer: dict | None = None,
        **model: Any,
    ) -> tuple[GraphormerModule, Trainer]:
        directory = tmp_path / folder
        metrics = MetricsFile(directory)
        callbacks = [
            *([] if size is None else [CapturedTraining(steps_per_launch=size, on_cpu=True)]),
            *([AveragedWeights(ema)] if ema else []),
            LogTraining(metrics),
            StopWhenDiverged(directory),
            Throughput(),
            *more,
            *checkpoint_callbacks(directory, "mae", 0),
        ]
        options = {"max_epochs": 2, "log_every_n_steps": 3, "gradient_clip_val": 1.0}
        made = make_trainer(
            **{**options, **(trainer or {})},
            callbacks=callbacks,
            logger=[metrics],
        )
        module = make_module(**{"dropout": 0.2, **model})
        data = make_data(batch_size=4, seed=module.hparams["seed"])
        try:
            made.fit(module, data, ckpt_path=resume, weights_only=True)
        except SystemExit:
            assert made.interrupted
        return module, made

    return run


def weights(module: GraphormerModule) -> dict[str, torch.Tensor]:
    return module.model.state_dict()


def assert_equal(one: Any, other: Any, where: str = "") -> None:
    """Compare nested containers, tensors bit by bit."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key, value in one.items():
            assert_equal(value, other[key], f"{where}/{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), where
        for place, (first, second) in enumerate(zip(one, other, strict=True)):
            assert_equal(first, second, f"{where}/{place}")
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other), where
    else:
        assert one == other, where


def assert_close(module: GraphormerModule, truth: GraphormerModule) -> None:
    """Compare weights after a training that differs in rounding only."""
    for name, value in weights(truth).items():
        torch.testing.assert_close(weights(module)[name], value, rtol=1e-3, atol=1e-5, msg=name)


# Some gradients are rounding alone, as that of a key's bias: with this eps AdamW leaves them small.
STEADY = {"dropout": 0.0, "attention_dropout": 0.0, "input_dropout": 0.0, "eps": 1e-2}


def checkpoint(tmp_path: Path, folder: str) -> dict[str, Any]:
    """The last checkpoint of a run without what depends on its time and place."""
    kept = read_checkpoint(tmp_path / folder / "checkpoints" / "last.ckpt")
    kept["callbacks"] = {
        name: state
        for name, state in kept["callbacks"].items()
        if not name.startswith(("BestCheckpoint", "Throughput"))
    }
    return kept


@pytest.mark.parametrize(
    ("norm", "ema", "fixed"), [("sepnorm", 0.9, 0.0), ("shared-bn", 0.0, 0.0), ("bn+bn", 0.9, 0.35)]
)
def test_size_of_a_launch_changes_nothing(
    norm: str, ema: float, fixed: float, tmp_path: Path, fit: Fit
) -> None:
    turns = Turns()
    single, trainer = fit("one", 1, norm=norm, ema=ema, frozen_bn_fraction=fixed)
    several, other = fit("four", 4, turns, norm=norm, ema=ema, frozen_bn_fraction=fixed)
    assert_equal(weights(single), weights(several))
    assert trainer.global_step == other.global_step == 20
    assert trainer.callback_metrics == other.callback_metrics
    assert_equal(checkpoint(tmp_path, "one"), checkpoint(tmp_path, "four"))
    metrics = [(tmp_path / name / "metrics.csv").read_text() for name in ("one", "four")]
    assert metrics[0] == metrics[1]
    # An epoch has 10 steps: its first, every third of all for the log, its last; and the one after
    # which BatchNorm's statistics are fixed.
    assert turns.steps == sorted({1, 3, 6, 9, 10, 11, 12, 15, 18, 20} | ({13} if fixed else set()))


def test_launches_train_as_the_ordinary_path_does(tmp_path: Path, fit: Fit) -> None:
    plain, trainer = fit("plain", None, ema=0.9, **STEADY)
    launched, other = fit("launched", 4, ema=0.9, **STEADY)
    assert_close(launched, plain)
    ours, theirs = checkpoint(tmp_path, "plain"), checkpoint(tmp_path, "launched")
    assert ours["loops"] == theirs["loops"]
    assert ours["lr_schedulers"] == theirs["lr_schedulers"]
    assert ours["global_step"] == theirs["global_step"] == 20
    assert ours["callbacks"].keys() == theirs["callbacks"].keys()
    for name, value in trainer.callback_metrics.items():
        torch.testing.assert_close(other.callback_metrics[name], value, rtol=1e-3, atol=1e-5)
    rows = [
        [line.split(",")[:2] for line in (tmp_path / name / "metrics.csv").read_text().split("\n")]
        for name in ("plain", "launched")
    ]
    assert rows[0] == rows[1]
    moments = [kept["optimizer_states"][0]["state"] for kept in (ours, theirs)]
    assert [state["step"] for state in moments[0].values()] == [
        state["step"] for state in moments[1].values()
    ]


@pytest.mark.parametrize(
    ("first", "second", "stops", "fixed"),
    [
        (4, 4, (11, 15), 0.0),
        (4, 4, (11, 15), 0.35),
        (None, 4, (11,), 0.35),
        (None, 4, (15,), 0.0),
        (4, None, (11,), 0.0),
        (4, None, (15,), 0.35),
    ],
)
def test_resumed_run_equals_the_uninterrupted_one(
    first: int | None, second: int | None, stops: tuple, fixed: float, tmp_path: Path, fit: Fit
) -> None:
    same = first == second
    dropout = {"frozen_bn_fraction": fixed, **({} if same else STEADY)}
    whole, _ = fit("whole", second, ema=0.9, **dropout)
    for stop in stops:
        early = f"until {stop}"
        fit(early, first, Turns(stop), ema=0.9, **dropout)
        last = tmp_path / early / "checkpoints" / "last.ckpt"
        resumed, trainer = fit(early, second, ema=0.9, resume=last, **dropout)
        assert trainer.global_step == 20
        if not same:
            assert_close(resumed, whole)
            continue
        assert_equal(weights(whole), weights(resumed))
        runs = [checkpoint(tmp_path, folder) for folder in ("whole", early)]
        # Lightning counts validation batches anew where an epoch's end is resumed.
        assert_equal(*({name: kept[name] for name in kept if name != "loops"} for kept in runs))
        files = [(tmp_path / folder / "metrics.csv").read_text() for folder in ("whole", early)]
        assert files[0] == files[1]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"max_steps": 17, "max_epochs": -1}, [1, 3, 6, 9, 10, 11, 12, 15, 17]),
        ({"log_every_n_steps": 0, "max_epochs": 1}, [1, 5, 9, 10]),
        ({"log_every_n_steps": 0, "val_check_interval": 0.5, "max_epochs": 1}, [1, 5, 9, 10]),
        ({"log_every_n_steps": 0, "val_check_interval": 3, "max_epochs": 1}, [1, 3, 6, 9, 10]),
        ({"log_every_n_steps": 0, "limit_train_batches": 6, "max_epochs": 2}, [1, 5, 6, 7, 11, 12]),
    ],
)
def test_lightning_has_a_turn_when_something_is_due(
    options: dict, expected: list[int], fit: Fit
) -> None:
    turns = Turns()
    _, trainer = fit("run", 4, turns, trainer=options)
    assert turns.steps == expected
    assert trainer.global_step == expected[-1]


class Spoil(Callback):
    """Makes the weights useless after some step."""

    def on_train_batch_end(self, trainer: Trainer, module: Any, *_: Any) -> None:
        if trainer.global_step == 12:
            torch.nn.init.constant_(module.model.readout.bias, torch.inf)


@pytest.mark.parametrize("size", [1, 3])
def test_divergence_within_a_launch_is_found(size: int, tmp_path: Path, fit: Fit) -> None:
    with pytest.raises(ConfigError, match=r"diverged at step 13 \(epoch 2"):
        fit("run", size, Spoil())
    assert '"batch": 2' in (tmp_path / "run" / "diverged.json").read_text()


def test_batches_that_do_not_fit_are_trained_and_counted(
    fit: Fit, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:

    expected, _ = fit("planned", 4, **STEADY)
    monkeypatch.setattr(engine, "plan_shape", lambda sizes, graphs: BatchShape(22, ((graphs, 10),)))
    counter = CapturedTraining(steps_per_launch=4, on_cpu=True)
    caplog.set_level("INFO", logger="graphormer_sepnorm")
    module, _ = fit("tight", None, counter, **STEADY)
    assert counter.steps == 20
    assert 0 < counter.misfits < 20
    assert f"{counter.misfits} of 20 batches did not fit" in caplog.text
    assert_close(module, expected)


def test_afterwards_trainer_and_model_take_ordinary_steps(
    fit: Fit, make_data: Callable, caplog: pytest.LogCaptureFixture
) -> None:
    turns = Turns()
    module, trainer = fit("run", 4, turns, trainer={"max_epochs": 1})
    taken = trainer.global_step
    assert len(turns.steps) < taken
    module.hparams["uniformity_weight"] = 0.1  # cannot be captured
    trainer.fit_loop.max_epochs = 2
    trainer.fit(module, make_data())
    assert "--engine is not for the uniformity loss" in caplog.text
    assert turns.steps[-5:] == [taken + step for step in range(1, 6)]


@pytest.mark.parametrize(
    ("options", "model", "on_cpu", "reason"),
    [
        ({"accumulate_grad_batches": 2}, {}, True, "accumulated gradients"),
        ({}, {"uniformity_weight": 0.1}, True, "the uniformity loss"),
        ({}, {}, False, "a CPU, only for a CUDA GPU"),
    ],
)
def test_what_cannot_be_captured_takes_the_ordinary_path(
    options: dict, model: dict, on_cpu: bool, reason: str, fit: Fit, caplog: Any
) -> None:
    turns, captured = Turns(), CapturedTraining(on_cpu=on_cpu)
    fit("run", None, captured, turns, trainer={"max_epochs": 1, **options}, **model)
    assert f"--engine is not for {reason}: training takes the ordinary path" in caplog.text
    assert len(turns.steps) == 10


def test_a_launch_is_sent_without_waiting_for_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy to a GPU waits for it unless it is from pinned memory and told not to."""
    done = []

    def pin_memory(tensor: torch.Tensor) -> torch.Tensor:
        done.append("pinned")
        return tensor

    def to(tensor: torch.Tensor, device: str, non_blocking: bool = False) -> torch.Tensor:
        done.append(f"sent to {device}" + (", not waited for" if non_blocking else ""))
        return tensor

    launch = Launch(torch.arange(3), (BatchShape(9, ((3, 4),)),))
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    monkeypatch.setattr(torch.Tensor, "to", to)
    assert launch.to("cuda:0").graphs is launch.graphs
    assert done == ["pinned", "sent to cuda:0, not waited for"]
    launch.to("cpu")
    assert done[2:] == ["sent to cpu, not waited for"]
