"""The kernels as ARM processors run them: tests of the others, by a cross compiler and QEMU."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from reference.processes import REPOSITORY

TESTS = Path(__file__).parents[1]
COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
TRIED = (
    "model/test_cpu_attention.py",
    "model/test_cpu_linear.py",
    "model/test_cpu_messages.py",
    "model/test_cpu_norm.py",
    "model/test_dropout.py",
    "graphs/test_structure.py",
    "chem/test_molecule_features.py",
    "training/test_muon.py",
)
LARGE = "large or numbering or threads or real"  # that an emulator takes minutes for


@pytest.mark.slow
@pytest.mark.skipif(
    not (shutil.which(COMPILER) and shutil.which(EMULATOR)),
    reason="needs Debian's gcc-aarch64-linux-gnu and qemu-user",
)
def test_their_tests_pass_on_arm(tmp_path: Path) -> None:
    library, server = tmp_path / "kernels.so", tmp_path / "serve"
    flags = ["-std=gnu11", "-O3", "-Wall", "-Werror", "-Wno-psabi", "-fvisibility=hidden"]
    sources = sorted(map(str, REPOSITORY.glob("graphormer_sepnorm/kernels/*.c")))
    flags += ["-fPIC", "-shared", *sources, "-lm"]
    subprocess.check_call([COMPILER, *flags, "-o", str(library)])
    source = str(TESTS / "emulation" / "serve.c")
    subprocess.check_call([COMPILER, "-O2", "-Wall", "-Werror", source, "-o", str(server)])
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, (REPOSITORY, TESTS, TESTS / "emulation"))),
        "EMULATED": f"{EMULATOR} -L /usr/aarch64-linux-gnu {server} {library}",
        "GRAPHORMER_KERNELS": "auto",
    }
    chosen = ["-m", "not slow and not gpu", "-k", f"not ({LARGE})", *TRIED]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "emulated", "-p", "no:xdist", *chosen]
    done = subprocess.run(
        command, cwd=TESTS, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 200
    assert int(re.search(r"(\d+) calls of emulated functions", done.stdout)[1]) > 2000
