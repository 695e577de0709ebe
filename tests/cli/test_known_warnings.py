"""Warnings of libraries that a user can do nothing about stay off the screen; others show."""

from __future__ import annotations

import warnings

import pytest
from lightning.pytorch import Trainer
from lightning.pytorch.accelerators import CUDAAccelerator

from graphormer_sepnorm.cli.known_warnings import silence_known_noise


def test_known_warnings_are_silent_and_others_show() -> None:
    other = "`torch.load` will change"
    with warnings.catch_warnings(record=True) as shown:
        warnings.resetwarnings()
        silence_known_noise()
        for message in (
            "`torch.jit.script` is deprecated. Please switch to `torch.compile`.",
            other,
        ):
            warnings.warn(message, FutureWarning, stacklevel=1)
    assert [str(warning.message) for warning in shown] == [other]


def noise_of_a_cpu_beside_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CUDAAccelerator, "is_available", staticmethod(lambda: True))
    Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)


def test_what_libraries_say_of_a_gpu_is_silenced(monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match=r"GPU available"):
            noise_of_a_cpu_beside_a_gpu(monkeypatch)
        silence_known_noise()
        noise_of_a_cpu_beside_a_gpu(monkeypatch)
