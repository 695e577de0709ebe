"""Proposed commands are those that the user has; which of several processes this is."""

from __future__ import annotations

import sys

import pytest

from graphormer_sepnorm.program import command, is_first_process


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


@pytest.mark.parametrize(
    ("environment", "first"),
    [
        ({}, True),
        ({"RANK": "0", "LOCAL_RANK": "0"}, True),
        ({"RANK": "4", "LOCAL_RANK": "0"}, False),
        ({"LOCAL_RANK": "1"}, False),
        ({"SLURM_PROCID": "3"}, False),
        ({"SLURM_PROCID": "0", "LOCAL_RANK": "1"}, False),  # Lightning's child in a job's shell
    ],
)
def test_first_of_several_processes(monkeypatch, environment, first):
    for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert is_first_process() == first
