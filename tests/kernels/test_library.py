"""Compiled functions are used where they are whole and up to date, and nowhere else."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from graphormer_sepnorm.kernels.library import (
    library,
    load_library,
    newest_library,
    run,
    switched_off,
)


def test_they_are_there_where_they_can_be_compiled():
    if os.environ.get("GRAPHORMER_KERNELS") == "off":
        pytest.skip("switched off by GRAPHORMER_KERNELS")
    if not (shutil.which("cc") or shutil.which("gcc")):
        pytest.skip("there is no C compiler")
    assert library() is not None


def test_they_can_be_switched_off():
    with switched_off():
        assert library() is None
    program = "from graphormer_sepnorm.kernels.library import library; assert library() is None"
    environment = {**os.environ, "GRAPHORMER_KERNELS": "off"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the compiled functions with a source beside it."""
    if library() is None:
        pytest.skip("the kernels are not compiled")
    file = tmp_path / "_kernels.so"
    shutil.copy(library()._name, file)  # type: ignore[union-attr]
    (tmp_path / "attention.c").write_text("int newer;")
    os.utime(tmp_path / "attention.c", (1000, 1000))
    return file


def test_a_library_newer_than_its_source_is_used(copy, tmp_path, caplog):
    assert load_library(copy, tmp_path) is not None
    assert caplog.text == ""


def test_a_library_older_than_its_source_is_not(copy, tmp_path, caplog):
    os.utime(copy, (900, 900))
    assert load_library(copy, tmp_path) is None
    assert "is older than its source and is not used: install the package again" in caplog.text


def test_a_damaged_library_is_not(copy, tmp_path, caplog):
    copy.write_bytes(b"nothing that could be loaded")
    assert load_library(copy, tmp_path) is None
    assert "cannot be used" in caplog.text


def test_the_last_installation_counts_whatever_its_file_is_called(tmp_path):
    assert newest_library(tmp_path) is None
    # An older release named the file after a version of Python, of which it does not depend.
    names = ["_kernels.so", "_kernels.cpython-311-x86_64-linux-gnu.so"]
    for order in (names, names[::-1]):
        for time, name in enumerate(order):
            (tmp_path / name).touch()
            os.utime(tmp_path / name, (time, time))
        assert newest_library(tmp_path) == tmp_path / order[-1]


class Items(ctypes.Structure):
    """`DropoutAdd` of kernels/dropout.c, with nothing dropped: it adds."""

    _fields_ = (
        ("seed", ctypes.c_uint32 * 2),
        ("threshold", ctypes.c_uint32),
        ("scale", ctypes.c_float),
        *((name, ctypes.c_void_p) for name in ("residual", "update", "output")),
    )


@pytest.mark.skipif(library() is None, reason="the kernels are not compiled")
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 8, 64, 1001])
def test_threads_do_every_item_once(threads, count):
    numbers = torch.arange(count, dtype=torch.float32)
    sums = torch.ones(count + 8)  # added to where they are, so an item done twice shows
    arguments = Items((0, 0), 0, 1.0, sums.data_ptr(), numbers.data_ptr(), sums.data_ptr())
    run("dropout_add", arguments, count, share=16, threads=threads)
    assert torch.equal(sums[:count], numbers + 1)
    assert (sums[count:] == 1).all()
