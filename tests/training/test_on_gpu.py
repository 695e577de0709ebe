"""Fifty steps: a GPU gives what a CPU gives, and captured steps what eager ones give."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback
from tiny_graphs import NO_DROPOUT, path_graphs

from graphormer_sepnorm.training.averaging import AveragedWeights
from graphormer_sepnorm.training.cuda_graphs import CapturedTraining

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]
STEPS = 50
STEADY = {**NO_DROPOUT, "eps": 1e-2}


@pytest.fixture
def losses_of(make_module, make_data, make_trainer, splits, losses) -> Callable[..., torch.Tensor]:
    """Train `STEPS` steps, with an average of the weights and clipping; return their losses."""
    own = dataclasses.replace(splits, train=path_graphs(203, 1), fingerprint="paths-203")

    def run(accelerator: str, *callbacks: Callback, **model: Any) -> torch.Tensor:
        recorder = losses()
        options = {"accelerator": accelerator, "devices": 1, "max_steps": STEPS, "max_epochs": -1}
        callbacks = (AveragedWeights(0.9), *callbacks, recorder)
        trainer = make_trainer(callbacks=[*callbacks], gradient_clip_val=1.0, **options)
        trainer.fit(make_module(**{**STEADY, **model}), make_data(own, batch_size=16))
        assert trainer.global_step == len(recorder.values) == STEPS
        values = trainer.callback_metrics["validation_mae"].reshape(1).cpu()
        return torch.cat([torch.tensor(recorder.values), values])

    return run


@pytest.mark.parametrize("norm", ["bn+ln", "shared-ln", "shared-bn", "bn+bn"])
def test_gpu_trains_as_a_cpu(norm: str, losses_of: Callable) -> None:
    expected = losses_of("cpu", norm=norm)
    torch.testing.assert_close(losses_of("gpu", norm=norm), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("norm", "optimizer", "fixed"),
    [
        ("bn+ln", "adamw", 0.0),
        ("shared-bn", "adamw", 0.0),
        ("bn+bn", "muon", 0.0),
        ("bn+bn", "muon", 0.5),
    ],
)
def test_captured_steps_train_as_eager_ones(norm, optimizer, fixed, compiled, losses_of):
    options = {"norm": norm, "optimizer": optimizer, "frozen_bn_fraction": fixed}
    expected = losses_of("gpu", **options)
    captured = CapturedTraining(compiled)
    losses = losses_of("gpu", captured, **options)
    assert captured.steps == STEPS  # it was not the ordinary path
    assert captured.misfits == 0
    torch.testing.assert_close(losses, expected, rtol=1e-3, atol=1e-4)


def test_captured_dropout_depends_on_the_seed_of_each_step_alone(losses_of: Callable) -> None:
    dropped = {"dropout": 0.3, "attention_dropout": 0.3}
    torch.manual_seed(1)
    first = losses_of("gpu", CapturedTraining(), **dropped)
    torch.manual_seed(2)
    second = losses_of("gpu", CapturedTraining(), **dropped)
    torch.testing.assert_close(first, second, rtol=1e-3, atol=1e-4)
    eager = losses_of("gpu", **dropped)
    assert not torch.allclose(first, losses_of("gpu", CapturedTraining(), **STEADY), rtol=1e-2)
    # Padding shifts which random number a row gets: the same distribution, not the same masks.
    assert abs(first[:STEPS].mean() - eager[:STEPS].mean()) < 0.1 * eager[:STEPS].mean()
