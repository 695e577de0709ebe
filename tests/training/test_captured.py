"""Captured steps: the same training as the ordinary path, counted the same.

Without a GPU nothing is captured here; the accounting is that of a GPU.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from tiny_graphs import NO_DROPOUT, StopAfter

from graphormer_sepnorm.graphs.resident import BatchShape
from graphormer_sepnorm.inference.checkpoint import read_checkpoint
from graphormer_sepnorm.training import cuda_graphs
from graphormer_sepnorm.training.averaging import AveragedWeights
from graphormer_sepnorm.training.callbacks import LogTraining, MetricsFile, Throughput
from graphormer_sepnorm.training.checkpoints import StopWhenDiverged, checkpoint_callbacks
from graphormer_sepnorm.training.cuda_graphs import CapturedTraining
from graphormer_sepnorm.training.module import GraphormerModule

Fit = Callable[..., tuple[GraphormerModule, Trainer]]
# Some gradients are rounding alone, as that of a key's bias: with this eps AdamW leaves them small.
STEADY = {**NO_DROPOUT, "eps": 1e-2}


@pytest.fixture
def fit(tmp_path: Path, train: Callable) -> Fit:
    """Train as the command line does, with captured steps (by that callback) or without."""

    def run(
        folder: str,
        captured: bool | CapturedTraining,
        *more: Callback,
        resume: Path | None = None,
        trainer: dict | None = None,
        **model: Any,
    ) -> tuple[GraphormerModule, Trainer]:
        metrics = MetricsFile(tmp_path / folder)
        own = CapturedTraining(on_cpu=True) if captured is True else captured
        options = {"log_every_n_steps": 3, "gradient_clip_val": 1.0, "logger": [metrics]}
        options |= {"model": STEADY | model, "data": {"batch_size": 4}, **(trainer or {})}
        callbacks = [AveragedWeights(0.9), *([own] if own else []), LogTraining(metrics)]
        callbacks += [StopWhenDiverged(), Throughput(), *more]
        callbacks += checkpoint_callbacks(tmp_path / folder, "mae", 0)
        module, _, made = train(*callbacks, resume=resume, **options)
        return module, made

    return run


def assert_close(module: GraphormerModule, truth: GraphormerModule) -> None:
    """Compare weights after a training that differs in rounding only."""
    torch.testing.assert_close(
        module.model.state_dict(), truth.model.state_dict(), rtol=1e-3, atol=1e-5
    )


@pytest.mark.parametrize(("norm", "fixed"), [("sepnorm", 0.0), ("shared-bn", 0.0), ("bn+bn", 0.35)])
def test_captured_steps_train_as_the_ordinary_ones(norm, fixed, tmp_path, fit):
    options = {"norm": norm, "frozen_bn_fraction": fixed}
    plain, trainer = fit("plain", False, **options)
    captured, other = fit("captured", True, **options)
    assert_close(captured, plain)
    for name, value in trainer.callback_metrics.items():
        torch.testing.assert_close(other.callback_metrics[name], value, rtol=1e-3, atol=1e-5)
    ours, theirs = (
        read_checkpoint(tmp_path / folder / "checkpoints" / "last.ckpt")
        for folder in ("plain", "captured")
    )
    for name in ("loops", "lr_schedulers", "global_step"):
        assert ours[name] == theirs[name], name
    assert ours["global_step"] == 20
    counts = [
        [state["step"] for state in saved["optimizer_states"][0]["state"].values()]
        for saved in (ours, theirs)
    ]
    assert counts[0] == counts[1]
    rows = [
        [line.split(",")[:2] for line in (tmp_path / name / "metrics.csv").read_text().split("\n")]
        for name in ("plain", "captured")
    ]
    assert rows[0] == rows[1]


@pytest.mark.parametrize(
    ("first", "second", "stop", "fixed"),
    [(True, True, 11, 0.0), (True, True, 15, 0.35), (False, True, 11, 0.35), (True, False, 15, 0)],
)
def test_resumed_run_equals_the_uninterrupted_one(first, second, stop, fixed, tmp_path, fit):
    options = {"frozen_bn_fraction": fixed, **({"dropout": 0.2} if first == second else {})}
    whole, _ = fit("whole", second, **options)
    interrupted, trainer = fit("early", first, StopAfter(stop), **options)
    assert interrupted.captured is None  # whoever trains on
    assert not trainer.datamodule.numbers_only
    last = tmp_path / "early" / "checkpoints" / "last.ckpt"
    resumed, trainer = fit("early", second, resume=last, **options)
    assert trainer.global_step == 20
    if first != second:
        assert_close(resumed, whole)
        return
    for name, value in whole.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], value), name
    files = [(tmp_path / folder / "metrics.csv").read_bytes() for folder in ("whole", "early")]
    assert files[0] == files[1]


def test_only_the_forward_pass_of_a_captured_step_is_in_bfloat16(fit: Fit, monkeypatch) -> None:
    seen = []
    step = torch.optim.AdamW.step

    def noted(optimizer: torch.optim.AdamW, *given: Any) -> Any:
        seen.append(torch.is_autocast_enabled("cpu"))
        return step(optimizer, *given)

    monkeypatch.setattr(torch.optim.AdamW, "step", noted)
    counter = CapturedTraining(on_cpu=True)
    fit("run", counter, trainer={"max_epochs": 1, "precision": "bf16-mixed"})
    assert counter.steps == len(seen) == 10
    assert not any(seen)


def test_batches_that_do_not_fit_are_trained_and_counted(fit, monkeypatch, caplog):
    expected, _ = fit("planned", True)
    monkeypatch.setattr(
        cuda_graphs, "plan_shape", lambda sizes, graphs: BatchShape(22, ((graphs, 10),))
    )
    counter = CapturedTraining(on_cpu=True)
    module, _ = fit("tight", counter)
    assert counter.steps == 20
    assert 0 < counter.misfits < 20
    assert f"{counter.misfits} of 20 batches did not fit" in caplog.text
    assert_close(module, expected)


def test_afterwards_trainer_and_model_take_ordinary_steps(fit, make_data, caplog):
    counter = CapturedTraining(on_cpu=True)
    module, trainer = fit("run", counter, trainer={"max_epochs": 1})
    assert (counter.steps, trainer.global_step) == (10, 10)
    module.hparams["uniformity_weight"] = 0.1  # cannot be captured
    trainer.fit_loop.max_epochs = 2
    trainer.fit(module, make_data())
    assert "--engine is not for the uniformity loss" in caplog.text
    assert (counter.steps, trainer.global_step) == (10, 15)


@pytest.mark.parametrize(
    ("options", "model", "on_cpu", "reason"),
    [
        ({"accumulate_grad_batches": 2}, {}, True, "accumulated gradients"),
        ({}, {}, False, "a CPU, only for a CUDA GPU"),
    ],
)
def test_what_cannot_be_captured_takes_the_ordinary_path(
    options: dict, model: dict, on_cpu: bool, reason: str, fit: Fit, caplog: Any
) -> None:
    counter = CapturedTraining(on_cpu=on_cpu)
    _, trainer = fit("run", counter, trainer={"max_epochs": 1, **options}, **model)
    assert f"--engine is not for {reason}" in caplog.text
    assert counter.steps == 0 < trainer.global_step
