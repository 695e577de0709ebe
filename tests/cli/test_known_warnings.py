"""Warnings of libraries that a user can do nothing about stay off the screen; others show."""

from __future__ import annotations

import warnings

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.accelerators import CUDAAccelerator

from graphormer_sepnorm.cli.known_warnings import silence_known_noise

DEPRECATED = "`torch.jit.script` is deprecated. Please switch to `torch.compile` or `torch.export`."


def shown(message: str) -> list[str]:
    with warnings.catch_warnings(record=True) as shown:
        warnings.resetwarnings()
        silence_known_noise()
        warnings.warn(message, FutureWarning, stacklevel=1)
    return [str(warning.message) for warning in shown]


@pytest.mark.parametrize(
    "message",
    [
        DEPRECATED,
        "`torch.jit.script` is not supported in Python 3.14+ and may break. Please switch to "
        "`torch.compile` or `torch.export`.",
    ],
)
def test_torch_geometrics_use_of_torch_script_is_silent(message):
    """As torch 2.15 words it."""
    assert shown(message) == []


def test_another_warning_shows():
    message = "`torch.load` will change"
    assert shown(message) == [message]


def noise_of_a_cpu_beside_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CUDAAccelerator, "is_available", staticmethod(lambda: True))
    Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)


def noise_of_float32_on_a_new_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch says up to 2.13 at least; 2.15 keeps it for those who ask for its hints."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its import
        from torch._inductor import compile_fx
    compile_fx._warn_tf32_disabled.__wrapped__()


@pytest.mark.parametrize(
    "noise",
    [
        noise_of_a_cpu_beside_a_gpu,
        pytest.param(
            noise_of_float32_on_a_new_gpu,
            marks=pytest.mark.skipif(torch.__version__ >= "2.15", reason="is not said any more"),
        ),
    ],
)
def test_what_libraries_say_of_a_gpu_is_silenced(noise, monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match=r"GPU available|TensorFloat32"):
            noise(monkeypatch)
        silence_known_noise()
        noise(monkeypatch)
