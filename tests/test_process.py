"""What this process is called by, which of several it is, and that it gives memory back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from graphormer_sepnorm import __version__, process
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


@pytest.mark.parametrize(
    ("program", "option", "said"),
    [
        ("train", "--version", f"graphormer_sepnorm {__version__}\n"),
        ("train", "--help", "zinc_subset"),
        ("predict", "--version", f"graphormer_sepnorm {__version__}\n"),
        ("predict", "--help", "predict.py info MODEL"),
    ],
)
def test_help_and_version_load_nothing_heavy(program, option, said):
    code = (
        f"import sys; from graphormer_sepnorm.cli.{program} import main\n"
        f"try:\n    main(['{option}'])\nexcept SystemExit as end:\n    assert not end.code\n"
        "print('loaded', *sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=REPOSITORY
    )
    text, _, modules = done.stdout.rpartition("loaded ")
    assert said in text
    assert "sys" in modules.split()
    heavy = {"torch", "numpy", "rdkit", "lightning", "scipy", "ogb"}
    assert set(modules.split()) & heavy == set()


@pytest.mark.skipif(process._malloc_trim() is None, reason="the C library has no malloc_trim")
def test_freed_memory_goes_back_to_the_system():
    # In a process of its own: here much may be free already, and be used again.
    script = """
from graphormer_sepnorm.process import trim_now_and_then

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

# Too small to be mapped on their own; the last one is in the way of the heap's end.
blocks = [b"x" * 100_000 for _ in range(1000)]
kept = blocks[-1]
full = resident()
del blocks
for _ in range(8):
    trim_now_and_then()
print(full - resident())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert int(done.stdout) > 50_000_000
