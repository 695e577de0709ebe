"""Proposed commands are those that the user has."""

from __future__ import annotations

import sys

import pytest

from graphormer_sepnorm.program import command


@pytest.mark.parametrize(
    ("started", "proposed"),
    [
        ("train.py", "python train.py"),
        ("/somewhere/graphormer_sepnorm/cli/train.py", "python train.py"),
        ("/env/bin/graphormer-train", "graphormer-train"),
        ("/env/bin/graphormer-predict", "graphormer-train"),
    ],
)
def test_command_is_the_one_that_the_user_has(monkeypatch, started, proposed):
    monkeypatch.setattr(sys, "argv", [started, "fit"])
    assert command("train") == proposed
