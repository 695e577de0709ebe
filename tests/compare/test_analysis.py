from __future__ import annotations

import pytest

from graphormer_sepnorm.compare.analysis import device_of


@pytest.mark.parametrize(
    ("accelerator", "devices", "device"),
    [
        ("cpu", "auto", "cpu"),
        ("cpu", 2, "cpu"),
        ("mps", 1, "cpu"),
        ("auto", "auto", "cuda:0"),
        (None, None, "cuda:0"),
        ("gpu", 1, "cuda:0"),
        ("cuda", [1], "cuda:1"),
        ("gpu", "1,", "cuda:1"),
        ("gpu", "1, 0", "cuda:1"),
        ("gpu", [7], "cuda"),
        ("gpu", -1, "cuda:0"),
    ],
)
def test_device_is_that_of_the_run(
    accelerator: str | None,
    devices: int | str | list[int] | None,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert device_of(accelerator, devices) == device
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert device_of(accelerator, devices) == "cpu"
