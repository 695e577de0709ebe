"""Proposed commands are those that the user has; which of several processes this is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from graphormer_sepnorm import __version__
from graphormer_sepnorm.process import command, is_first_process

REPOSITORY = Path(__file__).parents[1]


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
        ({"NODE_RANK": "1"}, False),  # Lightning's first process of another machine
        ({"SLURM_PROCID": "0", "LOCAL_RANK": "1"}, False),  # Lightning's child in a job's shell
    ],
)
def test_first_of_several_processes(monkeypatch, environment, first):
    for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID", "NODE_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert is_first_process() == first


@pytest.mark.parametrize("program", ["train.py", "predict.py"])
def test_version_is_said_without_loading_anything_heavy(program):
    module = program.removesuffix(".py")
    code = (
        f"import sys; from graphormer_sepnorm.cli.{module} import main\n"
        "try:\n    main(['--version'])\nexcept SystemExit as end:\n    assert not end.code\n"
        "print('loaded', *sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=REPOSITORY
    )
    said, _, modules = done.stdout.partition("\nloaded ")
    assert said == f"graphormer_sepnorm {__version__}"
    assert set(modules.split()) & {"torch", "numpy", "rdkit", "lightning", "scipy"} == set()
