"""Warnings of libraries that a user can do nothing about stay off the screen; others show."""

from __future__ import annotations

import warnings

import pytest

from graphormer_sepnorm.cli import compare
from graphormer_sepnorm.cli.known_warnings import silence_known_noise
from graphormer_sepnorm.compare.comparison import Comparison

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


def test_a_report_alone_is_silent_too(monkeypatch, capsys):
    """It reads the data again, and so imports torch-geometric."""
    monkeypatch.setattr(Comparison, "read", lambda directory: object())
    monkeypatch.setattr(
        compare, "make_report", lambda *_: warnings.warn(DEPRECATED, FutureWarning, stacklevel=1)
    )
    with warnings.catch_warnings(record=True) as shown:
        warnings.resetwarnings()
        assert compare.compare(["-o", "runs", "--report-only"]) == 0
    assert shown == []
    assert capsys.readouterr().err == ""
