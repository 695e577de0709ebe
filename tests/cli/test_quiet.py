"""Known noise of libraries, as they make it here, is no error in a test and no line for a user."""

from __future__ import annotations

import warnings

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.accelerators import CUDAAccelerator

from graphormer_sepnorm.cli.known_warnings import silence_known_noise


def noise_of_a_cpu_beside_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CUDAAccelerator, "is_available", staticmethod(lambda: True))
    Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)


def noise_of_float32_on_a_new_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its import
        from torch._inductor import compile_fx
    compile_fx._warn_tf32_disabled.__wrapped__()


@pytest.mark.parametrize("noise", [noise_of_a_cpu_beside_a_gpu, noise_of_float32_on_a_new_gpu])
def test_what_libraries_say_of_a_gpu_is_silenced(noise, monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match=r"GPU available|TensorFloat32"):
            noise(monkeypatch)
        silence_known_noise()
        noise(monkeypatch)
